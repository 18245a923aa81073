//! The other side of a guest's rings: queues of a switch, or a port passed through.

use std::sync::Arc;

use netvale_mem::lent::InUse;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::RingSide;
use netvale_mem::{PortMem, Region};
use netvale_port::HdrLen;
use netvale_port::wake::WakeSet;
use rustix::io::Errno;

/// A ring's status block, and the doorbell that interrupts its guest.
pub type Served = (RingSide, Arc<Doorbell>);

/// Rings of a guest, just started or restored from another process.
pub struct Fresh<'a> {
    /// The rings and their buffers.
    pub mem: &'a Arc<PortMem>,
    /// Bytes of virtio-net header before each frame; may change while the rings run.
    pub hdr_len: HdrLen,
    /// With a header, the guest also takes large UDP frames to be cut into datagrams (USO).
    pub uso: bool,
    /// The rings are restored, from the positions in their status blocks.
    pub goes_on: bool,
    /// Returns a ring's status block and interrupt (tx rings first).
    pub of: &'a dyn Fn(usize, &RingSide) -> Result<Served, Errno>,
}

impl Fresh<'_> {
    /// Tx ring `i`.
    ///
    /// # Errors
    /// The ring does not exist or cannot be served.
    pub fn tx(&self, i: usize) -> Result<Served, Errno> {
        (self.of)(i, self.mem.tx.get(i).ok_or(Errno::INVAL)?)
    }

    /// Rx ring `i`.
    ///
    /// # Errors
    /// The ring does not exist or cannot be served.
    pub fn rx(&self, i: usize) -> Result<Served, Errno> {
        (self.of)(self.mem.tx.len() + i, self.mem.rx.get(i).ok_or(Errno::INVAL)?)
    }
}

/// Memory shared by guests, which come and go, with another side, which stays.
pub struct Beside {
    /// The whole memory.
    pub region: Arc<Region>,
    /// The guests' rings, first in the region.
    pub guest: Arc<PortMem>,
    /// The other side's rings.
    pub other: Arc<PortMem>,
}

/// The other side of a guest's rings. It lives as long as the port; rings come and go with guests and their commands.
pub trait Backend: Send + Sync {
    /// Memory for the rings; without it, each guest has memory of its own.
    fn memory(&self) -> Option<&Beside> {
        None
    }

    /// The wake set of the guest's doorbell of a ring (tx rings first); `None` if no worker sleeps on it.
    fn wake(&self, ring: usize) -> Option<&WakeSet>;

    /// Passes on a kick of a ring that did not use a doorbell.
    fn kick(&self, ring: usize);

    /// Connects rings.
    ///
    /// # Errors
    /// A system call failed; [`Backend::empty`] must follow.
    fn fill(&self, rings: &Fresh<'_>) -> Result<(), Errno>;

    /// Disconnects the rings once published frames are on their way. They are out of use afterwards.
    ///
    /// # Errors
    /// A worker still uses a ring and will not leave it: the guest must be given up.
    fn empty(&self) -> Result<(), InUse>;

    /// Interrupts sent to the guest and saved, and kicks from it, of one tx ring (`tx`) or rx ring.
    fn kicks(&self, tx: bool, ring: usize) -> (u64, u64, u64);

    /// A ring, tx (`tx`) or rx, while the guest has it, to read its indices.
    fn side(&self, _tx: bool, _ring: usize) -> Option<RingSide> {
        None
    }

    /// Adds another process's counts, for a backend that can be restored.
    fn add_kicks(&self, _tx: bool, _ring: usize, _kicks: (u64, u64, u64)) {}
}
