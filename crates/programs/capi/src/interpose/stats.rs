//! stat, access and related functions, for programs that check for `/dev/netmap` before they open it. For
//! `/dev/netmap`, they return the same as for /dev/null, a character device that everyone may read and write.
#![allow(unsafe_code)]

use libc::{c_char, c_int, c_uint, c_void, size_t, ssize_t};

use super::files::is_device;
use crate::real;

/// Returns the path to query: /dev/null if `path` is `/dev/netmap`, otherwise `path`.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn answering(path: *const c_char) -> *const c_char {
    // SAFETY: the caller's contract.
    if unsafe { is_device(path) } { c"/dev/null".as_ptr() } else { path }
}

macro_rules! by_path {
    ($ret:ident: $($(#[$doc:meta])* $name:ident($($first:ident: $type:ty,)? ; path $(, $arg:ident: $ty:ty)*);)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The conditions of the C library's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($first: $type,)? path: *const c_char $(, $arg: $ty)*) -> $ret {
            // SAFETY: the program's arguments, by the C function's contract.
            unsafe { real::$name($($first,)? answering(path) $(, $arg)*) }
        }
    )* };
}

by_path! { c_int:
    /// stat(2).
    stat(; path, into: *mut c_void);
    /// stat(2).
    stat64(; path, into: *mut c_void);
    /// lstat(2).
    lstat(; path, into: *mut c_void);
    /// lstat(2).
    lstat64(; path, into: *mut c_void);
    /// fstatat(2).
    fstatat(dir: c_int,; path, into: *mut c_void, flags: c_int);
    /// fstatat(2).
    fstatat64(dir: c_int,; path, into: *mut c_void, flags: c_int);
    /// statx(2).
    statx(dir: c_int,; path, flags: c_int, mask: c_uint, into: *mut c_void);
    /// stat(2) of programs built before glibc 2.33.
    __xstat(version: c_int,; path, into: *mut c_void);
    /// stat(2) of programs built before glibc 2.33.
    __xstat64(version: c_int,; path, into: *mut c_void);
    /// lstat(2) of programs built before glibc 2.33.
    __lxstat(version: c_int,; path, into: *mut c_void);
    /// lstat(2) of programs built before glibc 2.33.
    __lxstat64(version: c_int,; path, into: *mut c_void);
    /// access(2).
    access(; path, mode: c_int);
    /// eaccess(3).
    eaccess(; path, mode: c_int);
    /// euidaccess(3).
    euidaccess(; path, mode: c_int);
    /// faccessat(2).
    faccessat(dir: c_int,; path, mode: c_int, flags: c_int);
}

// ls(1) queries access control lists with these functions.
by_path! { ssize_t:
    /// getxattr(2).
    getxattr(; path, name: *const c_char, value: *mut c_void, len: size_t);
    /// lgetxattr(2).
    lgetxattr(; path, name: *const c_char, value: *mut c_void, len: size_t);
    /// listxattr(2).
    listxattr(; path, names: *mut c_char, len: size_t);
    /// llistxattr(2).
    llistxattr(; path, names: *mut c_char, len: size_t);
}
