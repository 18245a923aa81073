//! Netmap pipes: frames move from one end's tx ring to the other end's rx ring by a swap of buffer indices.
//!
//! Both ends are in one region, without a host between them: the sender's own sync takes the host's role. It swaps
//! filled slots with empty slots of the receiver's ring and publishes the receiver's `hwtail`. To the receiver this
//! looks like a host: its ring is an ordinary [`AppRing`](crate::appl::AppRing).
//!
//! ```text
//!   end A: tx ring ──swap slots──► end B: rx ring        frames stay where they are
//! ```
//!
//! Both rings have the same number of slots, and slot k of the tx ring goes to slot k of the rx ring. The sender gets a
//! slot back once the receiver has released it: the tx ring's `tail` follows the rx ring's `head`, one slot behind.
//! Thus at most one ring of slots is in flight, the sender sees how many slots are unread, and the other end has room
//! for every slot that the sender may fill. The receiver sees a frame of several slots once the frame is complete.
//!
//! Either end may be a hostile process: each end checks its snapshots of the other end's indices and slots.

use crate::appl::SyncResult;
use crate::mirror::Mirror;
use crate::notify::{Doorbell, KickCounts, arm, disarm, wanted};
use crate::ring::RingMem;
use crate::side::RingSide;

use netvale_abi::ring::ring_space;

/// The sending half of one end: this end's tx ring and the other end's rx ring.
#[derive(Debug)]
pub struct PipeTx {
    own: RingSide,
    peer: RingSide,
    head: u32,
    /// First slot that is not yet moved; the index is the same in both rings.
    moved: u32,
    /// First slot that the receiver has not released: its last valid `head`.
    released: u32,
    /// First slot that does not belong to the application: the slot before `released`.
    tail: u32,
    /// The peer's `hwtail`, as this end last published it; it stays before `moved` while a frame is incomplete.
    shown: u32,
    wake_peer: Doorbell,
    kicks: KickCounts,
    /// Copies the sent frames to monitors; `None` if the pipe cannot have monitors.
    mirror: Option<Box<Mirror>>,
}

impl PipeTx {
    /// Creates the sending half, without accessing the memory. `own` is this end's tx ring, `peer` the other end's rx
    /// ring, `wake_peer` the receiver's doorbell. `None` if the rings do not share their buffers, or differ in size.
    pub fn new(own: RingSide, peer: RingSide, wake_peer: Doorbell) -> Option<Self> {
        let slots = own.ring.num_slots();
        if !own.ring.shares_buffers_with(&peer.ring) || peer.ring.num_slots() != slots {
            return None;
        }
        Some(PipeTx {
            own,
            peer,
            head: 0,
            moved: 0,
            released: 0,
            tail: slots - 1,
            shown: 0,
            wake_peer,
            kicks: KickCounts::default(),
            mirror: None,
        })
    }

    /// Sets the mirror that copies frames for monitors.
    #[must_use]
    pub fn mirrored(self, mirror: Mirror) -> Self {
        PipeTx { mirror: Some(Box::new(mirror)), ..self }
    }

    /// Starts, or continues where an earlier holder of this end stopped, from the indices in the status blocks.
    pub fn resume(&mut self) {
        disarm(self.own.csb.kern_need_kick());
        disarm(self.peer.csb.kern_need_kick());
        self.load();
        self.head = self.moved;
        self.own.csb.publish_head(self.head, self.head);
        self.sync();
    }

    /// Loads the state from the status blocks.
    fn load(&mut self) {
        let last = self.own.ring.num_slots() - 1;
        self.moved = self.own.csb.hwcur().min(last);
        self.tail = self.own.csb.hwtail().min(last);
        self.released = self.own.ring.next(self.tail);
        self.shown = self.peer.csb.hwtail().min(last);
    }

    /// Syncs like netmap's ioctl: see [`AppRing::sync_header`](crate::appl::AppRing::sync_header).
    pub fn sync_header(&mut self) -> SyncResult {
        let n = self.own.ring.num_slots();
        let published = self.own.csb.head().min(n - 1);
        self.load();
        let (head, cur, _) = self.own.ring.indices();
        let from = |i| ring_space(published, i, n);
        let legal = head < n && cur < n && from(head) <= from(cur) && from(cur) <= from(self.tail);
        let (head, cur) = if legal { (head, cur) } else { (published, published) };
        self.head = head;
        self.own.csb.publish_head(head, cur);
        self.step();
        self.own.ring.set_indices(head, cur, self.tail);
        if legal { SyncResult::Ok } else { SyncResult::Reinit }
    }

    /// The slots and buffers of the tx ring.
    #[inline]
    pub fn mem(&self) -> &RingMem {
        &self.own.ring
    }

    /// The first slot to fill.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Number of slots that may be filled from `head` on, as of the last sync.
    #[inline]
    pub fn space(&self) -> u32 {
        ring_space(self.head, self.tail, self.own.ring.num_slots())
    }

    /// Index of the slot `k` slots after `head`.
    #[inline]
    pub fn at(&self, k: u32) -> u32 {
        let i = self.head + k;
        let n = self.own.ring.num_slots();
        if i >= n { i - n } else { i }
    }

    /// Marks the first `n` slots as filled, at most [`PipeTx::space`].
    #[inline]
    pub fn advance(&mut self, n: u32) {
        self.head = self.at(n.min(self.space()));
    }

    /// Moves all filled slots to the receiver, and takes back the slots that the receiver has released. Returns the
    /// number of slots moved.
    #[inline]
    pub fn sync(&mut self) -> u32 {
        if self.head == self.moved && self.peer.csb.head() == self.released {
            return 0;
        }
        let count = self.step();
        self.own.ring.set_indices(self.head, self.head, self.tail);
        count
    }

    /// Takes back the slots that the receiver has released, without moving filled slots.
    pub fn refresh(&mut self) {
        if self.look() {
            self.own.csb.publish_tail(self.moved, self.tail);
        }
    }

    fn step(&mut self) -> u32 {
        let news = self.look();
        let count = ring_space(self.moved, self.head, self.own.ring.num_slots());
        if count > 0 {
            if let Some(mirror) = &mut self.mirror {
                mirror.copy(&self.own, self.moved, count);
            }
            if self.own.ring.offset_mask() != 0 {
                self.pass_offsets(count);
            }
            self.moved = self.own.ring.swap_slots(&self.peer.ring, self.moved, count);
        }
        if count > 0 || news {
            self.own.csb.publish_tail(self.moved, self.tail);
        }
        if count > 0 {
            self.show();
        }
        count
    }

    /// Updates `released` and `tail` from one read of the receiver's `head`. Ignores a value outside the receiver's
    /// slots. Returns whether the receiver has released slots.
    #[inline]
    fn look(&mut self) -> bool {
        let ring = &self.own.ring;
        let head = self.peer.csb.head();
        if head == self.released {
            return false;
        }
        let from = |i| ring_space(self.released, i, ring.num_slots());
        if head >= ring.num_slots() || from(head) > from(self.moved) {
            return false;
        }
        self.released = head;
        self.tail = ring.prev(head);
        true
    }

    /// Copies the `ptr` fields of the slots, which hold the frames' offsets.
    #[cold]
    fn pass_offsets(&mut self, count: u32) {
        let mut i = self.moved;
        for _ in 0..count {
            self.peer.ring.set_ptr(i, self.own.ring.ptr(i));
            i = self.own.ring.next(i);
        }
    }

    /// Publishes the complete frames among the moved slots.
    #[inline]
    fn show(&mut self) {
        let end = self.peer.ring.last_whole(self.shown, self.moved);
        if end == self.shown {
            return;
        }
        self.shown = end;
        self.peer.csb.publish_tail(self.released, end);
        let kick = wanted(self.peer.csb.appl_need_kick());
        if kick {
            self.wake_peer.ring();
        }
        self.kicks.count(kick);
    }

    /// Requests that the receiver kick this end once the receiver releases slots. If there is room already, requests no
    /// kick and returns true.
    pub fn arm(&mut self) -> bool {
        arm(self.peer.csb.kern_need_kick());
        self.sync();
        let ready = self.space() > 0;
        if ready {
            self.disarm();
        }
        ready
    }

    /// The flag with which this end requests a kick from the receiver: set while this end sleeps until there is room.
    pub fn need_kick(&self) -> &std::sync::atomic::AtomicU32 {
        self.peer.csb.kern_need_kick()
    }

    /// Withdraws the request for a kick, after a wake-up.
    pub fn disarm(&self) {
        disarm(self.peer.csb.kern_need_kick());
    }

    /// Counts of kicks to the receiver.
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
    use netvale_abi::slot::NS_MOREFRAG;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn ends(slots: u32) -> (PortMem, PipeTx, AppRing) {
        let port = port(slots, slots);
        let a = port.tx[0].clone();
        let b = port.rx[0].clone();
        let mut tx = PipeTx::new(a, b.clone(), Doorbell::new().unwrap()).unwrap();
        tx.resume();
        let rx = AppRing::new(b, Dir::Rx, Doorbell::new().unwrap());
        (port, tx, rx)
    }

    fn port(tx_slots: u32, rx_slots: u32) -> PortMem {
        let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots, rx_slots };
        Region::private(RegionSizes::for_port(2, tx_slots.max(rx_slots), 128, 0, 0)).unwrap().port(shape).unwrap()
    }

    /// Objective: rings of different sizes do not form a pipe.
    #[test]
    fn rings_of_one_size() {
        let port = port(8, 4);
        let bell = Doorbell::new().unwrap();
        assert!(PipeTx::new(port.tx[0].clone(), port.rx[0].clone(), bell).is_none());
    }

    /// The slots sent, in order: buffer, length, and whether the frame continues.
    type Sent = VecDeque<(u32, u16, bool)>;

    fn fill(tx: &mut PipeTx, n: u32, seq: &mut u16, more: impl Fn(u16) -> bool, sent: &mut Sent) {
        for k in 0..n {
            let i = tx.at(k);
            let buf = tx.mem().slot(i).buf_idx;
            let goes_on = more(*seq);
            tx.mem().set_slot_word(i, buf, *seq, if goes_on { NS_MOREFRAG } else { 0 });
            sent.push_back((buf, *seq, goes_on));
            *seq += 1;
        }
        tx.advance(n);
    }

    /// Objective: the sender gets a slot back once the receiver has released it and synced, not before; one slot always
    /// stays empty.
    #[test]
    fn room_follows_the_receiver() {
        let (port, mut tx, mut rx) = ends(8);
        let mut seq = 1;
        let mut sent = Sent::new();
        fill(&mut tx, 7, &mut seq, |_| false, &mut sent);
        assert_eq!((tx.sync(), tx.space()), (7, 0));
        assert_eq!(port.tx[0].ring.indices(), (7, 7, 7));
        rx.sync();
        assert_eq!(rx.space(), 7);
        rx.advance(3);
        tx.sync();
        assert_eq!(tx.space(), 0, "read, but not released");
        rx.sync();
        assert_eq!(tx.space(), 0, "the sender has not synced yet");
        assert_eq!((tx.sync(), tx.space()), (0, 3));
        assert_eq!((port.tx[0].ring.indices(), port.tx[0].csb.hwtail()), ((7, 7, 2), 2));
    }

    /// Objective: a sender that sleeps for room is woken when the receiver releases slots, not before.
    #[test]
    fn woken_by_a_release() {
        let (port, mut tx, _) = ends(4);
        let bell = Doorbell::new().unwrap();
        let mut rx = AppRing::new(port.rx[0].clone(), Dir::Rx, bell.try_clone().unwrap());
        tx.advance(3);
        tx.sync();
        assert!(!tx.arm());
        rx.sync();
        assert!(!bell.drain(), "reading releases no slots");
        rx.advance(1);
        rx.sync();
        assert!(bell.drain() && tx.arm() && tx.space() == 1);
    }

    /// Objective: the receiver sees a frame of several slots only once the frame is complete. It sees the frames before
    /// an incomplete frame; the slots of the incomplete frame no longer belong to the sender.
    #[test]
    fn frames_are_shown_whole() {
        let (_port, mut tx, mut rx) = ends(8);
        let mut seq = 1;
        let mut sent = Sent::new();
        let mut put = |tx: &mut PipeTx, more| {
            fill(tx, 1, &mut seq, |_| more, &mut sent);
            (tx.sync(), tx.space())
        };
        let mut seen = || (rx.sync(), rx.space()).1;
        assert_eq!((put(&mut tx, true), seen()), ((1, 6), 0));
        assert_eq!((put(&mut tx, true), seen()), ((1, 5), 0));
        assert_eq!((put(&mut tx, false), seen()), ((1, 4), 3));
        tx.mem().set_len_flags(tx.at(0), 9, 0);
        tx.mem().set_len_flags(tx.at(1), 9, NS_MOREFRAG);
        tx.advance(2);
        assert_eq!((tx.sync(), seen()), (2, 4), "one complete, one incomplete");
    }

    /// Objective: a new holder of the sending end continues at the previous holder's position: the receiver keeps its
    /// frames, and the sender its free slots.
    #[test]
    fn a_new_sender_goes_on() {
        let (port, mut tx, mut rx) = ends(8);
        tx.advance(5);
        tx.sync();
        rx.sync();
        rx.advance(2);
        rx.sync();
        drop(tx);
        let mut tx = PipeTx::new(port.tx[0].clone(), port.rx[0].clone(), Doorbell::new().unwrap()).unwrap();
        tx.resume();
        assert_eq!((tx.head(), tx.space()), (5, 4));
        tx.advance(4);
        assert_eq!((tx.sync(), rx.sync(), rx.space()), (4, SyncResult::Ok, 7));
    }

    proptest! {
        #![proptest_config(crate::test_config())]
        /// Objective: frames cross in order with their buffers, without loss or duplication, and every buffer stays in
        /// exactly one slot. The sender can fill all slots but one, minus the slots that the receiver had not released
        /// at the last sync; all filled slots move together; the receiver sees complete frames.
        #[test]
        fn a_queue_that_loses_no_buffer(
            slots in 2u32..9,
            long in 1u16..5,
            ops in proptest::collection::vec((any::<bool>(), 0u32..7), 1..100),
        ) {
            let (port, mut tx, mut rx) = ends(slots);
            let before = named_bufs(&port);
            let mut sent = Sent::new();
            let mut seq = 1u16;
            let mut known = 0;
            for (send, n) in ops {
                if send {
                    prop_assert_eq!(tx.space(), slots - 1 - known);
                    let n = n.min(tx.space());
                    fill(&mut tx, n, &mut seq, |s| s % long != 0, &mut sent);
                    prop_assert_eq!(tx.sync(), n);
                    known = sent.len() as u32;
                    prop_assert_eq!(tx.space(), slots - 1 - known);
                } else {
                    prop_assert_eq!(rx.sync(), SyncResult::Ok);
                    let whole = sent.iter().rposition(|s| !s.2).map_or(0, |last| last as u32 + 1);
                    prop_assert_eq!(rx.space(), whole);
                    let n = n.min(rx.space());
                    for k in 0..n {
                        let s = rx.slot(rx.at(k));
                        prop_assert_eq!(Some((s.buf_idx, s.len, s.flags & NS_MOREFRAG != 0)), sent.pop_front());
                    }
                    rx.advance(n);
                    prop_assert_eq!(rx.sync(), SyncResult::Ok);
                }
            }
            prop_assert_eq!(named_bufs(&port), before);
        }

        /// Objective: a peer that writes anything into its `head`, its status block and its slots does not make the
        /// sender panic, name a slot outside the ring, or assume more room than the ring has.
        #[test]
        fn a_hostile_receiver_does_not_mislead_the_sender(
            words in proptest::collection::vec((any::<u32>(), any::<u32>(), 0u32..9), 1..40),
            small in any::<bool>(),
            by_header in any::<bool>(),
        ) {
            let (port, mut tx, _rx) = ends(8);
            for (h, t, n) in words {
                let (h, t) = if small { (h % 9, t % 9) } else { (h, t) };
                port.rx[0].csb.publish_head(h, h);
                port.rx[0].csb.publish_tail(t, t);
                port.rx[0].ring.set_slot_word(h % 8, h, h as u16, h as u16);
                let room = tx.space();
                if by_header {
                    port.tx[0].csb.publish_tail(h, t);
                    port.tx[0].ring.set_indices(n, n, t);
                    let _ = tx.sync_header();
                } else {
                    tx.advance(n);
                    prop_assert_eq!(tx.sync(), n.min(room));
                }
                prop_assert!(tx.space() <= 7 && tx.head() < 8);
                prop_assert!(port.rx[0].csb.hwtail() < 8 || port.rx[0].csb.hwtail() == t);
            }
        }

        /// Objective: an invalid `head` gives no room.
        #[test]
        fn a_bad_head_gives_no_room(filled in 0u32..8, head in any::<u32>()) {
            let (port, mut tx, _rx) = ends(8);
            tx.advance(filled);
            tx.sync();
            port.rx[0].csb.publish_head(head, head);
            tx.sync();
            prop_assert_eq!(tx.space(), 7 - filled + if head <= filled { head } else { 0 });
        }
    }
}
