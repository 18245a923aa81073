//! The functions of the C library that the interposed functions call. Each is looked up by name in the next library
//! that defines it.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_void;

/// A function of the next library, which is looked up at the first call.
pub struct NextFunction {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl NextFunction {
    /// Declares the function with this name.
    pub const fn new(name: &'static CStr) -> NextFunction {
        NextFunction { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the function's address; null if no library defines it.
    #[inline]
    pub fn get(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: dlsym takes any NUL-terminated name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Declares the functions that the interposed functions call: `fn name(arguments) -> result;` becomes a function that
/// calls the next library's function of that name, or fails with `ENOSYS` if no library defines it.
macro_rules! real {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $symbol:literal;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The conditions of the C library's function.
        #[inline]
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            static REAL: NextFunction = NextFunction::new($symbol);
            let found = REAL.get();
            if found.is_null() {
                crate::errno::set(libc::ENOSYS);
                // -1 is right for mmap, too: it equals MAP_FAILED.
                return -1isize as $ret;
            }
            // SAFETY: a function of this name has this type in every C library.
            let f = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> $ret>(found) };
            // SAFETY: the caller's contract.
            unsafe { f($($arg),*) }
        }
    )* };
}

use libc::{
    c_char, c_int, c_long, c_uint, c_ulong, epoll_event, fd_set, iovec, mmsghdr, mode_t, msghdr, nfds_t, off_t, pollfd,
    sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};

real! {
    /// open(2).
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = c"open";
    /// openat(2).
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = c"openat";
    /// close(2).
    fn close(fd: c_int) -> c_int = c"close";
    /// close_range(2).
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = c"close_range";
    /// closefrom(3).
    fn closefrom(first: c_int) -> c_int = c"closefrom";
    /// dup(2).
    fn dup(fd: c_int) -> c_int = c"dup";
    /// dup2(2).
    fn dup2(from: c_int, to: c_int) -> c_int = c"dup2";
    /// dup3(2).
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int = c"dup3";
    /// fcntl(2).
    fn fcntl(fd: c_int, command: c_int, arg: c_ulong) -> c_int = c"fcntl";
    /// ioctl(2).
    fn ioctl(fd: c_int, command: c_ulong, arg: *mut c_void) -> c_int = c"ioctl";
    /// mmap(2).
    fn mmap(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void = c"mmap";
    /// fstat(2).
    fn fstat(fd: c_int, into: *mut libc::stat) -> c_int = c"fstat";
    /// epoll_create(2).
    fn epoll_create(size: c_int) -> c_int = c"epoll_create";
    /// epoll_create1(2).
    fn epoll_create1(flags: c_int) -> c_int = c"epoll_create1";
    /// syscall(2).
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long = c"syscall";
    /// io_uring_setup(2).
    fn io_uring_setup(entries: c_uint, params: *mut c_void) -> c_int = c"io_uring_setup";
    /// io_uring_queue_init(3).
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int = c"io_uring_queue_init";
    /// io_uring_queue_init_params(3).
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, params: *mut c_void) -> c_int =
        c"io_uring_queue_init_params";
    /// io_uring_queue_init_mem(3).
    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, params: *mut c_void, at: *mut c_void, len: size_t
    ) -> c_int = c"io_uring_queue_init_mem";
    /// io_uring_queue_init_try_nosqarr(3).
    fn io_uring_queue_init_try_nosqarr(entries: c_uint, ring: *mut c_void, params: *mut c_void) -> c_int =
        c"io_uring_queue_init_try_nosqarr";
    /// stat(2).
    fn stat(path: *const c_char, into: *mut c_void) -> c_int = c"stat";
    /// stat(2).
    fn stat64(path: *const c_char, into: *mut c_void) -> c_int = c"stat64";
    /// lstat(2).
    fn lstat(path: *const c_char, into: *mut c_void) -> c_int = c"lstat";
    /// lstat(2).
    fn lstat64(path: *const c_char, into: *mut c_void) -> c_int = c"lstat64";
    /// fstatat(2).
    fn fstatat(dir: c_int, path: *const c_char, into: *mut c_void, flags: c_int) -> c_int = c"fstatat";
    /// fstatat(2).
    fn fstatat64(dir: c_int, path: *const c_char, into: *mut c_void, flags: c_int) -> c_int = c"fstatat64";
    /// statx(2).
    fn statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut c_void) -> c_int = c"statx";
    /// stat(2) of programs built before glibc 2.33.
    fn __xstat(version: c_int, path: *const c_char, into: *mut c_void) -> c_int = c"__xstat";
    /// stat(2) of programs built before glibc 2.33.
    fn __xstat64(version: c_int, path: *const c_char, into: *mut c_void) -> c_int = c"__xstat64";
    /// lstat(2) of programs built before glibc 2.33.
    fn __lxstat(version: c_int, path: *const c_char, into: *mut c_void) -> c_int = c"__lxstat";
    /// lstat(2) of programs built before glibc 2.33.
    fn __lxstat64(version: c_int, path: *const c_char, into: *mut c_void) -> c_int = c"__lxstat64";
    /// access(2).
    fn access(path: *const c_char, mode: c_int) -> c_int = c"access";
    /// eaccess(3).
    fn eaccess(path: *const c_char, mode: c_int) -> c_int = c"eaccess";
    /// euidaccess(3).
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int = c"euidaccess";
    /// faccessat(2).
    fn faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int = c"faccessat";
    /// getxattr(2).
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t = c"getxattr";
    /// lgetxattr(2).
    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t = c"lgetxattr";
    /// listxattr(2).
    fn listxattr(path: *const c_char, names: *mut c_char, len: size_t) -> ssize_t = c"listxattr";
    /// llistxattr(2).
    fn llistxattr(path: *const c_char, names: *mut c_char, len: size_t) -> ssize_t = c"llistxattr";
    /// poll(2).
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = c"poll";
    /// ppoll(2).
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int = c"ppoll";
    /// select(2).
    fn select(n: c_int, r: *mut fd_set, w: *mut fd_set, e: *mut fd_set, timeout: *mut timeval) -> c_int = c"select";
    /// pselect(2).
    fn pselect(
        n: c_int, r: *mut fd_set, w: *mut fd_set, e: *mut fd_set, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int = c"pselect";
    /// bind(2).
    fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int = c"bind";
    /// send(2).
    fn send(fd: c_int, at: *const c_void, len: size_t, flags: c_int) -> ssize_t = c"send";
    /// sendto(2).
    fn sendto(
        fd: c_int, at: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, addr_len: socklen_t
    ) -> ssize_t = c"sendto";
    /// sendmsg(2).
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = c"sendmsg";
    /// sendmmsg(2).
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int = c"sendmmsg";
    /// write(2).
    fn write(fd: c_int, at: *const c_void, len: size_t) -> ssize_t = c"write";
    /// writev(2).
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = c"writev";
    /// pwrite(2).
    fn pwrite(fd: c_int, at: *const c_void, len: size_t, offset: off_t) -> ssize_t = c"pwrite64";
    /// pwritev(2).
    fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t = c"pwritev64";
    /// read(2).
    fn read(fd: c_int, at: *mut c_void, len: size_t) -> ssize_t = c"read";
    /// readv(2).
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = c"readv";
    /// pread(2).
    fn pread(fd: c_int, at: *mut c_void, len: size_t, offset: off_t) -> ssize_t = c"pread64";
    /// preadv(2).
    fn preadv(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t = c"preadv64";
    /// read(2), as glibc's fortified headers call it.
    fn read_chk(fd: c_int, at: *mut c_void, len: size_t, room: size_t) -> ssize_t = c"__read_chk";
    /// pread(2), as glibc's fortified headers call it.
    fn pread_chk(fd: c_int, at: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t = c"__pread64_chk";
    /// recv(2).
    fn recv(fd: c_int, at: *mut c_void, len: size_t, flags: c_int) -> ssize_t = c"recv";
    /// recvfrom(2).
    fn recvfrom(
        fd: c_int, at: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t
    ) -> ssize_t = c"recvfrom";
    /// recvmsg(2).
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = c"recvmsg";
    /// recv(2), as glibc's fortified headers call it.
    fn recv_chk(fd: c_int, at: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t = c"__recv_chk";
    /// recvfrom(2), as glibc's fortified headers call it.
    fn recvfrom_chk(
        fd: c_int, at: *mut c_void, len: size_t, room: size_t, flags: c_int,
        addr: *mut sockaddr, addr_len: *mut socklen_t
    ) -> ssize_t = c"__recvfrom_chk";
    /// shutdown(2).
    fn shutdown(fd: c_int, how: c_int) -> c_int = c"shutdown";
    /// getsockname(2).
    fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int = c"getsockname";
    /// getpeername(2).
    fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int = c"getpeername";
    /// getsockopt(2).
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int =
        c"getsockopt";
    /// setsockopt(2).
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int = c"setsockopt";
    /// lseek(2).
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t = c"lseek64";
    /// if_nametoindex(3).
    fn if_nametoindex(name: *const c_char) -> c_uint = c"if_nametoindex";
    /// if_indextoname(3).
    fn if_indextoname(index: c_uint, into: *mut c_char) -> *mut c_char = c"if_indextoname";
    /// epoll_ctl(2).
    fn epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int = c"epoll_ctl";
    /// epoll_wait(2).
    fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int = c"epoll_wait";
    /// epoll_pwait(2).
    fn epoll_pwait(
        epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int = c"epoll_pwait";
    /// epoll_pwait2(2).
    fn epoll_pwait2(
        epoll: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int = c"epoll_pwait2";
}
