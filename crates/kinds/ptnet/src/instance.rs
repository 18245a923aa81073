//! One guest's device: its memory, its doorbells, the execution of its commands.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_abi::ptnet::{
    COMMAND_START, COMMAND_STOP, FEATURE_VNET_HDR, STATUS_LINK_UP, STATUS_NEEDS_RESET, STATUS_RUNNING,
};
use netvale_mem::fault::Fault;
use netvale_mem::layout::DEFAULT_BUF_SIZE;
use netvale_mem::lent::InUse;
use netvale_mem::mapping::Pages;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::{Binding, RingSide};
use netvale_mem::{Layout, PortMem, PortShape, Region, RegionError, RegionSizes};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::backend::{Backend, Fresh};
use crate::header::{Config, Header};

/// An error creating or restoring a device.
#[derive(Debug, Error)]
pub enum InstanceError {
    /// The memory could not be created.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// An eventfd could not be created.
    #[error("cannot create an eventfd: {0}")]
    System(#[from] Errno),
    /// Another process's state of a device is inconsistent.
    #[error("{0}")]
    Forged(&'static str),
}

/// The state of running rings.
struct Running {
    /// The `netmap_if`, and the extra buffers that it lists.
    binding: Binding,
    hdr_len: u32,
}

/// Number of a guest's command, and its result.
pub type Obeyed = (u32, Result<(), Errno>);

/// A device. Every guest gets a new one, in memory of its own. Dropping it stops the rings.
pub struct Instance {
    config: Config,
    backend: Arc<dyn Backend>,
    region: Arc<Region>,
    header: Header,
    /// Rung by the guest: tx rings, rx rings, commands.
    doorbells: Vec<Doorbell>,
    /// Interrupts of the guest, in the same order.
    vectors: Vec<Doorbell>,
    running: Option<Running>,
    /// Number of the last command that was read.
    seen: u32,
    /// Another process's state of the rings, until they resume here.
    begun: RingsState,
    /// Whether the device is this process's: until then, nothing of the guest's is written.
    is_ours: bool,
}

/// Saved state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceState {
    /// Number of the last command that was read.
    pub seen: u32,
    /// The rings.
    pub rings: RingsState,
}

impl InstanceState {
    /// Positions unknown: the process that served the rings was killed.
    pub const UNKNOWN: InstanceState = InstanceState { seen: 0, rings: RingsState::Unknown };
}

/// State of another process's rings. Their positions are in their status blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RingsState {
    /// They do not run.
    Stopped,
    /// They run.
    Running {
        /// Index of the `netmap_if`.
        index: u32,
        /// Extra buffers that it lists.
        extra_bufs: u32,
        /// Bytes of header before each frame.
        hdr_len: u32,
    },
    /// Unknown.
    Unknown,
}

impl Instance {
    /// Creates a device that waits for its guest's driver; `fault` is the hypervisor's.
    ///
    /// # Errors
    /// [`InstanceError`] if the process is out of memory or descriptors.
    pub fn new(config: &Config, backend: &Arc<dyn Backend>, fault: &Fault) -> Result<Instance, InstanceError> {
        let region = match backend.memory() {
            Some(beside) => Arc::clone(&beside.region),
            None => {
                let region = Region::device("netvale-ptnet", sizes(config), Pages::Ordinary)?;
                region.mapping().blame(fault);
                region
            }
        };
        let bells = || (0..config.vectors()).map(|_| Doorbell::shared(fault)).collect::<Result<Vec<_>, Errno>>();
        let mut this = Self::over(config, backend, region, (bells()?, bells()?), RingsState::Stopped)?;
        this.is_ours = true;
        this.header.describe(config, this.region.layout());
        this.header.set_status(STATUS_LINK_UP);
        Ok(this)
    }

    /// Restores another process's device from its memory, doorbells and vectors. Before [`Instance::go_on`], nothing is
    /// rung, and nothing of the guest's changes.
    ///
    /// # Errors
    /// [`InstanceError`] if the memory is not this device's.
    pub fn restore(
        config: &Config,
        backend: &Arc<dyn Backend>,
        (memory, bells): (OwnedFd, Vec<OwnedFd>),
        state: InstanceState,
        fault: &Fault,
    ) -> Result<Instance, InstanceError> {
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
            return Err(InstanceError::Forged("its doorbells are missing"));
        }
        let mut doorbells =
            bells.into_iter().map(|fd| Doorbell::given(fd, fault)).collect::<Result<Vec<_>, Errno>>()?;
        let vectors = doorbells.split_off(count);
        let mut this = Self::over(config, backend, region, (doorbells, vectors), state.rings)?;
        this.seen = state.seen;
        if let RingsState::Running { index, extra_bufs, hdr_len } = state.rings {
            let mem = match this.backend.memory() {
                Some(beside) => Arc::clone(&beside.guest),
                None => Arc::new(this.region.continue_port(shape(config), (0, 0), 0)?),
            };
            if hdr_len != 0 && (hdr_len != 12 || !config.vnet_hdr) {
                return Err(InstanceError::Forged("a header that it does not have"));
            }
            let binding = mem.continue_binding(index, extra_bufs)?;
            this.connect(&mem, hdr_len, true)?;
            this.running = Some(Running { binding, hdr_len });
        }
        Ok(this)
    }

    /// Makes the device this process's. If its rings' positions are unknown, asks its driver to restart them.
    pub fn go_on(&mut self) {
        if self.begun == RingsState::Unknown {
            self.header.describe(&self.config, self.region.layout());
            // Commands to the other process are not executed again.
            self.seen = self.header.command().number;
            self.header.set_status(STATUS_LINK_UP | STATUS_NEEDS_RESET);
            self.interrupt();
        }
        self.begun = RingsState::Stopped;
        self.is_ours = true;
    }

    /// State for a successor, without descriptors. The workers must be parked.
    pub fn state(&self) -> InstanceState {
        let rings = self.running.as_ref().map_or(RingsState::Stopped, |running| RingsState::Running {
            index: running.binding.index(),
            extra_bufs: running.binding.extra_bufs(),
            hdr_len: running.hdr_len,
        });
        InstanceState { seen: self.seen, rings }
    }

    fn over(
        config: &Config,
        backend: &Arc<dyn Backend>,
        region: Arc<Region>,
        (doorbells, vectors): (Vec<Doorbell>, Vec<Doorbell>),
        begun: RingsState,
    ) -> Result<Instance, InstanceError> {
        let outside = || RegionError::Exhausted { what: "space", asked: 1, free: 0 };
        let header = Header::new(region.mapping()).ok_or_else(outside)?;
        let this = Instance {
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

    /// The memory, to pass to the guest.
    pub fn memory(&self) -> Option<BorrowedFd<'_>> {
        self.region.fd()
    }

    /// The doorbells that the guest rings: tx rings, rx rings, commands.
    pub fn doorbells(&self) -> &[Doorbell] {
        &self.doorbells
    }

    /// The doorbells that interrupt the guest, in the same order.
    pub fn vectors(&self) -> &[Doorbell] {
        &self.vectors
    }

    /// Bytes of header before each frame.
    pub fn hdr_len(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.hdr_len)
    }

    /// Executes the guest's command, if it has a new one. Returns it with its result.
    ///
    /// # Errors
    /// A worker does not hand the running rings back: the guest must be given up.
    pub fn obey(&mut self) -> Result<Option<Obeyed>, InUse> {
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

    /// Interrupts the guest's driver, to make it read the status.
    fn interrupt(&self) {
        if let Some(bell) = self.vectors.last() {
            bell.ring();
        }
    }

    /// Starts new rings over all of the memory, in whatever state the guest left it.
    fn start(&mut self, features: u32, extra_bufs: u32) -> Result<(), Errno> {
        if features & !self.config.features() != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let hdr_len = if features & FEATURE_VNET_HDR != 0 { 12 } else { 0 };
        let running = self.rings(hdr_len, extra_bufs).map_err(|why| {
            tracing::warn!(%why, "rings cannot be started");
            // Rings that are not handed back are out of use, and keep new ones out.
            let _ = self.backend.empty();
            Errno::NOMEM
        })?;
        // The guest may have overwritten it.
        self.header.describe(&self.config, self.region.layout());
        self.header.set_binding(running.binding.nifp(), running.binding.extra_bufs());
        self.running = Some(running);
        self.header.set_status(STATUS_LINK_UP | STATUS_RUNNING);
        Ok(())
    }

    fn rings(&mut self, hdr_len: u32, extra_bufs: u32) -> Result<Running, InstanceError> {
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
        Ok(Running { binding, hdr_len })
    }

    /// Lends the rings to the workers.
    fn connect(&self, mem: &Arc<PortMem>, hdr_len: u32, goes_on: bool) -> Result<(), Errno> {
        let of = |i: usize, side: &RingSide| {
            let wake = self.vectors.get(i).ok_or(Errno::INVAL)?.try_clone();
            let wake = wake.map_err(|e| e.raw_os_error().map_or(Errno::MFILE, Errno::from_raw_os_error))?;
            Ok((side.clone(), Arc::new(wake)))
        };
        self.backend.fill(&Fresh { mem, hdr_len: hdr_len.into(), uso: true, goes_on, of: &of })
    }

    /// Takes the rings away from the workers.
    fn stop(&mut self) -> Result<(), InUse> {
        let done = self.backend.empty();
        self.running = None;
        if self.is_ours {
            self.header.set_status(STATUS_LINK_UP);
        }
        done
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Rings that are not handed back are out of use, and keep their memory.
        let _ = self.stop();
        for (ring, bell) in self.doorbells.iter().enumerate() {
            if let Some(wake) = self.backend.wake(ring) {
                wake.remove(bell);
            }
        }
    }
}

/// The rings of a device.
pub fn shape(c: &Config) -> PortShape {
    PortShape { tx_rings: c.tx_rings, rx_rings: c.rx_rings, tx_slots: c.slots, rx_slots: c.slots }
}

/// The sizes of a device's memory: its rings, and the rest for extra buffers.
pub fn sizes(c: &Config) -> RegionSizes {
    let buf_size = if c.buf_size == 0 { DEFAULT_BUF_SIZE } else { c.buf_size };
    RegionSizes::for_port(c.tx_rings + c.rx_rings, c.slots, buf_size, 0, 0)
}
