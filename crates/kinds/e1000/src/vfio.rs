//! The card as a PCI function, which a hypervisor accesses over vfio-user.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use netvale_mem::lent::InUse;
use netvale_mem::notify::Doorbell;
use netvale_vfio_user::config::{BarKind, ConfigSpace, Identity};
use netvale_vfio_user::irqs::{INTX, KINDS, MSI};
use netvale_vfio_user::{Bar, Device, DeviceHost};

use crate::core::{Core, SharedCore};
use crate::memory::CardMemory;
use crate::regs::SPACE;

/// Index of the base address register for memory-mapped registers (§4.1).
const MEMORY: usize = 0;
/// Index of the base address register for I/O ports.
const PORTS: usize = 1;
/// Size of the I/O ports in bytes (§13.3).
const PORTS_SIZE: u64 = 64;
/// Offset of the I/O port that selects a register by its offset.
const IOADDR: u64 = 0;
/// Offset of the I/O port that reads and writes the selected register.
const IODATA: u64 = 4;
/// PCI vendor ID (§5.6.11).
pub const VENDOR: u16 = 0x8086;
/// PCI device ID (§5.6.12).
pub const DEVICE: u16 = 0x100e;

/// The PCI function of a card.
pub struct E1000Device {
    space: ConfigSpace,
    shared: Arc<SharedCore>,
    /// IOADDR: the offset of the register that IODATA accesses.
    address: u32,
    /// An error if a worker did not return the card in time for a guest's access.
    health: Result<(), InUse>,
}

impl E1000Device {
    /// Number of interrupt vectors of each kind ([`netvale_vfio_user::irqs`]): one pin, one MSI vector.
    pub fn vectors() -> [u32; KINDS] {
        let mut counts = [0; KINDS];
        counts[INTX] = 1;
        counts[MSI] = 1;
        counts
    }

    /// Creates the function with this subsystem device ID. The core must be in its state after
    /// [`SharedCore::power_off`].
    pub fn new(shared: Arc<SharedCore>, subsystem: u16) -> E1000Device {
        let who = Identity {
            id: (VENDOR, DEVICE),
            class: (2, 0, 0),
            revision: 2,
            subsystem: (VENDOR, subsystem),
            intx: true,
        };
        let mut space = ConfigSpace::new(&who);
        space.bar(MEMORY, BarKind::Memory, SPACE.into());
        space.bar(PORTS, BarKind::Ports, PORTS_SIZE);
        space.msi();
        E1000Device { space, shared, address: 0, health: Ok(()) }
    }

    /// IOADDR: the offset of the register that IODATA accesses.
    pub fn address(&self) -> u32 {
        self.address
    }

    /// Attaches a restored guest: its IOADDR and the hypervisor's resources, without ringing a doorbell or writing to
    /// memory. Returns false if the driver's status block is outside the memory.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn go_on(&mut self, host: &DeviceHost, address: u32, has_block: bool) -> std::io::Result<bool> {
        self.address = address & (SPACE - 1);
        let message = host.irqs.bell(MSI, 0);
        let pin = host.irqs.bell(INTX, 0);
        let bell = message.or(pin).map(Doorbell::try_clone).transpose()?;
        let memory = CardMemory::of(&host.dma);
        Ok(self.with(|core| core.go_on(memory, has_block, bell, message.is_some())) == Some(true))
    }

    fn register(&mut self, at: u32) -> u32 {
        self.shared.crossings.reads.fetch_add(1, Ordering::Relaxed);
        let value = self.with(|core| core.read(at)).unwrap_or(u32::MAX);
        tracing::trace!("r {at:05x} {value:08x}");
        value
    }

    fn set(&mut self, at: u32, value: u32) {
        self.shared.crossings.writes.fetch_add(1, Ordering::Relaxed);
        let effects = self.with(|core| core.write(at, value));
        tracing::trace!("w {at:05x} {value:08x}");
        if effects.is_some_and(|effects| effects.sends) {
            self.shared.kick();
        }
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut Core) -> R) -> Option<R> {
        let done = self.shared.control(f);
        self.health = self.health.and(done.as_ref().map(drop).map_err(|why| *why));
        done.ok()
    }
}

impl Device for E1000Device {
    fn config(&mut self) -> &mut ConfigSpace {
        &mut self.space
    }

    fn bar(&self, number: usize) -> Bar<'_> {
        match number {
            MEMORY => Bar { size: SPACE.into(), memory: None },
            PORTS => Bar { size: PORTS_SIZE, memory: None },
            _ => Bar::default(),
        }
    }

    fn read(&mut self, bar: usize, at: u64, data: &mut [u8], _host: &DeviceHost) {
        let value = match (bar, u32::try_from(at)) {
            // Narrow reads return the addressed bytes of the register.
            (MEMORY, Ok(at)) => self.register(at & !3) >> (8 * (at & 3)),
            (PORTS, Ok(at)) if u64::from(at) == IOADDR => self.address,
            (PORTS, Ok(at)) if u64::from(at) == IODATA => self.register(self.address & !3),
            _ => 0,
        };
        let bytes = value.to_le_bytes();
        data.iter_mut().enumerate().for_each(|(i, byte)| *byte = bytes.get(i).copied().unwrap_or(0));
    }

    fn write(&mut self, bar: usize, at: u64, data: &[u8], _host: &DeviceHost) {
        // Only whole registers can be written (§13.3); narrower, wider or unaligned writes are ignored.
        let Ok(value) = <[u8; 4]>::try_from(data).map(u32::from_le_bytes) else { return };
        match (bar, u32::try_from(at)) {
            (MEMORY, Ok(at)) if at % 4 == 0 => self.set(at, value),
            (PORTS, Ok(at)) if u64::from(at) == IOADDR => self.address = value & (SPACE - 1),
            (PORTS, Ok(at)) if u64::from(at) == IODATA => self.set(self.address & !3, value),
            _ => {}
        }
    }

    fn interrupts_changed(&mut self, host: &DeviceHost) {
        let message = host.irqs.bell(MSI, 0);
        let pin = host.irqs.bell(INTX, 0);
        self.with(|core| {
            if let Err(e) = core.connect(message.or(pin), message.is_some()) {
                tracing::warn!("cannot connect the guest's interrupt: {e}");
            }
        });
        self.pin_changed(host);
    }

    fn pin_changed(&mut self, host: &DeviceHost) {
        // Messages cannot be masked.
        if !host.irqs.masked || host.irqs.bell(MSI, 0).is_some() {
            self.with(Core::unmask_pin);
        }
    }

    fn memory_changed(&mut self, host: &DeviceHost) {
        // Create and drop mappings outside of `with`, because workers wait while `with` holds the core.
        let memory = CardMemory::of(&host.dma);
        drop(self.with(|core| core.set_memory(memory)));
    }

    fn health(&self) -> Result<(), InUse> {
        self.health
    }

    fn reset(&mut self, _host: &DeviceHost) {
        self.with(Core::reset);
    }

    fn timer(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.timer())
    }

    fn tick(&mut self) {
        self.with(Core::tick);
    }
}
