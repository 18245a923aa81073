//! Serving of one *connection*: a request is received and its answer is sent, each within a time limit, even if the
//! client is slow.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::http::answer::{BodyParts, HttpAnswer, HttpBody, HttpStatus};
use crate::http::handler::HttpHandler;
use crate::http::head::{MAX_HEAD, Method, RequestHead};
use crate::http::visitors::{OwedAct, Visitor};

/// Time limit for receiving a request.
pub const REQUEST_TIME: Duration = Duration::from_secs(2);
/// Time limit for sending an answer.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Maximum time to wait, after the last byte of the answer, until the client closes the connection.
const CLOSING_TIME: Duration = Duration::from_secs(1);
/// Maximum number of bytes that are read from a client after the answer. Unread bytes would make the kernel reset the
/// connection, perhaps before a client that has sent too much has read why it was refused.
const MAX_REST: usize = 256 * 1024;

/// Time limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    /// Time for the request to arrive.
    pub request: Duration,
    /// Time for the client to receive the answer or, for an answer in parts, each part.
    pub answer: Duration,
}

impl Default for TimeLimits {
    fn default() -> TimeLimits {
        TimeLimits { request: REQUEST_TIME, answer: ANSWER_TIME }
    }
}

/// Serves a client until its connection ends.
pub fn serve(client: &Visitor, handler: &dyn HttpHandler, limits: TimeLimits) {
    let is_head = |head: &RequestHead| head.method == Method::Head;
    let received = receive(client, Instant::now() + limits.request);
    client.now(OwedAct::Not);
    let (answer, without_body) = match received {
        Ok(Some(head)) => (judged(&head, handler), is_head(&head)),
        Ok(None) => return,
        Err(status) => (HttpAnswer::only(status, ""), false),
    };
    let head = answer.head();
    let deadline = Instant::now() + limits.answer;
    client.now(OwedAct::ToTake);
    let sent = send_all(client, head.as_bytes(), deadline).and_then(|()| match answer.body {
        _ if without_body => Ok(()),
        HttpBody::Whole(text) => send_all(client, text.as_bytes(), deadline),
        HttpBody::InParts(parts) => send_parts(client, parts, limits.answer),
    });
    // If the request has timed out, the connection is closed without waiting for the client to close it.
    if sent.is_ok() && answer.status != HttpStatus::RequestTimeout {
        client.now(OwedAct::ToSpeak);
        part(client, Instant::now() + CLOSING_TIME);
    }
}

/// Returns the handler's answer, or a refusal if the request does not name this server as its host.
fn judged(head: &RequestHead, handler: &dyn HttpHandler) -> HttpAnswer {
    match handler.hosts().judge(head) {
        Ok(()) => handler.answer(head),
        Err(status) => HttpAnswer::only(status, "unknown host name; add it with --host"),
    }
}

/// Sends parts as chunks (RFC 9112 section 7.1), each within the time limit. Between two parts, checks whether the
/// client has closed the connection. After an error of `parts`, the last chunk is omitted.
fn send_parts(client: &Visitor, mut parts: Box<dyn BodyParts>, limit: Duration) -> Result<(), Errno> {
    loop {
        client.now(OwedAct::Not);
        let next = parts.next();
        client.now(OwedAct::ToTake);
        let bytes = match next {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return send_all(client, b"0\r\n\r\n", Instant::now() + limit),
            Err(_) => return Err(Errno::IO),
        };
        if has_gone(client) {
            return Err(Errno::PIPE);
        }
        if !bytes.is_empty() {
            let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat();
            send_all(client, &chunk, Instant::now() + limit)?;
        }
    }
}

/// Returns whether the client has closed the connection.
fn has_gone(socket: impl AsFd) -> bool {
    match recv(&socket, &mut [0; 256][..], RecvFlags::DONTWAIT) {
        Ok((_, len)) => len == 0,
        Err(errno) => !matches!(errno, Errno::AGAIN | Errno::INTR),
    }
}

/// Receives a request's head; `None` if the client has closed the connection, or the connection has failed.
fn receive(socket: impl AsFd, deadline: Instant) -> Result<Option<RequestHead>, HttpStatus> {
    let mut bytes = [0; MAX_HEAD];
    let mut len = 0;
    loop {
        // The slice is not empty, since the parser has already reported a head that is too long.
        match take(&socket, bytes.get_mut(len..).unwrap_or_default(), deadline) {
            Ok(0) => return Ok(None),
            Ok(more) => len += more,
            Err(Errno::TIMEDOUT) => return Err(HttpStatus::RequestTimeout),
            Err(_) => return Ok(None),
        }
        if let Some(head) = RequestHead::parse(bytes.get(..len).unwrap_or_default())? {
            return Ok(Some(head));
        }
    }
}

/// Receives the next bytes. Returns the number of bytes; 0 if the client has closed the connection.
fn take(socket: impl AsFd, into: &mut [u8], deadline: Instant) -> Result<usize, Errno> {
    loop {
        ready(&socket, PollFlags::IN, deadline)?;
        match recv(&socket, &mut *into, RecvFlags::DONTWAIT) {
            Ok((_, len)) => return Ok(len),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn send_all(socket: impl AsFd, mut bytes: &[u8], deadline: Instant) -> Result<(), Errno> {
    while !bytes.is_empty() {
        ready(&socket, PollFlags::OUT, deadline)?;
        match send(&socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(len) => bytes = bytes.get(len..).unwrap_or_default(),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Ends a connection in such a way that the client receives all data: stops sending, and reads until the client closes
/// the connection. If the socket were closed with unread bytes, the kernel would reset the connection, and data on its
/// way to the client would be lost.
fn part(socket: impl AsFd, deadline: Instant) {
    if shutdown(&socket, Shutdown::Write).is_err() {
        return;
    }
    let mut bytes = [0; 4096];
    let mut rest = MAX_REST;
    while let Ok(len @ 1..) = take(&socket, &mut bytes, deadline) {
        rest = rest.saturating_sub(len);
        if rest == 0 {
            return;
        }
    }
}

/// Waits until the socket is ready for `flags`, or returns `ETIMEDOUT` at the deadline.
fn ready(socket: impl AsFd, flags: PollFlags, deadline: Instant) -> Result<(), Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT);
        }
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut polled = [PollFd::new(&socket, flags)];
        match poll(&mut polled, Some(&left)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}
