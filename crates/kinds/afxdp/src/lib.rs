//! Network interfaces through AF_XDP (Linux 5.9 or newer): any driver, without a module or a driver of netvale's.
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
//! | [`sizes`] | the size of a port |
//! | [`socket`] | a socket: four rings, and memory for frames |
//! | [`nic`] | an interface with the program on it, and its queues |
//! | [`outlet`] | slots written to a descriptor |
//! | [`rx_end`] | our end of a ring that one thread fills |
//! | [`through`] | a queue as a netmap program uses it: its rings, without a copy |

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
