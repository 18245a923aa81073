//! The server's side of vfio-user: a PCI device outside the hypervisor (QEMU 10.1's `vfio-user-pci`, cloud-hypervisor's
//! `--user-device`).
//!
//! The hypervisor is the client. It asks for the device's description, announces the guest's memory and the doorbells
//! of interrupts, and passes on every access to registers that it cannot map. It is not trusted, nor is the guest
//! behind it: lengths, offsets and descriptors are checked, and a protocol violation ends the connection with a reason.
//!
//! ```text
//!  socket ──► [`serve`] ──► [`wire`] (bytes) ──► [`session`] (meaning) ──► [`Device`]
//!                                                     ├── [`dma`]   the guest's memory
//!                                                     └── [`irqs`]  doorbells to ring
//! ```
//!
//! A whole session can be restored in another process ([`state`]).
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

/// Base address registers.
pub const BARS: usize = 6;

/// A base address register's space.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bar<'a> {
    /// Size in bytes; 0: the device lacks this register.
    pub size: u64,
    /// Memory of the whole space, for the guest to map: a file, and the offset in it.
    pub memory: Option<(BorrowedFd<'a>, u64)>,
}

/// The hypervisor's resources: memory and doorbells.
#[derive(Debug)]
pub struct Host {
    /// The guest's memory.
    pub dma: Dma,
    /// Interrupts.
    pub irqs: Irqs,
}

/// A device. The thread that serves the connection calls its methods, one at a time.
pub trait Device {
    /// Configuration space.
    fn config(&mut self) -> &mut ConfigSpace;

    /// A base address register's space.
    fn bar(&self, number: usize) -> Bar<'_>;

    /// Reads `data.len()` bytes at `at` in a base address register's space. Both lie inside it.
    fn read(&mut self, bar: usize, at: u64, data: &mut [u8], host: &Host);

    /// Writes `data` at `at` in a base address register's space. Both lie inside it.
    fn write(&mut self, bar: usize, at: u64, data: &[u8], host: &Host);

    /// Handles a change of the interrupts' doorbells.
    fn interrupts_changed(&mut self, _host: &Host) {}

    /// Handles the guest's masking or unmasking of the pin ([`Irqs::masked`]); a hypervisor reports this after each
    /// interrupt.
    fn pin_changed(&mut self, _host: &Host) {}

    /// Handles a change of the guest's memory: addresses found before are void when this returns.
    fn memory_changed(&mut self, _host: &Host) {}

    /// Whether the device works: one whose queues workers do not hand back ends the connection.
    ///
    /// # Errors
    /// [`InUse`] if a worker does not return a queue.
    fn health(&self) -> Result<(), InUse> {
        Ok(())
    }

    /// Handles a reset of the machine.
    fn reset(&mut self, host: &Host);

    /// A descriptor, readable when [`Device::tick`] is due, for devices with timers.
    fn timer(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Handles an expired timer.
    fn tick(&mut self) {}
}
