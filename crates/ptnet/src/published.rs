//! ptnet as netmap published it: two PCI devices, by vfio-user.
//!
//! The *memory device* (1b36:000c) shows netmap's memory and says how it is divided; the *ptnet device* (1b36:000d) has the registers of the ptnet paper. A
//! guest's driver for them brings its own status blocks, in its own memory, and tells their addresses. Registers are 32 bits wide; what is accessed in
//! another way reads as zero and is not written.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netvale_abi::ptnet::published::{
    CREATE, DELETE, FEATURE_VNET_HDR, MEMORY_DEVICE, PTNET_DEVICE, VENDOR, memory, reg,
};
use netvale_mem::Region;
use netvale_mem::csb::Csb;
use netvale_mem::mapping::Pages;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::{Binding, RingSide};
use netvale_vfio_user::config::{BarKind, ConfigSpace, Identity};
use netvale_vfio_user::irqs::{KINDS, MSIX};
use netvale_vfio_user::{Bar, Device, Host};
use rustix::io::Errno;

use crate::backend::{Backend, Fresh};
use crate::header::Config;
use crate::instance::{InstanceError, shape, sizes};

/// Bytes of registers.
const REGISTERS: u64 = 256;
/// Base address registers: registers of both; memory of the one; vectors of the other.
const IO: usize = 0;
const MEMORY: usize = 1;
const VECTORS: usize = 2;
/// Bytes of the table of vectors.
const VECTORS_SIZE: u64 = 4096;
/// A status block.
const CSB: u64 = 64;

/// A virtual machine's memory, as long as one of its two devices is connected.
#[derive(Default)]
pub struct Machine {
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    region: Option<Arc<Region>>,
    users: u32,
    /// Number of the memory: another one for each virtual machine.
    id: u32,
}

impl Machine {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory, made for whoever comes first, and its number.
    fn join(&self, config: &Config) -> Result<(Arc<Region>, u32), InstanceError> {
        let mut shared = self.lock();
        let region = match &shared.region {
            Some(region) => Arc::clone(region),
            None => {
                shared.id += 1;
                Region::bar("netvale-ptnet", sizes(config), Pages::Ordinary)?
            }
        };
        shared.users += 1;
        shared.region = Some(Arc::clone(&region));
        Ok((region, shared.id))
    }

    fn leave(&self) {
        let mut shared = self.lock();
        shared.users = shared.users.saturating_sub(1);
        if shared.users == 0 {
            shared.region = None;
        }
    }
}

/// Reads a register.
fn give(value: u32, data: &mut [u8]) {
    if let Ok(data) = <&mut [u8; 4]>::try_from(data) {
        *data = value.to_le_bytes();
    }
}

/// The memory device.
pub struct MemoryDevice {
    config: ConfigSpace,
    machine: Arc<Machine>,
    region: Arc<Region>,
    id: u32,
}

impl MemoryDevice {
    /// Vectors of each kind.
    pub const VECTORS: [u32; KINDS] = [0; KINDS];

    /// The device of a machine.
    ///
    /// # Errors
    /// [`InstanceError`].
    pub fn new(config: &Config, machine: &Arc<Machine>) -> Result<MemoryDevice, InstanceError> {
        let (region, id) = machine.join(config)?;
        let who = Identity { id: (VENDOR, MEMORY_DEVICE), class: (5, 0x80, 0), ..Identity::default() };
        let mut space = ConfigSpace::new(&who);
        space.bar(IO, BarKind::Ports, REGISTERS);
        space.bar(MEMORY, BarKind::Memory, region.layout().total);
        Ok(MemoryDevice { config: space, machine: Arc::clone(machine), region, id })
    }

    fn register(&self, at: u64) -> u32 {
        let layout = self.region.layout();
        let pools = [
            (layout.if_pool, layout.sizes.ifs),
            (layout.ring_pool, layout.sizes.rings),
            (layout.buf_pool, layout.sizes.bufs),
        ];
        match at {
            memory::SIZE_LOW => layout.total as u32,
            memory::SIZE_HIGH => (layout.total >> 32) as u32,
            memory::ID => self.id,
            at if memory::POOLS.contains(&at) => {
                let which = (at - memory::POOLS.start()) / 4;
                let Some((offset, pool)) = pools.get((which / 3) as usize) else { return 0 };
                [*offset as u32, pool.num, pool.size][(which % 3) as usize]
            }
            _ => 0,
        }
    }
}

impl Drop for MemoryDevice {
    fn drop(&mut self) {
        self.machine.leave();
    }
}

impl Device for MemoryDevice {
    fn config(&mut self) -> &mut ConfigSpace {
        &mut self.config
    }

    fn bar(&self, number: usize) -> Bar<'_> {
        match number {
            IO => Bar { size: REGISTERS, memory: None },
            MEMORY => Bar { size: self.region.layout().total, memory: self.region.fd().map(|fd| (fd, 0)) },
            _ => Bar::default(),
        }
    }

    fn read(&mut self, bar: usize, at: u64, data: &mut [u8], _host: &Host) {
        if bar == IO {
            give(self.register(at), data);
        }
    }

    fn write(&mut self, _bar: usize, _at: u64, _data: &[u8], _host: &Host) {}

    fn reset(&mut self, _host: &Host) {}
}

/// What the port tells of its guest.
pub type Tell = Box<dyn Fn(Option<u32>) + Send>;

/// The ptnet device. Dropping it stops the rings.
pub struct PtnetDevice {
    space: ConfigSpace,
    config: Config,
    machine: Arc<Machine>,
    region: Arc<Region>,
    id: u32,
    backend: Arc<dyn Backend>,
    /// What workers ring, tx rings first: led to what the hypervisor gave.
    wakes: Vec<Arc<Doorbell>>,
    features: u32,
    hdr_len: u32,
    csb: [u32; 4],
    /// What came of the last command.
    result: u32,
    nifp: u32,
    /// The `netmap_if` of rings that run.
    running: Option<Binding>,
    tell: Tell,
}

impl PtnetDevice {
    /// Vectors of each kind.
    pub fn vectors(config: &Config) -> [u32; KINDS] {
        let mut counts = [0; KINDS];
        counts[MSIX] = config.tx_rings + config.rx_rings;
        counts
    }

    /// The device of a machine; `tell` learns when its rings run, and with how many bytes of header.
    ///
    /// # Errors
    /// [`InstanceError`].
    pub fn new(
        config: &Config,
        machine: &Arc<Machine>,
        backend: &Arc<dyn Backend>,
        tell: Tell,
    ) -> Result<PtnetDevice, InstanceError> {
        let rings = config.tx_rings + config.rx_rings;
        let wakes = (0..rings).map(|_| Doorbell::new().map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        let (region, id) = machine.join(config)?;
        let who = Identity { id: (VENDOR, PTNET_DEVICE), class: (2, 0, 0), ..Identity::default() };
        let mut space = ConfigSpace::new(&who);
        space.bar(IO, BarKind::Ports, REGISTERS);
        space.bar(VECTORS, BarKind::Memory, VECTORS_SIZE);
        space.msix(rings as u16, VECTORS as u8, 0, (VECTORS_SIZE / 2) as u32);
        Ok(PtnetDevice {
            space,
            config: *config,
            machine: Arc::clone(machine),
            region,
            id,
            backend: Arc::clone(backend),
            wakes,
            features: 0,
            hdr_len: 0,
            csb: [0; 4],
            result: 0,
            nifp: 0,
            running: None,
            tell,
        })
    }

    fn register(&self, at: u64) -> u32 {
        let c = &self.config;
        let mac = c.mac.map(u32::from);
        match at {
            reg::FEATURES => self.features,
            reg::CONTROL => self.result,
            reg::MAC_LOW => mac[2] << 24 | mac[3] << 16 | mac[4] << 8 | mac[5],
            reg::MAC_HIGH => mac[0] << 8 | mac[1],
            reg::NIFP => self.nifp,
            reg::TX_RINGS => c.tx_rings,
            reg::RX_RINGS => c.rx_rings,
            reg::TX_SLOTS | reg::RX_SLOTS => c.slots,
            reg::HEADER_LEN => self.hdr_len,
            reg::MEMORY_ID => self.id,
            at if reg::CSB.contains(&at) => self.csb[((at - reg::CSB.start()) / 4) as usize],
            _ => 0,
        }
    }

    fn set(&mut self, at: u64, value: u32, host: &Host) {
        match at {
            reg::FEATURES => self.features = value & if self.config.vnet_hdr { FEATURE_VNET_HDR } else { 0 },
            reg::CONTROL => self.control(value, host),
            reg::HEADER_LEN if value == 0 || (value == 12 && self.features & FEATURE_VNET_HDR != 0) => {
                self.hdr_len = value;
            }
            at if reg::CSB.contains(&at) => self.csb[((at - reg::CSB.start()) / 4) as usize] = value,
            at if at >= reg::KICKS => self.kick((at - reg::KICKS) / 4),
            _ => {}
        }
    }

    fn kick(&self, ring: u64) {
        if let Ok(ring) = usize::try_from(ring) {
            self.backend.kick(ring);
        }
    }

    fn control(&mut self, command: u32, host: &Host) {
        self.result = match command {
            CREATE => self.start(host).err().map_or(0, |e| e.raw_os_error().unsigned_abs()),
            DELETE => {
                self.stop();
                0
            }
            _ => Errno::INVAL.raw_os_error().unsigned_abs(),
        };
        tracing::debug!(command, result = self.result, "ptnet control");
    }

    /// Fresh rings, with the guest's status blocks.
    fn start(&mut self, host: &Host) -> Result<(), Errno> {
        self.stop();
        let c = self.config;
        self.region = self.region.renewed().map_err(|_| Errno::NOMEM)?;
        let mem = Arc::new(self.region.port(shape(&c)).map_err(|_| Errno::NOMEM)?);
        let binding = mem.bind("ptnet", 0..c.tx_rings, 0..c.rx_rings, 0).map_err(|_| Errno::NOMEM)?;
        let csbs = (0..mem.tx.len() + mem.rx.len()).map(|i| self.csb(i, host)).collect::<Option<Vec<_>>>();
        let csbs = csbs.ok_or(Errno::FAULT)?;
        for (i, csb) in csbs.iter().enumerate() {
            csb.reset(if i < mem.tx.len() { c.slots - 1 } else { 0 });
        }
        self.nifp = binding.nifp() as u32;
        let of = |i: usize, side: &RingSide| {
            let (csb, wake) = csbs.get(i).zip(self.wakes.get(i)).ok_or(Errno::FAULT)?;
            Ok((RingSide { csb: csb.clone(), ..side.clone() }, Arc::clone(wake)))
        };
        let filled = self.backend.fill(&Fresh { mem: &mem, hdr_len: self.hdr_len, of: &of });
        filled.inspect_err(|why| {
            tracing::warn!(%why, "rings cannot be started");
            self.backend.empty();
        })?;
        self.running = Some(binding);
        (self.tell)(Some(self.hdr_len));
        Ok(())
    }

    /// Status block of a ring, wherever the guest said; none if that is no memory of its.
    fn csb(&self, ring: usize, host: &Host) -> Option<Csb> {
        let at = |high: u32, low: u32| (u64::from(high) << 32 | u64::from(low)).checked_add(CSB * ring as u64);
        let [gh_high, gh_low, hg_high, hg_low] = self.csb;
        let atok = host.dma.find(at(gh_high, gh_low)?, CSB)?;
        let ktoa = host.dma.find(at(hg_high, hg_low)?, CSB)?;
        Csb::apart(atok, ktoa)
    }

    fn stop(&mut self) {
        self.backend.empty();
        self.running = None;
        (self.tell)(None);
    }
}

impl Drop for PtnetDevice {
    fn drop(&mut self) {
        self.stop();
        self.machine.leave();
    }
}

impl Device for PtnetDevice {
    fn config(&mut self) -> &mut ConfigSpace {
        &mut self.space
    }

    fn bar(&self, number: usize) -> Bar<'_> {
        match number {
            IO => Bar { size: REGISTERS, memory: None },
            VECTORS => Bar { size: VECTORS_SIZE, memory: None },
            _ => Bar::default(),
        }
    }

    fn read(&mut self, bar: usize, at: u64, data: &mut [u8], _host: &Host) {
        if bar == IO {
            give(self.register(at), data);
        }
    }

    fn write(&mut self, bar: usize, at: u64, data: &[u8], host: &Host) {
        if let (IO, Ok(value)) = (bar, <[u8; 4]>::try_from(data)) {
            self.set(at, u32::from_le_bytes(value), host);
        }
    }

    fn interrupts_changed(&mut self, host: &Host) {
        for (i, wake) in self.wakes.iter().enumerate() {
            let led = match host.irqs.bell(MSIX, i) {
                Some(bell) => wake.lead_to(bell.as_fd()),
                None => Doorbell::new().and_then(|nobody| wake.lead_to(nobody.as_fd())),
            };
            if let Err(e) = led {
                tracing::warn!(ring = i, "an interrupt cannot be connected: {e}");
            }
        }
    }

    fn memory_changed(&mut self, host: &Host) {
        // Status blocks that are gone: mapped as long as the rings run, but no guest's any more.
        let rings = self.config.tx_rings + self.config.rx_rings;
        if self.running.is_some() && (0..rings as usize).any(|i| self.csb(i, host).is_none()) {
            tracing::info!("the memory with the status blocks was taken away: rings stopped");
            self.stop();
        }
    }

    fn reset(&mut self, _host: &Host) {
        self.stop();
        (self.features, self.hdr_len, self.csb, self.result, self.nifp) = (0, 0, [0; 4], 0, 0);
    }
}
