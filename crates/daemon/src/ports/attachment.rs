//! What a connection holds of a port of any kind: it is described again to each process that gets the connection, and
//! released when the connection closes.

use std::os::fd::OwnedFd;

use netvale_control::attach::AttachReply;

use crate::daemon::Daemon;
use crate::handover::items::HoldItem;
use crate::refusal::Refusal;

/// The reply to a client, and the descriptors that go with it.
pub type Description = (AttachReply, Vec<OwnedFd>);

/// The result of opening a port: the reply, its descriptors, and the attachment that the connection then holds.
pub type Opened = (AttachReply, Vec<OwnedFd>, Box<dyn Attachment>);

/// What a connection holds of a port.
pub trait Attachment {
    /// Repeats the description that the holder got when it opened the port.
    ///
    /// # Errors
    /// [`Refusal`] when the port is gone or the daemon is out of descriptors.
    fn describe(&self, d: &Daemon) -> Result<Description, Refusal>;

    /// What another process must know to continue it. `None`: the connection ends with this process.
    ///
    /// # Errors
    /// When the daemon is out of descriptors.
    fn save(&self) -> std::io::Result<Option<HoldItem>> {
        Ok(None)
    }

    /// Releases the port: its rings are free again, and resources that only this attachment needed are freed.
    fn close(self: Box<Self>, d: &mut Daemon, client: u64);
}

/// The refusal to describe a port that no longer exists.
pub fn gone() -> Refusal {
    Refusal::new(rustix::io::Errno::NXIO, "the port no longer exists")
}
