//! An interface, and its queues, that another process of the daemon had open.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use netvale_mem::Mapping;
use rustix::net::AddressFamily;

use super::sending::Senders;
use super::tags::TagsLeft;
use super::{LostTags, Nic, Opened};
use crate::bpf::barrier::Barrier;
use crate::bpf::{Mode, Program};
use crate::continued::{NotContinued, is_socket, next};
use crate::iface::{Interface, name_of};
use crate::socket::{Buffers, Socket};

/// Most entries of a ring.
const MOST_ENTRIES: u32 = 1 << 16;

impl Nic {
    /// Whether the kernel still has the interface.
    pub fn is_there(&self) -> bool {
        Interface::find(&self.interface.name).is_ok_and(|found| found.index == self.interface.index)
    }

    /// Why the interface is no more, if so: it was deleted, or is in another network namespace.
    pub fn gone(&self) -> Option<String> {
        let name = &self.interface.name;
        let is_gone = name_of(self.interface.index).is_none();
        is_gone.then(|| format!("interface {name} is gone: it was deleted, or moved to another network namespace"))
    }

    /// Whether its driver was told to leave VLAN tags in frames.
    pub fn has_told(&self) -> bool {
        self.tags.is_some()
    }

    /// What is continued by [`Nic::continued`].
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn descriptors(&self) -> std::io::Result<Vec<OwnedFd>> {
        let all = self.program.descriptors().into_iter().chain([&self.promiscuous]);
        let mut all = all.map(OwnedFd::try_clone).collect::<std::io::Result<Vec<_>>>()?;
        all.extend(self.barrier()?);
        Ok(all)
    }

    /// Continues an interface as it was when it was opened; `has_told`: as [`Nic::has_told`] said. Nothing is changed
    /// before [`Nic::own`].
    ///
    /// # Errors
    /// [`NotContinued`] if there is no such interface, or the descriptors are something else.
    pub fn continued(
        interface: Interface,
        mode: Mode,
        has_told: bool,
        fds: impl IntoIterator<Item = OwnedFd>,
    ) -> Result<Arc<Nic>, NotContinued> {
        let found = Interface::find(&interface.name).map_err(|_| NotContinued("there is no such interface"))?;
        if found.index != interface.index {
            return Err(NotContinued("the interface is another one now"));
        }
        let mut fds = fds.into_iter();
        let at = (interface.index, interface.queues, found.program());
        let program = Program::continued(at, mode, next(&mut fds)?, next(&mut fds)?)?;
        let promiscuous = next(&mut fds)?;
        is_socket(&promiscuous, AddressFamily::PACKET)?;
        let barrier = match fds.next() {
            Some(count) => Some(Barrier::continued(interface.index, count, next(&mut fds)?)?),
            None => None,
        };
        let senders = Mutex::new(Senders::behind(barrier));
        let tags = has_told.then(|| TagsLeft::continued(interface.index));
        let (taken, freed) = Default::default();
        // What is said once, in the log, was said.
        let lost_tags = LostTags::above_others(&interface, mode);
        Ok(Arc::new(Nic { interface, program, promiscuous, tags, lost_tags, taken, freed, senders }))
    }

    /// It is this process's own from now on.
    pub fn own(&self) {
        self.program.own();
        self.tags.iter().for_each(TagsLeft::own);
    }

    /// Continues queue `number`, whose socket has `entries` entries in each ring, on `memory`.
    ///
    /// # Errors
    /// [`NotContinued`] if there is no such queue, it is in use, or the descriptor is something else.
    pub fn continue_queue(
        self: &Arc<Self>,
        number: u32,
        entries: u32,
        (memory, buffers): (&Arc<Mapping>, Buffers),
        socket: OwnedFd,
    ) -> Result<Opened, NotContinued> {
        is_socket(&socket, AddressFamily::XDP)?;
        match () {
            () if number >= self.interface.queues => return Err(NotContinued("there is no such queue")),
            () if buffers.chunk().is_none() => return Err(NotContinued("its buffers are too small")),
            () if !entries.is_power_of_two() || entries > MOST_ENTRIES => {
                return Err(NotContinued("rings have no such number of entries"));
            }
            () => {}
        }
        let queue = self.take(number, buffers).map_err(|_| NotContinued("a queue is continued twice"))?;
        Ok(Opened { socket: Socket::adopt(socket, entries, memory), queue: Arc::new(queue) })
    }
}
