//! The other side of a guest's rings: queues of a switch, or a pipe or interface passed through to the guest.

use std::sync::Arc;

use netvale_mem::lent::InUse;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::RingSide;
use netvale_mem::{PortMem, Region};
use netvale_port::HdrLen;
use netvale_port::wake::WakeSet;
use rustix::io::Errno;

/// A ring with its status block, and the doorbell that interrupts the guest.
pub type ServedRing = (RingSide, Arc<Doorbell>);

/// Rings of a guest that have just started, or are restored from a predecessor.
pub struct GuestRings<'a> {
    /// The rings and their buffers.
    pub mem: &'a Arc<PortMem>,
    /// Bytes of virtio-net header before each frame; may change while the rings run.
    pub hdr_len: HdrLen,
    /// Whether a guest that uses the virtio-net header also accepts UDP segments larger than the MTU (USO).
    pub uso: bool,
    /// Whether the rings are restored and continue from the positions in their status blocks.
    pub goes_on: bool,
    /// Returns a ring with its status block and interrupt, given its index (tx rings first).
    pub of: &'a dyn Fn(usize, &RingSide) -> Result<ServedRing, Errno>,
}

impl GuestRings<'_> {
    /// Returns tx ring `i` with its status block and interrupt.
    ///
    /// # Errors
    /// `EINVAL` if the ring does not exist; otherwise the error of getting its status block or its doorbell.
    pub fn tx(&self, i: usize) -> Result<ServedRing, Errno> {
        (self.of)(i, self.mem.tx.get(i).ok_or(Errno::INVAL)?)
    }

    /// Returns rx ring `i` with its status block and interrupt.
    ///
    /// # Errors
    /// `EINVAL` if the ring does not exist; otherwise the error of getting its status block or its doorbell.
    pub fn rx(&self, i: usize) -> Result<ServedRing, Errno> {
        (self.of)(self.mem.tx.len() + i, self.mem.rx.get(i).ok_or(Errno::INVAL)?)
    }
}

/// Memory that guests, one after another, share with the permanent other side of their rings.
pub struct BackendMemory {
    /// The whole memory.
    pub region: Arc<Region>,
    /// The guests' rings, first in the region.
    pub guest: Arc<PortMem>,
    /// The other side's rings.
    pub other: Arc<PortMem>,
}

/// The other side of a guest's rings. It lives as long as the port; rings come and go with guests and their commands.
pub trait Backend: Send + Sync {
    /// Returns the memory for the rings; `None` if each guest has memory of its own.
    fn memory(&self) -> Option<&BackendMemory> {
        None
    }

    /// Returns the wake set of the doorbell with which the guest kicks a ring (tx rings first); `None` if no worker
    /// sleeps on it.
    fn wake(&self, ring: usize) -> Option<&WakeSet>;

    /// Wakes the worker of a ring that the guest kicked through a register instead of a doorbell.
    fn kick(&self, ring: usize);

    /// Connects a guest's rings to the other side.
    ///
    /// # Errors
    /// The error of a system call; the caller must then call [`Backend::empty`].
    fn fill(&self, rings: &GuestRings<'_>) -> Result<(), Errno>;

    /// Disconnects the rings. First waits, for a limited time, until the workers have taken the frames that the guest
    /// published. The rings are unused afterwards.
    ///
    /// # Errors
    /// [`InUse`] if a worker does not return a ring: the guest must be disconnected.
    fn empty(&self) -> Result<(), InUse>;

    /// Returns the kick counts of a tx ring (`tx` is true) or an rx ring (false): interrupts sent to the guest,
    /// interrupts suppressed, kicks from the guest.
    fn kicks(&self, tx: bool, ring: usize) -> (u64, u64, u64);

    /// Returns a tx ring (`_tx` is true) or an rx ring (false), to read its indices; `None` while no guest has the
    /// ring.
    fn side(&self, _tx: bool, _ring: usize) -> Option<RingSide> {
        None
    }

    /// Adds a predecessor's kick counts of a ring; does nothing for a backend that cannot be restored.
    fn add_kicks(&self, _tx: bool, _ring: usize, _sent: u64, _suppressed: u64, _received: u64) {}
}
