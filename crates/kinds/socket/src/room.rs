//! The wait for room in a peer's socket, which is active while accepted frames cannot be sent.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use netvale_port::seat::Seat;

use crate::ingress::PeerIngress;

/// Whether a wait for room is active. Clones share this state.
#[derive(Clone)]
pub struct AwaitedRoom {
    is_awaited: Arc<AtomicBool>,
    seat: Weak<Seat<PeerIngress>>,
}

impl AwaitedRoom {
    /// Creates the state with no wait active. When the socket has room, the worker that sleeps on `seat` is woken.
    pub fn new(seat: &Arc<Seat<PeerIngress>>) -> AwaitedRoom {
        AwaitedRoom { is_awaited: Arc::default(), seat: Arc::downgrade(seat) }
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
        let seat = self.seat.upgrade();
        seat.iter().flat_map(|seat| &seat.wake).for_each(|wake| wake.watch_room(socket, on));
    }
}
