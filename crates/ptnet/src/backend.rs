//! What a guest's rings are connected to: queues of a switch, or a port that is passed through.

use std::sync::Arc;

use netvale_mem::lent::InUse;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::RingSide;
use netvale_mem::{PortMem, Region};
use netvale_port::HdrLen;
use netvale_port::wake::WakeSet;
use rustix::io::Errno;

/// What a ring is served by: its status block, and what its guest is interrupted by.
pub type Served = (RingSide, Arc<Doorbell>);

/// Rings that a guest has just started.
pub struct Fresh<'a> {
    /// They and their buffers.
    pub mem: &'a Arc<PortMem>,
    /// Bytes of virtio-net header before each frame; may be changed while they run.
    pub hdr_len: HdrLen,
    /// With a header, the guest also takes large UDP frames that must be cut into datagrams (USO).
    pub uso: bool,
    /// Gives a ring (tx rings first) its status block and interrupt.
    pub of: &'a dyn Fn(usize, &RingSide) -> Result<Served, Errno>,
}

impl Fresh<'_> {
    /// The tx ring with that number.
    ///
    /// # Errors
    /// There is none, or it cannot be served.
    pub fn tx(&self, i: usize) -> Result<Served, Errno> {
        (self.of)(i, self.mem.tx.get(i).ok_or(Errno::INVAL)?)
    }

    /// The rx ring with that number.
    ///
    /// # Errors
    /// There is none, or it cannot be served.
    pub fn rx(&self, i: usize) -> Result<Served, Errno> {
        (self.of)(self.mem.tx.len() + i, self.mem.rx.get(i).ok_or(Errno::INVAL)?)
    }
}

/// Memory in which guests come and go beside somebody who stays.
pub struct Beside {
    /// All of it.
    pub region: Arc<Region>,
    /// The guests' rings, first in it.
    pub guest: Arc<PortMem>,
    /// The other one's.
    pub other: Arc<PortMem>,
}

/// The other side of a guest's rings. It is there as long as the port; rings come and go with guests and what they command.
pub trait Backend: Send + Sync {
    /// Memory that the rings are to lie in; without it, each guest has memory of its own.
    fn memory(&self) -> Option<&Beside> {
        None
    }

    /// What the guest's doorbell of a ring (tx rings first) wakes; none if nobody waits for it.
    fn wake(&self, ring: usize) -> Option<&WakeSet>;

    /// A kick of a ring that came another way than by a doorbell.
    fn kick(&self, ring: usize);

    /// Connects rings.
    ///
    /// # Errors
    /// What the system says; then [`Backend::empty`] follows.
    fn fill(&self, rings: &Fresh<'_>) -> Result<(), Errno>;

    /// Disconnects them, once what was published is on its way. Nobody touches them when this returns.
    ///
    /// # Errors
    /// A worker still uses one of them, and no other will come: the guest must be given up.
    fn empty(&self) -> Result<(), InUse>;

    /// Interrupts sent to the guest and saved, and kicks from it, for a ring the guest sends on (`tx`) or one it receives on.
    fn kicks(&self, tx: bool, ring: usize) -> (u64, u64, u64);
}
