//! libnetmap: ports from their names, a region shared by ports that lie in it, requests put together and taken apart.
//!
//! `libnetmap.h` says what each function does. They call open, ioctl and mmap as any program would; those find their way to
//! [`crate::interpose`].
//!
//! | module | what it is |
//! |---|---|
//! | [`context`] | `nmctx_*`: errors, memory, locking |
//! | [`requests`] | `nmreq_*`: names into requests, lists of options |
//! | [`custom`] | `nmreq_options_decode`: options of a program's own |
//! | [`ports`] | `nmport_*`: from a name to rings |
//! | [`regions`] | `struct nmem_d`: regions mapped once |
//! | [`memory`] | extmem: regions in memory of the program's own |

pub mod context;
pub mod custom;
pub mod memory;
pub mod ports;
pub mod regions;
pub mod requests;
