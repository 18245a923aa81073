//! Receives and sends messages on a vhost-user socket.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::message::{FrontEndViolation, HEADER, MAX_FDS, VhostMessage, header};

/// The result of waiting for a message.
#[derive(Debug)]
pub enum ReceiveResult {
    /// A message.
    Message(VhostMessage),
    /// The other side hung up.
    Closed,
    /// `stop` became readable.
    Stopped,
}

/// Waits for a message, or until `stop` is readable. In the latter case, a partly received message is lost.
///
/// # Errors
/// [`FrontEndViolation`] if the message is malformed.
pub fn receive(socket: BorrowedFd<'_>, stop: BorrowedFd<'_>) -> Result<ReceiveResult, FrontEndViolation> {
    MessageInbox::default().receive(socket, stop)
}

/// The received part of a message.
#[derive(Debug, Default)]
pub struct MessageInbox {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl MessageInbox {
    /// Restores the part of a message that a predecessor received.
    ///
    /// # Errors
    /// [`FrontEndViolation`] if the bytes are not the incomplete start of a message.
    pub fn restore(bytes: Vec<u8>, fds: Vec<OwnedFd>) -> Result<MessageInbox, FrontEndViolation> {
        let inbox = MessageInbox { bytes, fds };
        match inbox.missing()? {
            0 => Err(FrontEndViolation::Unread(inbox.bytes.len())),
            _ if inbox.fds.len() > MAX_FDS => Err(FrontEndViolation::Fds { request: 0, fds: inbox.fds.len() }),
            _ => Ok(inbox),
        }
    }

    /// Returns the received part of a message, and its descriptors.
    pub fn unread(&self) -> (&[u8], &[OwnedFd]) {
        (&self.bytes, &self.fds)
    }

    /// Waits for the rest of a message, or until `stop` is readable. In the latter case, the bytes received so far are
    /// kept.
    ///
    /// # Errors
    /// [`FrontEndViolation`] if the message is malformed.
    pub fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        stop: BorrowedFd<'_>,
    ) -> Result<ReceiveResult, FrontEndViolation> {
        loop {
            let missing = self.missing()?;
            if missing == 0 {
                return self.message().map(ReceiveResult::Message);
            }
            let mut both =
                [PollFd::from_borrowed_fd(socket, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
            match poll(&mut both, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(FrontEndViolation::System(e)),
            }
            if !both[1].revents().is_empty() {
                return Ok(ReceiveResult::Stopped);
            }
            if !both[0].revents().is_empty() && !self.read(socket, missing)? {
                return Ok(ReceiveResult::Closed);
            }
        }
    }

    /// Returns the number of bytes missing from the header or, once the header is complete, from the whole message.
    fn missing(&self) -> Result<usize, FrontEndViolation> {
        let whole = match self.bytes.first_chunk() {
            None => HEADER,
            Some(head) => HEADER + header(head)?.2,
        };
        whole.checked_sub(self.bytes.len()).ok_or(FrontEndViolation::Unread(self.bytes.len()))
    }

    fn message(&mut self) -> Result<VhostMessage, FrontEndViolation> {
        let mut bytes = std::mem::take(&mut self.bytes);
        let (request, flags, _) = header(bytes.first_chunk().ok_or(FrontEndViolation::Unread(0))?)?;
        let payload = bytes.split_off(HEADER);
        Ok(VhostMessage { request, flags, payload, fds: std::mem::take(&mut self.fds) })
    }

    /// Reads at most `most` bytes. Returns whether the peer is still connected.
    fn read(&mut self, socket: BorrowedFd<'_>, most: usize) -> Result<bool, FrontEndViolation> {
        let mut rest = vec![0; most];
        match netvale_fdio::receive(socket, &mut rest, RecvFlags::DONTWAIT) {
            Ok(got) => {
                self.fds.extend(got.fds);
                if self.fds.len() > MAX_FDS {
                    return Err(FrontEndViolation::Fds { request: 0, fds: self.fds.len() });
                }
                self.bytes.extend_from_slice(rest.get(..got.bytes).unwrap_or_default());
                Ok(got.bytes > 0)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(true),
            Err(Errno::CONNRESET) => Ok(false),
            Err(e) => Err(FrontEndViolation::System(e)),
        }
    }
}

/// Sends a message.
///
/// # Errors
/// An error if the peer is gone, or does not read.
pub fn send(socket: BorrowedFd<'_>, message: &VhostMessage) -> Result<(), FrontEndViolation> {
    let bytes = message.bytes();
    if message.fds.len() > MAX_FDS {
        return Err(FrontEndViolation::Fds { request: message.request, fds: message.fds.len() });
    }
    // A message is far smaller than a socket's buffer: a full buffer means that the peer does not read.
    match netvale_fdio::send(socket, &bytes, &message.fds, SendFlags::DONTWAIT) {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(FrontEndViolation::System(Errno::AGAIN)),
        Err(e) => Err(FrontEndViolation::System(e)),
    }
}
