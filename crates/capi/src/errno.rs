//! The C library's `errno`.
#![allow(unsafe_code)]

use libc::c_int;
use rustix::io::Errno;

/// Sets it.
pub fn set(value: c_int) {
    // SAFETY: the C library's own place for this thread.
    unsafe { *libc::__errno_location() = value };
}

/// Reads it.
pub fn get() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// A result as C functions give it: 0, or -1 and `errno`.
pub fn done(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => fail(e),
    }
}

/// -1 and `errno`.
pub fn fail(e: Errno) -> c_int {
    set(e.raw_os_error());
    -1
}
