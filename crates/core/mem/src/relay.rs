//! A pipe with a host in between: frames move from one application's tx ring to another application's rx ring by a swap
//! of buffer indices.
//!
//! Both rings are in one region. Neither application sees the other application's status block: the relay serves each
//! application like any host. One end of the pipe can thus be a virtual machine without pipe support, which can come
//! and go freely.
//!
//! ```text
//!   A: tx ring ──▶ relay ──swap slots──▶ B: rx ring        frames stay where they are
//! ```
//!
//! For each slot that the receiver releases, the sender gets a slot back: as in a pipe without a host, at most one ring
//! of slots is in flight, and the sender sees how many slots are unread. The receiver sees a frame of several slots
//! once the frame is complete.
//!
//! The relay checks its snapshots of the sender's and the receiver's slots: it drops a frame whose slot or destination
//! slot names no valid buffer.

use std::sync::Arc;

use netvale_abi::NetmapSlot;
use netvale_abi::ring::ring_space;
use netvale_abi::slot::{NS_BUF_CHANGED, NS_MOREFRAG};

use crate::host::HostTx;
use crate::layout::RESERVED_BUFS;
use crate::lease::BadHead;
use crate::notify::{Doorbell, KickCounts, arm, disarm, wanted};
use crate::side::RingSide;

/// The receiving end of a relay: the ring that the relay fills.
#[derive(Debug)]
pub struct RelayEnd {
    side: RingSide,
    /// First slot that is not filled yet.
    filled: u32,
    /// First slot that the application does not see yet; it stays before `filled` while a frame is incomplete.
    hwtail: u32,
    /// First slot that the application has not released.
    released: u32,
    wake: Arc<Doorbell>,
    kicks: Arc<KickCounts>,
}

impl RelayEnd {
    /// Creates the end that fills `side` from slot `hwtail` on (0 for a new ring). `wake` is the application's
    /// doorbell.
    pub fn new(side: RingSide, hwtail: u32, wake: Arc<Doorbell>, kicks: Arc<KickCounts>) -> RelayEnd {
        let hwtail = hwtail.min(side.ring.num_slots() - 1);
        // Until `look` reads `head`, all other slots count as unread.
        let released = side.ring.next(hwtail);
        let mut end = RelayEnd { side, filled: hwtail, hwtail, released, wake, kicks };
        end.look();
        end
    }

    /// Takes over a ring in which another process had filled the slots before `filled`. The application sees the slots
    /// before the `hwtail` of the CSB entry; the slots from `hwtail` up to `filled` belong to an incomplete frame. A
    /// `filled` outside the free slots is ignored.
    pub fn continued(side: RingSide, filled: u32, wake: Arc<Doorbell>, kicks: Arc<KickCounts>) -> RelayEnd {
        let n = side.ring.num_slots();
        let end = Self::new(side.clone(), side.csb.hwtail(), wake, kicks);
        let is_free = filled < n && ring_space(end.hwtail, filled, n) <= end.room(end.released);
        RelayEnd { filled: if is_free { filled } else { end.hwtail }, ..end }
    }

    /// First slot that is not filled yet.
    pub fn filled(&self) -> u32 {
        self.filled
    }

    /// First slot that the application does not see yet.
    pub fn hwtail(&self) -> u32 {
        self.hwtail
    }

    /// First slot that the application has not released, by its current `head`. A `head` outside the application's
    /// slots is ignored.
    fn head(&self) -> u32 {
        let n = self.side.ring.num_slots();
        let head = self.side.csb.head();
        let from = |i| ring_space(self.released, i, n);
        if head < n && from(head) <= from(self.hwtail) { head } else { self.released }
    }

    /// Updates `released` from the application's `head`.
    #[inline]
    fn look(&mut self) {
        self.released = self.head();
    }

    /// Number of slots that may be filled if all slots before `head` are released.
    fn room(&self, head: u32) -> u32 {
        let n = self.side.ring.num_slots();
        n - 1 - ring_space(head, self.filled, n)
    }

    /// Publishes the complete frames to the application.
    fn publish(&mut self) {
        let end = self.side.ring.last_whole(self.hwtail, self.filled);
        if end == self.hwtail {
            return;
        }
        self.hwtail = end;
        self.side.csb.publish_tail(self.released, end);
        let kick = wanted(self.side.csb.appl_need_kick());
        if kick {
            self.wake.ring();
        }
        self.kicks.count(kick);
    }
}

/// The result of [`Relay::pass`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayResult {
    /// Number of frames moved.
    pub frames: u64,
    /// Number of bytes moved.
    pub bytes: u64,
    /// Number of the sender's slots that named an invalid buffer.
    pub bad_slots: u64,
    /// Number of the sender's slots whose length exceeded a buffer.
    pub bad_lengths: u64,
    /// Number of slots lost because the receiver's slot named an invalid buffer.
    pub bad_places: u64,
}

impl RelayResult {
    /// Whether the pass handled any slots.
    pub fn any(&self) -> bool {
        *self != RelayResult::default()
    }
}

/// One direction of a relayed pipe, used by one thread.
#[derive(Debug)]
pub struct Relay {
    from: HostTx,
    to: RelayEnd,
    /// First slot of `from` that does not belong to the application.
    tail: u32,
}

impl Relay {
    /// Creates a relay; `None` if the rings do not share their buffers, or differ in size.
    pub fn new(from: HostTx, to: RelayEnd) -> Option<Relay> {
        let tx = &from.side().ring;
        let rx = &to.side.ring;
        let fit = tx.shares_buffers_with(rx) && tx.num_slots() == rx.num_slots();
        let tail = from.side().csb.hwtail().min(tx.num_slots() - 1);
        fit.then_some(Relay { from, to, tail })
    }

    /// The ring from which the relay takes frames.
    pub fn from(&self) -> &HostTx {
        &self.from
    }

    /// The ring that the relay fills.
    pub fn to(&self) -> &RelayEnd {
        &self.to
    }

    /// Whether there are frames to move, and room for them.
    pub fn can_move(&self) -> bool {
        self.from.has_news() && self.to.room(self.to.head()) > 0
    }

    /// Moves the available frames for which there is room, and returns to the sender as many slots as the receiver has
    /// released.
    ///
    /// # Errors
    /// [`BadHead`], once for each bad value of the sender's `head`. No frames move until `head` is valid again.
    #[inline]
    pub fn pass(&mut self) -> Result<RelayResult, BadHead> {
        let head = self.from.head()?;
        let mut at = self.from.hwcur();
        let pending = ring_space(at, head, self.from.side().ring.num_slots());
        let mut done = RelayResult::default();
        if pending == 0 && self.has_given_all() {
            return Ok(done);
        }
        self.to.look();
        let count = pending.min(self.to.room(self.to.released));
        for _ in 0..count {
            self.slot(at, &mut done);
            at = self.from.side().ring.next(at);
        }
        if count > 0 {
            self.to.publish();
        }
        self.give(at);
        Ok(done)
    }

    /// Whether the sender has all its slots back, as the receiver has released all frames.
    fn has_given_all(&self) -> bool {
        self.tail == self.from.side().ring.prev(self.from.hwcur())
    }

    /// Returns the sender's `tail` for the case that all slots before `at` are taken and the receiver has released all
    /// slots before `head`. The `tail` never moves backwards.
    fn tail(&self, at: u32, head: u32) -> u32 {
        let n = self.from.side().ring.num_slots();
        let free = self.to.room(head);
        let tail = if at + free >= n { at + free - n } else { at + free };
        if free > ring_space(at, self.tail, n) { tail } else { self.tail }
    }

    /// Marks all slots before `at` as taken: publishes the new `hwcur` and `tail` to the sender.
    #[inline]
    fn give(&mut self, at: u32) {
        let tail = self.tail(at, self.to.released);
        if at != self.from.hwcur() || tail != self.tail {
            self.tail = tail;
            self.from.take(at, tail);
        }
    }

    #[inline]
    fn slot(&mut self, at: u32, done: &mut RelayResult) {
        let tx = &self.from.side().ring;
        let rx = &self.to.side.ring;
        let full = tx.slot_word(at);
        let empty = rx.slot_word(self.to.filled);
        let names = |slot: &NetmapSlot| (RESERVED_BUFS..tx.num_bufs()).contains(&slot.buf_idx);
        if !names(&full) {
            done.bad_slots += 1;
        } else if u32::from(full.len) > tx.buf_size() {
            done.bad_lengths += 1;
        } else if !names(&empty) {
            done.bad_places += 1;
        } else {
            let more = full.flags & NS_MOREFRAG;
            rx.set_slot_word(self.to.filled, full.buf_idx, full.len, more | NS_BUF_CHANGED);
            tx.set_slot_word(at, empty.buf_idx, full.len, NS_BUF_CHANGED);
            self.to.filled = rx.next(self.to.filled);
            done.frames += u64::from(more == 0);
            done.bytes += u64::from(full.len);
        }
    }

    /// Requests a kick from the sides that have to act next: the sender, and a receiver with unreleased frames. If
    /// there is work already, requests no kick and returns true.
    pub fn arm(&mut self) -> bool {
        let news = self.from.arm();
        if !news && self.has_given_all() {
            return false;
        }
        arm(self.to.side.csb.kern_need_kick());
        let head = self.to.head();
        let ready = (news && self.to.room(head) > 0) || self.tail(self.from.hwcur(), head) != self.tail;
        if ready {
            self.disarm();
        }
        ready
    }

    /// Withdraws the requests for kicks, while the relay polls.
    pub fn disarm(&self) {
        self.from.disarm();
        disarm(self.to.side.csb.kern_need_kick());
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::appl::{AppRing, Dir, SyncResult};
    use crate::layout::RegionSizes;
    use crate::named_bufs;
    use crate::region::{PortMem, PortShape, Region};
    use netvale_abi::slot::NS_INDIRECT;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::sync::atomic::Ordering;

    fn bell() -> Arc<Doorbell> {
        Arc::new(Doorbell::new().unwrap())
    }

    fn port(tx_slots: u32, rx_slots: u32) -> PortMem {
        let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots, rx_slots };
        let sizes = RegionSizes::for_port(2, tx_slots.max(rx_slots), 128, 0, 0);
        Region::private(sizes).unwrap().port(shape).unwrap()
    }

    /// Objective: rings of different sizes do not form a relay.
    #[test]
    fn rings_of_one_size() {
        let port = port(8, 4);
        let to = RelayEnd::new(port.rx[0].clone(), 0, bell(), Arc::default());
        assert!(Relay::new(HostTx::new(port.tx[0].clone(), bell()), to).is_none());
    }

    fn ends(slots: u32) -> (PortMem, AppRing, Relay, AppRing) {
        let port = port(slots, slots);
        let a = port.tx[0].clone();
        let b = port.rx[0].clone();
        let to = RelayEnd::new(b.clone(), 0, bell(), Arc::default());
        let relay = Relay::new(HostTx::new(a.clone(), bell()), to).unwrap();
        let app = |side, dir| AppRing::new(side, dir, Doorbell::new().unwrap());
        (port, app(a, Dir::Tx), relay, app(b, Dir::Rx))
    }

    /// Objective: a sender that sleeps for room is woken through the relay when the receiver releases slots; an
    /// incomplete frame stays invisible.
    #[test]
    fn releases_travel_back() {
        let (_port, mut tx, mut relay, mut rx) = ends(4);
        tx.advance(3);
        tx.sync();
        relay.pass().unwrap();
        assert!(!tx.arm() && tx.space() == 0 && !relay.arm());
        rx.sync();
        rx.advance(2);
        rx.sync();
        assert!(relay.arm(), "there is something to pass on");
        relay.pass().unwrap();
        assert!(tx.is_ready() && tx.space() == 2);
        tx.mem().set_len_flags(tx.at(0), 9, NS_MOREFRAG);
        tx.advance(1);
        tx.sync();
        relay.pass().unwrap();
        let at = relay.to().hwtail();
        rx.sync();
        assert_eq!((at, rx.space()), (3, 1), "an incomplete frame is not visible");
    }

    proptest! {
        #![proptest_config(crate::test_config())]
        /// Objective: frames cross in order with their buffers, without loss or duplication; every buffer stays in one
        /// slot; a kick is requested from each side that has to act. The sender can fill all slots but one, minus the
        /// slots that the receiver has not released; all filled slots move together; the receiver sees complete frames.
        #[test]
        fn a_queue_that_loses_no_buffer(
            slots in 2u32..9,
            long in 1u16..5,
            ops in proptest::collection::vec((0u8..3, 0u32..7), 1..100),
        ) {
            let (port, mut tx, mut relay, mut rx) = ends(slots);
            let before = named_bufs(&port);
            let mut sent = VecDeque::new();
            let mut seq = 1u16;
            // Number of slots that the relay has moved and the receiver has not released.
            let mut relayed = 0;
            // The value of `relayed` after the relay's last pass.
            let mut known = 0;
            for (what, n) in ops {
                match what {
                    0 => {
                        prop_assert_eq!(tx.sync(), SyncResult::Ok);
                        prop_assert_eq!(tx.space(), slots - 1 - known - (sent.len() - relayed) as u32);
                        let n = n.min(tx.space());
                        for k in 0..n {
                            let i = tx.at(k);
                            let buf = port.tx[0].ring.slot(i).buf_idx;
                            let more = if !seq.is_multiple_of(long) { NS_MOREFRAG } else { 0 };
                            port.tx[0].ring.set_slot_word(i, buf, seq % 128, more);
                            sent.push_back((buf, seq % 128, more));
                            seq += 1;
                        }
                        tx.advance(n);
                        tx.sync();
                    }
                    1 => {
                        relay.disarm();
                        let done = relay.pass().unwrap();
                        prop_assert!(done.bad_slots + done.bad_lengths + done.bad_places == 0);
                        relayed = sent.len();
                        known = sent.len() as u32;
                        prop_assert!(!relay.from().has_news() && !relay.arm());
                        // The receiver will release unread slots, and the relay must then return slots to the sender.
                        prop_assert_eq!(port.rx[0].csb.kern_need_kick().load(Ordering::Relaxed) != 0, known > 0);
                        relay.disarm();
                    }
                    _ => {
                        prop_assert_eq!(rx.sync(), SyncResult::Ok);
                        let whole = sent.iter().take(relayed).rposition(|s| s.2 == 0).map_or(0, |last| last + 1);
                        prop_assert_eq!(rx.space() as usize, whole);
                        let n = n.min(rx.space());
                        for k in 0..n {
                            let s = rx.slot(rx.at(k));
                            prop_assert_eq!(Some((s.buf_idx, s.len, s.flags & NS_MOREFRAG)), sent.pop_front());
                        }
                        relayed -= n as usize;
                        rx.advance(n);
                        prop_assert_eq!(rx.sync(), SyncResult::Ok);
                    }
                }
            }
            prop_assert_eq!(named_bufs(&port), before);
        }

        /// Objective: whatever one side writes into its `head` and slots, the other side never receives an invalid
        /// value.
        #[test]
        fn no_end_receives_an_impossible_value(
            words in proptest::collection::vec((any::<u32>(), any::<bool>()), 1..60),
            small in any::<bool>(),
        ) {
            let (port, _tx, mut relay, _rx) = ends(8);
            let num = port.tx[0].ring.num_bufs();
            for (word, send) in words {
                let word = if small { word % 24 } else { word };
                let side = if send { &port.tx[0] } else { &port.rx[0] };
                side.csb.publish_head(word % 9, word % 9);
                side.ring.set_slot_word(word % 8, word, word as u16, word as u16);
                let before = relay.from().hwcur();
                let tail = relay.to().hwtail();
                let _ = relay.pass();
                for i in 0..ring_space(tail, relay.to().hwtail(), 8) {
                    let slot = port.rx[0].ring.slot_word((tail + i) % 8);
                    prop_assert!((2..num).contains(&slot.buf_idx) && slot.len <= 128 && slot.flags & NS_INDIRECT == 0);
                }
                prop_assert!(before < 8 && relay.from().hwcur() < 8 && relay.to().hwtail() < 8);
                prop_assert!(port.tx[0].csb.hwtail() < 8);
            }
        }
    }
}
