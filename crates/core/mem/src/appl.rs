//! The application's side of a ring: `head`, `cur` and `tail`, as in netmap.
//!
//! The slots from `head` up to (not including) `tail` are the application's: on a tx ring they are free to fill, on an
//! rx ring they hold received frames. [`AppRing::sync`] publishes `head` and updates `tail`; it makes a system call
//! only if the host sleeps.

use std::time::SystemTime;

use netvale_abi::NetmapSlot;
use netvale_abi::ring::{NR_TIMESTAMP, ring_space};
use netvale_abi::slot::NS_INDIRECT;

use crate::mirror::Mirror;
use crate::notify::{Doorbell, KickCounts, arm, disarm, wanted};
use crate::ring::RingMem;
use crate::side::RingSide;

/// The direction of a ring's frames, as the application sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dir {
    /// The application sends.
    Tx,
    /// The application receives.
    Rx,
}

/// The result of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncResult {
    /// The ring's indices are valid.
    Ok,
    /// `head` or `cur` violated `head <= cur <= tail`: the ring was re-initialised to the host's state, as netmap does.
    Reinit,
    /// The host published a `tail` outside the ring; it was ignored.
    BadTail,
    /// Filled slots cannot be sent: a monitor's tx ring accepts no frames (netmap: `EIO`).
    Refused,
}

/// A ring as an application uses it. Threads do not share it: each thread has its own rings.
#[derive(Debug)]
pub struct AppRing {
    side: RingSide,
    dir: Dir,
    head: u32,
    cur: u32,
    tail: u32,
    /// The last published `head`, which a re-initialisation restores.
    published: u32,
    doorbell: Doorbell,
    kicks: KickCounts,
    /// Copies the frames of returned slots to the ring's monitors; `None` if the ring cannot have monitors.
    released: Option<Box<Mirror>>,
}

impl AppRing {
    /// Creates the application's side of a new ring. `doorbell` wakes the host.
    pub fn new(side: RingSide, dir: Dir, doorbell: Doorbell) -> Self {
        let tail = match dir {
            Dir::Tx => side.ring.num_slots() - 1,
            Dir::Rx => 0,
        };
        let kicks = KickCounts::default();
        AppRing { side, dir, head: 0, cur: 0, tail, published: 0, doorbell, kicks, released: None }
    }

    /// Sets the mirror, which copies the frames of returned slots to the ring's monitors.
    #[must_use]
    pub fn mirrored(self, released: Mirror) -> Self {
        AppRing { released: Some(Box::new(released)), ..self }
    }

    /// The ring's slots and buffers.
    #[inline]
    pub fn mem(&self) -> &RingMem {
        &self.side.ring
    }

    /// The ring and its status block.
    pub fn side(&self) -> &RingSide {
        &self.side
    }

    /// The ring's direction.
    pub fn dir(&self) -> Dir {
        self.dir
    }

    /// Number of slots.
    #[inline]
    pub fn num_slots(&self) -> u32 {
        self.side.ring.num_slots()
    }

    /// The application's first slot.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// The wake-up point: the application is woken once `tail` has moved past it.
    #[inline]
    pub fn cur(&self) -> u32 {
        self.cur
    }

    /// The host's first slot.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// Number of slots from `head` up to `tail`.
    #[inline]
    pub fn space(&self) -> u32 {
        ring_space(self.head, self.tail, self.num_slots())
    }

    /// Whether the application has no slots: `head` equals `tail`.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Index of the slot `k` slots after `head`; `k` is at most the ring's size.
    #[inline]
    pub fn at(&self, k: u32) -> u32 {
        let i = self.head + k;
        let n = self.num_slots();
        if i >= n { i - n } else { i }
    }

    /// Returns a snapshot of slot `i`, with 0 as its `ptr`.
    #[inline]
    pub fn slot(&self, i: u32) -> NetmapSlot {
        self.side.ring.slot_word(i)
    }

    /// Returns the first `n` slots, at most [`AppRing::space`], to the host: filled slots on a tx ring, slots whose
    /// frames have been read on an rx ring. The next [`AppRing::sync`] publishes the new `head`.
    #[inline]
    pub fn advance(&mut self, n: u32) {
        self.head = self.at(n.min(self.space()));
        self.cur = self.head;
    }

    /// Sets `head` and `cur` as a netmap program does. [`AppRing::sync`] checks both.
    pub fn set_head_cur(&mut self, head: u32, cur: u32) {
        self.head = head;
        self.cur = cur;
    }

    /// Publishes `head` and `cur`, kicks the host if the host sleeps, and updates `tail` from the host's `hwtail`.
    #[inline]
    pub fn sync(&mut self) -> SyncResult {
        if !self.indices_are_legal() {
            self.reinit();
            return SyncResult::Reinit;
        }
        self.publish()
    }

    #[inline]
    fn publish(&mut self) -> SyncResult {
        if let Some(released) = &mut self.released {
            released.copy(
                &self.side,
                self.published,
                ring_space(self.published, self.head, self.side.ring.num_slots()),
            );
        }
        self.side.csb.publish_head(self.head, self.cur);
        if self.head != self.published {
            self.published = self.head;
            let kick = wanted(self.side.csb.kern_need_kick());
            if kick {
                self.doorbell.ring();
            }
            self.kicks.count(kick);
        }
        if self.dir == Dir::Rx && self.side.ring.flags() & NR_TIMESTAMP != 0 {
            self.stamp();
        }
        self.refresh()
    }

    /// Syncs like netmap's ioctl: takes `head` and `cur` from the ring's header, where the program wrote them, and
    /// everything else from the status block. Uses no state of this value, so that processes that share the ring may
    /// take turns. Always stamps an rx ring with the time, as netmap does.
    pub fn sync_header(&mut self) -> SyncResult {
        self.take_header();
        let done = self.sync();
        if self.dir == Dir::Rx {
            self.stamp();
        }
        done
    }

    /// Like [`AppRing::sync_header`], for a tx ring with indirect slots: if a new slot is indirect, first calls `fetch`
    /// with the ring, the first new slot and the slot after the last new slot.
    pub fn sync_header_fetching(&mut self, fetch: impl FnOnce(&RingMem, u32, u32)) -> SyncResult {
        self.take_header();
        if !self.indices_are_legal() {
            self.reinit();
            return SyncResult::Reinit;
        }
        if self.side.ring.flags_between(self.published, self.head) & NS_INDIRECT != 0 {
            fetch(&self.side.ring, self.published, self.head);
        }
        self.publish()
    }

    #[inline]
    fn take_header(&mut self) {
        let n = self.num_slots();
        let published = self.side.csb.head();
        let tail = self.side.csb.hwtail();
        self.published = if published < n { published } else { 0 };
        self.tail = if tail < n { tail } else { self.published };
        let (head, cur, _) = self.side.ring.indices();
        self.set_head_cur(head, cur);
    }

    /// Writes the time of this sync into the ring's header (netmap.h, `ts`).
    fn stamp(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.side.ring.set_timestamp(now.as_secs().cast_signed(), now.subsec_micros().into());
    }

    /// Updates `tail` from the host's `hwtail`, without publishing anything.
    #[inline]
    pub fn refresh(&mut self) -> SyncResult {
        let tail = self.side.csb.hwtail();
        if tail >= self.num_slots() {
            return SyncResult::BadTail;
        }
        self.tail = tail;
        self.side.ring.set_indices(self.head, self.cur, self.tail);
        SyncResult::Ok
    }

    fn indices_are_legal(&self) -> bool {
        let n = self.num_slots();
        // From the last published head on, the order must be head, cur, tail.
        let from = |i| ring_space(self.published, i, n);
        self.head < n && self.cur < n && from(self.head) <= from(self.cur) && from(self.cur) <= from(self.tail)
    }

    /// Re-initialises the ring as netmap does: restores the host's indices, and empties slots without a valid buffer or
    /// length.
    fn reinit(&mut self) {
        self.head = self.published;
        self.cur = self.published;
        let ring = &self.side.ring;
        for i in 0..ring.num_slots() {
            let s = ring.slot_word(i);
            if ring.buf(s.buf_idx).is_none() {
                ring.set_slot_word(i, 0, 0, s.flags);
            } else if u32::from(s.len) > ring.buf_size() {
                ring.set_len_flags(i, 0, s.flags);
            }
        }
        let _ = self.refresh();
    }

    /// Continues where an earlier holder of this ring stopped, at the indices in the status block.
    pub fn resume(&mut self) {
        let head = self.side.csb.head();
        if head < self.num_slots() {
            self.head = head;
            self.cur = head;
            self.published = head;
        }
        let _ = self.refresh();
    }

    /// Requests that the host kick the application once `tail` moves past `cur`. If `tail` is already past `cur`,
    /// requests no kick and returns true.
    pub fn arm(&mut self) -> bool {
        arm(self.side.csb.appl_need_kick());
        let ready = self.is_ready();
        if ready {
            self.disarm();
        }
        ready
    }

    /// Whether `tail` has moved past `cur`: poll(2) on a netmap descriptor would return.
    pub fn is_ready(&mut self) -> bool {
        self.refresh() == SyncResult::Ok && self.tail != self.cur
    }

    /// Withdraws the request for a kick, after a wake-up.
    pub fn disarm(&self) {
        disarm(self.side.csb.appl_need_kick());
    }

    /// Counts of kicks to the host.
    pub fn kicks(&self) -> &KickCounts {
        &self.kicks
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::host::{HostRx, HostTx};
    use crate::layout::RegionSizes;
    use crate::region::{PortMem, PortShape, Region};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn port(slots: u32) -> PortMem {
        let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: slots, rx_slots: slots };
        Region::private(RegionSizes::for_port(2, slots, 128, 0, 0)).unwrap().port(shape).unwrap()
    }

    fn bell() -> Doorbell {
        Doorbell::new().unwrap()
    }

    /// Objective: a sync of an rx ring stamps the time only if the program set the flag, or syncs like netmap's ioctl.
    #[test]
    #[cfg_attr(miri, ignore = "eventfd is not available under Miri")]
    fn an_rx_sync_stamps_the_time_only_on_request() {
        let p = port(4);
        let mut rx = AppRing::new(p.rx[0].clone(), Dir::Rx, bell());
        let _ = rx.sync();
        assert_eq!(rx.mem().timestamp(), (0, 0));
        let mut tx = AppRing::new(p.tx[0].clone(), Dir::Tx, bell());
        let _ = tx.sync_header();
        assert_eq!(tx.mem().timestamp(), (0, 0));
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().cast_signed();
        let syncs: [fn(&mut AppRing) -> SyncResult; 2] = [AppRing::sync_header, AppRing::sync];
        for sync in syncs {
            let before = now();
            let _ = sync(&mut rx);
            let (seconds, micros) = rx.mem().timestamp();
            assert!((before..=now()).contains(&seconds) && (0..1_000_000).contains(&micros));
            rx.mem().set_timestamp(0, 0);
            rx.mem().set_flags(NR_TIMESTAMP);
        }
    }

    proptest! {
        #![proptest_config(crate::test_config())]
        /// Objective: slots filled in the application's tx ring arrive at the host in order, and no slot belongs to
        /// both sides.
        #[test]
        #[cfg_attr(miri, ignore = "eventfd is not available under Miri")]
        fn tx_is_a_bounded_queue(slots in 2u32..9, ops in proptest::collection::vec((any::<bool>(), 0u32..6), 1..80)) {
            let p = port(slots);
            let mut app = AppRing::new(p.tx[0].clone(), Dir::Tx, bell());
            let mut host = HostTx::new(p.tx[0].clone(), bell());
            let mut model = VecDeque::new();
            let mut seq = 0u16;
            for (send, n) in ops {
                if send {
                    prop_assert_eq!(app.space() as usize, slots as usize - 1 - model.len());
                    let n = n.min(app.space());
                    for k in 0..n {
                        app.mem().set_len_flags(app.at(k), seq, 0);
                        model.push_back(seq);
                        seq += 1;
                    }
                    app.advance(n);
                } else {
                    let head = host.head().unwrap();
                    let mut i = host.hwcur();
                    while i != head {
                        prop_assert_eq!(Some(host.side().ring.slot(i).len), model.pop_front());
                        i = host.side().ring.next(i);
                    }
                    if i != host.hwcur() { host.complete(i); }
                    prop_assert!(model.is_empty());
                }
                prop_assert_eq!(app.sync(), SyncResult::Ok);
            }
        }

        /// Objective: whatever `head` and `cur` an application sets, a sync leaves valid indices and never hands out a
        /// slot outside the ring.
        #[test]
        #[cfg_attr(miri, ignore = "eventfd is not available under Miri")]
        fn any_head_any_cur(moves in proptest::collection::vec((0u32..12, 0u32..12, 0u32..5), 1..40)) {
            let p = port(8);
            let mut app = AppRing::new(p.rx[0].clone(), Dir::Rx, bell());
            let host = HostRx::new(p.rx[0].clone(), bell());
            for (head, cur, frames) in moves {
                if let Some(lease) = host.reserve(frames, |room| room).unwrap() { host.complete(lease); }
                let unread = host.unread().unwrap();
                app.refresh();
                prop_assert_eq!(u64::from(app.space()), unread);
                app.set_head_cur(head, cur);
                let result = app.sync();
                prop_assert!(app.head() < 8 && app.cur() < 8 && app.tail() < 8);
                if result == SyncResult::Reinit { prop_assert_eq!(u64::from(app.space()), unread); }
                prop_assert!(host.unread().is_some(), "the host never sees a bad head through sync");
            }
        }
    }

    /// Objective: a side rings the doorbell exactly when the other side requested a kick.
    #[test]
    #[cfg_attr(miri, ignore = "eventfd is not available under Miri")]
    fn kicks_only_when_armed() {
        let p = port(8);
        let to_host = bell();
        let to_app = bell();
        let mut app = AppRing::new(p.tx[0].clone(), Dir::Tx, to_host.try_clone().unwrap());
        let mut host = HostTx::new(p.tx[0].clone(), to_app.try_clone().unwrap());
        host.disarm();
        app.advance(1);
        app.sync();
        assert!(!to_host.drain() && host.has_news());
        assert!(host.arm(), "news arrived before arming, so the host must not sleep");
        host.complete(1);
        assert!(!host.arm());
        app.advance(1);
        app.sync();
        assert!(to_host.drain());
        assert_eq!((app.kicks().sent(), app.kicks().suppressed()), (1, 1));
        app.advance(7);
        app.sync();
        assert!(!app.arm(), "the ring is full");
        let head = host.head().unwrap();
        host.complete(head);
        assert!(to_app.drain());
        assert!(app.is_ready());
    }

    /// Objective: a second holder of a ring continues from the header and the status block, without the first holder's
    /// state; an overwritten `tail` is restored.
    #[test]
    #[cfg_attr(miri, ignore = "eventfd is not available under Miri")]
    fn holders_take_turns() {
        let p = port(8);
        let mut first = AppRing::new(p.tx[0].clone(), Dir::Tx, bell());
        let mut second = AppRing::new(p.tx[0].clone(), Dir::Tx, bell());
        p.tx[0].ring.set_indices(3, 3, 7);
        assert_eq!(first.sync_header(), SyncResult::Ok);
        p.tx[0].ring.set_indices(5, 6, 2);
        assert_eq!(second.sync_header(), SyncResult::Ok);
        assert_eq!((p.tx[0].csb.head(), p.tx[0].ring.indices()), (5, (5, 6, 7)));
        p.tx[0].ring.set_indices(4, 4, 7);
        assert_eq!(first.sync_header(), SyncResult::Reinit, "head moved backwards");
        assert_eq!(p.tx[0].ring.indices(), (5, 5, 7));
    }

    /// Objective: a ring with bad indices is re-initialised as in netmap: indices are reset, and slots without a valid
    /// buffer or length are emptied.
    #[test]
    #[cfg_attr(miri, ignore = "eventfd is not available under Miri")]
    fn a_bad_ring_is_reinitialised_as_netmap_does() {
        let p = port(8);
        let mut app = AppRing::new(p.tx[0].clone(), Dir::Tx, bell());
        app.advance(2);
        assert_eq!(app.sync(), SyncResult::Ok);
        app.mem().set_slot_word(3, 99_999, 60, 0);
        app.mem().set_len_flags(4, 4000, 0);
        app.set_head_cur(9, 1);
        assert_eq!(app.sync(), SyncResult::Reinit);
        assert_eq!((app.head(), app.cur(), app.tail()), (2, 2, 7));
        assert_eq!((app.slot(3).buf_idx, app.slot(3).len, app.slot(4).len), (0, 0, 0));
        app.set_head_cur(1, 1);
        assert_eq!(app.sync(), SyncResult::Reinit, "head moved backwards over published slots");
        assert_eq!(p.tx[0].ring.indices(), (2, 2, 7));
    }
}
