//! The functions that this library interposes: they have the names of functions of the C library, and programs call
//! them instead of those.
//!
//! Each one checks whether the call concerns netmap, and otherwise passes it on unchanged; in a program that does not
//! use netmap, the check costs one load and a comparison. Variadic functions (`open`, `ioctl`, `fcntl`) are defined
//! with the one optional argument that they may have as a fixed argument: on x86-64 and aarch64 Linux, a variadic
//! argument is passed in the same register as a fixed one.
//!
//! The code of these functions must not panic: a panic that reaches an `extern "C"` function aborts the program.

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
