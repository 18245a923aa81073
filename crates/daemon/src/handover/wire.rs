//! Transport of items. An item is sent as a sequence of messages, because the number of bytes and descriptors in a
//! message is limited.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use netvale_fdio::state::{BadState, Fd, from_bytes, to_bytes};
use netvale_mem::notify::nap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::items::Item;
use crate::system::closing;

/// Maximum size of a message in bytes, without its first byte: a flag that tells whether further messages of the item
/// follow.
pub const PART: usize = 64 << 10;
/// Maximum number of descriptors in a message.
pub const MOST_FDS: usize = 250;
/// Maximum size of an item: number of bytes, and number of descriptors.
const LARGEST: (usize, usize) = (64 << 20, 1 << 16);

/// How long to wait for the other daemon to send a message, or to make room for a message.
pub const LIMIT: Duration = Duration::from_secs(5);

const MORE: u8 = b'+';
const LAST: u8 = b'.';

/// Sends an item with its descriptors. Waits for space in the socket for a limited time.
///
/// # Errors
/// Errors of sendmsg(2).
pub fn send(to: BorrowedFd<'_>, item: &Item) -> std::io::Result<()> {
    let (bytes, fds) = to_bytes(item)?;
    let mut bytes = bytes.as_slice();
    let mut fds = fds.as_slice();
    loop {
        let (part, rest) = bytes.split_at(bytes.len().min(PART));
        let (some, others) = fds.split_at(fds.len().min(MOST_FDS));
        bytes = rest;
        fds = others;
        let is_last = bytes.is_empty() && fds.is_empty();
        send_part(to, &[if is_last { LAST } else { MORE }], part, some)?;
        if is_last {
            return Ok(());
        }
    }
}

/// Sends one part of an item as a message that begins with `first`: a flag byte, or nothing.
///
/// # Errors
/// Errors of sendmsg(2).
pub fn send_part(to: BorrowedFd<'_>, first: &[u8], part: &[u8], fds: &[Fd]) -> std::io::Result<()> {
    let parts = [IoSlice::new(first), IoSlice::new(part)];
    loop {
        match netvale_fdio::send_parts(to, &parts, fds, SendFlags::DONTWAIT) {
            Err(Errno::AGAIN) => wait_for_room(to)?,
            sent => return sent.map(drop).map_err(Into::into),
        }
    }
}

fn wait_for_room(to: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let limit = Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
    match poll(&mut [PollFd::new(&to, PollFlags::OUT)], Some(&limit)) {
        Ok(0) => Err(Errno::TIMEDOUT),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e),
    }
}

/// The receiving end of a hand-over connection, on which items arrive.
pub struct HandoverInbox<'a> {
    from: &'a OwnedFd,
    message: Vec<u8>,
    item: Vec<u8>,
}

impl<'a> HandoverInbox<'a> {
    /// Creates the receiving end on a socket.
    pub fn new(from: &'a OwnedFd) -> Self {
        HandoverInbox { from, message: vec![0; 1 + PART], item: Vec::new() }
    }

    /// Receives an item, with its descriptors.
    ///
    /// # Errors
    /// Errors of recvmsg(2), [`std::io::ErrorKind::UnexpectedEof`] if the peer closed the connection, or
    /// [`std::io::ErrorKind::InvalidData`] if the peer sent something other than an item.
    pub fn receive(&mut self) -> std::io::Result<Item> {
        let mut fds = Vec::new();
        self.item.clear();
        loop {
            let (got, more_fds) = receive_part(self.from, &mut self.message)?;
            fds.extend(more_fds);
            let Some((first, part)) = self.message.get(..got).and_then(<[u8]>::split_first) else {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            };
            self.item.extend_from_slice(part);
            match *first {
                LAST => return from_bytes(&self.item, fds).map_err(invalid),
                MORE if self.item.len() <= LARGEST.0 && fds.len() <= LARGEST.1 => {}
                _ => return Err(std::io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

fn invalid(bad: BadState) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, bad)
}

/// Reads the first message in a socket's queue without removing the message.
///
/// # Errors
/// Errors of recvmsg(2).
pub fn peek(from: &OwnedFd) -> std::io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0u8; PART];
    let (got, fds) = closing::peek(from, &mut bytes)?;
    bytes.truncate(got);
    Ok((bytes, fds))
}

/// Receives one part of an item. Waits for it for a limited time.
fn receive_part(from: &OwnedFd, message: &mut [u8]) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    if !nap(from.as_fd(), LIMIT) {
        return Err(Errno::TIMEDOUT);
    }
    closing::receive(from, message)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::handover::items::RegionItem;

    /// Objective: an item of any size arrives whole, with all its descriptors; the errors for a foreign message and for
    /// a hang-up differ.
    #[test]
    fn an_item_of_any_size_arrives_whole() {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let long = "x".repeat(3 * PART + 5);
        let region = |count: usize| RegionItem {
            id: 1,
            uid: 2,
            sizes: [(0, 0); 3],
            huge: false,
            file: None,
            used_bufs: None,
            memory: (0..count).map(|_| Fd::copy_of(&a).unwrap()).collect(),
        };
        let many = Item::Region(region(MOST_FDS + 3));
        let sender = std::thread::spawn(move || {
            send(a.as_fd(), &Item::Failed(long)).unwrap();
            send(a.as_fd(), &many).unwrap();
            send(a.as_fd(), &Item::End).unwrap();
            rustix::net::send(&a, b"?", SendFlags::empty()).unwrap();
        });
        let mut inbox = HandoverInbox::new(&b);
        assert!(matches!(inbox.receive().unwrap(), Item::Failed(text) if text.len() == 3 * PART + 5));
        assert!(matches!(inbox.receive().unwrap(), Item::Region(r) if r.memory.len() == MOST_FDS + 3));
        assert!(matches!(inbox.receive(), Ok(Item::End)));
        assert_eq!(inbox.receive().unwrap_err().kind(), std::io::ErrorKind::InvalidData);
        sender.join().unwrap();
        assert_eq!(inbox.receive().unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    }
}
