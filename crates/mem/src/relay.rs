//! A pipe with a host on the way: from one application's tx ring to another's rx ring by swapping buffer indices.
//!
//! Both rings lie in one region. Neither application sees the other's status block: each is served by us, as by any host. This is how
//! one end of a pipe can be a virtual machine that knows nothing of pipes, and come and go as it likes.
//!
//! ```text
//!   A: tx ring ──▶ relay ──swap slots──▶ B: rx ring        frames stay where they are
//! ```
//!
//! Slots of both are snapshots to be checked: a frame whose slot, or the slot it would go to, names no buffer goes no further.

use std::sync::Arc;

use netvale_abi::NetmapSlot;
use netvale_abi::ring::ring_space;
use netvale_abi::slot::{NS_BUF_CHANGED, NS_INDIRECT, NS_MOREFRAG};

use crate::host::HostTx;
use crate::layout::RESERVED_BUFS;
use crate::lease::BadHead;
use crate::notify::{Doorbell, KickCounts, arm, disarm, wanted};
use crate::region::RingSide;

/// The far end of a relay: a ring that is filled.
#[derive(Debug)]
pub struct RelayEnd {
    side: RingSide,
    /// First slot that the application does not see yet.
    hwtail: u32,
    wake: Arc<Doorbell>,
    kicks: Arc<KickCounts>,
}

impl RelayEnd {
    /// Fills `side` from its slot `hwtail` on (0 of a fresh ring); `wake` is rung for its application.
    pub fn new(side: RingSide, hwtail: u32, wake: Arc<Doorbell>, kicks: Arc<KickCounts>) -> RelayEnd {
        let hwtail = hwtail.min(side.ring.num_slots() - 1);
        RelayEnd { side, hwtail, wake, kicks }
    }

    /// First slot that the application does not see yet.
    pub fn hwtail(&self) -> u32 {
        self.hwtail
    }

    /// Slots that may be filled. One with a bad head gets nothing more.
    fn room(&self) -> u32 {
        let (n, head) = (self.side.ring.num_slots(), self.side.csb.head());
        if head >= n { 0 } else { n - 1 - ring_space(head, self.hwtail, n) }
    }

    fn publish(&self) {
        self.side.csb.publish_tail(self.side.csb.head(), self.hwtail);
        let kick = wanted(self.side.csb.appl_need_kick());
        if kick {
            self.wake.ring();
        }
        self.kicks.count(kick);
    }
}

/// What a pass came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relayed {
    /// Frames moved.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Slots with a buffer or flags that cannot be.
    pub bad_slots: u64,
    /// Slots with more bytes than a buffer has.
    pub bad_lengths: u64,
    /// Frames lost as the slot to fill named a buffer that cannot be.
    pub bad_places: u64,
}

impl Relayed {
    /// Slots dealt with, at least.
    pub fn any(&self) -> bool {
        *self != Relayed::default()
    }
}

/// One direction. One thread has it.
#[derive(Debug)]
pub struct Relay {
    from: HostTx,
    to: RelayEnd,
}

impl Relay {
    /// From `from` to `to`; none when the rings do not share their buffers.
    pub fn new(from: HostTx, to: RelayEnd) -> Option<Relay> {
        from.side().ring.shares_buffers_with(&to.side.ring).then_some(Relay { from, to })
    }

    /// Where it takes from.
    pub fn from(&self) -> &HostTx {
        &self.from
    }

    /// Where it puts.
    pub fn to(&self) -> &RelayEnd {
        &self.to
    }

    /// There is something to move, and it fits.
    pub fn can_move(&self) -> bool {
        self.from.has_news() && self.to.room() > 0
    }

    /// Moves what there is and fits.
    ///
    /// # Errors
    /// [`BadHead`], once for each bad value: nothing moves until it is right.
    #[inline]
    pub fn pass(&mut self) -> Result<Relayed, BadHead> {
        let head = self.from.head()?;
        let mut at = self.from.hwcur();
        let pending = ring_space(at, head, self.from.side().ring.num_slots());
        let count = if pending == 0 { 0 } else { pending.min(self.to.room()) };
        let mut done = Relayed::default();
        if count == 0 {
            return Ok(done);
        }
        for _ in 0..count {
            self.slot(at, &mut done);
            at = self.from.side().ring.next(at);
        }
        self.to.publish();
        self.from.complete(at);
        Ok(done)
    }

    #[inline]
    fn slot(&mut self, at: u32, done: &mut Relayed) {
        let (tx, rx) = (&self.from.side().ring, &self.to.side.ring);
        let (full, empty) = (tx.slot_word(at), rx.slot_word(self.to.hwtail));
        let names = |slot: &NetmapSlot| (RESERVED_BUFS..tx.num_bufs()).contains(&slot.buf_idx);
        if !names(&full) || full.flags & NS_INDIRECT != 0 {
            done.bad_slots += 1;
        } else if u32::from(full.len) > tx.buf_size() {
            done.bad_lengths += 1;
        } else if !names(&empty) {
            done.bad_places += 1;
        } else {
            let more = full.flags & NS_MOREFRAG;
            rx.set_slot_word(self.to.hwtail, full.buf_idx, full.len, more | NS_BUF_CHANGED);
            tx.set_slot_word(at, empty.buf_idx, 0, NS_BUF_CHANGED);
            self.to.hwtail = rx.next(self.to.hwtail);
            done.frames += u64::from(more == 0);
            done.bytes += u64::from(full.len);
        }
    }

    /// Asks for a kick by whoever we wait for: the sender, or, with frames that do not fit, the receiver. Returns whether there is something to do
    /// already; then no kick is asked for.
    pub fn arm(&mut self) -> bool {
        if !self.from.arm() {
            return false;
        }
        arm(self.to.side.csb.kern_need_kick());
        let room = self.to.room() > 0;
        if room {
            self.disarm();
        }
        room
    }

    /// No kicks while we are looking anyway.
    pub fn disarm(&self) {
        self.from.disarm();
        disarm(self.to.side.csb.kern_need_kick());
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::appl::{AppRing, Dir, Sync};
    use crate::layout::RegionSizes;
    use crate::named_bufs;
    use crate::region::{PortMem, PortShape, Region};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn bell() -> Arc<Doorbell> {
        Arc::new(Doorbell::new().unwrap())
    }

    fn ends(tx_slots: u32, rx_slots: u32) -> (PortMem, AppRing, Relay, AppRing) {
        let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots, rx_slots };
        let sizes = RegionSizes::for_port(2, tx_slots.max(rx_slots), 128, 0, 0);
        let port = Region::private(sizes).unwrap().port(shape).unwrap();
        let (a, b) = (port.tx[0].clone(), port.rx[0].clone());
        let to = RelayEnd::new(b.clone(), 0, bell(), Arc::default());
        let relay = Relay::new(HostTx::new(a.clone(), bell()), to).unwrap();
        let app = |side, dir| AppRing::new(side, dir, Doorbell::new().unwrap());
        (port, app(a, Dir::Tx), relay, app(b, Dir::Rx))
    }

    proptest! {
        #![proptest_config(crate::test_config())]
        /// Objective: frames cross in order with their buffers, none is lost or doubled, every buffer stays in one slot, and whoever waits is told
        /// to be woken by who can go on.
        #[test]
        fn a_queue_that_loses_no_buffer(
            sizes in (2u32..9, 2u32..9),
            ops in proptest::collection::vec((0u8..3, 0u32..7), 1..100),
        ) {
            let (port, mut tx, mut relay, mut rx) = ends(sizes.0, sizes.1);
            let before = named_bufs(&port);
            let (mut sent, mut seq) = (VecDeque::new(), 1u16);
            for (what, n) in ops {
                match what {
                    0 => {
                        prop_assert_eq!(tx.sync(), Sync::Ok);
                        let n = n.min(tx.space());
                        for k in 0..n {
                            let i = tx.at(k);
                            let buf = port.tx[0].ring.slot(i).buf_idx;
                            port.tx[0].ring.set_slot_word(i, buf, seq % 128, 0);
                            sent.push_back((buf, seq % 128));
                            seq += 1;
                        }
                        tx.advance(n);
                        tx.sync();
                    }
                    1 => {
                        let relayed = relay.pass().unwrap();
                        prop_assert!(relayed.bad_slots + relayed.bad_lengths + relayed.bad_places == 0);
                        // All that is left is what does not fit.
                        prop_assert!(!relay.arm());
                        relay.disarm();
                    }
                    _ => {
                        prop_assert_eq!(rx.sync(), Sync::Ok);
                        let n = n.min(rx.space());
                        for k in 0..n {
                            let slot = rx.slot(rx.at(k));
                            prop_assert_eq!(Some((slot.buf_idx, slot.len)), sent.pop_front());
                        }
                        rx.advance(n);
                        prop_assert_eq!(rx.sync(), Sync::Ok);
                    }
                }
            }
            prop_assert_eq!(named_bufs(&port), before);
        }

        /// Objective: whatever the two write into heads and slots, nothing that cannot be is passed on to the other.
        #[test]
        fn hostile_ends(words in proptest::collection::vec((any::<u32>(), any::<bool>()), 1..60), small in any::<bool>()) {
            let (port, _tx, mut relay, _rx) = ends(8, 8);
            let num = port.tx[0].ring.num_bufs();
            for (word, send) in words {
                let word = if small { word % 24 } else { word };
                let side = if send { &port.tx[0] } else { &port.rx[0] };
                side.csb.publish_head(word % 9, word % 9);
                side.ring.set_slot_word(word % 8, word, word as u16, word as u16);
                let (before, tail) = (relay.from().hwcur(), relay.to().hwtail());
                let _ = relay.pass();
                for i in 0..ring_space(tail, relay.to().hwtail(), 8) {
                    let slot = port.rx[0].ring.slot_word((tail + i) % 8);
                    prop_assert!((2..num).contains(&slot.buf_idx) && slot.len <= 128 && slot.flags & NS_INDIRECT == 0);
                }
                prop_assert!(before < 8 && relay.from().hwcur() < 8 && relay.to().hwtail() < 8);
            }
        }
    }
}
