//! The ptnet devices of a virtual machine, for a program inside it.
//!
//! | module | what it is |
//! |---|---|
//! | [`ptnet`] | a device without a driver: memory, doorbells, commands; usable on the host, too, in place of a guest |
//! | [`pci`] | the same device on the PCI bus |
//! | [`bus`] | IDs and memory of PCI functions; polling without interrupts |
//! | [`published`] | the ptnet device that netmap published |
//! | [`passthrough`] | a device with netvale's kernel driver (`guest/linux`), which passes its rings to programs |
//! | `error` | errors of opening a device |
//!
//! Each module returns the device's description (an attach reply), its mapped memory, and its doorbells. The client
//! library builds a port from them; the daemon passes them to programs.

pub mod bus;
mod error;
pub mod passthrough;
pub mod pci;
pub mod ptnet;
pub mod published;

pub use error::GuestError;
pub use ptnet::BareGuest;
