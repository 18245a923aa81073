//! The controller as a PCI function for a hypervisor, by vfio-user.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use netvale_vfio_user::config::{BarKind, ConfigSpace, Identity};
use netvale_vfio_user::irqs::{INTX, KINDS, MSI};
use netvale_vfio_user::{Bar, Device, Host};

use crate::core::{Core, Shared};
use crate::memory::Memory;
use crate::regs::SPACE;

/// Base address registers: memory, and I/O ports (§4.1).
const MEMORY: usize = 0;
const PORTS: usize = 1;
/// I/O ports: an address, and what is there (§13.3).
const PORTS_SIZE: u64 = 64;
const IOADDR: u64 = 0;
const IODATA: u64 = 4;
/// PCI vendor and device id (§5.6.11, §5.6.12), class Ethernet controller.
pub const VENDOR: u16 = 0x8086;
/// See [`VENDOR`].
pub const DEVICE: u16 = 0x100e;

/// The function.
pub struct E1000Device {
    space: ConfigSpace,
    shared: Arc<Shared>,
    /// IOADDR.
    address: u32,
}

impl E1000Device {
    /// Vectors of each kind.
    pub fn vectors() -> [u32; KINDS] {
        let mut counts = [0; KINDS];
        (counts[INTX], counts[MSI]) = (1, 1);
        counts
    }

    /// Of that controller, with this subsystem device id.
    pub fn new(shared: Arc<Shared>, subsystem: u16) -> E1000Device {
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
        E1000Device { space, shared, address: 0 }
    }

    fn register(&self, at: u32) -> u32 {
        self.shared.crossings.reads.fetch_add(1, Ordering::Relaxed);
        let mut inside = self.shared.enter();
        let Some(core) = inside.as_mut() else { return 0 };
        let value = core.read(at);
        tracing::trace!("r {at:05x} {value:08x}");
        value
    }

    fn set(&self, at: u32, value: u32) {
        self.shared.crossings.writes.fetch_add(1, Ordering::Relaxed);
        let mut inside = self.shared.enter();
        let Some(core) = inside.as_mut() else { return };
        let effects = core.write(at, value);
        tracing::trace!("w {at:05x} {value:08x}");
        drop(inside);
        if effects.sends {
            self.shared.kick();
        }
    }

    /// The machine is gone: no memory, no interrupts, and a card as it was in the beginning.
    pub fn power_off(&self) {
        self.with(|core| {
            core.reset();
            core.set_memory(Memory::default());
            if let Err(e) = core.connect(None, false) {
                tracing::warn!("an interrupt cannot be disconnected: {e}");
            }
            core.update();
        });
    }

    fn with(&self, f: impl FnOnce(&mut Core)) {
        if let Some(core) = self.shared.enter().as_mut() {
            f(core);
        }
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

    fn read(&mut self, bar: usize, at: u64, data: &mut [u8], _host: &Host) {
        let value = match (bar, u32::try_from(at)) {
            // Narrow reads see their bytes of the register.
            (MEMORY, Ok(at)) => self.register(at & !3) >> (8 * (at & 3)),
            (PORTS, Ok(at)) if u64::from(at) == IOADDR => self.address,
            (PORTS, Ok(at)) if u64::from(at) == IODATA => self.register(self.address & !3),
            _ => 0,
        };
        let bytes = value.to_le_bytes();
        data.iter_mut().enumerate().for_each(|(i, byte)| *byte = bytes.get(i).copied().unwrap_or(0));
    }

    fn write(&mut self, bar: usize, at: u64, data: &[u8], _host: &Host) {
        // Only whole registers are written (§13.3): what is narrower, wider or between them is ignored.
        let Ok(value) = <[u8; 4]>::try_from(data).map(u32::from_le_bytes) else { return };
        match (bar, u32::try_from(at)) {
            (MEMORY, Ok(at)) if at % 4 == 0 => self.set(at, value),
            (PORTS, Ok(at)) if u64::from(at) == IOADDR => self.address = value & (SPACE - 1),
            (PORTS, Ok(at)) if u64::from(at) == IODATA => self.set(self.address & !3, value),
            _ => {}
        }
    }

    fn interrupts_changed(&mut self, host: &Host) {
        let (message, pin) = (host.irqs.bell(MSI, 0), host.irqs.bell(INTX, 0));
        self.with(|core| {
            if let Err(e) = core.connect(message.or(pin), message.is_some()) {
                tracing::warn!("an interrupt cannot be connected: {e}");
            }
        });
        self.pin_changed(host);
    }

    fn pin_changed(&mut self, host: &Host) {
        // Messages are masked nowhere.
        if !host.irqs.masked || host.irqs.bell(MSI, 0).is_some() {
            self.with(Core::unmask_pin);
        }
    }

    fn memory_changed(&mut self, host: &Host) {
        self.with(|core| core.set_memory(Memory::of(&host.dma)));
    }

    fn reset(&mut self, _host: &Host) {
        self.with(Core::reset);
    }

    fn timer(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.timer())
    }

    fn tick(&mut self) {
        self.with(Core::tick);
    }
}
