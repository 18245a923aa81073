//! A pipe whose one end is a virtual machine: buffers are swapped between its rings and a program's, and no frame is
//! copied.

use std::sync::{Arc, Mutex, PoisonError};

use netvale_mem::fault::Fault;
use netvale_mem::host::HostTx;
use netvale_mem::layout::PoolSize;
use netvale_mem::lent::InUse;
use netvale_mem::mapping::Pages;
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_mem::region::RingSide;
use netvale_mem::relay::{Relay, RelayEnd};
use netvale_mem::{PortShape, Region, RegionSizes};
use netvale_port::seat::Seat;
use netvale_port::wake::WakeSet;
use rustix::io::Errno;

use crate::backend::{Backend, Beside, Fresh};
use crate::header::Config;
use crate::instance::{InstanceError, shape, sizes};

/// A ring of the program: its two bells, and the position in it.
struct Far {
    side: RingSide,
    doorbell: Doorbell,
    wake: Arc<Doorbell>,
    kicks: Arc<KickCounts>,
}

impl Far {
    fn new(side: &RingSide, fault: &Fault) -> Result<Far, Errno> {
        let (doorbell, wake) = (Doorbell::shared(fault)?, Arc::new(Doorbell::shared(fault)?));
        Ok(Far { side: side.clone(), doorbell, wake, kicks: Arc::default() })
    }
}

/// Both directions of a pipe. The program's end stays while guests come and go.
pub struct PipeBackend {
    memory: Beside,
    /// From the guest, and to it.
    seats: [Arc<Seat<Relay>>; 2],
    /// The program's rx ring, and its tx ring.
    far: [Far; 2],
    /// The positions in those rings, while there is no guest.
    at: Mutex<[u32; 2]>,
    /// The program's fault.
    fault: Fault,
}

/// Index of a direction, and of the program's ring in it.
const FROM_GUEST: usize = 0;
const TO_GUEST: usize = 1;

impl PipeBackend {
    /// Creates a pipe of a device's size; `fault` is the program's.
    ///
    /// # Errors
    /// [`InstanceError`] if there is no memory or descriptor.
    pub fn new(config: &Config, fault: Fault) -> Result<PipeBackend, InstanceError> {
        let alone = sizes(config);
        // Another pair of rings, with buffers.
        let double = |n: u32| n.saturating_mul(2);
        let sizes = RegionSizes {
            rings: PoolSize { num: double(alone.rings.num), ..alone.rings },
            bufs: PoolSize { num: double(alone.bufs.num), ..alone.bufs },
            ..alone
        };
        let region = Region::device("netvale-ptnet", sizes, Pages::Ordinary)?;
        region.mapping().blame(&fault);
        // The guest's rings come first, where a device's are.
        let guest = Arc::new(region.port(shape(config))?);
        let other = Arc::new(region.port(PortShape { tx_rings: 1, rx_rings: 1, ..shape(config) })?);
        let ring = |sides: &[RingSide]| Far::new(sides.first().ok_or(Errno::INVAL)?, &fault);
        let far = [ring(&other.rx)?, ring(&other.tx)?];
        let seats = [Arc::new(Seat::woken()?), Arc::new(Seat::woken()?)];
        for (seat, far) in seats.iter().zip(&far) {
            seat.wake.iter().try_for_each(|wake| wake.add(&far.doorbell))?;
        }
        Ok(PipeBackend { memory: Beside { region, guest, other }, seats, far, at: Mutex::default(), fault })
    }

    /// The seats that workers serve: from the guest, and to it.
    pub fn seats(&self) -> [&Arc<Seat<Relay>>; 2] {
        [&self.seats[FROM_GUEST], &self.seats[TO_GUEST]]
    }

    /// Doorbell and wake-up of the program's rings: of its tx ring, and of its rx ring.
    pub fn bells(&self) -> [(&Doorbell, &Doorbell); 2] {
        [TO_GUEST, FROM_GUEST].map(|i| (&self.far[i].doorbell, &*self.far[i].wake))
    }

    /// The program's fault.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// The memory.
    pub fn beside(&self) -> &Beside {
        &self.memory
    }
}

impl Backend for PipeBackend {
    fn memory(&self) -> Option<&Beside> {
        Some(&self.memory)
    }

    fn wake(&self, ring: usize) -> Option<&WakeSet> {
        self.seats.get(ring)?.wake.as_ref()
    }

    fn kick(&self, ring: usize) {
        if let Some(seat) = self.seats.get(ring) {
            seat.kick();
        }
    }

    fn fill(&self, rings: &Fresh<'_>) -> Result<(), Errno> {
        let [there, back] = &self.far;
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let (side, wake) = rings.tx(0)?;
        let from = HostTx::counted(side, wake, Arc::clone(&self.seats[FROM_GUEST].kicks));
        let to = RelayEnd::new(there.side.clone(), at[FROM_GUEST], Arc::clone(&there.wake), Arc::clone(&there.kicks));
        self.seats[FROM_GUEST].connect(Relay::new(from, to).ok_or(Errno::INVAL)?)?;
        let (side, wake) = rings.rx(0)?;
        let from = HostTx::counted(back.side.clone(), Arc::clone(&back.wake), Arc::clone(&back.kicks));
        let to = RelayEnd::new(side, 0, wake, Arc::clone(&self.seats[TO_GUEST].kicks));
        self.seats[TO_GUEST].connect(Relay::new(from.at(at[TO_GUEST]), to).ok_or(Errno::INVAL)?)
    }

    fn empty(&self) -> Result<(), InUse> {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let (there, back) = (self.seats[FROM_GUEST].disconnect(), self.seats[TO_GUEST].disconnect());
        // Even for a relay that a worker does not hand back, the position shown to the program is known.
        match &there {
            Ok(relay) => at[FROM_GUEST] = relay.as_ref().map_or(at[FROM_GUEST], |relay| relay.to().hwtail()),
            Err(InUse) => at[FROM_GUEST] = self.far[FROM_GUEST].side.csb.hwtail(),
        }
        match &back {
            Ok(relay) => at[TO_GUEST] = relay.as_ref().map_or(at[TO_GUEST], |relay| relay.from().hwcur()),
            Err(InUse) => at[TO_GUEST] = self.far[TO_GUEST].side.csb.hwcur(),
        }
        there.and(back).map(drop)
    }

    fn kicks(&self, tx: bool, ring: usize) -> (u64, u64, u64) {
        let seat = &self.seats[if tx { FROM_GUEST } else { TO_GUEST }];
        if ring > 0 {
            return (0, 0, 0);
        }
        (seat.kicks.sent(), seat.kicks.suppressed(), seat.kicks.received())
    }
}
