//! Where frames go: the trait the switch delivers to, and the two egresses of rings, which can deliver in steps.

use std::sync::Arc;

use netvale_abi::slot::NS_TXMON;
use netvale_mem::drops::RingCounters;

use crate::batch::Batch;
use crate::ring_out::{Reservation, RingEgress, SentCopies};
use crate::soft::Scratch;

/// A queue the switch delivers to, from any worker at any time.
pub trait Egress: Send + Sync {
    /// Copies the frames of `batch` named by `picks`, in that order, to where their receiver finds them, and notifies
    /// the receiver if it asked for it. Returns how many picks are done with: delivered, or dropped and counted here
    /// for a reason other than lack of room. The rest found no room; the caller drops or holds them.
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize;

    /// Reserves room for a delivery in steps, of a batch that goes to many. `None`: use [`Egress::deliver`] for this
    /// batch.
    #[inline]
    fn reserve<'b>(&'b self, _batch: &'b Batch, _picks: &'b [u16]) -> Option<Reservation<'b>> {
        None
    }

    /// The counters of frames delivered and dropped.
    fn counters(&self) -> &Arc<RingCounters>;
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

    fn counters(&self) -> &Arc<RingCounters> {
        self.counters()
    }
}

impl Egress for SentCopies {
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        self.0.deliver_marked(batch, picks, scratch, NS_TXMON)
    }

    fn counters(&self) -> &Arc<RingCounters> {
        self.0.counters()
    }
}
