//! The other side of a guest's rings: queues of a switch, or a port that is passed through.

use std::sync::Arc;

use netvale_mem::lent::InUse;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::RingSide;
use netvale_mem::{PortMem, Region};
use netvale_port::HdrLen;
use netvale_port::wake::WakeSet;
use rustix::io::Errno;

/// How a ring is served: its status block, and the doorbell that interrupts its guest.
pub type Served = (RingSide, Arc<Doorbell>);

/// Rings that a guest has just started, or that another process served.
pub struct Fresh<'a> {
    /// The rings and their buffers.
    pub mem: &'a Arc<PortMem>,
    /// Bytes of virtio-net header before each frame; may change while the rings run.
    pub hdr_len: HdrLen,
    /// With a header, the guest also takes large UDP frames that must be cut into datagrams (USO).
    pub uso: bool,
    /// They are not new: another process has stopped at the positions in their status blocks.
    pub goes_on: bool,
    /// Returns a ring's status block and interrupt (tx rings first).
    pub of: &'a dyn Fn(usize, &RingSide) -> Result<Served, Errno>,
}

impl Fresh<'_> {
    /// The tx ring number `i`.
    ///
    /// # Errors
    /// Fails if there is none, or it cannot be served.
    pub fn tx(&self, i: usize) -> Result<Served, Errno> {
        (self.of)(i, self.mem.tx.get(i).ok_or(Errno::INVAL)?)
    }

    /// The rx ring number `i`.
    ///
    /// # Errors
    /// Fails if there is none, or it cannot be served.
    pub fn rx(&self, i: usize) -> Result<Served, Errno> {
        (self.of)(self.mem.tx.len() + i, self.mem.rx.get(i).ok_or(Errno::INVAL)?)
    }
}

/// Memory that guests, which come and go, share with another side, which stays.
pub struct Beside {
    /// The whole memory.
    pub region: Arc<Region>,
    /// The guests' rings, first in it.
    pub guest: Arc<PortMem>,
    /// The other side's rings.
    pub other: Arc<PortMem>,
}

/// The other side of a guest's rings. It lives as long as the port; rings come and go with guests and their commands.
pub trait Backend: Send + Sync {
    /// Memory for the rings; without it, each guest has its own.
    fn memory(&self) -> Option<&Beside> {
        None
    }

    /// The wake set that the guest's doorbell of a ring (tx rings first) wakes; `None` if nobody waits for it.
    fn wake(&self, ring: usize) -> Option<&WakeSet>;

    /// Passes on a kick of a ring that did not come by a doorbell.
    fn kick(&self, ring: usize);

    /// Connects rings.
    ///
    /// # Errors
    /// The system's error; [`Backend::empty`] must follow.
    fn fill(&self, rings: &Fresh<'_>) -> Result<(), Errno>;

    /// Disconnects the rings once published frames are on their way. Nobody uses them when this returns.
    ///
    /// # Errors
    /// A worker still uses one of them, and no other will come: the guest must be given up.
    fn empty(&self) -> Result<(), InUse>;

    /// Interrupts sent to the guest and saved, and kicks from it, for one of its tx rings (`tx`) or rx rings.
    fn kicks(&self, tx: bool, ring: usize) -> (u64, u64, u64);

    /// A ring, tx (`tx`) or rx, while the guest has it, for looking at its indices.
    fn side(&self, _tx: bool, _ring: usize) -> Option<RingSide> {
        None
    }

    /// Adds those that another process counted, for a backend that can be continued.
    fn add_kicks(&self, _tx: bool, _ring: usize, _kicks: (u64, u64, u64)) {}
}
