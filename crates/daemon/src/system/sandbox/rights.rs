//! Capabilities: those that ports need, and an extra one until the sockets are created.

use caps::{CapSet, Capability, CapsHashSet};
use rustix::process::{Resource, getrlimit};

use super::SandboxError;

/// A capability kept besides those that ports need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    None,
    /// The right to give the sockets to another user or group.
    Chown,
}

/// Drops all capabilities except those needed to attach ports later, as far as the daemon has them: `CAP_NET_ADMIN` for
/// TAPs and interfaces; `CAP_NET_RAW` and `CAP_BPF` for interfaces.
///
/// # Errors
/// [`SandboxError::Capabilities`] if the kernel refuses.
pub fn keep(extra: Extra) -> Result<(), SandboxError> {
    let wanted = |cap: &Capability| match cap {
        Capability::CAP_NET_ADMIN | Capability::CAP_NET_RAW | Capability::CAP_BPF => true,
        // Locked memory of an interface's frames needs no capability if the limit could be lifted.
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
