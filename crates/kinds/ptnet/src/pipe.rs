//! A pipe between a virtual machine and a program: buffers are swapped between their rings, and no frame is copied.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_mem::host::HostTx;
use netvale_mem::layout::PoolSize;
use netvale_mem::lent::InUse;
use netvale_mem::mapping::Pages;
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_mem::region::{RegionError, RingSide};
use netvale_mem::relay::{Relay, RelayEnd};
use netvale_mem::{Layout, PortShape, Region, RegionSizes};
use netvale_port::seat::Seat;
use netvale_port::wake::WakeSet;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Beside, Fresh};
use crate::header::Config;
use crate::instance::{InstanceError, shape, sizes};

/// A ring of the program: its two doorbells, and the position in it.
struct Far {
    side: RingSide,
    doorbell: Doorbell,
    wake: Arc<Doorbell>,
    kicks: Arc<KickCounts>,
}

impl Far {
    fn new(side: Option<&RingSide>, bells: (Doorbell, Doorbell)) -> Result<Far, Errno> {
        let doorbell = bells.0;
        let wake = Arc::new(bells.1);
        Ok(Far { side: side.ok_or(Errno::INVAL)?.clone(), doorbell, wake, kicks: Arc::default() })
    }
}

/// Saved state of a pipe.
#[derive(Serialize, Deserialize)]
pub struct PipeState {
    memory: Fd,
    /// Doorbell and wake-up of the program's rx ring, and of its tx ring.
    bells: [[Fd; 2]; 2],
    /// Buffers in use.
    used_bufs: Vec<Range<u32>>,
    /// The positions in the program's rings, for the next guest.
    at: [u32; 2],
    /// The positions up to which the relays have filled, while a guest is connected.
    filled: Option<[u32; 2]>,
}

/// Both directions of a pipe. The program's end stays while guests come and go.
pub struct PipeBackend {
    memory: Beside,
    /// The directions from the guest and to it.
    seats: [Arc<Seat<Relay>>; 2],
    /// The program's rx ring, and its tx ring.
    far: [Far; 2],
    /// The positions in those rings, while no guest is connected.
    at: Mutex<[u32; 2]>,
    /// The positions up to which another process has filled.
    filled: Option<[u32; 2]>,
    /// The program's fault.
    fault: Fault,
}

/// Index of a direction, and of its ring of the program.
const FROM_GUEST: usize = 0;
const TO_GUEST: usize = 1;

impl PipeBackend {
    /// Creates a pipe of a device's size; `fault` is the program's.
    ///
    /// # Errors
    /// [`InstanceError`] if the process is out of memory or descriptors.
    pub fn new(config: &Config, fault: Fault) -> Result<PipeBackend, InstanceError> {
        let region = Region::device("netvale-ptnet", both(config), Pages::Ordinary)?;
        // The guest's rings come first, as in a device's memory.
        let guest = Arc::new(region.port(shape(config))?);
        let other = Arc::new(region.port(shape_of_other(config))?);
        let bells = || -> Result<_, Errno> { Ok((Doorbell::shared(&fault)?, Doorbell::shared(&fault)?)) };
        let bells = [bells()?, bells()?];
        Self::with(Beside { region, guest, other }, bells, fault)
    }

    /// Restores another process's pipe; `fault` is the program's. Nothing is rung or written.
    ///
    /// # Errors
    /// [`BadState`] if memory or descriptors are inconsistent.
    pub fn restore(config: &Config, fault: Fault, state: PipeState) -> Result<PipeBackend, BadState> {
        let layout = Layout::device(both(config)).map_err(|e| BadState::new(RegionError::from(e)))?;
        let region = Region::adopt(state.memory.take()?, layout, &state.used_bufs).map_err(BadState::new)?;
        let guest = shape(config);
        let other = shape_of_other(config);
        let first = guest.tx_rings + guest.rx_rings;
        let guest = Arc::new(region.continue_port(guest, (0, 0), 0).map_err(BadState::new)?);
        let other = Arc::new(region.continue_port(other, (0, 0), first).map_err(BadState::new)?);
        let bell = |fd: Fd| -> Result<_, BadState> { Ok(Doorbell::given(fd.take()?, &fault)?) };
        let both = |[doorbell, wake]: [Fd; 2]| -> Result<_, BadState> { Ok((bell(doorbell)?, bell(wake)?)) };
        let [to_program, from_program] = state.bells;
        let bells = [both(to_program)?, both(from_program)?];
        let slots = config.slots;
        let at = Mutex::new(state.at.map(|at| at.min(slots - 1)));
        let made = Self::with(Beside { region, guest, other }, bells, fault).map_err(BadState::new)?;
        Ok(PipeBackend { at, filled: state.filled, ..made })
    }

    fn with(memory: Beside, bells: [(Doorbell, Doorbell); 2], fault: Fault) -> Result<PipeBackend, InstanceError> {
        memory.region.mapping().blame(&fault);
        let [to_program, from_program] = bells;
        let other = &memory.other;
        let far = [Far::new(other.rx.first(), to_program)?, Far::new(other.tx.first(), from_program)?];
        let seats = [Arc::new(Seat::woken()?), Arc::new(Seat::woken()?)];
        for (seat, far) in seats.iter().zip(&far) {
            seat.wake.iter().try_for_each(|wake| wake.add(&far.doorbell))?;
        }
        Ok(PipeBackend { memory, seats, far, at: Mutex::default(), filled: None, fault })
    }

    /// State for a successor, while the workers are parked.
    ///
    /// # Errors
    /// The process is out of descriptors, or a worker does not leave.
    pub fn save(&self) -> std::io::Result<PipeState> {
        let filled = |seat: &Seat<Relay>| -> std::io::Result<Option<u32>> {
            let relay = seat.queue.control().map_err(std::io::Error::other)?;
            Ok(relay.as_ref().map(|relay| relay.to().filled()))
        };
        let filled = filled(&self.seats[FROM_GUEST])?.zip(filled(&self.seats[TO_GUEST])?);
        let region = &self.memory.region;
        let bells = |far: &Far| std::io::Result::Ok([Fd::copy_of(&far.doorbell)?, Fd::shared(&far.wake)]);
        let [to_program, from_program] = &self.far;
        Ok(PipeState {
            memory: Fd::copy_of(region.fd().ok_or(Errno::BADF)?)?,
            bells: [bells(to_program)?, bells(from_program)?],
            used_bufs: region.used_bufs(),
            at: *self.at(),
            filled: filled.map(|(a, b)| [a, b]),
        })
    }

    fn at(&self) -> MutexGuard<'_, [u32; 2]> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The workers' seats: from the guest, and to it.
    pub fn seats(&self) -> [&Arc<Seat<Relay>>; 2] {
        [&self.seats[FROM_GUEST], &self.seats[TO_GUEST]]
    }

    /// Doorbell and wake-up of the program's tx ring, and of its rx ring.
    pub fn bells(&self) -> [(&Doorbell, &Doorbell); 2] {
        [TO_GUEST, FROM_GUEST].map(|i| (&self.far[i].doorbell, &*self.far[i].wake))
    }

    /// The program's fault.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// The memory of both ends.
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
        if rings.goes_on {
            return self.go_on(rings);
        }
        let at = self.at();
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
        let mut at = self.at();
        let there = self.seats[FROM_GUEST].disconnect();
        let back = self.seats[TO_GUEST].disconnect();
        // The position shown to the program is known even if a worker does not hand its relay back.
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

    fn add_kicks(&self, tx: bool, ring: usize, (sent, suppressed, received): (u64, u64, u64)) {
        if ring == 0 {
            self.seats[if tx { FROM_GUEST } else { TO_GUEST }].kicks.add(sent, suppressed, received);
        }
    }
}

impl PipeBackend {
    /// Connects rings relayed by another process.
    fn go_on(&self, rings: &Fresh<'_>) -> Result<(), Errno> {
        let [there, back] = &self.far;
        let filled = self.filled.ok_or(Errno::INVAL)?;
        let (side, wake) = rings.tx(0)?;
        let from = HostTx::counted(side, wake, Arc::clone(&self.seats[FROM_GUEST].kicks)).going_on();
        let wake = Arc::clone(&there.wake);
        let kicks = Arc::clone(&there.kicks);
        let to = RelayEnd::continued(there.side.clone(), filled[FROM_GUEST], wake, kicks);
        self.seats[FROM_GUEST].connect(Relay::new(from, to).ok_or(Errno::INVAL)?)?;
        let (side, wake) = rings.rx(0)?;
        let from = HostTx::counted(back.side.clone(), Arc::clone(&back.wake), Arc::clone(&back.kicks)).going_on();
        let to = RelayEnd::continued(side, filled[TO_GUEST], wake, Arc::clone(&self.seats[TO_GUEST].kicks));
        self.seats[TO_GUEST].connect(Relay::new(from, to).ok_or(Errno::INVAL)?)
    }
}

/// The program's rings.
fn shape_of_other(config: &Config) -> PortShape {
    PortShape { tx_rings: 1, rx_rings: 1, ..shape(config) }
}

/// The sizes of a device's memory with a second pair of rings, and their buffers.
fn both(config: &Config) -> RegionSizes {
    let alone = sizes(config);
    let double = |n: u32| n.saturating_mul(2);
    RegionSizes {
        rings: PoolSize { num: double(alone.rings.num), ..alone.rings },
        bufs: PoolSize { num: double(alone.bufs.num), ..alone.bufs },
        ..alone
    }
}
