//! Netmap pipes: from one end's tx ring to the other end's rx ring by swapping buffer indices.
//!
//! Both ends lie in one region. There is no host on the way: the sender's own sync plays its part. It swaps the
//! slots it filled with empty slots of the receiver's ring and publishes the receiver's `hwtail`: to the receiver it is the host, and the receiver's ring is an ordinary
//! [`AppRing`](crate::appl::AppRing).
//!
//! ```text
//!   end A: tx ring ──swap slots──► end B: rx ring        frames stay where they are
//! ```
//!
//! Either end may be a hostile process: each treats the indices and slots of the other as snapshots to be checked.

use crate::appl::Sync;
use crate::notify::{Doorbell, KickCounts, arm, disarm, wanted};
use crate::region::RingSide;
use crate::ring::RingMem;

use netvale_abi::ring::ring_space;
use netvale_abi::slot::NS_BUF_CHANGED;

/// The sending half of one end: this end's tx ring and the other end's rx ring.
#[derive(Debug)]
pub struct PipeTx {
    own: RingSide,
    peer: RingSide,
    head: u32,
    /// First filled slot not yet moved over.
    moved: u32,
    /// The peer's `hwtail`: ours to publish, so kept here.
    peer_tail: u32,
    wake_peer: Doorbell,
    kicks: KickCounts,
}

impl PipeTx {
    /// `own` is this end's tx ring, `peer` the other end's rx ring; `wake_peer` wakes the receiver. Nothing is touched yet.
    /// None when the rings do not share their buffers.
    pub fn new(own: RingSide, peer: RingSide, wake_peer: Doorbell) -> Option<Self> {
        if !own.ring.shares_buffers_with(&peer.ring) {
            return None;
        }
        Some(PipeTx { own, peer, head: 0, moved: 0, peer_tail: 0, wake_peer, kicks: KickCounts::default() })
    }

    /// Goes on where an earlier holder of this end stopped, or begins, from what the rings themselves say.
    pub fn resume(&mut self) {
        disarm(self.own.csb.kern_need_kick());
        disarm(self.peer.csb.kern_need_kick());
        let n = self.own.ring.num_slots();
        self.moved = self.own.csb.hwcur().min(n - 1);
        self.head = self.moved;
        self.peer_tail = self.peer.csb.hwtail().min(self.peer.ring.num_slots() - 1);
        self.own.csb.publish_head(self.head, self.head);
    }

    /// A sync as netmap's ioctl does it: see [`AppRing::sync_header`](crate::appl::AppRing::sync_header).
    pub fn sync_header(&mut self) -> Sync {
        let n = self.own.ring.num_slots();
        let published = self.own.csb.head().min(n - 1);
        self.moved = self.own.csb.hwcur().min(n - 1);
        self.peer_tail = self.peer.csb.hwtail().min(self.peer.ring.num_slots() - 1);
        let (head, cur, _) = self.own.ring.indices();
        let from = |i| ring_space(published, i, n);
        let legal = head < n && cur < n && from(head) <= from(cur) && from(cur) <= from(self.tail());
        let (head, cur) = if legal { (head, cur) } else { (published, published) };
        self.head = head;
        self.own.csb.publish_head(head, cur);
        self.sync();
        self.own.ring.set_indices(head, cur, self.tail());
        if legal { Sync::Ok } else { Sync::Reinit }
    }

    /// First slot that is not the application's.
    fn tail(&self) -> u32 {
        let n = self.own.ring.num_slots();
        if self.moved == 0 { n - 1 } else { self.moved - 1 }
    }

    /// Slots and buffers of the tx ring.
    #[inline]
    pub fn mem(&self) -> &RingMem {
        &self.own.ring
    }

    /// First slot to fill.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Slots that may be filled from `head` on.
    #[inline]
    pub fn space(&self) -> u32 {
        let n = self.own.ring.num_slots();
        n - 1 - ring_space(self.moved, self.head, n)
    }

    /// Index of the slot `k` after `head`.
    #[inline]
    pub fn at(&self, k: u32) -> u32 {
        let (i, n) = (self.head + k, self.own.ring.num_slots());
        if i >= n { i - n } else { i }
    }

    /// Marks the first `n` slots as filled. More than [`PipeTx::space`] marks all.
    #[inline]
    pub fn advance(&mut self, n: u32) {
        self.head = self.at(n.min(self.space()));
    }

    /// Moves what was filled over to the receiver, as far as it has room. Returns the slots moved.
    #[inline]
    pub fn sync(&mut self) -> u32 {
        let pending = ring_space(self.moved, self.head, self.own.ring.num_slots());
        let count = if pending == 0 { 0 } else { pending.min(self.peer_room()) };
        if count > 0 {
            self.swap(count);
            self.publish();
        }
        count
    }

    fn peer_room(&self) -> u32 {
        let n = self.peer.ring.num_slots();
        let head = self.peer.csb.head();
        // A receiver with a bad head gets nothing more.
        if head >= n { 0 } else { n - 1 - ring_space(head, self.peer_tail, n) }
    }

    #[inline]
    fn swap(&mut self, count: u32) {
        let (tx, rx) = (&self.own.ring, &self.peer.ring);
        let (mut i, mut j) = (self.moved, self.peer_tail);
        for _ in 0..count {
            let (full, empty) = (tx.slot_word(i), rx.slot_word(j));
            rx.set_slot_word(j, full.buf_idx, full.len, full.flags | NS_BUF_CHANGED);
            tx.set_slot_word(i, empty.buf_idx, 0, NS_BUF_CHANGED);
            (i, j) = (tx.next(i), rx.next(j));
        }
        (self.moved, self.peer_tail) = (i, j);
    }

    fn publish(&mut self) {
        self.peer.csb.publish_tail(self.peer.csb.head(), self.peer_tail);
        let tail = self.tail();
        self.own.csb.publish_tail(self.moved, tail);
        self.own.ring.set_indices(self.head, self.head, tail);
        let kick = wanted(self.peer.csb.appl_need_kick());
        if kick {
            self.wake_peer.ring();
        }
        self.kicks.count(kick);
    }

    /// Asks the receiver for a kick when it makes room. Returns whether there is room for a frame already.
    pub fn arm(&mut self) -> bool {
        arm(self.peer.csb.kern_need_kick());
        self.sync();
        let ready = self.space() > 0;
        if ready {
            self.disarm();
        }
        ready
    }

    /// The other end's flag that says this end sleeps until there is room.
    pub fn need_kick(&self) -> &std::sync::atomic::AtomicU32 {
        self.peer.csb.kern_need_kick()
    }

    /// Awake: kicks are not needed any more.
    pub fn disarm(&self) {
        disarm(self.peer.csb.kern_need_kick());
    }

    /// Kicks towards the receiver.
    pub fn kicks(&self) -> &KickCounts {
        &self.kicks
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::appl::{AppRing, Dir};
    use crate::layout::RegionSizes;
    use crate::named_bufs;
    use crate::region::{PortMem, PortShape, Region};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn ends(tx_slots: u32, rx_slots: u32) -> (PortMem, PipeTx, AppRing) {
        let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots, rx_slots };
        let port =
            Region::private(RegionSizes::for_port(2, tx_slots.max(rx_slots), 128, 0, 0)).unwrap().port(shape).unwrap();
        let (a, b) = (port.tx[0].clone(), port.rx[0].clone());
        let mut tx = PipeTx::new(a.clone(), b.clone(), Doorbell::new().unwrap()).unwrap();
        tx.resume();
        let rx = AppRing::new(b, Dir::Rx, Doorbell::new().unwrap());
        (port, tx, rx)
    }

    proptest! {
        #![proptest_config(crate::test_config())]
        /// Objective: frames cross in order with their buffers, none is lost or doubled, and every buffer stays in exactly one slot.
        #[test]
        fn a_queue_that_loses_no_buffer(
            sizes in (2u32..9, 2u32..9),
            ops in proptest::collection::vec((any::<bool>(), 0u32..7), 1..100),
        ) {
            let (port, mut tx, mut rx) = ends(sizes.0, sizes.1);
            let before = named_bufs(&port);
            let mut sent = VecDeque::new();
            let mut seq = 1u16;
            for (send, n) in ops {
                if send {
                    let n = n.min(tx.space());
                    for k in 0..n {
                        let i = tx.at(k);
                        let buf = tx.mem().slot(i).buf_idx;
                        tx.mem().set_slot_word(i, buf, seq, 0);
                        sent.push_back((buf, seq));
                        seq += 1;
                    }
                    tx.advance(n);
                    tx.sync();
                } else {
                    prop_assert_eq!(rx.sync(), Sync::Ok);
                    let n = n.min(rx.space());
                    for k in 0..n {
                        let i = rx.at(k);
                        let s = rx.slot(i);
                        prop_assert_eq!(Some((s.buf_idx, s.len)), sent.pop_front());
                    }
                    rx.advance(n);
                    prop_assert_eq!(rx.sync(), Sync::Ok);
                    tx.sync();
                }
            }
            prop_assert_eq!(named_bufs(&port), before);
        }

        /// Objective: a peer that writes anything into its head and slots does not make the sender panic or name a slot outside.
        #[test]
        fn hostile_receiver(heads in proptest::collection::vec(any::<u32>(), 1..40), small in any::<bool>()) {
            let (port, mut tx, _rx) = ends(8, 8);
            for h in heads {
                let h = if small { h % 9 } else { h };
                port.rx[0].csb.publish_head(h, h);
                port.rx[0].ring.set_slot_word(h % 8, h, h as u16, h as u16);
                tx.advance(3);
                tx.sync();
                prop_assert!(tx.space() <= 7);
            }
        }
    }
}
