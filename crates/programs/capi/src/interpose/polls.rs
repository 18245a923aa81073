//! poll, ppoll, select, pselect.
#![allow(unsafe_code)]

use std::ops::Range;
use std::time::{Duration, Instant};

use libc::{
    FD_CLR, FD_ISSET, FD_SET, POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, c_int, c_short, fd_set, nfds_t,
    pollfd, sigset_t, size_t, timespec, timeval,
};
use rustix::io::Errno;

use crate::output::ROOM;
use crate::packet::socket;
use crate::wait::{EventSource, WatchedFd, wait};
use crate::{epoll, errno, output, real, table};

/// poll(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the program's arguments, by the C function's contract.
    match unsafe { netmap_among(fds, count) } {
        // SAFETY: the program's arguments, by the C function's contract.
        None => unsafe { real::poll(fds, count, timeout) },
        Some(fds) => poll_with(fds, millis(timeout), std::ptr::null()),
    }
}

/// poll(2), as glibc's fortified headers call it.
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, len: size_t) -> c_int {
    check_len(count, len);
    // SAFETY: the program's arguments, by the C function's contract.
    unsafe { poll(fds, count, timeout) }
}

/// ppoll(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's arguments, by the C function's contract.
    let Some(fds) = (unsafe { netmap_among(fds, count) }) else {
        // SAFETY: the program's arguments, by the C function's contract.
        return unsafe { real::ppoll(fds, count, timeout, mask) };
    };
    // SAFETY: the program passed null or a valid `timespec`.
    match unsafe { time(timeout) } {
        Ok(limit) => poll_with(fds, limit, mask),
        Err(e) => errno::fail(e),
    }
}

/// ppoll(2), as glibc's fortified headers call it.
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    len: size_t,
) -> c_int {
    check_len(count, len);
    // SAFETY: the program's arguments, by the C function's contract.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// Checks an array as glibc's fortified functions do: aborts if its `len` bytes are too few for `count` entries.
fn check_len(count: nfds_t, len: size_t) {
    if count as usize > len / size_of::<pollfd>() {
        std::process::abort();
    }
}

/// Returns whether this library, instead of the kernel, reports any of `events` on a descriptor.
fn is_ours(fd: c_int, events: c_short) -> bool {
    if events & POLLIN != 0 {
        socket::listened(fd);
    }
    table::holds(fd) || (events & ROOM != 0 && output::get(fd).is_some()) || (events & POLLIN != 0 && is_set(fd))
}

/// Returns whether a descriptor is an epoll set that contains netmap descriptors.
fn is_set(fd: c_int) -> bool {
    epoll::is_set(fd) && epoll::is_ours(fd)
}

/// Returns the program's array if this library reports events of any of its entries; otherwise `None`, and the kernel
/// handles the call.
///
/// # Safety
/// `fds` is null or points to `count` entries.
unsafe fn netmap_among<'a>(fds: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    if !(table::is_used() || output::any()) || fds.is_null() || count == 0 {
        return None;
    }
    // SAFETY: the caller's contract; the array belongs to the program for the length of the call.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    fds.iter().any(|f| is_ours(f.fd, f.events)).then_some(fds)
}

pub(super) fn millis(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// Converts a timeout. Returns `Ok(None)`, i.e. no limit, for null; `EINVAL` for a negative time or for 10⁹ nanoseconds
/// or more.
///
/// # Safety
/// `at` is null or points to a time.
pub(super) unsafe fn time(at: *const timespec) -> Result<Option<Duration>, Errno> {
    // SAFETY: the caller's contract.
    let Some(t) = (unsafe { at.as_ref() }) else { return Ok(None) };
    match (u64::try_from(t.tv_sec), u32::try_from(t.tv_nsec)) {
        (Ok(s), Ok(n)) if n < 1_000_000_000 => Ok(Some(Duration::new(s, n))),
        _ => Err(Errno::INVAL),
    }
}

/// Who reports the events of a poll entry: this library, the kernel, or both. Library and kernel both report events for
/// a socket whose room to send the library reports, and for an epoll set that contains netmap descriptors.
#[derive(Default)]
struct Answerers {
    /// The library's entries for the descriptor, as a range of [`ByAnswerer::ports`].
    ports: Range<usize>,
    /// Index in [`ByAnswerer::others`] of the kernel's entry for the descriptor; `None` if the kernel is not asked.
    other: Option<usize>,
    /// Whether the library's entries are the members of an epoll set, which is readable if any of them is ready.
    is_set: bool,
}

/// The entries of a poll, divided by who reports their events.
#[derive(Default)]
struct ByAnswerer {
    ports: Vec<WatchedFd>,
    others: Vec<pollfd>,
}

impl ByAnswerer {
    fn add(&mut self, f: &pollfd) -> Answerers {
        if f.fd < 0 {
            return Answerers::default();
        }
        let begin = self.ports.len();
        let watch = |source, events| WatchedFd { fd: f.fd, source, events, found: 0, ended: 0, seen: None };
        if let Some(port) = table::get(f.fd) {
            self.ports.push(watch(EventSource::Port(port), f.events));
            return Answerers { ports: begin..begin + 1, ..Answerers::default() };
        }
        let mut kernels = f.events;
        let is_set = f.events & POLLIN != 0 && is_set(f.fd);
        if is_set {
            epoll::watch(f.fd, &mut self.ports);
        } else if let Some(room) = output::get(f.fd).filter(|_| f.events & ROOM != 0) {
            self.ports.push(watch(EventSource::Output(room), f.events & ROOM));
            kernels &= !ROOM;
        }
        self.others.push(pollfd { events: kernels, ..*f });
        Answerers { ports: begin..self.ports.len(), other: Some(self.others.len() - 1), is_set }
    }

    /// Returns the events found for an entry.
    fn found(&self, by: &Answerers) -> c_short {
        let ports = self.ports[by.ports.clone()].iter().fold(0, |found, port| found | port.found);
        let ports = if by.is_set && ports != 0 { POLLIN } else { ports };
        ports | by.other.map_or(0, |at| self.others[at].revents)
    }
}

fn poll_with(fds: &mut [pollfd], limit: Option<Duration>, mask: *const sigset_t) -> c_int {
    let mut split = ByAnswerer::default();
    let answerers: Vec<Answerers> = fds.iter().map(|f| split.add(f)).collect();
    if let Err(e) = wait(&mut split.ports, &mut split.others, limit, mask) {
        return errno::fail(e);
    }
    let mut ready = 0;
    for (f, by) in fds.iter_mut().zip(&answerers) {
        f.revents = split.found(by);
        ready += c_int::from(f.revents != 0);
    }
    ready
}

/// select(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the program's arguments, by the C function's contract.
    let Some(sets) = (unsafe { SelectSets::with_netmap(n, [read, write, except]) }) else {
        // SAFETY: the program's arguments, by the C function's contract.
        return unsafe { real::select(n, read, write, except, timeout) };
    };
    // SAFETY: the program passed null or a valid `timeval`.
    let limit = match unsafe { timeout.as_ref() } {
        None => None,
        Some(t) => match (u64::try_from(t.tv_sec), u64::try_from(t.tv_usec)) {
            (Ok(s), Ok(us)) => Some(Duration::from_secs(s) + Duration::from_micros(us)),
            _ => return errno::fail(Errno::INVAL),
        },
    };
    let start = Instant::now();
    let ready = sets.wait(limit, std::ptr::null());
    // SAFETY: the argument is the program's; Linux stores the remaining time in it.
    if let (Some(t), Some(limit)) = (unsafe { timeout.as_mut() }, limit) {
        let left = limit.saturating_sub(start.elapsed());
        t.tv_sec = left.as_secs() as i64;
        t.tv_usec = left.subsec_micros().into();
    }
    ready
}

/// pselect(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pselect(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's arguments, by the C function's contract.
    let Some(sets) = (unsafe { SelectSets::with_netmap(n, [read, write, except]) }) else {
        // SAFETY: the program's arguments, by the C function's contract.
        return unsafe { real::pselect(n, read, write, except, timeout, mask) };
    };
    // SAFETY: the program passed null or a valid `timespec`.
    match unsafe { time(timeout) } {
        Ok(limit) => sets.wait(limit, mask),
        Err(e) => errno::fail(e),
    }
}

/// The three sets of a select, each of which may be null.
struct SelectSets {
    n: c_int,
    sets: [*mut fd_set; 3],
}

/// For each set (read, write, except), the events that the set requests from poll, and the events that make a
/// descriptor in the set ready.
const ASKS: [(c_short, c_short); 3] =
    [(POLLIN, POLLIN | POLLHUP | POLLERR), (POLLOUT, POLLOUT | POLLERR), (POLLPRI, POLLPRI)];

impl SelectSets {
    /// Returns the sets if this library reports events of any descriptor in them; otherwise `None`, and the kernel
    /// handles the call.
    ///
    /// # Safety
    /// Each set is null or belongs to the program for the length of the call.
    unsafe fn with_netmap(n: c_int, sets: [*mut fd_set; 3]) -> Option<SelectSets> {
        let this = SelectSets { n: n.min(libc::FD_SETSIZE as c_int), sets };
        let used = (table::is_used() || output::any()) && n <= libc::FD_SETSIZE as c_int;
        (used && (0..this.n).any(|fd| this.events(fd) != 0 && is_ours(fd, this.events(fd)))).then_some(this)
    }

    /// Returns the events requested for a descriptor.
    fn events(&self, fd: c_int) -> c_short {
        let asks = self.sets.iter().zip(ASKS);
        // SAFETY: the set belongs to the program (`with_netmap`), and fd is below FD_SETSIZE.
        let asked = asks.filter(|(set, _)| !set.is_null() && unsafe { FD_ISSET(fd, **set) });
        asked.fold(0, |events, (_, (ask, _))| events | ask)
    }

    fn wait(self, limit: Option<Duration>, mask: *const sigset_t) -> c_int {
        let fds = (0..self.n).map(|fd| pollfd { fd, events: self.events(fd), revents: 0 });
        let mut fds: Vec<pollfd> = fds.filter(|f| f.events != 0).collect();
        if poll_with(&mut fds, limit, mask) < 0 {
            return -1;
        }
        if fds.iter().any(|f| f.revents & POLLNVAL != 0) {
            return errno::fail(Errno::BADF);
        }
        fds.iter().map(|f| self.put(f)).sum()
    }

    /// Sets and clears a descriptor's bits in the sets. Returns the number of bits set.
    fn put(&self, f: &pollfd) -> c_int {
        let mut count = 0;
        for (set, (ask, counts)) in self.sets.iter().zip(ASKS) {
            // SAFETY: the set belongs to the program (`with_netmap`), and fd is below FD_SETSIZE.
            unsafe {
                if set.is_null() || !FD_ISSET(f.fd, *set) {
                    continue;
                }
                if f.events & ask != 0 && f.revents & counts != 0 {
                    FD_SET(f.fd, *set);
                    count += 1;
                } else {
                    FD_CLR(f.fd, *set);
                }
            }
        }
        count
    }
}
