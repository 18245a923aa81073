//! Saves an open interface and its queues in an upgrade of the daemon, and restores them in the successor.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::Mapping;
use rustix::net::{AddressFamily, sockopt};
use serde::{Deserialize, Serialize};

use super::sending::Senders;
use super::tags::TagsLeft;
use super::{LostTags, Nic, OpenNicQueue};
use crate::bpf::barrier::Barrier;
use crate::bpf::{XdpMode, XdpProgram};
use crate::iface::{Interface, name_of};
use crate::socket::{BufferLayout, XdpSocket};

/// Maximum number of entries of a socket's ring.
const MOST_ENTRIES: u32 = 1 << 16;

/// Saved state of an open interface.
#[derive(Debug, Serialize, Deserialize)]
pub struct NicState {
    /// The XDP program's map from queues to sockets.
    map: Fd,
    /// The link that attaches the XDP program.
    link: Fd,
    /// The socket that keeps the interface promiscuous.
    promiscuous: Fd,
    /// Counter and link of the barrier (the hook that drops the stack's frames), if it is attached.
    barrier: Option<[Fd; 2]>,
}

impl Nic {
    /// Whether the interface still exists under its name. True if the request fails.
    pub fn is_there(&self) -> bool {
        name_of(self.interface.index).map_or(true, |name| name.is_some_and(|name| name == self.interface.name))
    }

    /// Returns the reason why the interface is gone; `None` if it exists.
    pub fn gone(&self) -> Option<String> {
        let name = &self.interface.name;
        let is_gone = name_of(self.interface.index).is_ok_and(|name| name.is_none());
        is_gone.then(|| format!("interface {name} is gone: it was deleted, or moved to another network namespace"))
    }

    /// Whether a driver was configured to leave VLAN tags in frames.
    pub fn has_told(&self) -> bool {
        self.tags.is_some()
    }

    /// Saves the state for a successor.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn save(&self) -> std::io::Result<NicState> {
        let [map, link] = self.program.descriptors();
        Ok(NicState {
            map: Fd::copy_of(map)?,
            link: Fd::copy_of(link)?,
            promiscuous: Fd::copy_of(&self.promiscuous)?,
            barrier: self.barrier()?,
        })
    }

    /// Restores an interface. `interface` and `mode` are the predecessor's; `has_told` is the predecessor's
    /// [`Nic::has_told`]. The program and the settings stay unchanged until [`Nic::own`].
    ///
    /// # Errors
    /// [`BadState`] if the interface does not exist, or a descriptor is not the expected object.
    pub fn restore(interface: Interface, mode: XdpMode, has_told: bool, state: NicState) -> Result<Arc<Nic>, BadState> {
        let found = Interface::find(&interface.name).map_err(|_| BadState::new("the interface does not exist"))?;
        if found.index != interface.index {
            return Err(BadState::new("the interface has another index now"));
        }
        let NicState { map, link, promiscuous, barrier } = state;
        let number = found.program();
        let map = map.take()?;
        let link = link.take()?;
        let program = XdpProgram::continued(interface.index, interface.queues, number, mode, map, link)?;
        let promiscuous = promiscuous.take()?;
        is_socket(&promiscuous, AddressFamily::PACKET)?;
        let index = interface.index;
        let barrier =
            barrier.map(|[count, link]| Barrier::continued(index, count.take()?, link.take()?)).transpose()?;
        let senders = Mutex::new(Senders::behind(barrier));
        let tags = has_told.then(|| TagsLeft::continued(interface.index));
        let (taken, freed) = Default::default();
        // The other reason, [`LostTags::FarEnd`], is not restored: the predecessor has already logged the warning about
        // it.
        let lost_tags = LostTags::above_others(&interface, mode);
        Ok(Arc::new(Nic { interface, program, promiscuous, tags, lost_tags, taken, freed, senders }))
    }

    /// Transfers the interface's program and settings to this process, which may then change them; dropping the
    /// interface then restores the settings.
    pub fn own(&self) {
        self.program.own();
        self.tags.iter().for_each(TagsLeft::own);
    }

    /// Restores queue `number` with its `socket`, which has `entries` entries in each ring and its frames in the
    /// `buffers` of `memory`.
    ///
    /// # Errors
    /// [`BadState`] if the queue does not exist or is in use, its buffers or `entries` are invalid, or the descriptor
    /// is not an AF_XDP socket.
    pub fn continue_queue(
        self: &Arc<Self>,
        number: u32,
        entries: u32,
        memory: &Arc<Mapping>,
        buffers: BufferLayout,
        socket: OwnedFd,
    ) -> Result<OpenNicQueue, BadState> {
        is_socket(&socket, AddressFamily::XDP)?;
        match () {
            () if number >= self.interface.queues => {
                return Err(BadState::new("the queue's number exceeds the interface's queues"));
            }
            () if buffers.chunk().is_none() => return Err(BadState::new("the queue's buffers are too small")),
            () if !entries.is_power_of_two() || entries > MOST_ENTRIES => {
                return Err(BadState::new("invalid number of ring entries"));
            }
            () => {}
        }
        let queue = self.take(number, buffers).map_err(|_| BadState::new("the queue has already been restored"))?;
        Ok(OpenNicQueue { socket: XdpSocket::adopt(socket, entries, memory), queue: Arc::new(queue) })
    }
}

/// Checks that a descriptor is a socket of the address family `family`.
fn is_socket(fd: &OwnedFd, family: AddressFamily) -> Result<(), BadState> {
    let is_it = sockopt::socket_domain(fd) == Ok(family);
    is_it.then_some(()).ok_or_else(|| BadState::new("a descriptor is not a socket of the expected family"))
}
