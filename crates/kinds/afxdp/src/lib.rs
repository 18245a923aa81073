//! Network interfaces through AF_XDP (Linux 5.9 or newer), with any driver and without a kernel module of netvale's.
//!
//! ```text
//!   driver ─► XDP program ─► socket of the queue ─► buffers of a netmap region ─► netmap ring, or switch
//!                  │ (queues without a socket)
//!                  ▼
//!              the stack
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`bpf`] | the XDP program and its attachment |
//! | [`iface`] | an interface's properties in the kernel |
//! | [`ring`] | rings shared with the kernel |
//! | [`sizes`] | sizes of a port's rings and regions |
//! | [`socket`] | a socket: four rings, and memory for frames |
//! | [`nic`] | an interface with the program on it, and its queues |
//! | [`outlet`] | writes frames of a ring's slots to a TAP or a packet socket |
//! | [`rx_end`] | the host's end of an rx ring that one thread fills |
//! | [`through`] | connects a queue to a netmap program's rings, without a copy |

pub mod bpf;
pub mod iface;
pub mod nic;
pub mod outlet;
pub mod ring;
pub mod rx_end;
pub mod sizes;
pub mod socket;
pub mod through;

pub use nic::{LostTags, Nic, NicError, OpenNicQueue};
