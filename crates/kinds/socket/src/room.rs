//! The wait for room in a peer's socket, which is active while accepted frames cannot be sent.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use netvale_port::seat::Seat;

/// Wakes a worker when a socket has room.
trait RoomWaker: Send + Sync {
    /// Starts or ends the wait for room in a socket.
    fn watch(&self, socket: &OwnedFd, on: bool);
}

impl<Q: Send> RoomWaker for Seat<Q> {
    fn watch(&self, socket: &OwnedFd, on: bool) {
        self.wake.iter().for_each(|wake| wake.watch_room(socket, on));
    }
}

/// Whether a wait for room is active. Clones share this state.
#[derive(Clone)]
pub struct AwaitedRoom {
    is_awaited: Arc<AtomicBool>,
    waker: Weak<dyn RoomWaker>,
}

impl AwaitedRoom {
    /// Creates the state with no wait active. When the socket has room, the worker that sleeps on `seat` is woken.
    pub fn new<Q: Send + 'static>(seat: &Arc<Seat<Q>>) -> AwaitedRoom {
        let seat = Arc::downgrade(seat);
        AwaitedRoom { is_awaited: Arc::default(), waker: seat }
    }

    /// Returns whether the wait is active.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    /// Starts or ends the wait for room in a socket.
    #[cold]
    pub fn watch(&self, socket: &OwnedFd, on: bool) {
        self.is_awaited.store(on, Ordering::Relaxed);
        self.waker.upgrade().iter().for_each(|waker| waker.watch(socket, on));
    }
}
