//! The functions that precede the C library's, by their C names.
//!
//! Each checks whether the call concerns netmap, which costs one load and a comparison in a program that does not use
//! it, and otherwise passes the call on unchanged. Variadic functions (`open`, `ioctl`, `fcntl`) are defined with the
//! one argument that they may have: on x86-64 and aarch64 Linux it arrives in the register of a fixed argument.
//!
//! No panic may leave them: their code does not panic, and if it did, unwinding out of `extern "C"` ends the program.

mod epolls;
mod files;
mod io_urings;
mod outputs;
pub mod packets;
mod polls;
mod stats;
mod transfers;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("variadic functions are defined for the calling conventions of x86-64 and aarch64 only");
