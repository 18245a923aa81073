//! Writability of a handle's descriptor for poll(2) and select(2): whether there is room to send. netvale's netmap
//! library, which is preloaded together with this library, interposes poll, select and epoll, and calls this library's
//! functions to find out whether there is room. Without the netmap library, the descriptor becomes readable, but never
//! writable.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::sync::Arc;

use libc::{c_int, c_void};
use netvale::OutgoingRing;

/// `struct netvale_output` (netvale_output.h): the functions by which the netmap library queries a sender.
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

/// Returns the function `netvale_watch_output`; `None` if the netmap library is not loaded.
fn watch() -> Option<WatchFn> {
    // SAFETY: dlsym takes any NUL-terminated name; the function with this name has this type.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"netvale_watch_output".as_ptr());
        (!found.is_null()).then(|| std::mem::transmute::<*mut c_void, WatchFn>(found))
    }
}

/// Makes `fd` writable while `sender` has room. Returns `false` if the netmap library is not loaded or refuses.
pub fn show(fd: c_int, sender: &Arc<OutgoingRing>) -> bool {
    let Some(watch) = watch() else { return false };
    let of = Arc::into_raw(Arc::clone(sender)).cast_mut().cast();
    let output = PcapOutput { of, room, news, sleep, awake, release };
    // SAFETY: the called function copies the structure; the object to which `of` points lives until `release` is
    // called.
    let done = unsafe { watch(fd, &raw const output) } == 0;
    if !done {
        // SAFETY: the netmap library has not kept the pointer, so nothing else releases this reference.
        unsafe { release(of) };
    }
    done
}

/// Ends the effect of [`show`] on `fd`.
pub fn hide(fd: c_int) {
    if let Some(watch) = watch() {
        // SAFETY: null removes the output.
        unsafe { watch(fd, std::ptr::null()) };
    }
}

/// # Safety
/// `of` was passed to the netmap library by `show` and has not been released.
unsafe fn outgoing<'a>(of: *mut c_void) -> &'a OutgoingRing {
    // SAFETY: the caller's contract: `of` is the pointer of an Arc on which `show` holds a reference.
    unsafe { &*of.cast_const().cast::<OutgoingRing>() }
}

/// [`PcapOutput`]'s `room`: returns whether there is room.
///
/// # Safety
/// The conditions of [`outgoing`].
unsafe extern "C" fn room(of: *mut c_void) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { outgoing(of) }.has_room().into()
}

/// [`PcapOutput`]'s `news`: returns a number that changes when room becomes available.
///
/// # Safety
/// The conditions of [`outgoing`].
unsafe extern "C" fn news(of: *mut c_void) -> u64 {
    // SAFETY: the caller's contract.
    unsafe { outgoing(of) }.news()
}

/// [`PcapOutput`]'s `sleep`: requests a wake-up, and writes the descriptors to wait on. Returns their number.
///
/// # Safety
/// The conditions of [`outgoing`]; `fds` has room for two numbers.
unsafe extern "C" fn sleep(of: *mut c_void, fds: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    let wakes = unsafe { outgoing(of) }.go_to_sleep();
    let mut count = 0;
    for fd in wakes.iter().flat_map(|w| w.fds()) {
        // SAFETY: `fds` has room for two descriptors, and there are at most two. The descriptors stay open until
        // `release`.
        unsafe { fds.add(count).write(fd.as_raw_fd()) };
        count += 1;
    }
    count as c_int
}

/// [`PcapOutput`]'s `awake`: withdraws the request for a wake-up.
///
/// # Safety
/// The conditions of [`outgoing`].
unsafe extern "C" fn awake(of: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { outgoing(of) }.wake_up();
}

/// [`PcapOutput`]'s `release`: drops the reference that [`show`] has taken.
///
/// # Safety
/// The conditions of [`outgoing`].
unsafe extern "C" fn release(of: *mut c_void) {
    // SAFETY: `show` has left this reference of the Arc for `release`.
    drop(unsafe { Arc::from_raw(of.cast_const().cast::<OutgoingRing>()) });
}
