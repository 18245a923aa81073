//! epoll sets that contain netmap descriptors, directly or through inner sets. This library keeps the netmap
//! descriptors of a set; the kernel's set has the other members, including inner sets, and reports their readiness.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLONESHOT, POLLIN, c_int, epoll_event, pollfd,
    sigset_t,
};
use rustix::io::Errno;

use crate::descriptor::Descriptor;
use crate::marks::FdMarks;
use crate::output::SendQueue;
use crate::real;
use crate::wait::{EventSource, WatchedFd, wait};

/// A member of a set.
enum EpollMember {
    /// A netmap descriptor, or room to send on a descriptor of another kind.
    Source(EventSource),
    /// An inner epoll set.
    Set,
}

struct EpollEntry {
    fd: c_int,
    member: EpollMember,
    events: u32,
    data: u64,
    /// Whether the entry may be reported; false once a one-shot entry has been reported.
    enabled: bool,
    /// For edge triggering: the value of [`EventSource::news`] at the last report, for the entry's own descriptor or
    /// for each descriptor in the inner set.
    reported: Vec<(c_int, Option<u64>)>,
}

type EpollSets = BTreeMap<c_int, Vec<EpollEntry>>;

static SETS: Mutex<EpollSets> = Mutex::new(BTreeMap::new());
/// Number of sets that directly contain netmap descriptors. While it is zero, look-ups are skipped.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The descriptor numbers of epoll sets.
static MADE: FdMarks = FdMarks::new();

fn sets() -> MutexGuard<'static, EpollSets> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether `epoll` contains netmap descriptors, directly or through an inner set.
#[inline]
pub fn is_ours(epoll: c_int) -> bool {
    COUNT.load(Ordering::Relaxed) != 0 && reaches(&sets(), epoll)
}

/// Returns whether netmap descriptors are reachable from `epoll`. The recursion ends, as the kernel refuses cycles of
/// sets.
fn reaches(sets: &EpollSets, epoll: c_int) -> bool {
    sets.get(&epoll).is_some_and(|set| set.iter().any(|e| e.is_source() || reaches(sets, e.fd)))
}

/// Records a new set with this descriptor number.
pub fn made(epoll: c_int) {
    MADE.set(epoll, true);
}

/// Returns whether a descriptor number belongs to an epoll set.
#[inline]
pub fn is_set(fd: c_int) -> bool {
    MADE.has(fd)
}

/// Implements epoll_ctl(2) for a netmap descriptor.
///
/// # Errors
/// The errors of epoll_ctl(2).
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
            sets.entry(epoll).or_default().push(EpollEntry::new(fd, EpollMember::Source(EventSource::Port(port)), e));
        }
        (EPOLL_CTL_MOD, Some(at), Some(e)) => {
            if let Some(entry) = sets.get_mut(&epoll).and_then(|s| s.get_mut(at)) {
                *entry = EpollEntry::new(fd, EpollMember::Source(EventSource::Port(port)), e);
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

impl EpollEntry {
    fn new(fd: c_int, member: EpollMember, event: epoll_event) -> EpollEntry {
        EpollEntry { fd, member, events: event.events, data: event.u64, enabled: true, reported: Vec::new() }
    }

    fn is_source(&self) -> bool {
        matches!(self.member, EpollMember::Source(_))
    }

    fn is(&self, port: &Arc<Descriptor>) -> bool {
        matches!(&self.member, EpollMember::Source(source) if source.is(port))
    }

    /// Adds the descriptors that decide whether this entry is ready.
    fn watch(&self, sets: &EpollSets, watched: &mut Vec<WatchedFd>) {
        let before = watched.len();
        match &self.member {
            EpollMember::Source(source) => {
                // The low event bits of epoll are the same as the event bits of poll.
                let events = (self.events & 0x7ff) as i16;
                watched.push(WatchedFd { fd: self.fd, source: source.clone(), events, found: 0, ended: 0, seen: None });
            }
            EpollMember::Set if self.events & EPOLLIN as u32 != 0 => {
                enabled(sets, self.fd).for_each(|e| e.watch(sets, watched))
            }
            EpollMember::Set => {}
        }
        if self.events & EPOLLET as u32 != 0 {
            for w in &mut watched[before..] {
                let reported = self.reported.iter().find(|(fd, _)| *fd == w.fd);
                w.seen = reported.map_or(w.seen, |(_, news)| *news);
            }
        }
    }

    /// Returns the event to report for this entry, given its ready descriptors, and records the report: an
    /// edge-triggered entry is reported again only after a change, a one-shot entry only after it is re-armed.
    fn report<'a>(&mut self, ready: impl Iterator<Item = &'a WatchedFd>) -> epoll_event {
        self.enabled = self.events & EPOLLONESHOT as u32 == 0;
        let mut found = 0;
        for member in ready {
            self.reported.retain(|(fd, _)| *fd != member.fd);
            self.reported.push((member.fd, member.source.news()));
            found |= u32::from(member.found.cast_unsigned());
        }
        let events = if self.is_source() { found } else { EPOLLIN as u32 };
        epoll_event { events, u64: self.data }
    }
}

/// Returns the entries of a set that may be reported.
fn enabled(sets: &EpollSets, epoll: c_int) -> impl Iterator<Item = &EpollEntry> {
    sets.get(&epoll).into_iter().flatten().filter(|e| e.enabled)
}

/// Adds the descriptors that decide whether a set is ready.
pub fn watch(epoll: c_int, watched: &mut Vec<WatchedFd>) {
    let sets = sets();
    enabled(&sets, epoll).for_each(|e| e.watch(&sets, watched));
}

/// Returns the descriptors that decide whether a set is ready and, in a second list of the same order, the descriptor
/// number of the entry to which each of them belongs.
fn members(epoll: c_int) -> (Vec<WatchedFd>, Vec<c_int>) {
    let sets = sets();
    let mut watched = Vec::new();
    let mut owners = Vec::new();
    for entry in enabled(&sets, epoll) {
        entry.watch(&sets, &mut watched);
        owners.resize(watched.len(), entry.fd);
    }
    (watched, owners)
}

/// Records an epoll_ctl(2) call by which the kernel has added or changed an inner set or, if `event` is `None`, removed
/// it.
pub fn control_inner(epoll: c_int, inner: c_int, event: Option<epoll_event>) {
    let mut sets = sets();
    let set = sets.entry(epoll).or_default();
    set.retain(|e| e.fd != inner);
    set.extend(event.map(|event| EpollEntry::new(inner, EpollMember::Set, event)));
    tidy(&mut sets);
}

/// Records the entry that reports room to send on `fd`; if `event` is `None`, removes the entry. The kernel reports all
/// other events of `fd`.
pub fn watch_output(epoll: c_int, fd: c_int, event: Option<(Arc<dyn SendQueue>, epoll_event)>) {
    let mut sets = sets();
    let gone = sets.get_mut(&epoll).map(|set| take_output(set, fd));
    if let Some((room, event)) = event {
        sets.entry(epoll).or_default().push(EpollEntry::new(fd, EpollMember::Source(EventSource::Output(room)), event));
    }
    tidy(&mut sets);
    drop(sets);
    // The entries are dropped after the lock is released: dropping the last reference closes descriptors, and the
    // interposed close takes the lock.
    drop(gone);
}

/// Removes the entry for room to send on `fd` from a set. Returns the entry, which must be dropped outside the lock.
fn take_output(set: &mut Vec<EpollEntry>, fd: c_int) -> Vec<EpollEntry> {
    let is_output = |e: &EpollEntry| e.fd == fd && matches!(e.member, EpollMember::Source(EventSource::Output(_)));
    let (gone, rest) = std::mem::take(set).into_iter().partition(is_output);
    *set = rest;
    gone
}

/// Removes the entries for room to send on `fd` from all sets.
pub fn forget_output(fd: c_int) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut sets = sets();
    let gone: Vec<EpollEntry> = sets.values_mut().flat_map(|set| take_output(set, fd)).collect();
    tidy(&mut sets);
    drop(sets);
    drop(gone);
}

fn tidy(sets: &mut EpollSets) {
    sets.retain(|_, set| !set.is_empty());
    let count = sets.values().filter(|set| set.iter().any(EpollEntry::is_source)).count();
    COUNT.store(count, Ordering::Relaxed);
}

/// Checks that `epoll` is an epoll descriptor.
fn check(epoll: c_int) -> Result<(), Errno> {
    let link = std::fs::read_link(format!("/proc/self/fd/{epoll}")).map_err(|_| Errno::BADF)?;
    if link.as_os_str() == "anon_inode:[eventpoll]" { Ok(()) } else { Err(Errno::INVAL) }
}

/// Removes the netmap descriptor `fd`, which is about to be closed, from all sets.
pub fn forget(fd: c_int, port: &Arc<Descriptor>) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut sets = sets();
    sets.values_mut().for_each(|set| set.retain(|e| e.fd != fd || !e.is(port)));
    tidy(&mut sets);
}

/// Forgets the epoll set with this descriptor number, if there is such a set. Called when the number is about to be
/// closed or overwritten.
pub fn closed(epoll: c_int) {
    let was_set = MADE.set(epoll, false);
    if was_set || COUNT.load(Ordering::Relaxed) != 0 {
        let mut sets = sets();
        let gone = sets.remove(&epoll);
        sets.values_mut().for_each(|set| set.retain(|e| e.fd != epoll || e.is_source()));
        tidy(&mut sets);
        drop(sets);
        drop(gone);
    }
}

/// Implements epoll_pwait(2) for a set that contains netmap descriptors. Returns the number of events written to
/// `events`.
///
/// # Errors
/// The errors of epoll_wait(2).
pub fn wait_events(
    epoll: c_int,
    events: &mut [epoll_event],
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Result<usize, Errno> {
    let start = std::time::Instant::now();
    loop {
        let (mut ports, owners) = members(epoll);
        let mut others = [pollfd { fd: epoll, events: POLLIN, revents: 0 }];
        let left = limit.map(|l| l.saturating_sub(start.elapsed()));
        wait(&mut ports, &mut others, left, mask)?;
        let mut count = report(epoll, &owners, &ports, events);
        if others[0].revents != 0 && count < events.len() {
            let room = &mut events[count..];
            // SAFETY: the slice belongs to the caller for the length of the call.
            let n = unsafe { real::epoll_wait(epoll, room.as_mut_ptr(), room.len() as c_int, 0) };
            count += usize::try_from(n).map_err(|_| crate::errno::last())?;
        }
        if count > 0 || limit.is_some_and(|l| start.elapsed() >= l) {
            return Ok(count);
        }
    }
}

/// Converts ready descriptors to events, and returns the number of events. For each descriptor in `ports`, `owners` has
/// the descriptor number of the entry to which it belongs. If other descriptors of an inner set are ready, the kernel
/// may report that inner set a second time.
fn report(epoll: c_int, owners: &[c_int], ports: &[WatchedFd], events: &mut [epoll_event]) -> usize {
    let mut sets = sets();
    let mut count = 0;
    for entry in sets.get_mut(&epoll).into_iter().flatten().filter(|e| e.enabled) {
        let fd = entry.fd;
        let is_its = move |(owner, port): &(&c_int, &WatchedFd)| **owner == fd && port.found != 0;
        let mut ready = owners.iter().zip(ports).filter(is_its).map(|(_, port)| port).peekable();
        if ready.peek().is_none() {
            continue;
        }
        let Some(place) = events.get_mut(count) else { break };
        *place = entry.report(ready);
        count += 1;
    }
    count
}
