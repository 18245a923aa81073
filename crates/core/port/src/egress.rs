//! Egresses, the destinations of frames: the traits [`Egress`] and [`Room`], and their implementations for rings.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_abi::slot::NS_TXMON;
use netvale_mem::drops::RingCounters;

use crate::batch::Batch;
use crate::ring_out::{Reservation, RingEgress, SentCopies};
use crate::soft::Scratch;

/// A queue to which the switch delivers frames, from any worker at any time.
pub trait Egress: Send + Sync {
    /// Copies the frames of `batch` whose indices are in `picks`, in that order, to the receiver, and kicks the
    /// receiver if it requested a kick. Returns the number of finished picks: frames delivered, or dropped and counted
    /// here for a reason other than lack of room. The remaining picks found no room; the caller drops or holds them.
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize;

    /// Reserves room for a delivery in steps (fill, publish, kick), used for batches with many destinations. `None` if
    /// this batch must be delivered with [`Egress::deliver`].
    #[inline]
    fn reserve<'b>(&'b self, _batch: &'b Batch, _picks: &'b [u16]) -> Option<Reservation<'b>> {
        None
    }

    /// Whether a receiver is present. A port's closed queues get no frames while another queue of the port is open.
    #[inline]
    fn is_open(&self) -> bool {
        true
    }

    /// Whether the receiver takes UDP datagrams that are to be cut into segments (USO), so that merging datagrams for
    /// it saves work.
    fn takes_uso(&self) -> bool {
        false
    }

    /// The receiver's [`Room`], which signals free slots to waiting senders; `None` if the receiver cannot signal them.
    fn room(&self) -> Option<&dyn Room> {
        None
    }

    /// The counters of frames delivered and dropped.
    fn counters(&self) -> &Arc<RingCounters>;
}

/// A receiver that signals room, so that senders can wait while the receiver's queue is full.
///
/// Several senders may wait, but only one is certain to be notified; the other senders check again after a while.
pub trait Room: Send + Sync {
    /// Whether the receiver has armed its doorbell and has not run since. If so, a kick makes the receiver run and free
    /// slots.
    fn is_waking(&self) -> bool;

    /// A value that changes when the receiver makes room.
    fn progress(&self) -> u32;

    /// Asks the receiver to signal room. Returns the descriptor that becomes readable when there is room; `None` if the
    /// receiver cannot signal room. The caller must check for room once more before it sleeps.
    fn ask(&self) -> Option<BorrowedFd<'_>>;

    /// Withdraws the request of [`Room::ask`]. Returns the same result as `ask`, so that the caller can stop waiting on
    /// the descriptor.
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

    fn takes_uso(&self) -> bool {
        RingEgress::takes_uso(self)
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
