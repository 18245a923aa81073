//! A vhost-user connection.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::message::{HEADER, MAX_FDS, Message, Refused, header};

/// The result of waiting for a message.
#[derive(Debug)]
pub enum Received {
    /// A message.
    Message(Message),
    /// The other side hung up.
    Closed,
    /// `stop` became readable.
    Stopped,
}

/// Waits for a message, or for `stop` to become readable.
///
/// # Errors
/// [`Refused`] if the message is malformed.
pub fn receive(socket: BorrowedFd<'_>, stop: BorrowedFd<'_>) -> Result<Received, Refused> {
    let mut head = [0u8; HEADER];
    let mut fds = Vec::new();
    match read(socket, stop, &mut head, &mut fds)? {
        End::Full => {}
        End::Closed => return Ok(Received::Closed),
        End::Stopped => return Ok(Received::Stopped),
    }
    let (request, flags, size) = header(&head)?;
    let mut payload = vec![0; size];
    match read(socket, stop, &mut payload, &mut fds)? {
        End::Full => Ok(Received::Message(Message { request, flags, payload, fds })),
        End::Closed => Ok(Received::Closed),
        End::Stopped => Ok(Received::Stopped),
    }
}

enum End {
    Full,
    Closed,
    Stopped,
}

fn read(socket: BorrowedFd<'_>, stop: BorrowedFd<'_>, into: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<End, Refused> {
    let mut got = 0;
    while got < into.len() {
        let mut both = [PollFd::from_borrowed_fd(socket, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        match poll(&mut both, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Refused::System(e)),
        }
        if !both[1].revents().is_empty() {
            return Ok(End::Stopped);
        }
        if both[0].revents().is_empty() {
            continue;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let rest = into.get_mut(got..).unwrap_or_default();
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        match recvmsg(socket, &mut [IoSliceMut::new(rest)], &mut control, flags) {
            Ok(r) => {
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(more) = message {
                        fds.extend(more);
                    }
                }
                if fds.len() > MAX_FDS {
                    return Err(Refused::Fds { request: 0, fds: fds.len() });
                }
                if r.bytes == 0 {
                    return Ok(End::Closed);
                }
                got += r.bytes;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(End::Closed),
            Err(e) => return Err(Refused::System(e)),
        }
    }
    Ok(End::Full)
}

/// Sends a message.
///
/// # Errors
/// Fails if the other side is gone, or does not read.
pub fn send(socket: BorrowedFd<'_>, message: &Message) -> Result<(), Refused> {
    let bytes = message.bytes();
    let borrowed: Vec<BorrowedFd<'_>> = message.fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(Refused::Fds { request: message.request, fds: borrowed.len() });
    }
    // A message is far smaller than a socket's buffer: a peer that lets it fill up does not read.
    let sent = sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    match sent {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(Refused::System(Errno::AGAIN)),
        Err(e) => Err(Refused::System(e)),
    }
}
