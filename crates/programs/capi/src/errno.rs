//! The C library's `errno`.
#![allow(unsafe_code)]

use libc::c_int;
use netvale::Error;
use rustix::io::Errno;

/// Sets `errno`.
pub fn set(value: c_int) {
    // SAFETY: the C library's own `errno` of this thread.
    unsafe { *libc::__errno_location() = value };
}

/// Reads `errno`.
pub fn get() -> c_int {
    // SAFETY: the C library's own `errno` of this thread.
    unsafe { *libc::__errno_location() }
}

/// Converts an error number from outside this library; an invalid number becomes `EIO`.
pub fn from_raw(number: c_int) -> Errno {
    if (1..4096).contains(&number) { Errno::from_raw_os_error(number) } else { Errno::IO }
}

/// Returns the current `errno` as an error.
pub fn last() -> Errno {
    from_raw(get())
}

/// Converts a result to the C convention: returns 0 for success; for an error, sets `errno` and returns -1.
pub fn done(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => fail(e),
    }
}

/// Sets `errno` and returns -1.
pub fn fail(e: Errno) -> c_int {
    set(e.raw_os_error());
    -1
}

/// Returns the errno that a netmap program expects for a netvale error.
pub fn of(e: &Error) -> Errno {
    match e {
        Error::Refused { errno, .. } | Error::Offsets { errno, .. } | Error::File { errno, .. } => from_raw(*errno),
        Error::NoDaemon(why) => match why.errno().map(from_raw) {
            Some(e @ (Errno::ACCESS | Errno::PERM)) => e,
            _ => Errno::NOENT,
        },
        Error::System { source, .. } => source.raw_os_error().map_or(Errno::IO, from_raw),
        Error::Timeout(_) => Errno::TIMEDOUT,
        Error::Nic(e) => e.errno(),
        Error::Name(_) => Errno::INVAL,
        Error::Region(_) => Errno::NOMEM,
        _ => Errno::NXIO,
    }
}
