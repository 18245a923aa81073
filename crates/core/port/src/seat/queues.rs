//! Queues in seats, from a switch's view. Between two peers, workers find an empty seat.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_mem::lent::{Away, Borrower};

use super::Seat;
use crate::{Batch, DropReason, Egress, Ingress, RingCounters, Scratch};

/// A queue whose peer receives. Only one worker at a time uses it.
pub trait ToPeer: Send {
    /// Like [`Egress::deliver`]; `None` if the queue is disabled.
    fn deliver(&mut self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> Option<usize>;
}

/// A seat of a sending peer's queue: the queue in it is the switch's ingress.
pub struct SeatIngress<Q: Ingress> {
    /// Borrows the queue while its frames are in a batch.
    queue: Borrower<Q>,
    seat: Arc<Seat<Q>>,
}

impl<Q: Ingress> SeatIngress<Q> {
    /// Creates the worker's end of a seat.
    pub fn new(seat: Arc<Seat<Q>>) -> Self {
        SeatIngress { queue: seat.borrower(), seat }
    }
}

impl<Q: Ingress> Ingress for SeatIngress<Q> {
    // SAFETY: frames lie where the queue keeps them, and the queue stays in the seat while this thread is inside: until
    // `release`.
    #[inline]
    unsafe fn take(&mut self, batch: &mut Batch) {
        let Ok(queue) = self.queue.enter() else { return };
        // SAFETY: the caller's contract; the queue is neither released nor dropped before `release`.
        unsafe { queue.take(batch) };
        if batch.is_empty() {
            // An empty batch is never released, but the slots of dropped frames must go back, too.
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
        self.queue.visit(Q::arm).unwrap_or_else(Away::is_busy)
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

    fn counters(&self) -> &Arc<RingCounters> {
        &self.seat.counters
    }
}

impl<Q: Ingress> Drop for SeatIngress<Q> {
    fn drop(&mut self) {
        self.release();
    }
}

/// A seat of a receiving peer's queue, as a switch's egress.
pub struct SeatEgress<Q>(pub Arc<Seat<Q>>);

impl<Q: ToPeer> Egress for SeatEgress<Q> {
    #[inline]
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let done = match self.0.queue.enter() {
            Ok(mut queue) => queue.deliver(batch, picks, scratch),
            // A change takes long only on a busy machine: frames for a lossless port wait for its end.
            Err(Away::Busy) => Some(0),
            Err(Away::Empty) => None,
        };
        done.unwrap_or_else(|| {
            self.0.counters.dropped(DropReason::Idle, picks.len() as u64);
            picks.len()
        })
    }

    fn is_open(&self) -> bool {
        self.0.is_open()
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.0.counters
    }
}
