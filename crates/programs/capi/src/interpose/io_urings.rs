//! io_uring: the kernel reads a program's submission queue without a call to this library, so a request to poll a
//! netmap descriptor would wait forever. Programs that set up a queue get `ENOSYS` and fall back to other ways of
//! waiting. `$NETVALE_IO_URING` allows io_uring, for programs that use it only with other descriptors.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use libc::{ENOSYS, c_int, c_long, c_uint, c_void, size_t};
use rustix::io::Errno;

use crate::{errno, real};

/// Returns whether `$NETVALE_IO_URING` allows io_uring.
fn is_allowed() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| std::env::var_os("NETVALE_IO_URING").is_some_and(|value| value != "0"))
}

/// Implements syscall(2), of which only io_uring_setup(2) is treated specially.
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == libc::SYS_io_uring_setup && !is_allowed() {
        return errno::fail(Errno::NOSYS).into();
    }
    // SAFETY: the arguments are the program's. The kernel ignores arguments that the program did not pass.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}

/// Defines liburing's functions that create a queue. On failure, these functions return the negated errno.
macro_rules! refused {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*);)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The conditions of liburing's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            if !is_allowed() {
                return -ENOSYS;
            }
            // SAFETY: the program's arguments, by the C function's contract.
            unsafe { real::$name($($arg),*) }
        }
    )* };
}

refused! {
    /// liburing's wrapper of io_uring_setup(2).
    io_uring_setup(entries: c_uint, params: *mut c_void);
    /// io_uring_queue_init(3).
    io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint);
    /// io_uring_queue_init_params(3).
    io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, params: *mut c_void);
    /// io_uring_queue_init_mem(3).
    io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, params: *mut c_void, at: *mut c_void, len: size_t);
    /// io_uring_queue_init_try_nosqarr(3).
    io_uring_queue_init_try_nosqarr(entries: c_uint, ring: *mut c_void, params: *mut c_void);
}
