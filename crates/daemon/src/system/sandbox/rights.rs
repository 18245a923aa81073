//! Capabilities: those that ports need, and an extra one until the sockets are made.

use caps::{CapSet, Capability, CapsHashSet};
use rustix::process::{Resource, getrlimit};

use super::SandboxError;

/// What is kept beside the capabilities that ports need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    None,
    /// What giving the sockets to another user or group takes.
    Chown,
}

/// Gives up all capabilities but those that are needed to attach a port later, as far as the daemon has them:
/// `CAP_NET_ADMIN` for TAPs and interfaces; `CAP_NET_RAW` and `CAP_BPF` for interfaces.
///
/// # Errors
/// [`SandboxError::Capabilities`] if the kernel refuses.
pub fn keep(extra: Extra) -> Result<(), SandboxError> {
    let wanted = |cap: &Capability| match cap {
        Capability::CAP_NET_ADMIN | Capability::CAP_NET_RAW | Capability::CAP_BPF => true,
        // The memory of an interface's frames is locked: that is the limit's concern, if it could be raised.
        Capability::CAP_IPC_LOCK => getrlimit(Resource::Memlock).current.is_some(),
        Capability::CAP_CHOWN => extra == Extra::Chown,
        _ => false,
    };
    let kept: CapsHashSet = caps::read(None, CapSet::Permitted)?.into_iter().filter(wanted).collect();
    caps::clear(None, CapSet::Ambient)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new())?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    Ok(())
}
