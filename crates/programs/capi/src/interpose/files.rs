//! open, close, dup, fcntl, ioctl, mmap, fstat.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use libc::{
    F_DUPFD, F_DUPFD_CLOEXEC, MAP_FAILED, S_IFCHR, S_IFMT, c_char, c_int, c_uint, c_ulong, c_void, mode_t, off_t,
    size_t, stat,
};
use netvale_abi::ioctl::{NIOCCONFIG, NIOCCTRL, NIOCGINFO, NIOCREGIF, NIOCRXSYNC, NIOCTXSYNC};
use rustix::io::Errno;

use crate::descriptor::Descriptor;
use crate::packet::ifreq;
use crate::{epoll, errno, legacy, lifecycle, real, request, table};

/// Returns whether a path is `/dev/netmap`.
///
/// # Safety
/// `path` is null or a C string.
pub(super) unsafe fn is_device(path: *const c_char) -> bool {
    // SAFETY: the caller's contract.
    !path.is_null() && unsafe { CStr::from_ptr(path) }.to_bytes() == crate::open::DEVICE
}

/// Defines functions that open `/dev/netmap`, or call the C library's function for any other path.
macro_rules! open_functions {
    ($(
        $(#[$doc:meta])*
        $name:ident($($dir:ident,)? ; $path:ident, $flags:ident $(, $mode:ident)?) = $other:expr;
    )*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The conditions of the C library's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            $($dir: c_int,)? $path: *const c_char, $flags: c_int $(, $mode: mode_t)?
        ) -> c_int {
            // SAFETY: the program's arguments, by the C function's contract.
            unsafe {
                if is_device($path) { crate::open::open($flags).unwrap_or_else(errno::fail) } else { $other }
            }
        }
    )* };
}

// The fortified functions exclude O_CREAT, so the mode is unused.
open_functions! {
    /// open(2).
    open(; path, flags, mode) = real::open(path, flags, mode);
    /// open(2).
    open64(; path, flags, mode) = real::open(path, flags, mode);
    /// openat(2).
    openat(dir,; path, flags, mode) = real::openat(dir, path, flags, mode);
    /// openat(2).
    openat64(dir,; path, flags, mode) = real::openat(dir, path, flags, mode);
    /// open(2) as glibc's fortified headers call it.
    __open_2(; path, flags) = real::open(path, flags, 0);
    /// open(2) as glibc's fortified headers call it.
    __open64_2(; path, flags) = real::open(path, flags, 0);
    /// openat(2) as glibc's fortified headers call it.
    __openat_2(dir,; path, flags) = real::openat(dir, path, flags, 0);
    /// openat(2) as glibc's fortified headers call it.
    __openat64_2(dir,; path, flags) = real::openat(dir, path, flags, 0);
}

/// close(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    lifecycle::remove(fd);
    epoll::closed(fd);
    // SAFETY: the program's arguments, by the C function's contract.
    unsafe { real::close(fd) }
}

/// close_range(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = 4;
    if flags & CLOEXEC == 0 {
        lifecycle::remove_range(first, last);
    }
    // SAFETY: the program's arguments, by the C function's contract.
    unsafe { real::close_range(first, last, flags) }
}

/// closefrom(3).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn closefrom(first: c_int) {
    lifecycle::remove_range(first.max(0).cast_unsigned(), c_uint::MAX);
    // SAFETY: the argument is the program's. Some C libraries return a value, which is ignored.
    unsafe { real::closefrom(first) };
}

/// dup(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the program's arguments, by the C function's contract.
    duplicated(fd, unsafe { real::dup(fd) })
}

/// dup2(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the program's arguments, by the C function's contract.
    duplicated(from, unsafe { real::dup2(from, to) })
}

/// dup3(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's arguments, by the C function's contract.
    duplicated(from, unsafe { real::dup3(from, to, flags) })
}

fn duplicated(from: c_int, to: c_int) -> c_int {
    if to >= 0 {
        lifecycle::duplicated(from, to);
    }
    to
}

macro_rules! fcntl_functions {
    ($($name:ident),*) => { $(
        /// fcntl(2).
        ///
        /// # Safety
        /// The conditions of the C library's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(fd: c_int, command: c_int, arg: c_ulong) -> c_int {
            // SAFETY: the program's arguments, by the C function's contract.
            let result = unsafe { real::fcntl(fd, command, arg) };
            if matches!(command, F_DUPFD | F_DUPFD_CLOEXEC) { duplicated(fd, result) } else { result }
        }
    )* };
}
fcntl_functions!(fcntl, fcntl64);

/// ioctl(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ioctl(fd: c_int, command: c_ulong, arg: *mut c_void) -> c_int {
    // Programs pass the request number as int, unsigned int or unsigned long, so only the low 32 bits count.
    let number = command as u32;
    match number {
        NIOCTXSYNC | NIOCRXSYNC => {
            if let Some(done) = table::with(fd, |d| sync(d, number)) {
                return errno::done(done);
            }
        }
        NIOCCTRL | NIOCREGIF | NIOCGINFO | NIOCCONFIG => {}
        _ if table::holds(fd) && !is_any_files(number) => return errno::fail(Errno::OPNOTSUPP),
        _ if ifreq::is_question(number) => {
            // SAFETY: the program's arguments, by the C function's contract.
            return ifreq::answer(number, arg as u64)
                .map_or_else(|| unsafe { real::ioctl(fd, command, arg) }, errno::done);
        }
        // SAFETY: the program's arguments, by the C function's contract.
        _ => return unsafe { real::ioctl(fd, command, arg) },
    }
    match table::get(fd).or_else(|| lifecycle::adopt(fd)) {
        Some(descriptor) => errno::done(netmap_ioctl(fd, &descriptor, number, arg as u64)),
        // SAFETY: the program's arguments, by the C function's contract.
        None => unsafe { real::ioctl(fd, command, arg) },
    }
}

/// Returns whether an ioctl request is one that the kernel handles for files of any kind. All other requests go to the
/// device, and netmap refuses requests that it does not define.
fn is_any_files(number: u32) -> bool {
    [libc::FIOCLEX, libc::FIONCLEX, libc::FIONBIO, libc::FIOASYNC].contains(&c_ulong::from(number))
}

/// Implements `NIOCTXSYNC` and `NIOCRXSYNC`. As in netmap, a ring with invalid indices is re-initialised, without an
/// error.
#[inline]
fn sync(descriptor: &Descriptor, number: u32) -> Result<(), Errno> {
    let done = descriptor.with(|b| {
        if b.is_csb() {
            return Err(Errno::BUSY);
        }
        let _ = if number == NIOCTXSYNC { b.sync_tx() } else { b.sync_rx() };
        Ok(())
    });
    done.unwrap_or(Err(Errno::NXIO))
}

fn netmap_ioctl(fd: c_int, descriptor: &Arc<Descriptor>, number: u32, arg: u64) -> Result<(), Errno> {
    let borrowed = crate::borrow(fd).ok_or(Errno::BADF)?;
    match number {
        NIOCTXSYNC | NIOCRXSYNC => sync(descriptor, number),
        _ if arg == 0 => Err(Errno::INVAL),
        NIOCCTRL => request::control(borrowed, descriptor, arg),
        NIOCREGIF => legacy::regif(borrowed, descriptor, arg),
        NIOCGINFO => legacy::ginfo(borrowed, arg),
        // `NIOCCONFIG` configures a switch that an additional kernel module implements; netvale does not support it.
        _ => Err(Errno::INVAL),
    }
}

macro_rules! mmap_functions {
    ($($name:ident),*) => { $(
        /// mmap(2).
        ///
        /// # Safety
        /// The conditions of the C library's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            at: *mut c_void,
            len: size_t,
            prot: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            let known = if fd >= 0 { table::get(fd) } else { None };
            if known.is_none() {
                // SAFETY: the program's arguments, by the C function's contract.
                let mapped = unsafe { real::mmap(at, len, prot, flags, fd, offset) };
                // The kernel cannot map sockets: after `ENODEV`, the descriptor may be a netmap descriptor that came
                // from another process.
                if mapped != MAP_FAILED || fd < 0 || errno::get() != libc::ENODEV {
                    return mapped;
                }
            }
            let Some(descriptor) = known.or_else(|| lifecycle::adopt(fd)) else {
                errno::set(libc::ENODEV);
                return MAP_FAILED;
            };
            let Some(bound) = descriptor.bound() else {
                errno::set(libc::EINVAL);
                return MAP_FAILED;
            };
            let from = offset.saturating_add(bound.reply.file_offset as off_t);
            // SAFETY: the arguments are the program's; the region is what the program asked to map.
            unsafe { real::mmap(at, len, prot, flags, bound.region.as_raw_fd(), from) }
        }
    )* };
}
mmap_functions!(mmap, mmap64);

macro_rules! fstat_functions {
    ($($name:ident),*) => { $(
        /// Implements fstat(2): a netmap descriptor is a character device.
        ///
        /// # Safety
        /// The conditions of the C library's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(fd: c_int, into: *mut stat) -> c_int {
            // SAFETY: the program's arguments, by the C function's contract.
            let result = unsafe { real::fstat(fd, into) };
            if result == 0 && table::holds(fd) {
                // SAFETY: the C library has just filled the structure.
                unsafe { (*into).st_mode = (*into).st_mode & !S_IFMT | S_IFCHR };
            }
            result
        }
    )* };
}
fstat_functions!(fstat, fstat64);

/// Runs when the library is loaded: installs the fork handler through which a child takes over the table of
/// descriptors, and adopts descriptors inherited through exec.
// SAFETY: the section holds addresses of functions without arguments, which the loader calls once.
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
#[used]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    // SAFETY: the handler is a function of this library, which is never unloaded while the program runs it.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    if std::env::var_os("NETVALE_RUN_DIR").is_some() {
        adopt_inherited();
    }
}

/// # Safety
/// No conditions: the function is `unsafe` only because pthread_atfork(3) requires this signature.
unsafe extern "C" fn forked() {
    table::claim();
}

/// Adopts sockets that were opened before the program began: if a netmap program executed this program, some of these
/// sockets are netmap descriptors.
fn adopt_inherited() {
    let Ok(list) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = list.flatten().filter_map(|e| e.file_name().to_str().and_then(|n| n.parse::<c_int>().ok()));
    for fd in numbers.filter(|fd| *fd > 2).collect::<Vec<_>>() {
        lifecycle::adopt(fd);
    }
}
