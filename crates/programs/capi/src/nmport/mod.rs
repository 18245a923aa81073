//! libnetmap: ports by name, regions shared by the ports in them, requests assembled and parsed.
//!
//! `libnetmap.h` documents each function. They call open, ioctl and mmap as any program would; those calls reach
//! [`crate::interpose`].
//!
//! | module | what it is |
//! |---|---|
//! | [`context`] | `nmctx_*`: errors, memory, locking |
//! | [`requests`] | `nmreq_*`: names into requests, lists of options |
//! | [`custom`] | `nmreq_options_decode`: a program's own options |
//! | [`ports`] | `nmport_*`: a port from its name to its end |
//! | [`parsing`] | its name into a request |
//! | [`rings`] | its region and rings |
//! | [`regions`] | `struct nmem_d`: regions mapped once |
//! | [`structs`] | the structures |
//! | [`memory`] | extmem: regions in the program's own memory |

pub mod context;
pub mod custom;
pub mod memory;
mod parsing;
pub mod ports;
pub mod regions;
pub mod requests;
mod rings;
pub mod structs;
