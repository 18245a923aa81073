//! Egresses, the destinations of frames: the trait the switch delivers to, and the two egresses of rings, which can
//! deliver in steps.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_abi::slot::NS_TXMON;
use netvale_mem::drops::RingCounters;

use crate::batch::Batch;
use crate::ring_out::{Reservation, RingEgress, SentCopies};
use crate::soft::Scratch;

/// A queue the switch delivers to, from any worker at any time.
pub trait Egress: Send + Sync {
    /// Copies the frames of `batch` named by `picks`, in that order, to their receiver, and notifies the receiver if it
    /// asked for it. Returns the number of finished picks: delivered, or dropped and counted here for a reason other
    /// than lack of room. The rest found no room; the caller drops or holds them.
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize;

    /// Reserves room for a delivery in steps, for a batch with many destinations. `None`: use [`Egress::deliver`] for
    /// this batch.
    #[inline]
    fn reserve<'b>(&'b self, _batch: &'b Batch, _picks: &'b [u16]) -> Option<Reservation<'b>> {
        None
    }

    /// Whether a receiver is present. While any queue of a port is open, its closed queues get no frames.
    #[inline]
    fn is_open(&self) -> bool {
        true
    }

    /// The receiver, to wait for room; `None` if it cannot announce room.
    fn room(&self) -> Option<&dyn Room> {
        None
    }

    /// The counters of frames delivered and dropped.
    fn counters(&self) -> &Arc<RingCounters>;
}

/// A receiver that senders can wait for when its queue is full.
///
/// Several senders may wait, but only one is sure to be notified: the others look again after a while.
pub trait Room: Send + Sync {
    /// Whether the receiver asked for a kick and has not run since: once kicked, it makes room as soon as it runs.
    fn is_waking(&self) -> bool;

    /// The receiver's progress: changes when room is made.
    fn progress(&self) -> u32;

    /// Asks the receiver to announce room, and returns the descriptor that becomes readable then. Look once more before
    /// sleeping.
    fn ask(&self) -> Option<BorrowedFd<'_>>;

    /// Withdraws the request. Returns the descriptor again.
    fn stop_asking(&self) -> Option<BorrowedFd<'_>>;
}

impl Room for RingEgress {
    fn is_waking(&self) -> bool {
        self.host().is_armed()
    }

    fn progress(&self) -> u32 {
        self.host().side().csb.head()
    }

    fn ask(&self) -> Option<BorrowedFd<'_>> {
        self.host().ask_for_room();
        self.room_bell().map(AsFd::as_fd)
    }

    fn stop_asking(&self) -> Option<BorrowedFd<'_>> {
        self.host().stop_asking();
        let bell = self.room_bell()?;
        bell.drain();
        Some(bell.as_fd())
    }
}

impl Egress for RingEgress {
    #[inline]
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        self.deliver_marked(batch, picks, scratch, 0)
    }

    #[inline]
    fn reserve<'b>(&'b self, batch: &'b Batch, picks: &'b [u16]) -> Option<Reservation<'b>> {
        Self::reserve_at(self.into(), batch, picks)
    }

    fn is_open(&self) -> bool {
        !self.is_idle()
    }

    fn room(&self) -> Option<&dyn Room> {
        self.room_bell().is_some().then_some(self)
    }

    fn counters(&self) -> &Arc<RingCounters> {
        self.counters()
    }
}

impl Egress for SentCopies {
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        self.0.deliver_marked(batch, picks, scratch, NS_TXMON)
    }

    fn is_open(&self) -> bool {
        !self.0.is_idle()
    }

    fn counters(&self) -> &Arc<RingCounters> {
        self.0.counters()
    }
}
