//! Consent to shared memory. A program gets rings in another user's memory only if its request names that memory,
//! because that other user can read and change all frames in the rings.

use netvale_portspec::{Base, Memory};
use rustix::io::Errno;

use super::{is_trusted, is_trusted_user};
use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort};
use crate::refusal::{Refusal, refuse};
use crate::registry::regions::COMMON_REGION;
use crate::rings::pipe::PipeRecord;

/// The memory of a port, pipe or device that a program asks to open.
pub(super) struct OwnedMemory {
    /// The name of the port, pipe or device.
    what: String,
    /// The user who owns the memory.
    owner: u32,
    /// The region's number; `None` for a ptnet device, whose memory belongs to the virtual machine's host.
    id: Option<u32>,
}

impl OwnedMemory {
    /// Returns the memory of a pipe.
    pub(super) fn of_pipe(name: &str, pipe: &PipeRecord) -> OwnedMemory {
        OwnedMemory { what: format!("pipe {name}"), owner: pipe.uid, id: Some(pipe.mem_id) }
    }

    /// Returns the memory of a port or of an interface's open rings, which is also the memory of pipes whose names
    /// begin with that port; `None` if there is neither such a port nor open rings.
    pub(super) fn of_base(d: &Daemon, base: &Base) -> Option<OwnedMemory> {
        let full = base.to_string();
        if let Some(record) = d.ports.get(d.persistent.place_of(&full)) {
            return Some(OwnedMemory {
                what: full,
                owner: record.owner.uid,
                id: DaemonPort::rings(record).map(|rings| rings.mem_id),
            });
        }
        let Base::Netmap { ifname } = base else { return None };
        let port = d.interfaces.port_on(ifname.as_str())?;
        Some(OwnedMemory { what: full, owner: port.owner.uid, id: Some(port.mem_id) })
    }

    /// Returns the memory of a ptnet device; `None` if no program has opened the device.
    pub(super) fn of_guest(d: &Daemon, ifname: &str) -> Option<OwnedMemory> {
        d.guests.get(ifname).map(|port| OwnedMemory { what: ifname.to_owned(), owner: port.owner().uid, id: None })
    }

    /// Checks that the caller may have rings in this memory; `named` is the memory in the request.
    ///
    /// # Errors
    /// [`Refusal`]: `EACCES` for another user's memory, unless root or the daemon's own user explicitly names that
    /// memory.
    pub(super) fn may_share(&self, named: &Memory, caller: Caller) -> Result<(), Refusal> {
        let OwnedMemory { what, owner, id } = self;
        let is_meant = match named {
            // `COMMON_REGION` identifies no single memory, because each user has a region with that number.
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
                    "{what} is in the memory of user {owner}, who can change its frames; name the memory (@{id}) to \
                     accept that"
                ),
            ),
            _ => refuse(
                Errno::ACCESS,
                format!(
                    "{what} is in the memory of user {owner}, which no other user may share; open a port of your own"
                ),
            ),
        }
    }
}
