//! The device of one guest: its memory, its doorbells, the execution of its commands.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_abi::ptnet::{
    COMMAND_START, COMMAND_STOP, FEATURE_VNET_HDR, STATUS_LINK_UP, STATUS_NEEDS_RESET, STATUS_RUNNING,
};
use netvale_mem::fault::Fault;
use netvale_mem::layout::DEFAULT_BUF_SIZE;
use netvale_mem::lent::InUse;
use netvale_mem::mapping::PageKind;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::{Binding, RingSide};
use netvale_mem::{Layout, PortMem, PortShape, Region, RegionError, RegionSizes};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::backend::{Backend, GuestRings};
use crate::header::{HeaderPage, PtnetDeviceConfig};

/// An error creating or restoring a device.
#[derive(Debug, Error)]
pub enum InstanceError {
    /// The memory could not be created.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// An eventfd could not be created.
    #[error("cannot create an eventfd: {0}")]
    System(#[from] Errno),
    /// The predecessor's state of a device is inconsistent.
    #[error("{0}")]
    Forged(&'static str),
}

/// The state of running rings.
struct RunningRings {
    /// The `netmap_if` and its list of extra buffers.
    binding: Binding,
    hdr_len: u32,
}

/// A guest's command, one of the `COMMAND_` numbers or an invalid one, and its result.
pub type GuestCommandResult = (u32, Result<(), Errno>);

/// A ptnet device. Every guest gets a new device, with new memory unless the backend provides the memory. Dropping the
/// device stops its rings.
pub struct PtnetInstance {
    config: PtnetDeviceConfig,
    backend: Arc<dyn Backend>,
    region: Arc<Region>,
    header: HeaderPage,
    /// Doorbells that the guest rings: tx rings, rx rings, commands.
    doorbells: Vec<Doorbell>,
    /// Doorbells that interrupt the guest, in the same order.
    vectors: Vec<Doorbell>,
    running: Option<RunningRings>,
    /// Number of the last command read.
    seen: u32,
    /// The predecessor's state of the rings, until they resume here.
    begun: GuestRingsState,
    /// Whether this process owns the device; if not, it writes nothing to the guest's memory.
    is_ours: bool,
}

/// Saved state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceState {
    /// Number of the last command read.
    pub seen: u32,
    /// State of the rings.
    pub rings: GuestRingsState,
}

impl InstanceState {
    /// State after a kill: the positions of the rings are unknown.
    pub const UNKNOWN: InstanceState = InstanceState { seen: 0, rings: GuestRingsState::Unknown };
}

/// State of a predecessor's rings, whose positions are in their status blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestRingsState {
    /// The rings do not run.
    Stopped,
    /// The rings run.
    Running {
        /// Index of the `netmap_if`.
        index: u32,
        /// Number of extra buffers in the list of this `netmap_if`.
        extra_bufs: u32,
        /// Size of the header before each frame, in bytes.
        hdr_len: u32,
    },
    /// It is unknown whether the rings run.
    Unknown,
}

impl PtnetInstance {
    /// Creates a device that waits for its guest's driver. `fault` belongs to the hypervisor: `fault` is set if the
    /// hypervisor's memory is lost or a doorbell of the device blocks.
    ///
    /// # Errors
    /// [`InstanceError`] if the process is out of memory or descriptors.
    pub fn new(
        config: &PtnetDeviceConfig,
        backend: &Arc<dyn Backend>,
        fault: &Fault,
    ) -> Result<PtnetInstance, InstanceError> {
        let region = match backend.memory() {
            Some(beside) => Arc::clone(&beside.region),
            None => {
                let region = Region::device("netvale-ptnet", sizes(config), PageKind::Ordinary)?;
                region.mapping().blame(fault);
                region
            }
        };
        let bells = || (0..config.vectors()).map(|_| Doorbell::shared(fault)).collect::<Result<Vec<_>, Errno>>();
        let mut this = Self::over(config, backend, region, bells()?, bells()?, GuestRingsState::Stopped)?;
        this.is_ours = true;
        this.header.describe(config, this.region.layout());
        this.header.set_status(STATUS_LINK_UP);
        Ok(this)
    }

    /// Restores a predecessor's device from its memory, doorbells and vectors. Before [`PtnetInstance::go_on`], the
    /// device rings no doorbell and writes nothing to the guest's memory.
    ///
    /// # Errors
    /// [`InstanceError`] if the memory is not this device's.
    pub fn restore(
        config: &PtnetDeviceConfig,
        backend: &Arc<dyn Backend>,
        memory: OwnedFd,
        bells: Vec<OwnedFd>,
        state: InstanceState,
        fault: &Fault,
    ) -> Result<PtnetInstance, InstanceError> {
        let region = match backend.memory() {
            Some(beside) => Arc::clone(&beside.region),
            None => {
                let layout = Layout::device(sizes(config)).map_err(RegionError::from)?;
                let region = Region::adopt(memory, layout, &[])?;
                region.mapping().blame(fault);
                region
            }
        };
        let count = config.vectors() as usize;
        if bells.len() != 2 * count {
            return Err(InstanceError::Forged("the device's doorbells are missing"));
        }
        let mut doorbells =
            bells.into_iter().map(|fd| Doorbell::given(fd, fault)).collect::<Result<Vec<_>, Errno>>()?;
        let vectors = doorbells.split_off(count);
        let mut this = Self::over(config, backend, region, doorbells, vectors, state.rings)?;
        this.seen = state.seen;
        if let GuestRingsState::Running { index, extra_bufs, hdr_len } = state.rings {
            let mem = match this.backend.memory() {
                Some(beside) => Arc::clone(&beside.guest),
                None => Arc::new(this.region.continue_port(shape(config), 0, 0, 0)?),
            };
            if hdr_len != 0 && (hdr_len != 12 || !config.vnet_hdr) {
                return Err(InstanceError::Forged(
                    "the rings have a virtio-net header, which the device does not offer",
                ));
            }
            let binding = mem.continue_binding(index, extra_bufs)?;
            this.connect(&mem, hdr_len, true)?;
            this.running = Some(RunningRings { binding, hdr_len });
        }
        Ok(this)
    }

    /// Takes over the device. If the positions of its rings are unknown, requests a restart of the rings from the
    /// guest's driver.
    pub fn go_on(&mut self) {
        if self.begun == GuestRingsState::Unknown {
            self.header.describe(&self.config, self.region.layout());
            // The predecessor has executed the earlier commands.
            self.seen = self.header.command().number;
            self.header.set_status(STATUS_LINK_UP | STATUS_NEEDS_RESET);
            self.interrupt();
        }
        self.begun = GuestRingsState::Stopped;
        self.is_ours = true;
    }

    /// Returns the state for a successor, without descriptors. The workers must be parked.
    pub fn state(&self) -> InstanceState {
        let rings = self.running.as_ref().map_or(GuestRingsState::Stopped, |running| GuestRingsState::Running {
            index: running.binding.index(),
            extra_bufs: running.binding.extra_bufs(),
            hdr_len: running.hdr_len,
        });
        InstanceState { seen: self.seen, rings }
    }

    fn over(
        config: &PtnetDeviceConfig,
        backend: &Arc<dyn Backend>,
        region: Arc<Region>,
        doorbells: Vec<Doorbell>,
        vectors: Vec<Doorbell>,
        begun: GuestRingsState,
    ) -> Result<PtnetInstance, InstanceError> {
        let outside = || RegionError::Exhausted { what: "space", asked: 1, free: 0 };
        let header = HeaderPage::new(region.mapping()).ok_or_else(outside)?;
        let this = PtnetInstance {
            config: *config,
            backend: Arc::clone(backend),
            region,
            header,
            doorbells,
            vectors,
            running: None,
            seen: 0,
            begun,
            is_ours: false,
        };
        for (ring, bell) in this.doorbells.iter().enumerate() {
            this.backend.wake(ring).map_or(Ok(()), |wake| wake.add_peer(bell))?;
        }
        Ok(this)
    }

    /// Returns the file of the memory, to be passed to the guest; `None` if the memory has no file.
    pub fn memory(&self) -> Option<BorrowedFd<'_>> {
        self.region.fd()
    }

    /// Returns the doorbells that the guest rings: tx rings, rx rings, commands.
    pub fn doorbells(&self) -> &[Doorbell] {
        &self.doorbells
    }

    /// Returns the doorbells that interrupt the guest, in the same order.
    pub fn vectors(&self) -> &[Doorbell] {
        &self.vectors
    }

    /// Returns the number of bytes of header before each frame; `None` while the rings do not run.
    pub fn hdr_len(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.hdr_len)
    }

    /// Executes the guest's command, if it is a new one. Returns the command and its result; `None` if there is no new
    /// command.
    ///
    /// # Errors
    /// [`InUse`] if a worker does not return the running rings: the guest must be disconnected.
    pub fn obey(&mut self) -> Result<Option<GuestCommandResult>, InUse> {
        let command = self.header.command();
        if command.number == self.seen {
            return Ok(None);
        }
        self.seen = command.number;
        if [COMMAND_START, COMMAND_STOP].contains(&command.what) {
            self.stop()?;
        }
        let done = match command.what {
            COMMAND_START => self.start(command.features, command.extra_bufs),
            COMMAND_STOP => Ok(()),
            _ => Err(Errno::INVAL),
        };
        let result = done.err().map_or(0, |e| e.raw_os_error().unsigned_abs());
        self.header.answer(command.number, result);
        self.interrupt();
        Ok(Some((command.what, done)))
    }

    /// Interrupts the guest's driver, which then reads the status.
    fn interrupt(&self) {
        if let Some(bell) = self.vectors.last() {
            bell.ring();
        }
    }

    /// Starts new rings over the whole memory, regardless of the state in which the guest left it.
    fn start(&mut self, features: u32, extra_bufs: u32) -> Result<(), Errno> {
        if features & !self.config.features() != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let hdr_len = if features & FEATURE_VNET_HDR != 0 { 12 } else { 0 };
        let running = self.rings(hdr_len, extra_bufs).map_err(|why| {
            tracing::warn!(%why, "cannot start the rings");
            // Rings that a worker does not return stay out of use, and no new rings take their place.
            let _ = self.backend.empty();
            Errno::NOMEM
        })?;
        // The guest may have overwritten the description.
        self.header.describe(&self.config, self.region.layout());
        self.header.set_binding(running.binding.nifp(), running.binding.extra_bufs());
        self.running = Some(running);
        self.header.set_status(STATUS_LINK_UP | STATUS_RUNNING);
        Ok(())
    }

    fn rings(&mut self, hdr_len: u32, extra_bufs: u32) -> Result<RunningRings, InstanceError> {
        let c = self.config;
        let mem = match self.backend.memory() {
            Some(beside) => {
                beside.guest.renew_beside(&beside.other);
                Arc::clone(&beside.guest)
            }
            None => {
                self.region = self.region.renewed()?;
                Arc::new(self.region.port(shape(&c))?)
            }
        };
        let binding = mem.bind("ptnet", 0..c.tx_rings, 0..c.rx_rings, extra_bufs)?;
        self.connect(&mem, hdr_len, false)?;
        Ok(RunningRings { binding, hdr_len })
    }

    /// Lends the rings to the workers.
    fn connect(&self, mem: &Arc<PortMem>, hdr_len: u32, goes_on: bool) -> Result<(), Errno> {
        let of = |i: usize, side: &RingSide| {
            let wake = self.vectors.get(i).ok_or(Errno::INVAL)?.try_clone();
            let wake = wake.map_err(|e| e.raw_os_error().map_or(Errno::MFILE, Errno::from_raw_os_error))?;
            Ok((side.clone(), Arc::new(wake)))
        };
        self.backend.fill(&GuestRings { mem, hdr_len: hdr_len.into(), uso: true, goes_on, of: &of })
    }

    /// Takes the rings back from the workers.
    fn stop(&mut self) -> Result<(), InUse> {
        let done = self.backend.empty();
        self.running = None;
        if self.is_ours {
            self.header.set_status(STATUS_LINK_UP);
        }
        done
    }
}

impl Drop for PtnetInstance {
    fn drop(&mut self) {
        // Rings that a worker does not return stay out of use and keep their memory.
        let _ = self.stop();
        for (ring, bell) in self.doorbells.iter().enumerate() {
            if let Some(wake) = self.backend.wake(ring) {
                wake.remove(bell);
            }
        }
    }
}

/// Returns the shape of a device's rings.
pub fn shape(c: &PtnetDeviceConfig) -> PortShape {
    PortShape { tx_rings: c.tx_rings, rx_rings: c.rx_rings, tx_slots: c.slots, rx_slots: c.slots }
}

/// Returns the sizes of a device's memory: as many `netmap_if`s, rings and buffers as its rings need.
pub fn sizes(c: &PtnetDeviceConfig) -> RegionSizes {
    let buf_size = if c.buf_size == 0 { DEFAULT_BUF_SIZE } else { c.buf_size };
    RegionSizes::for_port(c.tx_rings + c.rx_rings, c.slots, buf_size, 0, 0)
}
