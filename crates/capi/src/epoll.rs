//! epoll sets that hold netmap descriptors. The kernel's set holds the others; these are kept here.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLONESHOT, POLLIN, c_int, epoll_event, pollfd, sigset_t,
};
use rustix::io::Errno;

use crate::descriptor::Descriptor;
use crate::output::Room;
use crate::real;
use crate::wait::{Source, Watched, wait};

struct Entry {
    fd: c_int,
    source: Source,
    events: u32,
    data: u64,
    /// False after a one-shot entry was reported.
    enabled: bool,
    /// The news it had when it was last reported.
    reported: Option<u64>,
}

type Sets = BTreeMap<c_int, Vec<Entry>>;

static SETS: Mutex<Sets> = Mutex::new(BTreeMap::new());
/// Sets there are: nothing is looked up while there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn sets() -> MutexGuard<'static, Sets> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `epoll` holds netmap descriptors.
#[inline]
pub fn is_ours(epoll: c_int) -> bool {
    COUNT.load(Ordering::Relaxed) != 0 && sets().contains_key(&epoll)
}

/// epoll_ctl(2) on a netmap descriptor.
///
/// # Errors
/// As epoll_ctl(2).
pub fn control(
    epoll: c_int,
    op: c_int,
    fd: c_int,
    port: Arc<Descriptor>,
    event: Option<epoll_event>,
) -> Result<(), Errno> {
    check(epoll)?;
    let mut sets = sets();
    let known = sets.get(&epoll).and_then(|set| set.iter().position(|e| e.fd == fd));
    match (op, known, event) {
        (EPOLL_CTL_ADD, None, Some(e)) => {
            sets.entry(epoll).or_default().push(Entry::new(fd, Source::Port(port), e));
        }
        (EPOLL_CTL_MOD, Some(at), Some(e)) => {
            if let Some(entry) = sets.get_mut(&epoll).and_then(|s| s.get_mut(at)) {
                (entry.events, entry.data, entry.enabled, entry.reported) = (e.events, e.u64, true, None);
            }
        }
        (EPOLL_CTL_DEL, Some(at), _) => {
            if let Some(set) = sets.get_mut(&epoll) {
                set.swap_remove(at);
            }
        }
        (EPOLL_CTL_ADD, Some(_), Some(_)) => return Err(Errno::EXIST),
        (EPOLL_CTL_MOD | EPOLL_CTL_DEL, None, _) => return Err(Errno::NOENT),
        (EPOLL_CTL_ADD | EPOLL_CTL_MOD, _, None) => return Err(Errno::FAULT),
        _ => return Err(Errno::INVAL),
    }
    tidy(&mut sets);
    Ok(())
}

impl Entry {
    fn new(fd: c_int, source: Source, event: epoll_event) -> Entry {
        Entry { fd, source, events: event.events, data: event.u64, enabled: true, reported: None }
    }
}

/// Notes which events report room to send on `fd`, whose other events are the kernel's to tell; none: nothing.
pub fn watch_output(epoll: c_int, fd: c_int, event: Option<(Arc<dyn Room>, epoll_event)>) {
    let mut sets = sets();
    let gone = sets.get_mut(&epoll).map(|set| take_output(set, fd));
    if let Some((room, event)) = event {
        sets.entry(epoll).or_default().push(Entry::new(fd, Source::Output(room), event));
    }
    tidy(&mut sets);
    drop(sets);
    // Not under the lock: the last one closes descriptors, of which we are told.
    drop(gone);
}

/// Takes the entry about room on `fd` out of a set.
fn take_output(set: &mut Vec<Entry>, fd: c_int) -> Vec<Entry> {
    let (gone, rest) =
        std::mem::take(set).into_iter().partition(|e| e.fd == fd && matches!(e.source, Source::Output(_)));
    *set = rest;
    gone
}

/// Nothing is sent on `fd` any more.
pub fn forget_output(fd: c_int) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut sets = sets();
    let gone: Vec<Entry> = sets.values_mut().flat_map(|set| take_output(set, fd)).collect();
    tidy(&mut sets);
    drop(sets);
    drop(gone);
}

fn tidy(sets: &mut Sets) {
    sets.retain(|_, set| !set.is_empty());
    COUNT.store(sets.len(), Ordering::Relaxed);
}

/// Whether `epoll` is an epoll descriptor at all.
fn check(epoll: c_int) -> Result<(), Errno> {
    let link = std::fs::read_link(format!("/proc/self/fd/{epoll}")).map_err(|_| Errno::BADF)?;
    if link.as_os_str() == "anon_inode:[eventpoll]" { Ok(()) } else { Err(Errno::INVAL) }
}

/// `fd` is about to be closed: it leaves all sets, and if it is a set, that is forgotten.
pub fn forget(fd: c_int, port: &Arc<Descriptor>) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut sets = sets();
    sets.values_mut().for_each(|set| set.retain(|e| e.fd != fd || !e.source.is(port)));
    tidy(&mut sets);
}

/// An epoll descriptor is about to be closed.
pub fn closed(epoll: c_int) {
    if COUNT.load(Ordering::Relaxed) != 0 {
        let mut sets = sets();
        let gone = sets.remove(&epoll);
        tidy(&mut sets);
        drop(sets);
        drop(gone);
    }
}

/// epoll_pwait(2) on a set with netmap descriptors in it. Returns how many events were written.
///
/// # Errors
/// As epoll_wait(2).
pub fn wait_events(
    epoll: c_int,
    events: &mut [epoll_event],
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Result<usize, Errno> {
    let start = std::time::Instant::now();
    loop {
        let mut ports = watched(epoll);
        let mut others = [pollfd { fd: epoll, events: POLLIN, revents: 0 }];
        let left = limit.map(|l| l.saturating_sub(start.elapsed()));
        wait(&mut ports, &mut others, left, mask)?;
        let mut count = report(epoll, &ports, events);
        if others[0].revents != 0 && count < events.len() {
            let room = &mut events[count..];
            // SAFETY: the slice is the caller's for the call.
            let n = unsafe { real::epoll_wait(epoll, room.as_mut_ptr(), room.len() as c_int, 0) };
            count += usize::try_from(n).map_err(|_| crate::errno::last())?;
        }
        if count > 0 || limit.is_some_and(|l| start.elapsed() >= l) {
            return Ok(count);
        }
    }
}

fn watched(epoll: c_int) -> Vec<Watched> {
    let sets = sets();
    let entries = sets.get(&epoll).into_iter().flatten().filter(|e| e.enabled);
    let watch = |e: &Entry| {
        // The low event bits of epoll are those of poll.
        let events = (e.events & 0x7ff) as i16;
        let edge = e.events & EPOLLET as u32 != 0;
        let seen = e.reported.filter(|_| edge);
        Watched { fd: e.fd, source: e.source.clone(), events, found: 0, ended: 0, seen }
    };
    entries.map(watch).collect()
}

/// Turns what was found into events.
fn report(epoll: c_int, ports: &[Watched], events: &mut [epoll_event]) -> usize {
    let mut sets = sets();
    let Some(set) = sets.get_mut(&epoll) else { return 0 };
    let mut count = 0;
    for p in ports.iter().filter(|p| p.found != 0) {
        let Some(entry) = set.iter_mut().find(|e| e.fd == p.fd && e.enabled) else { continue };
        let Some(place) = events.get_mut(count) else { break };
        let found = u32::from(p.found.cast_unsigned());
        entry.reported = entry.source.news();
        entry.enabled = entry.events & EPOLLONESHOT as u32 == 0;
        *place = epoll_event { events: found, u64: entry.data };
        count += 1;
    }
    count
}
