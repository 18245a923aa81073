//! The exit of a process that a successor has replaced.
#![allow(unsafe_code)]

use std::os::fd::{IntoRawFd, OwnedFd};

use libc::c_uint;

/// The first descriptor after standard input, output and error.
const FIRST: c_uint = 3;

/// Closes all descriptors, with `last` after all other descriptors, and exits. If the process just exited, the kernel
/// would close its descriptors only after it has freed the process's memory, which can block while a user punches holes
/// in that memory.
pub fn close_all_and_exit(last: Option<OwnedFd>) -> ! {
    let last = last.map_or(c_uint::MAX, |fd| fd.into_raw_fd().unsigned_abs());
    close(FIRST, last.saturating_sub(1));
    close(last.saturating_add(1), c_uint::MAX);
    close(last, last);
    std::process::exit(0)
}

fn close(first: c_uint, last: c_uint) {
    // SAFETY: no thread uses these descriptors any more: workers are parked, threads of ports wait, and this thread
    // needs no descriptor before it exits. If another thread opens a descriptor under a closed number, that descriptor
    // disappears with the process.
    unsafe { libc::close_range(first, last, 0) };
}
