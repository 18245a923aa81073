//! The end of a process whose place another one has taken.
#![allow(unsafe_code)]

use std::os::fd::{IntoRawFd, OwnedFd};

use libc::c_uint;

/// The first descriptor that is not standard input, output or error.
const FIRST: c_uint = 3;

/// Ends this process, and closes its descriptors first, `last` behind all others: the kernel closes them once it has
/// given memory back, which waits for a hole that somebody makes in it.
pub fn close_all_and_exit(last: Option<OwnedFd>) -> ! {
    let last = last.map_or(c_uint::MAX, |fd| fd.into_raw_fd().unsigned_abs());
    close(FIRST, last.saturating_sub(1));
    close(last.saturating_add(1), c_uint::MAX);
    close(last, last);
    std::process::exit(0)
}

fn close(first: c_uint, last: c_uint) {
    // SAFETY: nobody does anything with these descriptors any more: workers are parked, threads of ports wait, and this
    // one needs none before it ends. Should another thread open one under a number that was closed, it is gone with the
    // process.
    unsafe { libc::close_range(first, last, 0) };
}
