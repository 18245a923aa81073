//! Mirrors: copies, for monitors, of frames on rings that the daemon does not serve (of a pipe or a network interface).
//!
//! The process that moves a ring's frames reads one word of the ring's status block at each sync. While the word is not
//! zero, it names another ring of the same region, and the process also copies each frame into that ring. The daemon
//! acts as the host of that ring and forwards the copies to the monitors. The process never waits for the daemon: a
//! frame for which there is no room is not copied.
//!
//! The other side can write to the word, the ring and the slots at any time. The process uses checked snapshots of all
//! three, and never accesses anything outside the region.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use netvale_abi::ring::ring_space;
use netvale_abi::slot::NS_MOREFRAG;

pub use crate::csb::Moment;
use crate::mapping::Mapping;
use crate::side::RingSide;
use crate::view::RegionLayout;

/// Copies the frames of one ring for monitors. One thread at a time moves the ring's frames, and makes the copies.
#[derive(Debug)]
pub struct Mirror {
    map: Arc<Mapping>,
    places: RegionLayout,
    moment: Moment,
    /// The value of the word for which `ring` was looked up.
    named: u32,
    ring: Option<RingSide>,
    /// Number of slots of an incomplete frame that are written, but not published.
    begun: u32,
    /// Whether the rest of the current frame is skipped for lack of room.
    lost: bool,
}

/// Returns the value of the word [`Csb::mirror`](crate::csb::Csb::mirror) that names ring object `ring` of the region
/// as the destination of copies. That ring must have as many slots as the watched ring.
pub fn name(ring: u32) -> u32 {
    ring + 1
}

impl Mirror {
    /// Creates the mirror for a ring of the region mapped at `map`.
    pub fn new(map: &Arc<Mapping>, places: RegionLayout, moment: Moment) -> Mirror {
        Mirror { map: Arc::clone(map), places, moment, named: 0, ring: None, begun: 0, lost: false }
    }

    /// Copies `count` slots of the ring `of` from `first` on, if a monitor watches the ring.
    #[inline]
    pub fn copy(&mut self, of: &RingSide, first: u32, count: u32) {
        let named = of.csb.mirror(self.moment).load(Ordering::Acquire);
        if named != 0 && count > 0 {
            self.copy_to(named, of, first, count);
        }
    }

    #[cold]
    fn copy_to(&mut self, named: u32, of: &RingSide, first: u32, count: u32) {
        if self.named != named {
            let ring = self.places.ring(&self.map, named - 1, of.ring.num_slots());
            self.named = named;
            self.ring = ring;
            self.begun = 0;
            self.lost = false;
        }
        let Some(to) = self.ring.clone() else { return };
        let n = to.ring.num_slots();
        let start = to.csb.head();
        let tail = to.csb.hwtail();
        if start >= n || tail >= n {
            return;
        }
        self.begun = self.begun.min(ring_space(start, tail, n));
        let mut whole = start;
        let mut at = (start + self.begun) % n;
        let mask = of.ring.offset_mask();
        let size = of.ring.buf_size();
        let mut from = first;
        for _ in 0..count {
            let slot = of.ring.slot_word(from);
            let more = slot.flags & NS_MOREFRAG;
            // On rings with offsets, a slot's `ptr` holds the frame's offset.
            let begin = if mask == 0 { 0 } else { (of.ring.ptr(from) & mask).min(size.into()) as u32 };
            from = of.ring.next(from);
            if self.lost || at == tail {
                // Omits the whole frame, not only its end.
                self.lost = more != 0;
                self.begun = 0;
                at = whole;
                continue;
            }
            let place = to.ring.slot_word(at).buf_idx;
            let len = u32::from(slot.len).min(size - begin);
            to.ring.copy_buf(place, &of.ring, slot.buf_idx, begin, len as usize);
            to.ring.set_len_flags(at, len as u16, more);
            at = to.ring.next(at);
            self.begun += 1;
            if more == 0 {
                whole = at;
                self.begun = 0;
            }
        }
        to.csb.publish_head(whole, whole);
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::layout::RegionSizes;
    use crate::region::{PortMem, PortShape, Region};

    struct Pair {
        port: PortMem,
        to: PortMem,
        mirror: Mirror,
    }

    fn pair(slots: u32) -> Pair {
        let region = Region::private(RegionSizes::for_port(4, slots, 128, 0, 0)).unwrap();
        let shape = |tx_rings| PortShape { tx_rings, rx_rings: 0, tx_slots: slots, rx_slots: slots };
        let port = region.port(shape(1)).unwrap();
        let to = region.port(shape(1)).unwrap();
        let mirror = Mirror::new(region.mapping(), region.places(), Moment::Passing);
        Pair { port, to, mirror }
    }

    impl Pair {
        fn watch(&self) {
            self.port.tx[0].csb.mirror(Moment::Passing).store(name(self.to.csb_first()), Ordering::Release);
        }

        /// Fills slots with the given lengths and flags from `first` on, and makes the mirror copy them.
        fn pass(&mut self, first: u32, frames: &[(u16, u16)]) {
            let side = &self.port.tx[0];
            for (k, &(len, flags)) in frames.iter().enumerate() {
                let i = (first + k as u32) % side.ring.num_slots();
                side.ring.set_len_flags(i, len, flags);
                side.ring.write(side.ring.slot_word(i).buf_idx, 0, &[len as u8; 64]);
            }
            let count = frames.len() as u32;
            self.mirror.copy(&self.port.tx[0], first, count);
        }

        /// Returns the lengths of the copies that the host finds, and releases their slots.
        fn take(&self) -> Vec<u16> {
            let side = &self.to.tx[0];
            let mut at = side.csb.hwcur();
            let head = side.csb.head();
            let mut found = Vec::new();
            while at != head {
                let slot = side.ring.slot_word(at);
                let mut first = [0];
                assert!(side.ring.read(slot.buf_idx, 0, &mut first));
                assert_eq!(first[0], slot.len as u8, "the frame's own bytes");
                found.push(slot.len);
                at = side.ring.next(at);
            }
            let n = side.ring.num_slots();
            side.csb.publish_tail(at, (at + n - 1) % n);
            found
        }
    }

    /// Objective: frames are copied, in order, only while the ring is watched; frames without room are skipped.
    #[test]
    fn frames_are_copied_only_while_watched() {
        let mut p = pair(8);
        p.pass(0, &[(10, 0)]);
        assert!(p.take().is_empty());
        p.watch();
        p.pass(1, &[(11, 0), (12, 0)]);
        assert_eq!(p.take(), [11, 12]);
        p.pass(3, &[(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]);
        p.pass(0, &[(6, 0), (7, 0), (8, 0)]);
        assert_eq!(p.take(), [1, 2, 3, 4, 5, 6, 7]);
        p.port.tx[0].csb.mirror(Moment::Passing).store(0, Ordering::Release);
        p.pass(3, &[(9, 0)]);
        assert!(p.take().is_empty());
    }

    /// Objective: the copy of a frame of several slots appears once it is complete, even if the frame moves in parts; a
    /// frame without room for its end does not appear at all, but the next frame does.
    #[test]
    fn a_frame_appears_only_when_complete() {
        let mut p = pair(8);
        p.watch();
        p.pass(0, &[(1, NS_MOREFRAG), (2, NS_MOREFRAG)]);
        assert!(p.take().is_empty());
        p.pass(2, &[(3, 0), (4, 0)]);
        assert_eq!(p.take(), [1, 2, 3, 4]);
        p.pass(4, &[(5, 0), (6, 0), (7, 0), (8, 0), (9, 0), (10, NS_MOREFRAG), (11, NS_MOREFRAG)]);
        p.pass(3, &[(12, NS_MOREFRAG)]);
        assert_eq!(p.take(), [5, 6, 7, 8, 9]);
        p.pass(4, &[(13, 0), (14, 0)]);
        assert_eq!(p.take(), [14]);
    }

    /// Objective: with any values of the word, indices and slots, nothing outside the region is accessed, and nothing
    /// panics.
    #[test]
    fn hostile_words_touch_nothing_outside_the_region() {
        let mut p = pair(8);
        for word in [1, 2, 3, 4, 5, 77, u32::MAX] {
            p.port.tx[0].csb.mirror(Moment::Passing).store(word, Ordering::Release);
            for value in [0, 7, 8, u32::MAX] {
                p.to.tx[0].csb.publish_head(value, value);
                p.to.tx[0].csb.publish_tail(value, value / 2);
                p.to.tx[0].ring.set_slot_word(value % 8, value, value as u16, value as u16);
                p.pass(value % 8, &[(60, NS_MOREFRAG), (60, 0)]);
            }
        }
    }
}
