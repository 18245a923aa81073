//! epoll_create, epoll_ctl, epoll_wait and their variants.
#![allow(unsafe_code)]

use std::time::Duration;

use libc::{c_int, epoll_event, sigset_t, timespec};
use rustix::io::Errno;

use super::polls::{millis, time};
use crate::output::ROOM;
use crate::packet::socket;
use crate::{epoll, errno, output, real, table};

/// epoll_create(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the program's arguments, by the C function's contract.
    made(unsafe { real::epoll_create(size) })
}

/// epoll_create1(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the program's arguments, by the C function's contract.
    made(unsafe { real::epoll_create1(flags) })
}

fn made(set: c_int) -> c_int {
    epoll::made(set);
    set
}

/// epoll_ctl(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_ctl(set: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: the program passed null or an event.
    let asked = unsafe { event.as_ref() }.copied();
    if let Some(port) = table::get(fd) {
        return errno::done(epoll::control(set, op, fd, port, asked));
    }
    let Some(room) = output::get(fd) else {
        // SAFETY: the program's arguments, by the C function's contract.
        let done = unsafe { real::epoll_ctl(set, op, fd, event) };
        if done == 0 && epoll::is_set(fd) {
            epoll::control_inner(set, fd, asked.filter(|_| op != libc::EPOLL_CTL_DEL));
        }
        return done;
    };
    // For a descriptor with a registered output, this library reports room to send; the kernel reports all other
    // events.
    let about_room = u32::from(ROOM.cast_unsigned());
    let mut rest = asked.map(|e| epoll_event { events: e.events & !about_room, ..e });
    // SAFETY: the pointer is null or points to a local value.
    let done = unsafe { real::epoll_ctl(set, op, fd, rest.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut)) };
    if done == 0 {
        let events = asked.filter(|_| op != libc::EPOLL_CTL_DEL).map_or(0, |e| e.events);
        if events & libc::EPOLLIN as u32 != 0 {
            socket::listened(fd);
        }
        let ours = |e: epoll_event| epoll_event { events: e.events & !(libc::EPOLLIN | libc::EPOLLPRI) as u32, ..e };
        let event = asked.filter(|_| events & about_room != 0).map(|e| (room, ours(e)));
        epoll::watch_output(set, fd, event);
    }
    done
}

/// epoll_wait(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int {
    if !epoll::is_ours(set) {
        // SAFETY: the program's arguments, by the C function's contract.
        return unsafe { real::epoll_wait(set, events, most, timeout) };
    }
    // SAFETY: the program's arguments, by the C function's contract.
    unsafe { wait(set, events, most, millis(timeout), std::ptr::null()) }
}

/// epoll_pwait(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    if !epoll::is_ours(set) {
        // SAFETY: the program's arguments, by the C function's contract.
        return unsafe { real::epoll_pwait(set, events, most, timeout, mask) };
    }
    // SAFETY: the program's arguments, by the C function's contract.
    unsafe { wait(set, events, most, millis(timeout), mask) }
}

/// epoll_pwait2(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if !epoll::is_ours(set) {
        // SAFETY: the program's arguments, by the C function's contract.
        return unsafe { real::epoll_pwait2(set, events, most, timeout, mask) };
    }
    // SAFETY: the program passed null or a time.
    match unsafe { time(timeout) } {
        // SAFETY: the program's arguments, by the C function's contract.
        Ok(limit) => unsafe { wait(set, events, most, limit, mask) },
        Err(e) => errno::fail(e),
    }
}

/// # Safety
/// `events` has room for `most` events.
unsafe fn wait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> c_int {
    let most = match usize::try_from(most) {
        Ok(most) if most > 0 && !events.is_null() => most,
        Ok(_) if events.is_null() => return errno::fail(Errno::FAULT),
        _ => return errno::fail(Errno::INVAL),
    };
    // SAFETY: the caller's contract.
    let events = unsafe { std::slice::from_raw_parts_mut(events, most) };
    match epoll::wait_events(set, events, limit, mask) {
        Ok(n) => n as c_int,
        Err(e) => errno::fail(e),
    }
}
