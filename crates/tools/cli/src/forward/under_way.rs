//! Frames in flight on an emulated link, kept in the program's own memory.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use netvale_policy::impair::{Fate, Model, Spec};

/// A frame in flight.
#[derive(Clone, Copy)]
struct StoredFrame {
    start: usize,
    len: usize,
    /// Number of times that the frame must still be sent.
    uses: u8,
}

/// The arrival of a frame: time in nanoseconds, order among equal times, frame number, and the index of the bit to
/// invert (`None` for an undamaged frame).
type Arrival = Reverse<(u64, u64, u64, Option<u32>)>;

/// One direction of an emulated link.
pub struct LinkDirection {
    model: Model,
    limit: usize,
    memory: Vec<u8>,
    /// Offset in `memory` at which the next frame is stored.
    tail: usize,
    /// Frames in memory, oldest first.
    kept: VecDeque<StoredFrame>,
    /// Number of the oldest frame in memory.
    first: u64,
    arrivals: BinaryHeap<Arrival>,
    count: u64,
    /// Number of frames that the model of the link dropped, as configured.
    pub lost: u64,
    /// Number of frames that were dropped because the memory was full or too many frames were in flight.
    pub full: u64,
}

impl LinkDirection {
    /// Creates a direction with these impairments.
    #[must_use]
    pub fn new(spec: &Spec, seed: u64) -> LinkDirection {
        LinkDirection {
            model: Model::new(spec, seed),
            limit: spec.limit() as usize,
            memory: vec![0; spec.bytes().bytes() as usize],
            tail: 0,
            kept: VecDeque::new(),
            first: 0,
            arrivals: BinaryHeap::new(),
            count: 0,
            lost: 0,
            full: 0,
        }
    }

    /// Returns whether no frame is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// Returns the offset in `memory` of `len` contiguous free bytes; `None` if there are not that many.
    fn room(&self, len: usize) -> Option<usize> {
        let Some(oldest) = self.kept.front() else { return (len <= self.memory.len()).then_some(0) };
        match (self.tail >= oldest.start, oldest.start) {
            (true, _) if self.memory.len() - self.tail >= len => Some(self.tail),
            (true, free) => (free > len).then_some(0),
            (false, end) => (end - self.tail > len).then_some(self.tail),
        }
    }

    /// Stores a frame of `len` bytes that arrived at `now` (nanoseconds); `fill` writes the frame into the memory that
    /// it gets.
    pub fn put(&mut self, now: u64, len: usize, fill: impl FnOnce(&mut [u8])) {
        let Some(start) = self.room(len).filter(|_| self.arrivals.len() < self.limit) else {
            self.full += 1;
            return fill(&mut vec![0; len]);
        };
        fill(&mut self.memory[start..start + len]);
        let Fate::Sent { due_ns, again, flip } = self.model.decide(now, len as u32) else {
            self.lost += 1;
            return;
        };
        self.tail = start + len;
        let number = self.first + self.kept.len() as u64;
        self.kept.push_back(StoredFrame { start, len, uses: 1 });
        self.arrive(due_ns, number, flip);
        if again && let Fate::Sent { due_ns, flip, .. } = self.model.copy(now, len as u32) {
            self.kept.iter_mut().last().into_iter().for_each(|kept| kept.uses += 1);
            self.arrive(due_ns, number, flip);
        }
    }

    fn arrive(&mut self, due: u64, number: u64, flip: Option<u32>) {
        self.count += 1;
        self.arrivals.push(Reverse((due, self.count, number, flip)));
    }

    /// Passes the next frame to `send` if the frame is due. `send` returns whether it had room for the frame; if not,
    /// the frame is kept. Returns the frame's length if it was sent.
    pub fn send_next(&mut self, now: u64, send: impl FnOnce(&[u8]) -> bool) -> Option<usize> {
        let &Reverse((due, _, number, flip)) = self.arrivals.peek()?;
        let at = (number - self.first) as usize;
        let StoredFrame { start, len, .. } = *self.kept.get(at).filter(|_| due <= now)?;
        let frame = &mut self.memory[start..start + len];
        invert(frame, flip);
        let is_sent = send(frame);
        // The bit is inverted a second time to restore the frame, since a duplicate of it must be undamaged, or damaged
        // at another bit.
        invert(frame, flip);
        if !is_sent {
            return None;
        }
        self.arrivals.pop();
        self.kept[at].uses -= 1;
        while self.kept.front().is_some_and(|kept| kept.uses == 0) {
            self.kept.pop_front();
            self.first += 1;
        }
        Some(len)
    }
}

fn invert(frame: &mut [u8], bit: Option<u32>) {
    if let Some(bit) = bit
        && let Some(byte) = frame.get_mut((bit / 8) as usize)
    {
        *byte ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn send_all(link: &mut LinkDirection, now: u64) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        while link
            .send_next(now, |frame| {
                got.push(frame.to_vec());
                true
            })
            .is_some()
        {}
        got
    }

    proptest! {
        /// Objective: frames of any length are sent when they are due, complete and in order, although memory is
        /// reused.
        #[test]
        fn frames_leave_when_due_and_in_order(lens in proptest::collection::vec(1usize..400, 1..200)) {
            let mut link = LinkDirection::new(&"delay 5us bytes 1kb".parse().unwrap(), 1);
            let mut expected = Vec::new();
            let mut got = Vec::new();
            for (n, &len) in lens.iter().enumerate() {
                let now = n as u64 * 1000;
                let full = link.full;
                got.extend(send_all(&mut link, now));
                link.put(now, len, |bytes| bytes.fill(n as u8));
                if link.full == full {
                    expected.push(vec![n as u8; len]);
                }
                prop_assert!(got.len() + 6 >= expected.len());
            }
            got.extend(send_all(&mut link, u64::MAX));
            prop_assert_eq!(got, expected);
            prop_assert!(link.is_empty() && link.kept.is_empty());
        }
    }

    /// Objective: duplicates arrive, each damaged separately; a frame for which the far end has no room is kept.
    #[test]
    fn duplicates_arrive_and_are_damaged_separately() {
        let mut link = LinkDirection::new(&"duplicate 100% corrupt 100% seed 2".parse().unwrap(), 1);
        link.put(0, 60, |bytes| bytes.fill(0));
        assert_eq!(link.send_next(u64::MAX, |_| false), None);
        let got = send_all(&mut link, u64::MAX);
        let ones = |frame: &Vec<u8>| frame.iter().map(|byte| byte.count_ones()).sum::<u32>();
        assert_eq!(got.iter().map(ones).collect::<Vec<_>>(), [1, 1]);
    }
}
