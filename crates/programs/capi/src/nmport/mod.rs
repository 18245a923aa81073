//! libnetmap: opens ports by name, maps regions that several ports share, and assembles and parses requests.
//!
//! `libnetmap.h` documents each function. The functions call open, ioctl and mmap like any program; these calls reach
//! [`crate::interpose`].
//!
//! | module | what it is |
//! |---|---|
//! | [`context`] | `nmctx_*`: errors, memory, locking |
//! | [`requests`] | `nmreq_*`: converts names into requests, handles lists of options |
//! | [`custom`] | `nmreq_options_decode`: a program's own options |
//! | [`ports`] | `nmport_*`: opens, registers and closes a port |
//! | [`parsing`] | converts a port's name into a request |
//! | [`rings`] | maps a port's region and rings |
//! | [`regions`] | `struct nmem_d`: regions mapped once |
//! | [`structs`] | libnetmap's structures |
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
