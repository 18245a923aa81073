//! A connection's hold on a port of any kind. The hold is released when the connection closes. A process that inherits
//! the connection can request the port's description again.

use std::os::fd::OwnedFd;

use netvale_control::attach::AttachReply;

use crate::daemon::Daemon;
use crate::handover::items::HoldItem;
use crate::refusal::Refusal;

/// A reply to a client, and the descriptors that are sent with the reply.
pub type Description = (AttachReply, Vec<OwnedFd>);

/// The result of opening a port: the reply, the descriptors for the client, and the connection's attachment.
pub type OpenedPort = (AttachReply, Vec<OwnedFd>, Box<dyn Attachment>);

/// A connection's hold on a port: its use of the port from opening to closing.
pub trait Attachment {
    /// Returns again the reply and the descriptors that the client got when it opened the port.
    ///
    /// # Errors
    /// [`Refusal`] if the port no longer exists or the daemon is out of descriptors.
    fn describe(&self, d: &Daemon) -> Result<Description, Refusal>;

    /// Saves the hold for another process. Returns `None` if the connection ends with this process.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors.
    fn save(&self) -> std::io::Result<Option<HoldItem>> {
        Ok(None)
    }

    /// Releases the port: frees the rings and the other resources of this attachment. `client` is the number of the
    /// connection.
    fn close(self: Box<Self>, d: &mut Daemon, client: u64);
}

/// Returns the refusal of a request to describe a port that no longer exists.
pub fn gone() -> Refusal {
    Refusal::new(rustix::io::Errno::NXIO, "the port no longer exists")
}
