//! The server's end of a client's connection: assembles requests from partial reads, and queues answers until the
//! socket has room for them.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use serde_json::Value;

use super::message;
use crate::flows;

/// Maximum length of a request in bytes, including its line feed.
const MAX_LINE: usize = 1 << 20;
/// Maximum number of bytes that one call reads.
const CHUNK: usize = 16 << 10;
/// Maximum number of bytes that are queued for a client. Lines of the flow log that would exceed this limit are
/// dropped.
const MAX_WAITING: usize = 1 << 20;

/// A client's connection.
pub struct ControlClient {
    socket: OwnedFd,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// Whether the client receives the lines of the flow log.
    pub follows: bool,
    /// Number of lines of the flow log that were dropped since the client was last told of dropped lines.
    lost: u64,
    /// Whether no more requests are read: the client has closed its side, or sent a line that is too long.
    is_read: bool,
    /// Whether the connection has failed.
    is_broken: bool,
}

impl ControlClient {
    /// Wraps a non-blocking socket.
    pub fn new(socket: OwnedFd) -> Self {
        ControlClient {
            socket,
            inbox: Vec::new(),
            outbox: Vec::new(),
            follows: false,
            lost: 0,
            is_read: false,
            is_broken: false,
        }
    }

    /// Returns the socket.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Returns the next line, without its line feed, or an error if the line is too long. Returns `None` if no whole
    /// line has arrived, or answers to the client are still queued.
    pub fn next_line(&mut self) -> Option<Result<Vec<u8>, String>> {
        if !self.write() {
            return None;
        }
        loop {
            if let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') {
                let rest = self.inbox.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.inbox, rest);
                line.truncate(end);
                return Some(Ok(line));
            }
            if self.inbox.len() >= MAX_LINE {
                self.inbox = Vec::new();
                self.is_read = true;
                return Some(Err(format!("a request is longer than {MAX_LINE} bytes; send shorter ones")));
            }
            if !self.read() {
                return None;
            }
        }
    }

    /// Reads once. Returns whether bytes arrived.
    fn read(&mut self) -> bool {
        if self.is_read {
            return false;
        }
        let mut bytes = [0u8; CHUNK];
        match rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => self.is_read = true,
            Ok((_, count)) => {
                self.inbox.extend_from_slice(&bytes[..count]);
                return true;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.is_broken = true,
        }
        false
    }

    /// Queues an answer.
    pub fn answer(&mut self, answer: &Result<Value, String>) {
        self.outbox.extend_from_slice(&message::answer(answer));
        self.outbox.push(b'\n');
    }

    /// Queues lines of the flow log. If the queue would exceed [`MAX_WAITING`], drops the lines and counts them.
    pub fn tell(&mut self, lines: &[u8]) {
        if self.outbox.len() + lines.len() > MAX_WAITING {
            self.lost += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
            return;
        }
        if self.lost > 0 {
            self.outbox.extend_from_slice(&flows::lost_line(std::mem::take(&mut self.lost)));
        }
        self.outbox.extend_from_slice(lines);
    }

    /// Sends the queued bytes. Returns whether all were sent.
    pub fn write(&mut self) -> bool {
        let mut sent = 0;
        while sent < self.outbox.len() && !self.is_broken {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.socket, &self.outbox[sent..], flags) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.is_broken = true,
            }
        }
        self.outbox.drain(..sent);
        if self.outbox.is_empty() {
            self.outbox = Vec::new();
        }
        self.outbox.is_empty()
    }

    /// Returns whether the connection can be closed: the connection is broken, or the client has sent all its requests
    /// and received all answers.
    pub fn has_ended(&self) -> bool {
        let is_done = self.is_read && self.outbox.is_empty() && !self.inbox.contains(&b'\n');
        self.is_broken || is_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn pair() -> (UnixStream, ControlClient) {
        let (peer, own) = UnixStream::pair().unwrap();
        (peer, ControlClient::new(own.into()))
    }

    #[test]
    fn lines_in_pieces_become_whole() {
        let (mut peer, mut client) = pair();
        peer.write_all(b"ab").unwrap();
        assert_eq!(client.next_line(), None);
        peer.write_all(b"c\n\nde").unwrap();
        assert_eq!(client.next_line(), Some(Ok(b"abc".to_vec())));
        assert_eq!(client.next_line(), Some(Ok(Vec::new())));
        assert_eq!(client.next_line(), None);
        assert!(!client.has_ended());
        drop(peer);
        assert_eq!(client.next_line(), None, "half a line is none");
        assert!(client.has_ended());
    }

    #[test]
    fn a_line_without_an_end_is_refused_and_the_last_of_its_client() {
        let (mut peer, mut client) = pair();
        let writer = std::thread::spawn(move || {
            let _ = peer.write_all(&vec![b'x'; MAX_LINE + CHUNK]);
            peer
        });
        let error = loop {
            match client.next_line() {
                Some(line) => break line.unwrap_err(),
                None => std::thread::yield_now(),
            }
        };
        assert!(error.contains("longer"), "{error}");
        client.answer(&Err(error));
        assert!(client.write() && client.has_ended() && client.inbox.is_empty());
        drop(client);
        writer.join().unwrap();
    }

    #[test]
    fn who_does_not_read_gets_no_further_answers_and_loses_lines() {
        let (mut peer, mut client) = pair();
        peer.write_all(b"one\ntwo\n").unwrap();
        let line = [&[b'x'; 999][..], b"\n"].concat();
        for _ in 0..2000 {
            client.tell(&line);
            client.write();
        }
        assert!(client.outbox.len() <= MAX_WAITING && client.lost > 0);
        assert_eq!(client.next_line(), None, "a request waits until the answers are read");
        let mut bytes = vec![0; 1 << 16];
        while !client.outbox.is_empty() {
            assert!(peer.read(&mut bytes).unwrap() > 0);
            client.write();
        }
        assert_eq!(client.next_line(), Some(Ok(b"one".to_vec())));
        let lost = client.lost;
        client.tell(&line);
        assert!(String::from_utf8_lossy(&client.outbox).contains(&format!("\"lines\":{lost}")));
        drop(peer);
        client.write();
        assert!(client.has_ended(), "a broken connection has ended");
    }
}
