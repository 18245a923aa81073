//! ptnet as netmap published it: two PCI devices, over vfio-user.
//!
//! The *memory device* (1b36:000c) shows netmap's memory and describes its parts; the *ptnet device* (1b36:000d) has
//! the registers of the ptnet paper (Maffione, Rizzo and Lettieri, "Flexible Virtual Machine Networking Using Netmap
//! Passthrough", 2016). A guest's driver for them allocates the status blocks in the guest's memory and writes their
//! addresses to the device. Registers are 32 bits wide; reads of another width return zero, writes of another width are
//! ignored.

use std::os::fd::AsFd;
use std::sync::Arc;

use netvale_abi::ptnet::published::{
    CREATE, DELETE, FEATURE_VNET_HDR, MEMORY_DEVICE, PTNET_DEVICE, VENDOR, memory, reg,
};
use netvale_mem::Region;
use netvale_mem::csb::Csb;
use netvale_mem::fault::Fault;
use netvale_mem::lent::InUse;
use netvale_mem::notify::{Doorbell, arm};
use netvale_mem::region::RingSide;
use netvale_port::HdrLen;
use netvale_vfio_user::config::{BarKind, ConfigSpace, Identity};
use netvale_vfio_user::irqs::{KINDS, MSIX};
use netvale_vfio_user::{Bar, Device, DeviceHost};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, GuestRings};
use crate::header::PtnetDeviceConfig;
use crate::instance::InstanceError;
use crate::machine::{MachineShare, PtnetMachine, RingsLayout};

/// Size of the registers in bytes.
const REGISTERS: u64 = 256;
/// Number of the base address register (BAR) through which a guest accesses the registers, in both devices.
const IO: usize = 0;
/// Number of the base address register for the memory device's memory.
const MEMORY: usize = 1;
/// Number of the base address register for the ptnet device's vectors.
const VECTORS: usize = 2;
/// Size of the table of vectors in bytes.
const VECTORS_SIZE: u64 = 4096;
/// Size of a status block in bytes.
const CSB: u64 = 64;

/// Copies a register's value to `data` if `data` is as long as a register; a read of another width leaves `data`
/// unchanged.
fn give(value: u32, data: &mut [u8]) {
    if let Ok(data) = <&mut [u8; 4]>::try_from(data) {
        *data = value.to_le_bytes();
    }
}

/// The memory device, which shows netmap's memory to the guest.
pub struct MemoryDevice {
    config: ConfigSpace,
    share: MachineShare,
}

impl MemoryDevice {
    /// Number of interrupt vectors of each kind: none.
    pub const VECTORS: [u32; KINDS] = [0; KINDS];

    /// Creates the memory device of a machine.
    ///
    /// # Errors
    /// [`InstanceError`] if the memory cannot be created.
    pub fn new(config: &PtnetDeviceConfig, machine: &Arc<PtnetMachine>) -> Result<MemoryDevice, InstanceError> {
        let share = MachineShare::new(machine, config)?;
        let who = Identity { id: (VENDOR, MEMORY_DEVICE), class: (5, 0x80, 0), ..Identity::default() };
        let mut space = ConfigSpace::new(&who);
        space.bar(IO, BarKind::Ports, REGISTERS);
        space.bar(MEMORY, BarKind::Memory, share.region.layout().total);
        Ok(MemoryDevice { config: space, share })
    }

    fn register(&self, at: u64) -> u32 {
        let layout = self.share.region.layout();
        let pools = [
            (layout.if_pool, layout.sizes.ifs),
            (layout.ring_pool, layout.sizes.rings),
            (layout.buf_pool, layout.sizes.bufs),
        ];
        match at {
            memory::SIZE_LOW => layout.total as u32,
            memory::SIZE_HIGH => (layout.total >> 32) as u32,
            memory::ID => self.share.number.into(),
            at if memory::POOLS.contains(&at) => {
                let which = (at - memory::POOLS.start()) / 4;
                let Some((offset, pool)) = pools.get((which / 3) as usize) else { return 0 };
                [*offset as u32, pool.num, pool.size][(which % 3) as usize]
            }
            _ => 0,
        }
    }
}

impl Device for MemoryDevice {
    fn config(&mut self) -> &mut ConfigSpace {
        &mut self.config
    }

    fn bar(&self, number: usize) -> Bar<'_> {
        match number {
            IO => Bar { size: REGISTERS, memory: None },
            MEMORY => {
                let region = &self.share.region;
                Bar { size: region.layout().total, memory: region.fd().map(|fd| (fd, 0)) }
            }
            _ => Bar::default(),
        }
    }

    fn read(&mut self, bar: usize, at: u64, data: &mut [u8], _host: &DeviceHost) {
        if bar == IO {
            give(self.register(at), data);
        }
    }

    fn write(&mut self, _bar: usize, _at: u64, _data: &[u8], _host: &DeviceHost) {}

    fn reset(&mut self, _host: &DeviceHost) {}
}

/// A callback that is called with the header length when the guest's rings start, and with `None` when they stop.
pub type RunListener = Box<dyn Fn(Option<u32>) + Send>;

/// The state of a ptnet device's registers that a guest can change.
#[derive(Serialize, Deserialize)]
pub struct PtnetRegisters {
    features: u32,
    hdr_len: u32,
    csb: [u32; 4],
    result: u32,
    /// Whether the rings run.
    running: bool,
}

/// The ptnet device. Dropping it stops the rings.
///
/// To a driver it behaves like netmap's own host. Everything that a driver reads in its probe function is valid from
/// the start and stays valid. The rings start with the first [`CREATE`]; writing a new address of the status blocks
/// stops rings that run with the old address.
pub struct PtnetDevice {
    space: ConfigSpace,
    config: PtnetDeviceConfig,
    share: MachineShare,
    /// The layout of the rings, renewed whenever the rings stop and before they start.
    laid: RingsLayout,
    backend: Arc<dyn Backend>,
    /// The doorbells that workers ring, tx rings first; they forward kicks to the hypervisor's doorbells.
    wakes: Vec<Arc<Doorbell>>,
    features: u32,
    /// The header length, which may change while the rings run.
    hdr_len: HdrLen,
    csb: [u32; 4],
    /// Result of the last command.
    result: u32,
    running: bool,
    /// An error if a worker did not return the rings when the rings were last stopped.
    handed_back: Result<(), InUse>,
    tell: RunListener,
}

impl PtnetDevice {
    /// Returns the number of interrupt vectors of each kind: one MSI-X vector per ring.
    pub fn vectors(config: &PtnetDeviceConfig) -> [u32; KINDS] {
        let mut counts = [0; KINDS];
        counts[MSIX] = config.tx_rings + config.rx_rings;
        counts
    }

    /// Creates the ptnet device of a machine. `fault` belongs to the hypervisor's session, and is set if memory is lost
    /// or a doorbell blocks.
    ///
    /// # Errors
    /// [`InstanceError`] if the memory cannot be created.
    pub fn new(
        config: &PtnetDeviceConfig,
        machine: &Arc<PtnetMachine>,
        backend: &Arc<dyn Backend>,
        fault: &Fault,
    ) -> Result<PtnetDevice, InstanceError> {
        Self::laid(config, machine, backend, fault, RingsLayout::new)
    }

    /// Creates a predecessor's device like [`PtnetDevice::new`]; the caller must then call [`PtnetDevice::go_on`].
    ///
    /// # Errors
    /// [`InstanceError`] if the memory is not the predecessor's.
    pub fn continued(
        config: &PtnetDeviceConfig,
        machine: &Arc<PtnetMachine>,
        backend: &Arc<dyn Backend>,
        fault: &Fault,
    ) -> Result<PtnetDevice, InstanceError> {
        Self::laid(config, machine, backend, fault, RingsLayout::continued)
    }

    fn laid(
        config: &PtnetDeviceConfig,
        machine: &Arc<PtnetMachine>,
        backend: &Arc<dyn Backend>,
        fault: &Fault,
        lay: fn(&Region, &PtnetDeviceConfig) -> Result<RingsLayout, InstanceError>,
    ) -> Result<PtnetDevice, InstanceError> {
        let rings = config.tx_rings + config.rx_rings;
        let wakes = (0..rings).map(|_| Doorbell::shared(fault).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        let share = MachineShare::new(machine, config)?;
        share.region.mapping().blame(fault);
        let laid = lay(&share.region, config)?;
        let who = Identity { id: (VENDOR, PTNET_DEVICE), class: (2, 0, 0), ..Identity::default() };
        let mut space = ConfigSpace::new(&who);
        space.bar(IO, BarKind::Ports, REGISTERS);
        space.bar(VECTORS, BarKind::Memory, VECTORS_SIZE);
        space.msix(rings as u16, VECTORS as u8, 0, (VECTORS_SIZE / 2) as u32);
        Ok(PtnetDevice {
            space,
            config: *config,
            share,
            laid,
            backend: Arc::clone(backend),
            wakes,
            features: 0,
            hdr_len: HdrLen::default(),
            csb: [0; 4],
            result: 0,
            running: false,
            handed_back: Ok(()),
            tell: Box::new(|_| ()),
        })
    }

    /// Returns the registers for a successor.
    pub fn registers(&self) -> PtnetRegisters {
        PtnetRegisters {
            features: self.features,
            hdr_len: self.hdr_len.get(),
            csb: self.csb,
            result: self.result,
            running: self.running,
        }
    }

    /// Attaches restored registers and the hypervisor's resources. No doorbell is rung, and the guest's memory stays
    /// unchanged.
    ///
    /// # Errors
    /// The error that prevents the rings from running.
    pub fn go_on(&mut self, host: &DeviceHost, registers: &PtnetRegisters) -> Result<(), Errno> {
        self.set(reg::FEATURES, registers.features, host);
        self.set_header_len(registers.hdr_len);
        self.csb = registers.csb;
        self.result = registers.result;
        self.interrupts_changed(host);
        if registers.running {
            self.connect(&self.csbs(host)?, true)?;
            self.running = true;
        }
        Ok(())
    }

    /// Sets the callback for rings that start or stop.
    pub fn tells(&mut self, tell: RunListener) {
        self.tell = tell;
    }

    fn register(&self, at: u64) -> u32 {
        let c = &self.config;
        let mac = c.mac.map(u32::from);
        match at {
            reg::FEATURES => self.features,
            reg::CONTROL => self.result,
            reg::MAC_LOW => mac[2] << 24 | mac[3] << 16 | mac[4] << 8 | mac[5],
            reg::MAC_HIGH => mac[0] << 8 | mac[1],
            reg::NIFP => self.laid.nifp() as u32,
            reg::TX_RINGS => c.tx_rings,
            reg::RX_RINGS => c.rx_rings,
            reg::TX_SLOTS | reg::RX_SLOTS => c.slots,
            reg::HEADER_LEN => self.hdr_len.get(),
            reg::MEMORY_ID => self.share.number.into(),
            at if reg::CSB.contains(&at) => self.csb[((at - reg::CSB.start()) / 4) as usize],
            _ => 0,
        }
    }

    fn set(&mut self, at: u64, value: u32, host: &DeviceHost) {
        match at {
            reg::FEATURES => self.features = value & if self.config.vnet_hdr { FEATURE_VNET_HDR } else { 0 },
            reg::CONTROL => self.control(value, host),
            reg::HEADER_LEN => self.set_header_len(value),
            at if reg::CSB.contains(&at) => self.set_csb(((at - reg::CSB.start()) / 4) as usize, value),
            at if at >= reg::KICKS => self.kick((at - reg::KICKS) / 4),
            _ => {}
        }
    }

    /// Sets the length of the virtio-net header. A length that is invalid or not offered changes nothing; the driver
    /// sees this when it reads the register back. Running rings use the new length.
    fn set_header_len(&mut self, value: u32) {
        if (value == 0 || self.config.vnet_hdr) && self.hdr_len.set(value) && self.running {
            (self.tell)(Some(value));
        }
    }

    /// Sets half of the address of the status blocks. The driver writes the low half last; only the write of the low
    /// half takes effect: this write stops rings that run with the old address.
    fn set_csb(&mut self, half: usize, value: u32) {
        if let Some(place) = self.csb.get_mut(half) {
            *place = value;
        }
        let low = half % 2 == 1;
        if low && self.running {
            self.stop();
        }
        if low {
            self.result = 0;
        }
    }

    fn kick(&self, ring: u64) {
        if let Ok(ring) = usize::try_from(ring) {
            self.backend.kick(ring);
        }
    }

    fn control(&mut self, command: u32, host: &DeviceHost) {
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

    /// Starts the rings with the guest's status blocks. If the rings already run, does nothing.
    fn start(&mut self, host: &DeviceHost) -> Result<(), Errno> {
        if self.running {
            return Ok(());
        }
        let c = self.config;
        let csbs = self.csbs(host)?;
        self.laid = RingsLayout::new(&self.share.region, &c).map_err(|_| Errno::NOMEM)?;
        for (i, csb) in csbs.iter().enumerate() {
            csb.reset(if i < self.laid.mem.tx.len() { c.slots - 1 } else { 0 });
            // netmap's host starts with interrupts armed; a driver that waits for interrupts without arming them relies
            // on this.
            arm(csb.appl_need_kick());
        }
        if let Err(why) = self.connect(&csbs, false) {
            tracing::warn!(%why, "cannot start the rings");
            self.stop();
            return Err(why);
        }
        self.running = true;
        (self.tell)(Some(self.hdr_len.get()));
        Ok(())
    }

    /// Connects the rings with these status blocks.
    fn connect(&self, csbs: &[Csb], goes_on: bool) -> Result<(), Errno> {
        let of = |i: usize, side: &RingSide| {
            let (csb, wake) = csbs.get(i).zip(self.wakes.get(i)).ok_or(Errno::FAULT)?;
            Ok((RingSide { csb: csb.clone(), ..side.clone() }, Arc::clone(wake)))
        };
        self.backend.fill(&GuestRings {
            mem: &self.laid.mem,
            hdr_len: self.hdr_len.clone(),
            uso: false,
            goes_on,
            of: &of,
        })
    }

    fn csbs(&self, host: &DeviceHost) -> Result<Vec<Csb>, Errno> {
        let rings = (self.config.tx_rings + self.config.rx_rings) as usize;
        (0..rings).map(|i| self.csb(i, host)).collect::<Option<_>>().ok_or(Errno::NXIO)
    }

    /// Returns the status block of a ring at the guest's address; `None` if the guest has set no address, or the block
    /// is not in the guest's memory.
    fn csb(&self, ring: usize, host: &DeviceHost) -> Option<Csb> {
        let half = |high: u32, low: u32| {
            let first = (u64::from(high) << 32 | u64::from(low)).checked_add(CSB * ring as u64)?;
            host.dma.find(first, CSB).filter(|_| high | low != 0)
        };
        let [gh_high, gh_low, hg_high, hg_low] = self.csb;
        let (atok_map, atok) = half(gh_high, gh_low)?;
        let (ktoa_map, ktoa) = half(hg_high, hg_low)?;
        Csb::apart(atok_map, atok, ktoa_map, ktoa)
    }

    /// Takes the rings back from the workers, and lays the rings out anew for the next driver, which reads them before
    /// it starts them.
    fn stop(&mut self) {
        self.halt();
        match RingsLayout::new(&self.share.region, &self.config) {
            Ok(laid) => self.laid = laid,
            Err(e) => tracing::warn!("the rings are not laid out again until they start: {e}"),
        }
    }

    fn halt(&mut self) {
        self.handed_back = self.handed_back.and(self.backend.empty());
        self.running = false;
        (self.tell)(None);
    }
}

impl Drop for PtnetDevice {
    fn drop(&mut self) {
        self.halt();
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

    fn read(&mut self, bar: usize, at: u64, data: &mut [u8], _host: &DeviceHost) {
        if bar == IO {
            give(self.register(at), data);
        }
    }

    fn write(&mut self, bar: usize, at: u64, data: &[u8], host: &DeviceHost) {
        if let (IO, Ok(value)) = (bar, <[u8; 4]>::try_from(data)) {
            self.set(at, u32::from_le_bytes(value), host);
        }
    }

    fn interrupts_changed(&mut self, host: &DeviceHost) {
        for (i, wake) in self.wakes.iter().enumerate() {
            let led = match host.irqs.bell(MSIX, i) {
                Some(bell) => wake.lead_to(bell.as_fd()),
                None => Doorbell::new().and_then(|nobody| wake.lead_to(nobody.as_fd())),
            };
            if let Err(e) = led {
                tracing::warn!(ring = i, "cannot connect an interrupt: {e}");
            }
        }
    }

    fn memory_changed(&mut self, host: &DeviceHost) {
        // If the guest has unmapped the status blocks, the rings must stop: they would keep that memory mapped in this
        // process.
        let rings = self.config.tx_rings + self.config.rx_rings;
        if self.running && (0..rings as usize).any(|i| self.csb(i, host).is_none()) {
            tracing::info!("the guest unmapped the memory with the status blocks: rings stopped");
            self.stop();
        }
    }

    fn health(&self) -> Result<(), InUse> {
        self.handed_back
    }

    fn reset(&mut self, _host: &DeviceHost) {
        self.stop();
        self.hdr_len.set(0);
        self.features = 0;
        self.csb = [0; 4];
        self.result = 0;
    }
}
