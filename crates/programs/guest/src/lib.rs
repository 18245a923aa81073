//! The ptnet devices of a virtual machine, for a program inside it.
//!
//! | module | what it is |
//! |---|---|
//! | [`ptnet`] | a device without a driver: memory, doorbells, commands; also reached from the host in a guest's place |
//! | [`pci`] | its place on the bus |
//! | [`bus`] | the identity of functions on the bus |
//! | [`published`] | a device as netmap published it |
//! | [`passthrough`] | a device with netvale's kernel driver (`guest/linux`), which hands out its rings |
//! | `error` | errors of opening a device |
//!
//! Each yields a description, as an attach returns it, a mapping, and doorbells: the client library builds a port from
//! them, the daemon hands them on.

pub mod bus;
mod error;
pub mod passthrough;
pub mod pci;
pub mod ptnet;
pub mod published;

pub use error::Error;
pub use ptnet::Guest;
