//! *Visitors* are clients that hold one of a limited number of places; a *visit* is the time of holding it. When all
//! places are taken and another client waits, a visit may be ended early. What a visitor *owes* decides how long it may
//! then take.
//!
//! While there are free places, a visitor may be as slow as
//! [`connection::TimeLimits`](crate::http::connection::TimeLimits) allow. Without free places, a visitor that makes no
//! progress must not keep out clients that arrived later.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{Shutdown, shutdown};

/// Maximum number of simultaneous connections. Others wait in the kernel until one ends, which each does within its
/// time limits.
pub const MAX_CONNECTIONS: usize = 32;
/// Time for sending a request, and for closing after the whole answer, while others wait. An ordinary client sends its
/// request in its first packet.
pub const CROWDED_REQUEST: Duration = Duration::from_millis(200);
/// Time for taking an answer, or a part of one, while others wait.
pub const CROWDED_ANSWER: Duration = Duration::from_secs(1);

/// What a visitor must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwedAct {
    /// Send its request, or close.
    ToSpeak,
    /// Read the answer to its request.
    ToTake,
    /// Nothing: the visitor waits for this server.
    Not,
}

/// A client that holds a place.
#[derive(Debug)]
pub struct Visitor {
    socket: OwnedFd,
    begun: Instant,
    /// When the place may be taken from it, in nanoseconds after the visitor got it.
    until: AtomicU64,
    is_cut: AtomicBool,
}

impl Visitor {
    /// Creates a visitor that must now send its request. The socket does not block.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Visitor {
        let client =
            Visitor { socket, begun: Instant::now(), until: AtomicU64::new(0), is_cut: AtomicBool::new(false) };
        client.now(OwedAct::ToSpeak);
        client
    }

    /// Sets what the visitor must do from now on.
    pub fn now(&self, waiting: OwedAct) {
        let at = |limit: Duration| (self.begun.elapsed() + limit).as_nanos() as u64;
        let until = match waiting {
            OwedAct::ToSpeak => at(CROWDED_REQUEST),
            OwedAct::ToTake => at(CROWDED_ANSWER),
            OwedAct::Not => u64::MAX,
        };
        self.until.store(until, Ordering::Relaxed);
    }

    /// Returns when its place may be taken; `None` while it waits for this server.
    fn until(&self) -> Option<Instant> {
        let until = self.until.load(Ordering::Relaxed);
        (until != u64::MAX).then(|| self.begun + Duration::from_nanos(until))
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Takes its place: shuts down the socket, so that its thread ends.
    fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        // This fails only if the client has closed, which ends the thread as well.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Visitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// All visitors, and an eventfd that is signalled when one of them has left.
#[derive(Debug)]
pub struct Visitors {
    taken: Mutex<Vec<Arc<Visitor>>>,
    ended: OwnedFd,
}

/// A visitor's place, held until its connection ends in any way.
#[derive(Debug)]
pub struct Visit {
    /// The visitor.
    pub client: Arc<Visitor>,
    all: Arc<Visitors>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.all.clients().retain(|other| !Arc::ptr_eq(other, &self.client));
        // Writing fails only after 2^64 - 2 unread events.
        let _ = rustix::io::write(&self.all.ended, &1u64.to_ne_bytes());
    }
}

impl Visitors {
    /// Creates an empty set.
    ///
    /// # Errors
    /// The error of eventfd(2).
    pub fn new() -> std::io::Result<Arc<Visitors>> {
        let ended = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Visitors { taken: Mutex::default(), ended }))
    }

    /// Returns the eventfd, which is readable after a place was freed; reading resets it.
    #[must_use]
    pub fn ended(&self) -> &OwnedFd {
        &self.ended
    }

    /// Returns whether all places are taken.
    #[must_use]
    pub fn are_taken(&self) -> bool {
        self.clients().len() >= MAX_CONNECTIONS
    }

    /// Gives a client a place.
    pub fn give(self: &Arc<Self>, socket: OwnedFd) -> Visit {
        let client = Arc::new(Visitor::new(socket));
        self.clients().push(Arc::clone(&client));
        Visit { client, all: Arc::clone(self) }
    }

    /// Makes room for a waiting client: ends the visit that is overdue the longest. Returns when to check again unless
    /// a place is freed earlier.
    pub fn make_room(&self, now: Instant) -> Instant {
        let clients = self.clients();
        // Meanwhile, other visitors may become overdue.
        let again = now + CROWDED_REQUEST;
        if clients.iter().any(|client| client.is_cut()) {
            return again;
        }
        let due = clients.iter().filter_map(|client| Some((client.until()?, client)));
        match due.min_by_key(|(until, _)| *until) {
            Some((until, client)) if until <= now => client.cut(),
            Some((until, _)) => return until.min(again),
            None => {}
        }
        again
    }

    fn clients(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Visitor>>> {
        // The list is consistent even after a panic of a thread that held its lock.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Objective: the visitor overdue the longest loses its place, one at a time; a visitor that waits for this server
    /// keeps its place, and no visitor loses it before its time.
    #[test]
    fn the_client_overdue_the_longest_makes_room() {
        let visitors = Visitors::new().expect("room for all");
        let mut ends = Vec::new();
        let mut give = || {
            let (own, other) = UnixStream::pair().expect("a pair");
            ends.push(other);
            visitors.give(own.into())
        };
        let [served, reading, silent] = [give(), give(), give()];
        served.client.now(OwedAct::Not);
        reading.client.now(OwedAct::ToTake);
        let begun = Instant::now();
        let cut = |of: &Visit| of.client.is_cut();
        let first = visitors.make_room(begun);
        assert!(first <= begun + CROWDED_REQUEST && !cut(&silent));
        let late = begun + 2 * CROWDED_ANSWER;
        visitors.make_room(begun + CROWDED_REQUEST);
        assert_eq!([&served, &reading, &silent].map(cut), [false, false, true]);
        assert_eq!(visitors.make_room(late), late + CROWDED_REQUEST, "one after the other");
        assert!(!cut(&reading));
        drop(silent);
        visitors.make_room(begun + CROWDED_REQUEST);
        assert!(!cut(&reading));
        visitors.make_room(late);
        assert_eq!([&served, &reading].map(cut), [false, true]);
        drop(reading);
        visitors.make_room(late);
        assert!(!cut(&served));
    }
}
