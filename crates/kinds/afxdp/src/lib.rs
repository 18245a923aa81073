//! Network interfaces through AF_XDP (Linux 5.9 or newer): any driver, no module, no driver of its own.
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
//! | [`bpf`] | the program, and how it is attached |
//! | [`iface`] | what the kernel says of an interface |
//! | [`ring`] | rings that the kernel shares |
//! | [`sizes`] | how large a port is |
//! | [`socket`] | a socket: four rings, and memory for frames |
//! | [`nic`] | an interface with the program on it, its queues |
//! | [`outlet`] | slots written to a descriptor |
//! | [`rx_end`] | our end of a ring that one thread fills |
//! | [`through`] | a queue as a netmap program sees it: its rings, without a copy |

pub mod bpf;
pub mod iface;
pub mod nic;
pub mod outlet;
pub mod ring;
pub mod rx_end;
pub mod sizes;
pub mod socket;
pub mod through;

pub use nic::{LostTags, Nic, NicError, Opened};
