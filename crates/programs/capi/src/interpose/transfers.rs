//! read, write, receive and related functions on a netmap descriptor. They fail as the kernel's would for a device that
//! does not implement them. Nothing reaches the descriptor's connection to the daemon.
#![allow(unsafe_code)]

use libc::{c_int, c_void, iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};
use rustix::io::Errno;

use crate::packet::socket::listened;
use crate::{errno, real, table};

/// Does nothing. Functions that do not receive from a socket call this in place of `listened`.
fn quiet(_fd: c_int) {}

/// Defines functions that refuse a netmap descriptor with a fixed errno. For any other descriptor, they call `$first`
/// and then the C library's function.
macro_rules! refused {
    (
        $errno:ident, $first:ident:
        $($(#[$doc:meta])* $name:ident / $real:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*
    ) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The conditions of the C library's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(fd: c_int, $($arg: $ty),*) -> $ret {
            if table::holds(fd) {
                return errno::fail(Errno::$errno) as $ret;
            }
            $first(fd);
            // SAFETY: the program's arguments, by the C function's contract.
            unsafe { real::$real(fd, $($arg),*) }
        }
    )* };
}

refused! { INVAL, listened:
    /// read(2).
    read / read(at: *mut c_void, len: size_t) -> ssize_t;
    /// readv(2).
    readv / readv(parts: *const iovec, count: c_int) -> ssize_t;
    /// pread(2).
    pread / pread(at: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
    /// pread(2).
    pread64 / pread(at: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
    /// preadv(2).
    preadv / preadv(parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    /// preadv(2).
    preadv64 / preadv(parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    /// read(2) as glibc's fortified headers call it.
    __read_chk / read_chk(at: *mut c_void, len: size_t, room: size_t) -> ssize_t;
}

refused! { INVAL, quiet:
    /// pwrite(2).
    pwrite / pwrite(at: *const c_void, len: size_t, offset: off_t) -> ssize_t;
    /// pwrite(2).
    pwrite64 / pwrite(at: *const c_void, len: size_t, offset: off_t) -> ssize_t;
    /// pwritev(2).
    pwritev / pwritev(parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    /// pwritev(2).
    pwritev64 / pwritev(parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    /// pread(2) as glibc's fortified headers call it.
    __pread_chk / pread_chk(at: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t;
    /// pread(2) as glibc's fortified headers call it.
    __pread64_chk / pread_chk(at: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t;
}

refused! { NOTSOCK, listened:
    /// recv(2).
    recv / recv(at: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    /// recvfrom(2).
    recvfrom / recvfrom(
        at: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t
    ) -> ssize_t;
    /// recvmsg(2).
    recvmsg / recvmsg(message: *mut msghdr, flags: c_int) -> ssize_t;
    /// recv(2) as glibc's fortified headers call it.
    __recv_chk / recv_chk(at: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t;
    /// recvfrom(2) as glibc's fortified headers call it.
    __recvfrom_chk / recvfrom_chk(
        at: *mut c_void, len: size_t, room: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t
    ) -> ssize_t;
}

refused! { NOTSOCK, quiet:
    /// shutdown(2).
    shutdown / shutdown(how: c_int) -> c_int;
    /// getsockname(2).
    getsockname / getsockname(addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    /// getpeername(2).
    getpeername / getpeername(addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    /// getsockopt(2).
    getsockopt / getsockopt(level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
}

refused! { SPIPE, quiet:
    /// lseek(2).
    lseek / lseek(offset: off_t, whence: c_int) -> off_t;
    /// lseek(2).
    lseek64 / lseek(offset: off_t, whence: c_int) -> off_t;
}
