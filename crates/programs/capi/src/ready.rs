//! Readiness for event loops that are not interposed: asyncio, libuv, GLib (netvale.h).
//!
//! poll, select and epoll arm a port's rings for the length of a call. An event loop that waits by other means uses
//! these functions to keep the rings armed from one check to the next. It waits on the eventfds through which the
//! daemon wakes the program.
#![allow(unsafe_code)]

use std::sync::Arc;

use libc::{c_int, c_short};
use rustix::io::Errno;

use crate::descriptor::BoundPort;
use crate::{errno, table};

/// Returns the registered port behind `fd`, and `events` in poll's form.
fn port(fd: c_int, events: c_int) -> Result<(Arc<BoundPort>, c_short), Errno> {
    let descriptor = table::get(fd).ok_or(Errno::BADF)?;
    let bound = descriptor.bound().ok_or(Errno::NXIO)?;
    Ok((bound, c_short::try_from(events).map_err(|_| Errno::INVAL)?))
}

/// Requests wake-ups, then syncs. Returns the events that are already ready, for which no wake-up follows, or -1 on an
/// error.
// SAFETY: only this library defines the name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn netvale_arm(fd: c_int, events: c_int) -> c_int {
    let armed = port(fd, events).map(|(bound, events)| {
        bound.rest(events);
        bound.poll(events)
    });
    armed.map_or_else(errno::fail, c_int::from)
}

/// Withdraws the request for wake-ups. Returns 0, or -1 on an error.
// SAFETY: only this library defines the name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn netvale_disarm(fd: c_int, events: c_int) -> c_int {
    errno::done(port(fd, events).map(|(bound, events)| bound.stir(events)))
}

/// Writes up to `count` of the descriptors that become readable on a wake-up to `fds`. Returns the total number of
/// these descriptors, which may exceed `count`, or -1 on an error.
///
/// # Safety
/// There is room for `count` descriptors at `fds`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn netvale_wake_fds(fd: c_int, events: c_int, fds: *mut c_int, count: c_int) -> c_int {
    let (bound, events) = match port(fd, events) {
        Ok(found) => found,
        Err(e) => return errno::fail(e),
    };
    let room = usize::try_from(count).unwrap_or(0);
    for (i, wake) in bound.wake_fds(events).take(room).enumerate() {
        // SAFETY: i is below count, for which the caller has room.
        unsafe { fds.add(i).write(wake) };
    }
    c_int::try_from(bound.wake_fds(events).count()).unwrap_or(c_int::MAX)
}
