//! Consent to shared memory: no program's rings lie in another user's memory unless the request says so, because that
//! user can read and change all frames there.

use netvale_portspec::{Base, Memory};
use rustix::io::Errno;

use super::{is_trusted, is_trusted_user};
use crate::caller::Caller;
use crate::daemon::{Daemon, Record};
use crate::refusal::{Refusal, refuse};
use crate::registry::regions::COMMON_REGION;
use crate::rings::pipe::Pipe;

/// The memory of an openable thing.
pub(super) struct OwnedMemory {
    /// The name of that thing.
    what: String,
    /// The user who owns the memory.
    owner: u32,
    /// The region's number, if it is unique.
    id: Option<u32>,
}

impl OwnedMemory {
    /// The memory of a pipe.
    pub(super) fn of_pipe(name: &str, pipe: &Pipe) -> OwnedMemory {
        OwnedMemory { what: format!("pipe {name}"), owner: pipe.uid, id: Some(pipe.mem_id) }
    }

    /// The memory of a port, or of an interface's open rings, and of pipes named after it.
    pub(super) fn of_base(d: &Daemon, base: &Base) -> Option<OwnedMemory> {
        let full = base.to_string();
        if let Some(record) = d.ports.get(d.persistent.place_of(&full)) {
            return Some(OwnedMemory {
                what: full,
                owner: record.owner.uid,
                id: Record::rings(record).map(|rings| rings.mem_id),
            });
        }
        let Base::Netmap { ifname } = base else { return None };
        let port = d.interfaces.port_on(ifname.as_str())?;
        Some(OwnedMemory { what: full, owner: port.owner.uid, id: Some(port.mem_id) })
    }

    /// The memory of an open ptnet device.
    pub(super) fn of_guest(d: &Daemon, ifname: &str) -> Option<OwnedMemory> {
        d.guests.get(ifname).map(|port| OwnedMemory { what: ifname.to_owned(), owner: port.owner().uid, id: None })
    }

    /// Checks that the caller's rings may lie there; `named` is the memory in the request.
    ///
    /// # Errors
    /// [`Refusal`]: `EACCES` for another user's memory, unless root or the daemon's own user explicitly names it.
    pub(super) fn may_share(&self, named: &Memory, caller: Caller) -> Result<(), Refusal> {
        let OwnedMemory { what, owner, id } = self;
        let is_meant = match named {
            // Each user has a region of that number.
            Memory::Id(named) => *id == Some(named.get().into()) && *id != Some(COMMON_REGION),
            _ => false,
        };
        if caller.uid == *owner || is_trusted(caller) && (is_trusted_user(*owner) || is_meant) {
            return Ok(());
        }
        match id {
            Some(id) if is_trusted(caller) && *id != COMMON_REGION => refuse(
                Errno::ACCESS,
                format!(
                    "{what} lies in the memory of user {owner}, who can change its frames: name the memory (@{id}) to open it there"
                ),
            ),
            _ => refuse(
                Errno::ACCESS,
                format!(
                    "{what} lies in the memory of user {owner}, which is shared with no other user: open a port of your own"
                ),
            ),
        }
    }
}
