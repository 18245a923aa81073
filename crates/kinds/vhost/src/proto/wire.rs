//! A vhost-user connection.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

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

/// Waits for a message, or for `stop` to become readable; then a partly received message is lost.
///
/// # Errors
/// [`Refused`] if the message is malformed.
pub fn receive(socket: BorrowedFd<'_>, stop: BorrowedFd<'_>) -> Result<Received, Refused> {
    Inbox::default().receive(socket, stop)
}

/// The part of a message received so far.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Inbox {
    /// Restores another process's partly received message.
    ///
    /// # Errors
    /// [`Refused`] if that is more than a message, or not the beginning of one.
    pub fn restore(bytes: Vec<u8>, fds: Vec<OwnedFd>) -> Result<Inbox, Refused> {
        let inbox = Inbox { bytes, fds };
        match inbox.missing()? {
            0 => Err(Refused::Unread(inbox.bytes.len())),
            _ if inbox.fds.len() > MAX_FDS => Err(Refused::Fds { request: 0, fds: inbox.fds.len() }),
            _ => Ok(inbox),
        }
    }

    /// The partly received message, and its descriptors.
    pub fn unread(&self) -> (&[u8], &[OwnedFd]) {
        (&self.bytes, &self.fds)
    }

    /// Waits for the rest of a message, or for `stop` to become readable. Bytes received until then are kept.
    ///
    /// # Errors
    /// [`Refused`] if the message is malformed.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, stop: BorrowedFd<'_>) -> Result<Received, Refused> {
        loop {
            let missing = self.missing()?;
            if missing == 0 {
                return self.message().map(Received::Message);
            }
            let mut both =
                [PollFd::from_borrowed_fd(socket, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
            match poll(&mut both, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(Refused::System(e)),
            }
            if !both[1].revents().is_empty() {
                return Ok(Received::Stopped);
            }
            if !both[0].revents().is_empty() && !self.read(socket, missing)? {
                return Ok(Received::Closed);
            }
        }
    }

    /// Bytes still missing for certain.
    fn missing(&self) -> Result<usize, Refused> {
        let whole = match self.bytes.first_chunk() {
            None => HEADER,
            Some(head) => HEADER + header(head)?.2,
        };
        whole.checked_sub(self.bytes.len()).ok_or(Refused::Unread(self.bytes.len()))
    }

    fn message(&mut self) -> Result<Message, Refused> {
        let mut bytes = std::mem::take(&mut self.bytes);
        let (request, flags, _) = header(bytes.first_chunk().ok_or(Refused::Unread(0))?)?;
        let payload = bytes.split_off(HEADER);
        Ok(Message { request, flags, payload, fds: std::mem::take(&mut self.fds) })
    }

    /// Reads at most `most` bytes. Returns whether the other side is still there.
    fn read(&mut self, socket: BorrowedFd<'_>, most: usize) -> Result<bool, Refused> {
        let mut rest = vec![0; most];
        match netvale_fdio::receive(socket, &mut rest, RecvFlags::DONTWAIT) {
            Ok(got) => {
                self.fds.extend(got.fds);
                if self.fds.len() > MAX_FDS {
                    return Err(Refused::Fds { request: 0, fds: self.fds.len() });
                }
                self.bytes.extend_from_slice(rest.get(..got.bytes).unwrap_or_default());
                Ok(got.bytes > 0)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(true),
            Err(Errno::CONNRESET) => Ok(false),
            Err(e) => Err(Refused::System(e)),
        }
    }
}

/// Sends a message.
///
/// # Errors
/// The other side is gone, or does not read.
pub fn send(socket: BorrowedFd<'_>, message: &Message) -> Result<(), Refused> {
    let bytes = message.bytes();
    if message.fds.len() > MAX_FDS {
        return Err(Refused::Fds { request: message.request, fds: message.fds.len() });
    }
    // A message is far smaller than a socket's buffer: a peer that lets it fill up does not read.
    match netvale_fdio::send(socket, &bytes, &message.fds, SendFlags::DONTWAIT) {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(Refused::System(Errno::AGAIN)),
        Err(e) => Err(Refused::System(e)),
    }
}
