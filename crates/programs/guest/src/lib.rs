//! What a program inside a virtual machine has of its ptnet devices.
//!
//! | module | what it is |
//! |---|---|
//! | [`ptnet`] | a device without a driver: memory, doorbells, commands; also reached from the host, in a virtual machine's place |
//! | [`pci`] | where it is on the bus |
//! | [`bus`] | what functions there say of themselves |
//! | [`published`] | a device as netmap published it |
//! | [`passthrough`] | a device with our kernel driver (`guest/linux`), which hands out its rings |
//! | `error` | errors of opening a device |
//!
//! What comes of it is a description, as an attach has it, a mapping, and doorbells: the client library makes a port of
//! them, the daemon hands them on.

pub mod bus;
mod error;
pub mod passthrough;
pub mod pci;
pub mod ptnet;
pub mod published;

pub use error::Error;
pub use ptnet::Guest;
