//! Ingress and egress for queues in seats. A [`Seat`] holds the queue of the connected peer, and is empty without a
//! peer.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_mem::lent::{Borrower, EntryError};

use super::Seat;
use crate::{Batch, DropReason, Egress, Ingress, RingCounters, Scratch};

/// A queue to a receiving peer, used by one worker at a time.
pub trait ToPeer: Send {
    /// Like [`Egress::deliver`]; `None` if the queue is disabled.
    fn deliver(&mut self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> Option<usize>;

    /// As [`Egress::takes_uso`].
    fn takes_uso(&self) -> bool {
        false
    }
}

/// The ingress of a seat, which takes frames from the queue of the connected peer, if there is one.
pub struct SeatIngress<Q: Ingress> {
    /// Borrows the queue while its frames are in a batch.
    queue: Borrower<Q>,
    seat: Arc<Seat<Q>>,
    /// Whether checking for frames needs no system call.
    is_cheap: bool,
}

impl<Q: Ingress> SeatIngress<Q> {
    /// Creates the ingress of `seat`.
    pub fn new(seat: Arc<Seat<Q>>) -> Self {
        SeatIngress { queue: seat.borrower(), seat, is_cheap: true }
    }

    /// Sets that checking for frames needs a system call, so the worker checks only after a wake-up.
    #[must_use]
    pub fn by_calls(mut self) -> Self {
        self.is_cheap = false;
        self
    }
}

impl<Q: Ingress> Ingress for SeatIngress<Q> {
    // SAFETY: frames stay where the queue keeps them, and the queue stays in the seat until this thread leaves it in
    // `release`.
    #[inline]
    unsafe fn take(&mut self, batch: &mut Batch) {
        let Ok(queue) = self.queue.enter() else { return };
        // SAFETY: the caller's contract; the queue is neither released nor dropped before `release`.
        unsafe { queue.take(batch) };
        if batch.is_empty() {
            // The caller does not release an empty batch, but the slots of dropped frames must be returned.
            self.release();
        }
    }

    #[inline]
    fn release(&mut self) {
        if let Some(queue) = self.queue.content() {
            queue.release();
            self.queue.leave();
        }
    }

    fn is_wanted(&self) -> bool {
        self.queue.is_wanted()
    }

    fn arm(&mut self) -> bool {
        self.queue.visit(Q::arm).unwrap_or_else(EntryError::is_busy)
    }

    fn disarm(&mut self) {
        // An empty seat is disarmed already.
        let _ = self.queue.visit(Q::disarm);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.seat.wake.as_ref().map(AsFd::as_fd)
    }

    fn woken(&mut self) {
        self.seat.woken_up();
    }

    fn is_cheap(&self) -> bool {
        self.is_cheap
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.seat.counters
    }
}

impl<Q: Ingress> Drop for SeatIngress<Q> {
    fn drop(&mut self) {
        self.release();
    }
}

/// The egress of a seat, which delivers to the queue of the connected peer. Without a peer, frames are dropped as
/// `Idle`.
pub struct SeatEgress<Q>(pub Arc<Seat<Q>>);

impl<Q: ToPeer> Egress for SeatEgress<Q> {
    #[inline]
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let done = match self.0.queue.enter() {
            Ok(mut queue) => queue.deliver(batch, picks, scratch),
            // The control thread is changing the queue: frames for a lossless port wait until the change is done.
            Err(EntryError::Busy) => Some(0),
            Err(EntryError::Empty) => None,
        };
        done.unwrap_or_else(|| {
            self.0.counters.dropped(DropReason::Idle, picks.len() as u64);
            picks.len()
        })
    }

    fn is_open(&self) -> bool {
        self.0.is_open()
    }

    fn takes_uso(&self) -> bool {
        self.0.queue.enter().is_ok_and(|queue| queue.takes_uso())
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.0.counters
    }
}
