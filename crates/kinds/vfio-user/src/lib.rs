//! The server's side of vfio-user: a PCI device that lives outside of the hypervisor (QEMU 10.1's `vfio-user-pci`,
//! cloud-hypervisor's `--user-device`).
//!
//! The hypervisor is the client. It asks what the device is, says where the guest's memory is and which doorbells
//! interrupts ring, and passes on every access to registers that it cannot map. All of it is the hypervisor's word, and
//! behind that the guest's: lengths, offsets and descriptors are checked, and what breaks the protocol ends the
//! connection with a reason.
//!
//! ```text
//!  socket ──► [`serve`] ──► [`wire`] (bytes) ──► [`session`] (what is meant) ──► [`Device`]
//!                                                     ├── [`dma`]   the guest's memory
//!                                                     └── [`irqs`]  what to ring
//! ```
//!
//! All of a session can go on in another process ([`state`]).
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
    /// Size in bytes; 0: the device has no such register.
    pub size: u64,
    /// Memory behind all of it, for the guest to map: a file, and where in it.
    pub memory: Option<(BorrowedFd<'a>, u64)>,
}

/// What the hypervisor has provided: memory and doorbells.
#[derive(Debug)]
pub struct Host {
    /// The guest's memory.
    pub dma: Dma,
    /// Interrupts.
    pub irqs: Irqs,
}

/// A device. Its methods are called one at a time, by the thread that serves the connection.
pub trait Device {
    /// Configuration space.
    fn config(&mut self) -> &mut ConfigSpace;

    /// A base address register's space, by number.
    fn bar(&self, number: usize) -> Bar<'_>;

    /// A read of `data.len()` bytes at `at` in a base address register's space. Both lie inside of it.
    fn read(&mut self, bar: usize, at: u64, data: &mut [u8], host: &Host);

    /// A write of `data` at `at` in a base address register's space. Both lie inside of it.
    fn write(&mut self, bar: usize, at: u64, data: &[u8], host: &Host);

    /// The doorbells of interrupts have changed.
    fn interrupts_changed(&mut self, _host: &Host) {}

    /// The guest masked or unmasked the pin ([`Irqs::masked`]); a hypervisor reports this after each interrupt.
    fn pin_changed(&mut self, _host: &Host) {}

    /// The guest's memory has changed: addresses found before are void when this returns.
    fn memory_changed(&mut self, _host: &Host) {}

    /// Whether the device works: one that cannot get its queues back from the workers ends the connection.
    ///
    /// # Errors
    /// [`InUse`] if a worker does not return a queue.
    fn health(&self) -> Result<(), InUse> {
        Ok(())
    }

    /// The machine is reset.
    fn reset(&mut self, host: &Host);

    /// A descriptor that is readable when [`Device::tick`] is due, for devices with timers.
    fn timer(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// A timer expired.
    fn tick(&mut self) {}
}
