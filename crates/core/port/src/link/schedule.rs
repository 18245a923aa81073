//! Frames in flight, in the order of their arrival times.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// A frame in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnderWay {
    /// Its arrival time.
    pub(super) due: u64,
    /// Its lane, its position there, and its bytes in the lane.
    pub(super) lane: u16,
    pub(super) position: u64,
    pub(super) size: u32,
    /// The bit to invert on arrival, or [`NO_FLIP`].
    pub(super) flip: u32,
}

/// No damage.
pub(super) const NO_FLIP: u32 = u32::MAX;

/// A frame ordered by arrival time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Early(Reverse<(u64, u64)>, UnderWay);

impl Ord for Early {
    fn cmp(&self, other: &Early) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Early {
    fn partial_cmp(&self, other: &Early) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Frames in flight. Nearly all overtake no other frame and are in a queue; the rest is in a heap.
pub(super) struct Schedule {
    queue: VecDeque<UnderWay>,
    others: BinaryHeap<Early>,
    /// Sequence number: frames of the same arrival time keep their order.
    count: u64,
}

impl Schedule {
    /// Bytes of memory for each frame: it may be in either place.
    pub(super) const BYTES: u64 = (size_of::<UnderWay>() + size_of::<Early>()) as u64;

    /// Creates a schedule with room for `frames`, the only allocation. `None` if there is no memory.
    pub(super) fn new(frames: usize) -> Option<Schedule> {
        let mut queue = VecDeque::new();
        let mut others = BinaryHeap::new();
        queue.try_reserve_exact(frames).ok()?;
        others.try_reserve_exact(frames).ok()?;
        Some(Schedule { queue, others, count: 0 })
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.others.len()
    }

    pub(super) fn push(&mut self, frame: UnderWay) {
        self.count += 1;
        if self.queue.back().is_none_or(|last| last.due <= frame.due) {
            self.queue.push_back(frame);
        } else {
            self.others.push(Early(Reverse((frame.due, self.count)), frame));
        }
    }

    /// The frame that arrives next.
    pub(super) fn next(&self) -> Option<&UnderWay> {
        match (self.queue.front(), self.others.peek()) {
            (Some(first), Some(Early(_, other))) if other.due < first.due => Some(other),
            (Some(first), _) => Some(first),
            (None, other) => other.map(|Early(_, frame)| frame),
        }
    }

    /// Removes the frame that arrives next.
    pub(super) fn pop(&mut self) -> Option<UnderWay> {
        match (self.queue.front(), self.others.peek()) {
            (Some(first), Some(Early(_, other))) if other.due < first.due => {
                self.others.pop().map(|Early(_, frame)| frame)
            }
            (Some(_), _) => self.queue.pop_front(),
            (None, _) => self.others.pop().map(|Early(_, frame)| frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Objective: frames leave by their time, whatever their order of entry; those of the same time and place keep
        /// their order.
        #[test]
        fn by_time(dues in proptest::collection::vec(0u64..20, 0..100)) {
            let mut schedule = Schedule::new(100).unwrap();
            for (n, &due) in dues.iter().enumerate() {
                schedule.push(UnderWay { due, lane: 0, position: n as u64, size: 0, flip: NO_FLIP });
                prop_assert_eq!(schedule.len(), n + 1);
            }
            let mut got = Vec::new();
            while let Some(next) = schedule.next().copied() {
                prop_assert_eq!(schedule.pop(), Some(next));
                got.push(next.due);
            }
            let mut expected = dues.clone();
            expected.sort_unstable();
            prop_assert_eq!(got, expected);
        }
    }
}
