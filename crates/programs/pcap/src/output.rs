//! Shows room to send on the descriptor to select on. netvale's netmap library, preloaded beside this one, interposes
//! poll, select and epoll, and queries this library. Without it, the descriptor only shows frames to read.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::sync::Arc;

use libc::{c_int, c_void};
use netvale::OutgoingRing;

/// `struct netvale_output` (netvale_output.h).
#[repr(C)]
struct PcapOutput {
    of: *mut c_void,
    room: unsafe extern "C" fn(*mut c_void) -> c_int,
    news: unsafe extern "C" fn(*mut c_void) -> u64,
    sleep: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int,
    awake: unsafe extern "C" fn(*mut c_void),
    release: unsafe extern "C" fn(*mut c_void),
}

type WatchFn = unsafe extern "C" fn(c_int, *const PcapOutput) -> c_int;

/// Returns `netvale_watch_output`, if the netmap library is loaded.
fn watch() -> Option<WatchFn> {
    // SAFETY: dlsym takes any NUL-terminated name; the function with this name has this type.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"netvale_watch_output".as_ptr());
        (!found.is_null()).then(|| std::mem::transmute::<*mut c_void, WatchFn>(found))
    }
}

/// Shows on `fd` whether `sender` has room. Returns whether the netmap library watches it.
pub fn show(fd: c_int, sender: &Arc<OutgoingRing>) -> bool {
    let Some(watch) = watch() else { return false };
    let of = Arc::into_raw(Arc::clone(sender)).cast_mut().cast();
    let output = PcapOutput { of, room, news, sleep, awake, release };
    // SAFETY: the structure is copied; the object in it lives until `release`.
    let done = unsafe { watch(fd, &raw const output) } == 0;
    if !done {
        // SAFETY: no other owner exists.
        unsafe { release(of) };
    }
    done
}

/// Stops showing room on `fd`.
pub fn hide(fd: c_int) {
    if let Some(watch) = watch() {
        // SAFETY: null removes the output.
        unsafe { watch(fd, std::ptr::null()) };
    }
}

/// # Safety
/// `of` comes from `show` and is not released.
unsafe fn outgoing<'a>(of: *mut c_void) -> &'a OutgoingRing {
    // SAFETY: the caller's contract: the pointer of an Arc, whose count `show` left raised.
    unsafe { &*of.cast_const().cast::<OutgoingRing>() }
}

/// Implements `room` of the structure.
///
/// # Safety
/// The conditions of [`outgoing`].
unsafe extern "C" fn room(of: *mut c_void) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { outgoing(of) }.has_room().into()
}

/// Implements `news`.
///
/// # Safety
/// The conditions of [`outgoing`].
unsafe extern "C" fn news(of: *mut c_void) -> u64 {
    // SAFETY: the caller's contract.
    unsafe { outgoing(of) }.news()
}

/// Implements `sleep`.
///
/// # Safety
/// The conditions of [`outgoing`]; `fds` has room for two numbers.
unsafe extern "C" fn sleep(of: *mut c_void, fds: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    let wakes = unsafe { outgoing(of) }.go_to_sleep();
    let mut count = 0;
    for fd in wakes.iter().flat_map(|w| w.fds()) {
        // SAFETY: the caller has room for two, and there are no more. The descriptors stay open until `release`.
        unsafe { fds.add(count).write(fd.as_raw_fd()) };
        count += 1;
    }
    count as c_int
}

/// Implements `awake`.
///
/// # Safety
/// The conditions of [`outgoing`].
unsafe extern "C" fn awake(of: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { outgoing(of) }.wake_up();
}

/// Implements `release`.
///
/// # Safety
/// The conditions of [`outgoing`].
unsafe extern "C" fn release(of: *mut c_void) {
    // SAFETY: the count that `show` left raised.
    drop(unsafe { Arc::from_raw(of.cast_const().cast::<OutgoingRing>()) });
}
