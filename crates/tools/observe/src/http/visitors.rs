//! *Visitors* are clients with a connection to the server. The number of connections is limited, so the server has a
//! limited number of *places*; a *visit* ([`Visit`]) is a visitor's use of a place. When all places are taken and
//! another client waits, a visit may be ended early. How long a visitor may take in this case depends on the *act* that
//! it owes ([`OwedAct`]).
//!
//! While there are free places, a visitor may be as slow as
//! [`connection::TimeLimits`](crate::http::connection::TimeLimits) allow. When all places are taken, a visitor that
//! makes no progress must not keep other clients waiting.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{Shutdown, shutdown};

/// Maximum number of simultaneous connections. Further connections wait in the kernel until a connection ends. Each
/// connection ends within its time limits.
pub const MAX_CONNECTIONS: usize = 32;
/// Time for a client to send its request, and to close the connection after the whole answer, while other clients wait.
/// An ordinary client sends its request in its first packet.
pub const CROWDED_REQUEST: Duration = Duration::from_millis(200);
/// Time for a client to receive an answer, or a part of one, while other clients wait.
pub const CROWDED_ANSWER: Duration = Duration::from_secs(1);

/// The act that a visitor must perform next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwedAct {
    /// Send its request or, after the answer, close the connection.
    ToSpeak,
    /// Read the answer to its request.
    ToTake,
    /// No act, since the visitor waits for this server.
    Not,
}

/// A client that has a connection.
#[derive(Debug)]
pub struct Visitor {
    socket: OwnedFd,
    begun: Instant,
    /// The time from which the visit may be ended early, in nanoseconds after `begun`; `u64::MAX` while the visitor
    /// waits for this server.
    until: AtomicU64,
    is_cut: AtomicBool,
}

impl Visitor {
    /// Creates a visitor that owes its request. `socket` must be non-blocking.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Visitor {
        let client =
            Visitor { socket, begun: Instant::now(), until: AtomicU64::new(0), is_cut: AtomicBool::new(false) };
        client.now(OwedAct::ToSpeak);
        client
    }

    /// Records the act that the visitor owes from now on, and restarts the visitor's time.
    pub fn now(&self, waiting: OwedAct) {
        let at = |limit: Duration| (self.begun.elapsed() + limit).as_nanos() as u64;
        let until = match waiting {
            OwedAct::ToSpeak => at(CROWDED_REQUEST),
            OwedAct::ToTake => at(CROWDED_ANSWER),
            OwedAct::Not => u64::MAX,
        };
        self.until.store(until, Ordering::Relaxed);
    }

    /// Returns the time from which the visit may be ended early; `None` while the visitor waits for this server.
    fn until(&self) -> Option<Instant> {
        let until = self.until.load(Ordering::Relaxed);
        (until != u64::MAX).then(|| self.begun + Duration::from_nanos(until))
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Ends the visit: shuts down the socket, so that the thread that serves the visitor ends.
    fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        // This fails only if the client has closed the connection, which ends the thread, too.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Visitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// All visitors, and an eventfd that is signalled when a visitor has left.
#[derive(Debug)]
pub struct Visitors {
    taken: Mutex<Vec<Arc<Visitor>>>,
    ended: OwnedFd,
}

/// A visitor's place, which is freed on drop, even after a panic of the visitor's thread.
#[derive(Debug)]
pub struct Visit {
    /// The visitor.
    pub client: Arc<Visitor>,
    all: Arc<Visitors>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.all.clients().retain(|other| !Arc::ptr_eq(other, &self.client));
        // The write would fail only after 2^64 - 2 unread events.
        let _ = rustix::io::write(&self.all.ended, &1u64.to_ne_bytes());
    }
}

impl Visitors {
    /// Creates an empty set of visitors.
    ///
    /// # Errors
    /// The error of eventfd(2).
    pub fn new() -> std::io::Result<Arc<Visitors>> {
        let ended = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Visitors { taken: Mutex::default(), ended }))
    }

    /// Returns the eventfd, which becomes readable when a place is freed. A read resets the eventfd.
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

    /// Makes room for a waiting client: ends the visit that has been overdue for longest, if a visit is overdue.
    /// Returns when this must be called again, unless a place is freed earlier.
    pub fn make_room(&self, now: Instant) -> Instant {
        let clients = self.clients();
        // This is the earliest time at which a visitor whose time starts now can be overdue.
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

    /// Objective: the visitor that has been overdue for longest loses its place; only one visitor at a time does; a
    /// visitor that waits for this server keeps its place, and no visitor loses its place before its time is up.
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
