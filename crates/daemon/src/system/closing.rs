//! Closes descriptors that strangers opened. Closing can block for as long as their owner likes (a socket that lingers, or in whose queue such a
//! socket lies; a file system in user space), so threads of their own do it, and no user keeps more than a few of them.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most descriptors that one message carries (`SCM_MAX_FD`). The kernel itself closes those for which the receiver has no room, and has it wait.
pub const MOST_PASSED: usize = 253;
/// Most threads that close, and most that close for one user.
const MOST: usize = 64;
const MOST_FOR_ONE: usize = 4;
/// How long a thread waits for more before it ends.
const LINGER: Duration = Duration::from_secs(1);

struct Closing {
    threads: usize,
    idle: usize,
    waiting: VecDeque<(u32, OwnedFd)>,
    /// Threads that close for each user just now.
    busy: BTreeMap<u32, usize>,
}

static CLOSING: Mutex<Closing> =
    Mutex::new(Closing { threads: 0, idle: 0, waiting: VecDeque::new(), busy: BTreeMap::new() });
static NEWS: Condvar = Condvar::new();

fn closing() -> MutexGuard<'static, Closing> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands a descriptor of that user's to a thread that closes it.
pub fn close(fd: OwnedFd, uid: u32) {
    let mut closing = closing();
    closing.waiting.push_back((uid, fd));
    if closing.waiting.len() > closing.idle && closing.threads < MOST {
        match std::thread::Builder::new().name("netvale-closing".into()).spawn(close_all) {
            Ok(_) => closing.threads += 1,
            // It is closed with the next one.
            Err(e) => tracing::warn!("no thread to close a client's descriptor: {e}"),
        }
    }
    NEWS.notify_one();
}

/// The number of that user's descriptors that are not closed yet.
pub fn pending(uid: u32) -> usize {
    let closing = closing();
    closing.waiting.iter().filter(|(of, _)| *of == uid).count() + closing.busy.get(&uid).copied().unwrap_or(0)
}

/// A thread's work.
fn close_all() {
    while let Some((uid, fd)) = next() {
        // Spares a connection its lingering; other kinds of files refuse.
        let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
        drop(fd);
        done(uid);
    }
}

/// The next descriptor of a user for whom not too many threads close already; `None` when none came for a while.
fn next() -> Option<(u32, OwnedFd)> {
    let mut closing = closing();
    loop {
        let is_free = |uid: &u32| closing.busy.get(uid).is_none_or(|threads| *threads < MOST_FOR_ONE);
        if let Some(i) = closing.waiting.iter().position(|(uid, _)| is_free(uid)) {
            let next = closing.waiting.remove(i);
            next.iter().for_each(|(uid, _)| *closing.busy.entry(*uid).or_default() += 1);
            return next;
        }
        closing.idle += 1;
        let (again, waited) = NEWS.wait_timeout(closing, LINGER).unwrap_or_else(PoisonError::into_inner);
        closing = again;
        closing.idle -= 1;
        if waited.timed_out() {
            closing.threads -= 1;
            return None;
        }
    }
}

fn done(uid: u32) {
    let mut closing = closing();
    if let Some(threads) = closing.busy.get_mut(&uid) {
        *threads -= 1;
        if *threads == 0 {
            closing.busy.remove(&uid);
        }
    }
}
