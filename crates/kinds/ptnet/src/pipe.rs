//! A pipe between a virtual machine and a program: buffers are swapped between their rings, and no frame is copied.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_mem::host::HostTx;
use netvale_mem::layout::PoolSize;
use netvale_mem::lent::InUse;
use netvale_mem::mapping::PageKind;
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_mem::region::{RegionError, RingSide};
use netvale_mem::relay::{Relay, RelayEnd};
use netvale_mem::{Layout, PortShape, Region, RegionSizes};
use netvale_port::seat::Seat;
use netvale_port::wake::WakeSet;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, BackendMemory, GuestRings};
use crate::header::PtnetDeviceConfig;
use crate::instance::{InstanceError, shape, sizes};

/// A ring of the program, the doorbell that the program rings, and the doorbell that wakes the program.
struct FarRing {
    side: RingSide,
    doorbell: Doorbell,
    wake: Arc<Doorbell>,
    kicks: Arc<KickCounts>,
}

impl FarRing {
    fn new(side: Option<&RingSide>, doorbell: Doorbell, wake: Doorbell) -> Result<FarRing, Errno> {
        let wake = Arc::new(wake);
        Ok(FarRing { side: side.ok_or(Errno::INVAL)?.clone(), doorbell, wake, kicks: Arc::default() })
    }
}

/// Saved state of a pipe.
#[derive(Serialize, Deserialize)]
pub struct PipeState {
    memory: Fd,
    /// The doorbell that the program rings and the doorbell that wakes the program, for its rx ring, then for its tx
    /// ring.
    bells: [[Fd; 2]; 2],
    /// Ranges of indices of the buffers in use.
    used_bufs: Vec<Range<u32>>,
    /// Positions at which the next guest continues in the program's rings.
    at: [u32; 2],
    /// Positions up to which the two relays have filled the rings, while a guest is connected.
    filled: Option<[u32; 2]>,
}

/// Both directions of a pipe. The program's end remains while guests come and go.
pub struct PipeBackend {
    memory: BackendMemory,
    /// The two relays, which swap buffers between a ring of the guest and a ring of the program: from the guest, to the
    /// guest. Each has a [`Seat`], which remains when the guest, and so the relay, changes.
    seats: [Arc<Seat<Relay>>; 2],
    /// The program's rx ring, and its tx ring.
    far: [FarRing; 2],
    /// Positions in the program's rings while no guest is connected.
    at: Mutex<[u32; 2]>,
    /// Positions up to which the predecessor's relays have filled the rings.
    filled: Option<[u32; 2]>,
    /// The program's fault, which is set if the program's memory is lost or the program's doorbell blocks.
    fault: Fault,
}

/// Index of the direction from the guest, and of the program's rx ring.
const FROM_GUEST: usize = 0;
/// Index of the direction to the guest, and of the program's tx ring.
const TO_GUEST: usize = 1;

impl PipeBackend {
    /// Creates a pipe for a device with this configuration. `fault` belongs to the program: `fault` is set if the
    /// program's memory is lost or the program's doorbell blocks.
    ///
    /// # Errors
    /// [`InstanceError`] if the process is out of memory or descriptors.
    pub fn new(config: &PtnetDeviceConfig, fault: Fault) -> Result<PipeBackend, InstanceError> {
        let region = Region::device("netvale-ptnet", both(config), PageKind::Ordinary)?;
        // The guest's rings come first, as in a device's own memory.
        let guest = Arc::new(region.port(shape(config))?);
        let other = Arc::new(region.port(shape_of_other(config))?);
        let bells = || -> Result<_, Errno> { Ok((Doorbell::shared(&fault)?, Doorbell::shared(&fault)?)) };
        let bells = [bells()?, bells()?];
        Self::with(BackendMemory { region, guest, other }, bells, fault)
    }

    /// Restores a predecessor's pipe. `fault` belongs to the program, as for [`PipeBackend::new`]. No doorbell is rung
    /// and nothing is written.
    ///
    /// # Errors
    /// [`BadState`] if memory or descriptors are inconsistent.
    pub fn restore(config: &PtnetDeviceConfig, fault: Fault, state: PipeState) -> Result<PipeBackend, BadState> {
        let layout = Layout::device(both(config)).map_err(|e| BadState::new(RegionError::from(e)))?;
        let region = Region::adopt(state.memory.take()?, layout, &state.used_bufs).map_err(BadState::new)?;
        let guest = shape(config);
        let other = shape_of_other(config);
        let first = guest.tx_rings + guest.rx_rings;
        let guest = Arc::new(region.continue_port(guest, 0, 0, 0).map_err(BadState::new)?);
        let other = Arc::new(region.continue_port(other, 0, 0, first).map_err(BadState::new)?);
        let bell = |fd: Fd| -> Result<_, BadState> { Ok(Doorbell::given(fd.take()?, &fault)?) };
        let both = |[doorbell, wake]: [Fd; 2]| -> Result<_, BadState> { Ok((bell(doorbell)?, bell(wake)?)) };
        let [to_program, from_program] = state.bells;
        let bells = [both(to_program)?, both(from_program)?];
        let slots = config.slots;
        let at = Mutex::new(state.at.map(|at| at.min(slots - 1)));
        let made = Self::with(BackendMemory { region, guest, other }, bells, fault).map_err(BadState::new)?;
        Ok(PipeBackend { at, filled: state.filled, ..made })
    }

    fn with(
        memory: BackendMemory,
        bells: [(Doorbell, Doorbell); 2],
        fault: Fault,
    ) -> Result<PipeBackend, InstanceError> {
        memory.region.mapping().blame(&fault);
        let [(to_program, to_wake), (from_program, from_wake)] = bells;
        let other = &memory.other;
        let far = [
            FarRing::new(other.rx.first(), to_program, to_wake)?,
            FarRing::new(other.tx.first(), from_program, from_wake)?,
        ];
        let seats = [Arc::new(Seat::woken()?), Arc::new(Seat::woken()?)];
        for (seat, far) in seats.iter().zip(&far) {
            seat.wake.iter().try_for_each(|wake| wake.add(&far.doorbell))?;
        }
        Ok(PipeBackend { memory, seats, far, at: Mutex::default(), filled: None, fault })
    }

    /// Returns the state for a successor, while the workers are parked.
    ///
    /// # Errors
    /// Fails if the process is out of descriptors or a worker does not return a relay.
    pub fn save(&self) -> std::io::Result<PipeState> {
        let filled = |seat: &Seat<Relay>| -> std::io::Result<Option<u32>> {
            let relay = seat.queue.control().map_err(std::io::Error::other)?;
            Ok(relay.as_ref().map(|relay| relay.to().filled()))
        };
        let filled = filled(&self.seats[FROM_GUEST])?.zip(filled(&self.seats[TO_GUEST])?);
        let region = &self.memory.region;
        let bells = |far: &FarRing| std::io::Result::Ok([Fd::copy_of(&far.doorbell)?, Fd::shared(&far.wake)]);
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

    /// Returns the seats of the two relays: from the guest, to the guest.
    pub fn seats(&self) -> [&Arc<Seat<Relay>>; 2] {
        [&self.seats[FROM_GUEST], &self.seats[TO_GUEST]]
    }

    /// Returns the doorbell that the program rings and the doorbell that wakes the program, for its tx ring, then for
    /// its rx ring.
    pub fn bells(&self) -> [(&Doorbell, &Doorbell); 2] {
        [TO_GUEST, FROM_GUEST].map(|i| (&self.far[i].doorbell, &*self.far[i].wake))
    }

    /// Returns the program's fault.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// Returns the memory of both ends.
    pub fn beside(&self) -> &BackendMemory {
        &self.memory
    }

    /// Connects restored rings, between which a predecessor has swapped buffers.
    fn go_on(&self, rings: &GuestRings<'_>) -> Result<(), Errno> {
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

impl Backend for PipeBackend {
    fn memory(&self) -> Option<&BackendMemory> {
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

    fn fill(&self, rings: &GuestRings<'_>) -> Result<(), Errno> {
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
        // The position that was shown to the program is known even if a worker does not return its relay.
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

    fn add_kicks(&self, tx: bool, ring: usize, sent: u64, suppressed: u64, received: u64) {
        if ring == 0 {
            self.seats[if tx { FROM_GUEST } else { TO_GUEST }].kicks.add(sent, suppressed, received);
        }
    }
}

/// Returns the shape of the program's rings.
fn shape_of_other(config: &PtnetDeviceConfig) -> PortShape {
    PortShape { tx_rings: 1, rx_rings: 1, ..shape(config) }
}

/// Returns the sizes of a device's memory with a second set of rings and their buffers.
fn both(config: &PtnetDeviceConfig) -> RegionSizes {
    let alone = sizes(config);
    let double = |n: u32| n.saturating_mul(2);
    RegionSizes {
        rings: PoolSize { num: double(alone.rings.num), ..alone.rings },
        bufs: PoolSize { num: double(alone.bufs.num), ..alone.bufs },
        ..alone
    }
}
