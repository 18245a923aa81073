//! *Visitors*: clients that hold one of a limited number of places, and the *visit* to end early when all places are
//! taken and another client waits. The action that a visitor *owes* decides how long it may then take.
//!
//! While there is room, a visitor may be as slow as [`connection::Limits`](crate::http::connection::Limits) allow.
//! Without room, a visitor that makes no progress keeps out others, whose only fault is arriving later.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{Shutdown, shutdown};

/// Maximum number of connections at a time; further ones wait in the kernel until one ends, which each does within its
/// time limits.
pub const MAX_CONNECTIONS: usize = 32;
/// Time to send a request, and to close after the whole answer was sent, while others wait. A client in earnest sends
/// its request with the first packet.
pub const CROWDED_REQUEST: Duration = Duration::from_millis(200);
/// Time to take an answer, or a part of one, while others wait.
pub const CROWDED_ANSWER: Duration = Duration::from_secs(1);

/// The action that a visitor owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// Its request, or its close.
    ToSpeak,
    /// Reading the answer it requested.
    ToTake,
    /// Nothing: it waits for this server.
    Not,
}

/// A client that holds a place.
#[derive(Debug)]
pub struct Visitor {
    socket: OwnedFd,
    begun: Instant,
    /// Time from which its place may be taken, in nanoseconds after it got the place.
    until: AtomicU64,
    is_cut: AtomicBool,
}

impl Visitor {
    /// A client that may now send its request. The socket does not block.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Visitor {
        let client =
            Visitor { socket, begun: Instant::now(), until: AtomicU64::new(0), is_cut: AtomicBool::new(false) };
        client.now(Owed::ToSpeak);
        client
    }

    /// Sets the action that the client owes from now on.
    pub fn now(&self, waiting: Owed) {
        let at = |limit: Duration| (self.begun.elapsed() + limit).as_nanos() as u64;
        let until = match waiting {
            Owed::ToSpeak => at(CROWDED_REQUEST),
            Owed::ToTake => at(CROWDED_ANSWER),
            Owed::Not => u64::MAX,
        };
        self.until.store(until, Ordering::Relaxed);
    }

    /// Time from which its place may be taken; `None` while it waits for this server.
    fn until(&self) -> Option<Instant> {
        let until = self.until.load(Ordering::Relaxed);
        (until != u64::MAX).then(|| self.begun + Duration::from_nanos(until))
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Takes its place: wakes its thread, which ends.
    fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        // Fails if the client has closed, which ends its thread anyway.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Visitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// All clients that hold places, and an eventfd for freed places.
#[derive(Debug)]
pub struct Visitors {
    taken: Mutex<Vec<Arc<Visitor>>>,
    ended: OwnedFd,
}

/// A client's place, held until its connection ends in any way.
#[derive(Debug)]
pub struct Visit {
    /// The client that holds it.
    pub client: Arc<Visitor>,
    all: Arc<Visitors>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.all.clients().retain(|other| !Arc::ptr_eq(other, &self.client));
        // Fails only after 2^64 - 2 unread events.
        let _ = rustix::io::write(&self.all.ended, &1u64.to_ne_bytes());
    }
}

impl Visitors {
    /// An empty set.
    ///
    /// # Errors
    /// Whatever eventfd(2) returns.
    pub fn new() -> std::io::Result<Arc<Visitors>> {
        let ended = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Visitors { taken: Mutex::default(), ended }))
    }

    /// Readable after a place was freed; reading resets it.
    #[must_use]
    pub fn ended(&self) -> &OwnedFd {
        &self.ended
    }

    /// Whether all places are taken.
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

    /// Makes room for a waiting client by ending the visit that is overdue the longest. Returns when to check again,
    /// unless a place is freed earlier.
    pub fn make_room(&self, now: Instant) -> Instant {
        let clients = self.clients();
        // The actions that clients owe change meanwhile.
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
        // The list of clients is consistent even after a panic of its last user.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Objective: the client overdue the longest loses its place, one at a time; a client that waits for this server
    /// does not, and none does before its time.
    #[test]
    fn who_makes_room() {
        let visitors = Visitors::new().expect("room for all");
        let mut ends = Vec::new();
        let mut give = || {
            let (own, other) = UnixStream::pair().expect("a pair");
            ends.push(other);
            visitors.give(own.into())
        };
        let [served, reading, silent] = [give(), give(), give()];
        served.client.now(Owed::Not);
        reading.client.now(Owed::ToTake);
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
