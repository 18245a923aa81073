//! The functions that stand before the C library's, by their C names.
//!
//! Each asks whether the call is about netmap, and if not, which is one load and a comparison in a program that uses
//! none of this, hands it on as it came. Variadic functions (`open`, `ioctl`, `fcntl`) are defined with the one
//! argument they may have: on x86-64 and aarch64 Linux it comes in the register of a fixed one.
//!
//! No panic may leave them: what is behind does not panic, and if it did, unwinding out of `extern "C"` ends the
//! program.

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
