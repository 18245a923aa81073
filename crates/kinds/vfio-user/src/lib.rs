//! The server's side of vfio-user: a PCI device outside the hypervisor (QEMU 10.1's `vfio-user-pci`, cloud-hypervisor's
//! `--user-device`).
//!
//! The hypervisor is the client. It requests the device's description, announces the guest's memory and the doorbells
//! of interrupts, and forwards every access to registers that it cannot map. Neither the hypervisor nor its guest is
//! trusted: lengths, offsets and descriptors are checked, and a protocol violation ends the connection with a reason.
//!
//! ```text
//!  socket ──► [`serve`] ──► [`wire`] (bytes) ──► [`session`] (meaning) ──► [`Device`]
//!                                                     ├── [`dma`]   the guest's memory
//!                                                     └── [`irqs`]  doorbells to ring
//! ```
//!
//! After an upgrade of the daemon, the successor process restores a whole session ([`state`]).
//!
//! Specification: QEMU docs/interop/vfio-user, protocol 0.0; structures as in `<linux/vfio.h>`.

pub mod client;
pub mod config;
pub mod dma;
pub mod ended;
pub mod inbox;
pub mod irqs;
pub mod serve;
pub mod session;
pub mod state;
pub mod wire;

use std::os::fd::BorrowedFd;

use netvale_mem::lent::InUse;

use config::ConfigSpace;
use dma::Dma;
use irqs::Irqs;

/// Number of base address registers.
pub const BARS: usize = 6;

/// The address range that a base address register decodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bar<'a> {
    /// Size in bytes; 0: the device lacks this register.
    pub size: u64,
    /// A file, and the offset in it at which the range begins, so that the guest can map the whole range; `None` if the
    /// client must forward each access.
    pub memory: Option<(BorrowedFd<'a>, u64)>,
}

/// The hypervisor's resources: memory and doorbells.
#[derive(Debug)]
pub struct DeviceHost {
    /// The guest's memory.
    pub dma: Dma,
    /// The interrupts, with their doorbells.
    pub irqs: Irqs,
}

/// An emulated PCI device. The thread that serves the connection calls its methods, one at a time.
pub trait Device {
    /// Returns the configuration space.
    fn config(&mut self) -> &mut ConfigSpace;

    /// Returns the address range of a base address register.
    fn bar(&self, number: usize) -> Bar<'_>;

    /// Reads `data.len()` bytes at offset `at` of a base address register's range. The caller has checked that the
    /// range contains all these bytes.
    fn read(&mut self, bar: usize, at: u64, data: &mut [u8], host: &DeviceHost);

    /// Writes `data` at offset `at` of a base address register's range. The caller has checked that the range contains
    /// all of `data`.
    fn write(&mut self, bar: usize, at: u64, data: &[u8], host: &DeviceHost);

    /// Handles a change of the interrupts' eventfds.
    fn interrupts_changed(&mut self, _host: &DeviceHost) {}

    /// Handles the masking or unmasking of the interrupt pin ([`Irqs::masked`]). A hypervisor unmasks the pin after
    /// each interrupt.
    fn pin_changed(&mut self, _host: &DeviceHost) {}

    /// Handles a change of the guest's memory: before this method returns, the device must replace all earlier results
    /// of [`Dma::find`].
    fn memory_changed(&mut self, _host: &DeviceHost) {}

    /// Checks that the device works. An error ends the connection.
    ///
    /// # Errors
    /// [`InUse`] if a worker has not returned a queue in time.
    fn health(&self) -> Result<(), InUse> {
        Ok(())
    }

    /// Handles a device reset, which a hypervisor requests e.g. when the guest reboots.
    fn reset(&mut self, host: &DeviceHost);

    /// Returns a descriptor that is readable when [`Device::tick`] is due, for devices with timers.
    fn timer(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Handles the expiry of the timer.
    fn tick(&mut self) {}
}
