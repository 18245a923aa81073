//! Whether a peer's socket is watched for room: while what was accepted waits for some.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use netvale_port::seat::Seat;

/// Whether room is waited for. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct AwaitedRoom(Arc<AtomicBool>);

impl AwaitedRoom {
    /// Whether it is.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Has the worker that sleeps on `seat` be woken when the socket has room, or no more.
    #[cold]
    pub fn watch<Q>(&self, seat: &Seat<Q>, socket: &OwnedFd, on: bool) {
        self.0.store(on, Ordering::Relaxed);
        seat.wake.iter().for_each(|wake| wake.watch_room(socket, on));
    }
}
