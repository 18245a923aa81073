//! *Visitors*: clients that have a place, of which there are some at a time; and which *visit* ends early when all
//! places are taken and another client waits. What a visitor *owes* says how long it is waited for then.
//!
//! As long as there is room, a visitor may be as slow as [`connection::Limits`](crate::http::connection::Limits) let
//! it. Where there is none, who holds a place without getting on keeps out others, who have done nothing but come
//! later.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{Shutdown, shutdown};

/// Most connections at a time; the next ones wait in the kernel until one has ended, which each does within its time
/// limits.
pub const MAX_CONNECTIONS: usize = 32;
/// Time to say a request, and to close when everything was sent, while others wait. Who wants something says so with
/// the first packet.
pub const CROWDED_REQUEST: Duration = Duration::from_millis(200);
/// Time to take an answer, or a part of one, while others wait.
pub const CROWDED_ANSWER: Duration = Duration::from_secs(1);

/// What a visitor is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// For its request, or for its end.
    ToSpeak,
    /// To take what it has asked for.
    ToTake,
    /// Not at all: it waits for this server.
    Not,
}

/// One client that has a place.
#[derive(Debug)]
pub struct Visitor {
    socket: OwnedFd,
    begun: Instant,
    /// When its place can be had, in nanoseconds after it has got it.
    until: AtomicU64,
    is_cut: AtomicBool,
}

impl Visitor {
    /// A client that may now say what it wants. The socket does not block.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Visitor {
        let client =
            Visitor { socket, begun: Instant::now(), until: AtomicU64::new(0), is_cut: AtomicBool::new(false) };
        client.now(Owed::ToSpeak);
        client
    }

    /// Says what the client is waited for from now on.
    pub fn now(&self, waiting: Owed) {
        let at = |limit: Duration| (self.begun.elapsed() + limit).as_nanos() as u64;
        let until = match waiting {
            Owed::ToSpeak => at(CROWDED_REQUEST),
            Owed::ToTake => at(CROWDED_ANSWER),
            Owed::Not => u64::MAX,
        };
        self.until.store(until, Ordering::Relaxed);
    }

    /// From when on its place can be had; `None`: not as long as it waits for this server.
    fn until(&self) -> Option<Instant> {
        let until = self.until.load(Ordering::Relaxed);
        (until != u64::MAX).then(|| self.begun + Duration::from_nanos(until))
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Takes its place away: its thread wakes up, and ends.
    fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        // Fails if the client is gone, whose thread ends by that.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Visitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// All that have places, and what says that one has become free.
#[derive(Debug)]
pub struct Visitors {
    taken: Mutex<Vec<Arc<Visitor>>>,
    ended: OwnedFd,
}

/// A client's place, until its connection ends, however it does.
#[derive(Debug)]
pub struct Visit {
    /// Who has it.
    pub client: Arc<Visitor>,
    all: Arc<Visitors>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.all.clients().retain(|other| !Arc::ptr_eq(other, &self.client));
        // Fails only if nobody has looked for 2^64 - 2 times.
        let _ = rustix::io::write(&self.all.ended, &1u64.to_ne_bytes());
    }
}

impl Visitors {
    /// Nobody yet.
    ///
    /// # Errors
    /// Whatever eventfd(2) returns.
    pub fn new() -> std::io::Result<Arc<Visitors>> {
        let ended = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Visitors { taken: Mutex::default(), ended }))
    }

    /// Readable when a place has become free; reading it resets that.
    #[must_use]
    pub fn ended(&self) -> &OwnedFd {
        &self.ended
    }

    /// Whether all are taken.
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

    /// Makes room for somebody who waits, by the one that is overdue for longest. Answers when to look again, unless a
    /// place becomes free before.
    pub fn make_room(&self, now: Instant) -> Instant {
        let clients = self.clients();
        // What clients are waited for changes meanwhile.
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
        // A list of clients is whole whatever its last user did.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Objective: who is overdue for longest loses its place, one at a time; who waits for this server does not, nor
    /// anybody before their time.
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
