//! What a connection holds of a port, whatever the kind: it is described anew to whoever gets the connection, and given back when it closes.

use std::os::fd::OwnedFd;

use netvale_control::attach::AttachReply;

use crate::daemon::Daemon;
use crate::refusal::Refusal;

/// What a client is told, and the descriptors that go with it.
pub type Description = (AttachReply, Vec<OwnedFd>);

/// What a client gets: the reply, its descriptors, and what the connection then holds.
pub type Opened = (AttachReply, Vec<OwnedFd>, Box<dyn Attachment>);

/// What a connection holds.
pub trait Attachment {
    /// What its holder was told when it got it, told again.
    ///
    /// # Errors
    /// [`Refusal`] when the port is gone or the daemon is out of descriptors.
    fn describe(&self, d: &Daemon) -> Result<Description, Refusal>;

    /// The connection lets go: its rings are free again, and what only it needed goes.
    fn close(self: Box<Self>, d: &mut Daemon, client: u64);
}

/// The refusal to describe what is no more.
pub fn gone() -> Refusal {
    Refusal::new(rustix::io::Errno::NXIO, "the port is gone")
}
