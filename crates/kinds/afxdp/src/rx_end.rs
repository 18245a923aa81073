//! The host's end of an rx ring that one thread fills: a queue's ring, or a program's host ring.

use std::sync::Arc;

use netvale_abi::ring::{NR_FORWARD, ring_space};
use netvale_abi::slot::{NS_FORWARD, NS_MOREFRAG};
use netvale_mem::notify::{Doorbell, KickCounts, wanted};
use netvale_mem::region::RingSide;

use crate::outlet::{Outlet, SendResult};

/// The host's end of an rx ring: fills slots and publishes them to the program. Used by one thread.
#[derive(Debug)]
pub struct RxEnd {
    side: RingSide,
    /// First slot not published to the program.
    hwtail: u32,
    /// The program's last valid `head`.
    head: u32,
    /// The program's last invalid `head`, so that it is counted once and not at every pass; `None` if the last `head`
    /// was valid.
    bad: Option<u32>,
    wake: Arc<Doorbell>,
    kicks: Arc<KickCounts>,
}

/// Error: the program's `head` is outside the slots that it owns. Reported once for each invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRxHead;

impl RxEnd {
    /// Creates the end of a new ring; `wake` is the doorbell that wakes the program.
    pub fn new(side: RingSide, wake: impl Into<Arc<Doorbell>>) -> RxEnd {
        Self::counted(side, wake, Arc::default())
    }

    /// Like [`RxEnd::new`], but counts in the existing `kicks` instead of in new counters.
    pub fn counted(side: RingSide, wake: impl Into<Arc<Doorbell>>, kicks: Arc<KickCounts>) -> RxEnd {
        RxEnd { side, hwtail: 0, head: 0, bad: None, wake: wake.into(), kicks }
    }

    /// Continues at the program's `head` and the host's `hwtail`, which are in the ring's status block (CSB), if both
    /// are valid.
    pub fn resume(&mut self) {
        let n = self.side.ring.num_slots();
        let head = self.side.csb.head();
        let hwtail = self.side.csb.hwtail();
        if head < n && hwtail < n {
            self.head = head;
            self.hwtail = hwtail;
        }
    }

    /// Discards the frames that the program has not read.
    pub fn empty(&mut self) {
        let tail = self.hwtail;
        self.side.csb.publish_head(tail, tail);
        self.side.ring.set_indices(tail, tail, tail);
        self.head = tail;
    }

    /// Continues at the position that another process wrote with [`RxEnd::settle`].
    #[must_use]
    pub fn continued(self) -> RxEnd {
        let n = self.side.ring.num_slots();
        let head = self.side.csb.hwcur();
        let hwtail = self.side.csb.hwtail();
        if head < n && hwtail < n { RxEnd { head, hwtail, ..self } } else { self }
    }

    /// Writes the current position to the status block, where [`RxEnd::continued`] finds it in another process.
    pub fn settle(&self) {
        self.side.csb.publish_tail(self.head, self.hwtail);
    }

    /// The ring's slots, buffers and status block.
    #[inline]
    pub fn side(&self) -> &RingSide {
        &self.side
    }

    /// First slot not published to the program.
    #[inline]
    pub fn hwtail(&self) -> u32 {
        self.hwtail
    }

    /// Number of slots filled since `first`.
    #[inline]
    pub fn since(&self, first: u32) -> u32 {
        ring_space(first, self.hwtail, self.side.ring.num_slots())
    }

    /// Number of slots that can be filled: up to the slot before the program's `head`, which stays empty.
    #[inline]
    pub fn room(&self) -> u32 {
        ring_space(self.hwtail, self.end(), self.side.ring.num_slots())
    }

    /// Index of the slot before the program's `head`, which stays empty.
    #[inline]
    pub fn end(&self) -> u32 {
        if self.head == 0 { self.side.ring.num_slots() - 1 } else { self.head - 1 }
    }

    /// Takes back slots that the program has read. On a ring with `NR_FORWARD`, frames with `NS_FORWARD` (netmap.h) are
    /// first sent to `forward`. Returns whether the program has read any slots.
    ///
    /// # Errors
    /// [`BadRxHead`]: the ring stops until the program's `head` is valid.
    pub fn released(&mut self, forward: Option<&Outlet>) -> Result<bool, BadRxHead> {
        let head = self.side.csb.head();
        let n = self.side.ring.num_slots();
        if head >= n || ring_space(self.head, head, n) > ring_space(self.head, self.hwtail, n) {
            return if self.bad.replace(head) == Some(head) { Ok(false) } else { Err(BadRxHead) };
        }
        self.bad = None;
        if let Some(outlet) = forward.filter(|_| head != self.head && self.side.ring.flags() & NR_FORWARD != 0) {
            self.forward(outlet, ring_space(self.head, head, n));
        }
        Ok(std::mem::replace(&mut self.head, head) != head)
    }

    /// Sends those frames of the next `left` slots that are marked `NS_FORWARD`. A frame that finds no room is lost, as
    /// on a wire.
    #[cold]
    fn forward(&self, outlet: &Outlet, mut left: u32) {
        let ring = &self.side.ring;
        let mut at = self.head;
        while left > 0 {
            let marked = ring.slot_word(at).flags & NS_FORWARD != 0;
            let slots = match marked.then(|| outlet.send(ring, at, left)) {
                Some(SendResult::Yes(slots, _) | SendResult::No(slots, _)) => slots,
                _ => 1,
            };
            left -= slots.min(left);
            at = (at + slots) % ring.num_slots();
        }
    }

    /// Fills the next slot; the program sees the slot after the next [`RxEnd::publish`].
    #[inline]
    pub fn put(&mut self, buf: u32, len: u16, flags: u16) {
        self.side.ring.set_slot_word(self.hwtail, buf, len, flags);
        self.hwtail = self.side.ring.next(self.hwtail);
    }

    /// Fills the next slots with a frame of `len` bytes, which was written into their buffers of `size` bytes each.
    #[inline]
    pub fn fill(&mut self, len: usize, size: usize) {
        let mut left = len;
        loop {
            let n = left.min(size);
            let buf = self.side.ring.slot_word(self.hwtail).buf_idx;
            left -= n;
            self.put(buf, n as u16, if left > 0 { NS_MOREFRAG } else { 0 });
            if left == 0 {
                return;
            }
        }
    }

    /// Publishes the filled slots, and kicks the program if it requested a kick.
    #[inline]
    pub fn publish(&self) {
        self.side.csb.publish_tail(self.head, self.hwtail);
        let kick = wanted(self.side.csb.appl_need_kick());
        if kick {
            self.wake.ring();
        }
        self.kicks.count(kick);
    }

    /// Counters of kicks to the program.
    pub fn kicks(&self) -> Arc<KickCounts> {
        Arc::clone(&self.kicks)
    }
}
