//! The capabilities that the daemon keeps: those that ports need, and `CAP_CHOWN` if it may change the owner of its
//! sockets.

use netvale_confine::Capability;
use rustix::process::{Resource, getrlimit};

use super::SandboxError;

/// A capability that is kept in addition to the capabilities that ports need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraCapability {
    /// No further capability.
    None,
    /// `CAP_CHOWN`, to give the sockets to another user or group.
    Chown,
}

/// Drops all capabilities except `extra` and, as far as the daemon has them, the capabilities that it needs to attach
/// ports later: `CAP_NET_ADMIN` for TAPs and interfaces; `CAP_NET_RAW`, `CAP_BPF` and, while locked memory is limited,
/// `CAP_IPC_LOCK` for interfaces.
///
/// # Errors
/// [`SandboxError::Capabilities`] if the kernel refuses.
pub fn keep(extra: ExtraCapability) -> Result<(), SandboxError> {
    let wanted = |cap: &Capability| match cap {
        Capability::CAP_NET_ADMIN | Capability::CAP_NET_RAW | Capability::CAP_BPF => true,
        // The locked frame memory of an interface needs no capability if the limit could be lifted.
        Capability::CAP_IPC_LOCK => getrlimit(Resource::Memlock).current.is_some(),
        Capability::CAP_CHOWN => extra == ExtraCapability::Chown,
        _ => false,
    };
    netvale_confine::keep_capabilities(wanted)
}
