//! libnetmap: ports from their names, a region shared by ports that lie in it, requests put together and taken apart.
//!
//! `libnetmap.h` says what each function does. They call open, ioctl and mmap as any program would; those find their
//! way to [`crate::interpose`].
//!
//! | module | what it is |
//! |---|---|
//! | [`context`] | `nmctx_*`: errors, memory, locking |
//! | [`requests`] | `nmreq_*`: names into requests, lists of options |
//! | [`custom`] | `nmreq_options_decode`: options of a program's own |
//! | [`ports`] | `nmport_*`: a port from its name to its end |
//! | [`parsing`] | its name into a request |
//! | [`rings`] | its region and rings |
//! | [`regions`] | `struct nmem_d`: regions mapped once |
//! | [`structs`] | the structures |
//! | [`memory`] | extmem: regions in memory of the program's own |

pub mod context;
pub mod custom;
pub mod memory;
mod parsing;
pub mod ports;
pub mod regions;
pub mod requests;
mod rings;
pub mod structs;
