//! Frames in flight on a link, in the order in which they are due at the far end.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameInFlight {
    /// Time at which the frame arrives at the far end, in nanoseconds of the link's clock.
    pub(super) due: u64,
    /// Index of the frame's lane.
    pub(super) lane: u16,
    /// Position of the frame's record in the lane.
    pub(super) position: u64,
    /// Size in the lane in bytes, including the record.
    pub(super) size: u32,
    /// Index of the bit to invert on arrival, or [`NO_FLIP`].
    pub(super) flip: u32,
}

/// Value of [`FrameInFlight::flip`] for an undamaged frame.
pub(super) const NO_FLIP: u32 = u32::MAX;

/// A frame, ordered by its due time and a sequence number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FrameByArrival(Reverse<(u64, u64)>, FrameInFlight);

impl Ord for FrameByArrival {
    fn cmp(&self, other: &FrameByArrival) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for FrameByArrival {
    fn partial_cmp(&self, other: &FrameByArrival) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Frames in flight. A frame that is due no earlier than the last frame of the queue (as nearly all frames are) goes to
/// the queue, any other frame to the heap.
pub(super) struct Schedule {
    queue: VecDeque<FrameInFlight>,
    others: BinaryHeap<FrameByArrival>,
    /// The last sequence number, which keeps frames with the same due time in order.
    count: u64,
}

impl Schedule {
    /// Memory per frame in bytes: queue and heap each have room for all frames.
    pub(super) const BYTES: u64 = (size_of::<FrameInFlight>() + size_of::<FrameByArrival>()) as u64;

    /// Creates a schedule with room for `frames` frames. `None` if there is no memory. No other method allocates.
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

    pub(super) fn push(&mut self, frame: FrameInFlight) {
        self.count += 1;
        if self.queue.back().is_none_or(|last| last.due <= frame.due) {
            self.queue.push_back(frame);
        } else {
            self.others.push(FrameByArrival(Reverse((frame.due, self.count)), frame));
        }
    }

    /// The frame that is due next; `None` if no frame is in flight.
    pub(super) fn next(&self) -> Option<&FrameInFlight> {
        match (self.queue.front(), self.others.peek()) {
            (Some(first), Some(FrameByArrival(_, other))) if other.due < first.due => Some(other),
            (Some(first), _) => Some(first),
            (None, other) => other.map(|FrameByArrival(_, frame)| frame),
        }
    }

    /// Removes and returns the frame that is due next; `None` if no frame is in flight.
    pub(super) fn pop(&mut self) -> Option<FrameInFlight> {
        match (self.queue.front(), self.others.peek()) {
            (Some(first), Some(FrameByArrival(_, other))) if other.due < first.due => {
                self.others.pop().map(|FrameByArrival(_, frame)| frame)
            }
            (Some(_), _) => self.queue.pop_front(),
            (None, _) => self.others.pop().map(|FrameByArrival(_, frame)| frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Objective: frames leave in order of their due times, whatever the order in which they were added.
        #[test]
        fn frames_leave_by_their_time(dues in proptest::collection::vec(0u64..20, 0..100)) {
            let mut schedule = Schedule::new(100).unwrap();
            for (n, &due) in dues.iter().enumerate() {
                schedule.push(FrameInFlight { due, lane: 0, position: n as u64, size: 0, flip: NO_FLIP });
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
