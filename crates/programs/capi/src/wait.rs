//! Waiting for netmap descriptors together with other descriptors: the common part of poll, select and epoll.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, c_int, c_short, pollfd, sigset_t, timespec};
use netvale_mem::spin::Spin;
use rustix::io::Errno;

use crate::descriptor::{BoundPort, Descriptor};
use crate::output::{ROOM, SendQueue};
use crate::real;

/// A source of readiness events.
#[derive(Clone)]
pub enum EventSource {
    /// A netmap descriptor.
    Port(Arc<Descriptor>),
    /// Room to send on a descriptor of another kind.
    Output(Arc<dyn SendQueue>),
}

impl EventSource {
    fn poll(&self, events: c_short) -> c_short {
        match self {
            EventSource::Port(port) => port.poll(events),
            EventSource::Output(room) => {
                if events & ROOM != 0 && room.has_room() {
                    events & ROOM
                } else {
                    0
                }
            }
        }
    }

    /// Returns a number that changes with each update of the rings; `None` if no port is registered.
    pub fn news(&self) -> Option<u64> {
        match self {
            EventSource::Port(port) => port.with(|b| b.news()),
            EventSource::Output(room) => Some(room.news()),
        }
    }

    /// Returns the events that are reported once the daemon has closed the connection.
    fn hung_up(&self) -> c_short {
        match self {
            EventSource::Port(port) => port.with(BoundPort::hung_up).unwrap_or(POLLHUP),
            EventSource::Output(_) => POLLHUP,
        }
    }

    /// Returns the time until poll may report that the daemon has closed the connection; zero if it may report this
    /// now.
    fn until_end_is_told(&self) -> Duration {
        match self {
            EventSource::Port(port) => port.with(BoundPort::until_end_is_told).unwrap_or_default(),
            EventSource::Output(_) => Duration::ZERO,
        }
    }

    fn end_is_told(&self) {
        if let EventSource::Port(port) = self {
            port.with(BoundPort::end_is_told);
        }
    }

    /// Returns whether the source is this netmap descriptor.
    pub fn is(&self, other: &Arc<Descriptor>) -> bool {
        matches!(self, EventSource::Port(port) if Arc::ptr_eq(port, other))
    }

    /// Returns the rings or the queue from which to request wake-ups; `None` if no port is registered.
    fn armed(&self, events: c_short) -> Option<WakeArming> {
        match self {
            EventSource::Port(port) => port.bound().map(|bound| WakeArming::Port(bound, events)),
            EventSource::Output(room) => Some(WakeArming::Output(Arc::clone(room))),
        }
    }
}

/// Rings or a queue from which wake-ups are requested.
enum WakeArming {
    Port(Arc<BoundPort>, c_short),
    Output(Arc<dyn SendQueue>),
}

impl WakeArming {
    /// Requests wake-ups, which arrive through the returned descriptors.
    fn go_to_sleep(&self) -> Vec<c_int> {
        match self {
            WakeArming::Port(bound, events) => {
                bound.go_to_sleep(*events);
                bound.wake_fds(*events).collect()
            }
            WakeArming::Output(room) => room.go_to_sleep(),
        }
    }

    fn wake_up(&self) {
        match self {
            WakeArming::Port(bound, events) => bound.wake_up(*events),
            WakeArming::Output(room) => room.wake_up(),
        }
    }
}

/// A descriptor on which a program waits, with the events for which it waits.
pub struct WatchedFd {
    /// The program's number for the descriptor.
    pub fd: c_int,
    /// Source of the descriptor's events.
    pub source: EventSource,
    /// The events to wait for: `POLLIN`, `POLLOUT`, …
    pub events: c_short,
    /// The ready events that the last check found.
    pub found: c_short,
    /// Events that are reported regardless of the state of the rings, because the peer hung up.
    pub ended: c_short,
    /// [`EventSource::news`] at the last report; for edge-triggered epoll, the descriptor is ready only if the number
    /// has changed since. `None` for other waits.
    pub seen: Option<u64>,
}

impl WatchedFd {
    /// Syncs the source. Returns the source's ready events, except events that were already reported.
    fn poll(&self) -> c_short {
        let found = self.source.poll(self.events);
        let stale = self.seen.is_some() && self.seen == self.source.news();
        if stale { found & (POLLERR | POLLNVAL) } else { found }
    }
}

/// Waits until a descriptor in `ports` or `others` is ready, or the time limit passes (`None`: no limit). Syncs the
/// ports as netmap's poll does. Stores ready events in `found` and `revents`, respectively; if no event is stored, the
/// limit has passed.
///
/// # Errors
/// The error of ppoll(2), most often `EINTR`.
pub fn wait(
    ports: &mut [WatchedFd],
    others: &mut [pollfd],
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Result<(), Errno> {
    let start = Instant::now();
    if look(ports) || poll(ports, limit) {
        // The other descriptors are checked, too, so that busy ports do not starve them. If there are no other
        // descriptors, no system call is needed.
        return if others.is_empty() && mask.is_null() { Ok(()) } else { kernel(others, Some(Duration::ZERO), mask) };
    }
    loop {
        let left = limit.map(|l| l.saturating_sub(start.elapsed()));
        let result = sleep(ports, others, left, mask);
        let ready = look(ports);
        result?;
        let timed_out = limit.is_some_and(|l| start.elapsed() >= l);
        if ready || timed_out || others.iter().any(|o| o.revents != 0) {
            return Ok(());
        }
    }
}

/// Syncs the ports and records their ready events. Returns whether there are any ready events. A descriptor that has
/// hung up stays ready.
fn look(ports: &mut [WatchedFd]) -> bool {
    let mut any = false;
    for p in ports.iter_mut() {
        p.found = p.ended | p.poll();
        any |= p.found != 0;
    }
    any
}

/// Arms the ports, checks them once more, and sleeps unless one of them is ready.
fn sleep(
    ports: &mut [WatchedFd],
    others: &mut [pollfd],
    left: Option<Duration>,
    mask: *const sigset_t,
) -> Result<(), Errno> {
    let armed: Vec<WakeArming> = ports.iter().filter_map(|p| p.source.armed(p.events)).collect();
    let wakes: Vec<c_int> = armed.iter().flat_map(WakeArming::go_to_sleep).collect();
    let ready = ports.iter().any(|p| p.poll() != 0);
    let mut fds: Vec<pollfd> = others.to_vec();
    // A netmap descriptor hangs up when its port is detached or the daemon ends. The kernel itself reports hang-ups of
    // other descriptors.
    let mut left = left;
    for p in ports.iter() {
        let silent = p.source.until_end_is_told();
        if !silent.is_zero() {
            left = Some(left.map_or(silent, |left| left.min(silent)));
        }
        let fd = if matches!(p.source, EventSource::Port(_)) && silent.is_zero() { p.fd } else { -1 };
        fds.push(pollfd { fd, events: 0, revents: 0 });
    }
    fds.extend(wakes.into_iter().map(|fd| pollfd { fd, events: POLLIN, revents: 0 }));
    let result = kernel(&mut fds, if ready { Some(Duration::ZERO) } else { left }, mask);
    armed.iter().for_each(WakeArming::wake_up);
    result?;
    others.iter_mut().zip(&fds).for_each(|(o, f)| o.revents = f.revents);
    for (p, f) in ports.iter_mut().zip(fds.iter().skip(others.len())) {
        if f.revents & (POLLHUP | POLLERR | POLLNVAL) != 0 {
            p.ended = p.source.hung_up();
            p.source.end_is_told();
        }
    }
    Ok(())
}

/// Calls ppoll(2).
///
/// # Errors
/// The error of ppoll(2).
pub fn kernel(fds: &mut [pollfd], limit: Option<Duration>, mask: *const sigset_t) -> Result<(), Errno> {
    let limit = limit.map(|d| timespec { tv_sec: d.as_secs() as i64, tv_nsec: d.subsec_nanos().into() });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the slice is exclusive during the call; limit is null or points to a local value; the mask is null or the
    // program's.
    let n = unsafe { real::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, limit, mask) };
    if n < 0 { Err(crate::errno::last()) } else { Ok(()) }
}

/// Polls the ports for a time that adapts to how often polling has recently succeeded. Returns whether any port became
/// ready.
fn poll(ports: &mut [WatchedFd], limit: Option<Duration>) -> bool {
    let most = limit.map_or(most(), |l| l.min(most()));
    if most.is_zero() {
        return false;
    }
    thread_local! {
        /// The thread's state of adaptive polling; `None` at first, and while the thread polls.
        static SPIN: Cell<Option<Spin>> = const { Cell::new(None) };
    }
    SPIN.with(|learned| {
        let mut spin = learned.take().unwrap_or_default();
        spin.set_most(most);
        let ready = spin.poll(|| look(ports));
        learned.set(Some(spin));
        ready
    })
}

/// Returns the maximum time for which a thread polls before it sleeps: `$NETVALE_SPIN_US` microseconds, 50 if the
/// variable is not set.
fn most() -> Duration {
    static MOST: OnceLock<Duration> = OnceLock::new();
    *MOST.get_or_init(|| {
        let micros = std::env::var("NETVALE_SPIN_US").ok().and_then(|v| v.parse().ok()).unwrap_or(50);
        Duration::from_micros(micros)
    })
}
