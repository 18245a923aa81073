//! The owners of a queue's buffers: a buffer is free, or the driver holds it with a frame, or the device holds it. The
//! owners are recorded in private memory, which the device cannot write.

use serde::{Deserialize, Serialize};

/// A driver's record of its buffers.
pub trait DriverBuffers: Send {
    /// Creates the record of `n` free buffers.
    fn new(n: u16) -> Self;

    /// Returns the number of free buffers.
    fn free(&self) -> usize;

    /// Takes `count` free buffers as one chain. Returns the first buffer; `None` if fewer buffers are free.
    fn take(&mut self, count: usize) -> Option<u16>;

    /// Returns the buffer after `id` in the chain that was taken last; `None` if `id` is the last buffer of the chain.
    fn next(&self, id: u16) -> Option<u16>;

    /// Hands the chain that begins at `id` to the device.
    fn give(&mut self, id: u16);

    /// Takes back the chain that begins at `id`. Returns false if the device did not have the chain or, if chains come
    /// back in order, if another chain is due.
    fn get_back(&mut self, id: u16) -> bool;

    /// Frees all buffers of the chain that begins at `first`.
    fn recycle(&mut self, first: u16);

    /// Returns the oldest of the device's chains; `None` if the device has none, or chains come back in any order.
    fn oldest(&self) -> Option<u16>;

    /// Returns the buffer that is due to come back next or, if the device has no buffers, is taken next. Returns 0 if
    /// chains come back in any order.
    fn turn(&self) -> u16;

    /// Returns which buffers are free and which buffers the device has. A buffer that the driver holds with a frame is
    /// not in the result.
    fn state(&self) -> BuffersState;

    /// Restores a predecessor's buffers. Returns `None` if `state` does not contain each of the `n` buffers exactly
    /// once.
    fn continued(n: u16, state: &BuffersState) -> Option<Self>
    where
        Self: Sized;
}

/// The owners of a queue's buffers, for a successor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuffersState {
    /// Buffers that come back in any order.
    Any {
        /// Free buffers; the last buffer in this list is taken next.
        free: Vec<u16>,
        /// Chains that the device has.
        posted: Vec<Vec<u16>>,
    },
    /// Buffers that come back in order.
    Ordered {
        /// The oldest buffer that the device has or, if it has none, the buffer that is taken next.
        oldest: u16,
        /// Lengths of the chains that the device has, in order.
        posted: Vec<u16>,
    },
}

/// Buffers that come back in any order.
#[derive(Debug)]
pub struct Ids {
    free: Vec<u16>,
    /// For each buffer, the next buffer in its chain; [`NONE`] for the last buffer of a chain.
    link: Box<[u16]>,
    /// Whether the device has the chain that begins at each buffer.
    posted: Box<[bool]>,
}

/// Marks the end of a chain.
pub const NONE: u16 = u16::MAX;

impl DriverBuffers for Ids {
    fn new(n: u16) -> Ids {
        Ids {
            // The last entry is taken first: 0, then 1, and so on.
            free: (0..n).rev().collect(),
            link: vec![NONE; usize::from(n)].into_boxed_slice(),
            posted: vec![false; usize::from(n)].into_boxed_slice(),
        }
    }

    #[inline]
    fn free(&self) -> usize {
        self.free.len()
    }

    #[inline]
    fn take(&mut self, count: usize) -> Option<u16> {
        if count == 0 || self.free.len() < count {
            return None;
        }
        let mut first = NONE;
        for _ in 0..count {
            let id = self.free.pop()?;
            *self.link.get_mut(usize::from(id))? = first;
            first = id;
        }
        Some(first)
    }

    #[inline]
    fn next(&self, id: u16) -> Option<u16> {
        self.link.get(usize::from(id)).copied().filter(|next| *next != NONE)
    }

    #[inline]
    fn give(&mut self, id: u16) {
        if let Some(p) = self.posted.get_mut(usize::from(id)) {
            *p = true;
        }
    }

    #[inline]
    fn get_back(&mut self, id: u16) -> bool {
        self.posted.get_mut(usize::from(id)).is_some_and(|p| std::mem::replace(p, false))
    }

    #[inline]
    fn recycle(&mut self, first: u16) {
        let mut at = Some(first);
        while let Some(id) = at {
            at = self.next(id);
            self.free.push(id);
        }
    }

    #[inline]
    fn oldest(&self) -> Option<u16> {
        None
    }

    #[inline]
    fn turn(&self) -> u16 {
        0
    }

    fn state(&self) -> BuffersState {
        let chain = |first: u16| std::iter::successors(Some(first), |id| self.next(*id)).collect();
        let firsts = self.posted.iter().enumerate().filter(|(_, posted)| **posted).map(|(id, _)| id as u16);
        BuffersState::Any { free: self.free.clone(), posted: firsts.map(chain).collect() }
    }

    fn continued(n: u16, state: &BuffersState) -> Option<Ids> {
        let BuffersState::Any { free, posted } = state else { return None };
        let mut ids = Ids::new(n);
        ids.free.clone_from(free);
        let mut is_known = vec![false; usize::from(n)];
        for id in free.iter().chain(posted.iter().flatten()) {
            let known = is_known.get_mut(usize::from(*id))?;
            if std::mem::replace(known, true) {
                return None;
            }
        }
        for chain in posted {
            *ids.posted.get_mut(usize::from(*chain.first()?))? = true;
            for pair in chain.windows(2) {
                *ids.link.get_mut(usize::from(pair[0]))? = pair[1];
            }
        }
        is_known.iter().all(|known| *known).then_some(ids)
    }
}

/// Buffers that come back in the order of posting (`VIRTIO_F_IN_ORDER`), described by two numbers that wrap around.
#[derive(Debug)]
pub struct OrderedBuffers {
    /// Number of buffers minus one (a mask).
    mask: u16,
    /// The next buffer to take.
    next: u16,
    /// The oldest buffer that the device has.
    oldest: u16,
    free: u16,
    /// Number of buffers that the device has.
    posted: u16,
    /// Length of the chain that begins at each buffer.
    lens: Box<[u16]>,
    /// First buffer of the chain that was taken last.
    first: u16,
}

impl OrderedBuffers {
    #[inline]
    fn len(&self, first: u16) -> u16 {
        self.lens.get(usize::from(first)).copied().unwrap_or(1)
    }
}

impl DriverBuffers for OrderedBuffers {
    fn new(n: u16) -> OrderedBuffers {
        let lens = vec![1; usize::from(n)].into_boxed_slice();
        OrderedBuffers { mask: n - 1, next: 0, oldest: 0, free: n, posted: 0, lens, first: 0 }
    }

    #[inline]
    fn free(&self) -> usize {
        usize::from(self.free)
    }

    #[inline]
    fn take(&mut self, count: usize) -> Option<u16> {
        let count = u16::try_from(count).ok().filter(|n| *n > 0 && *n <= self.free)?;
        let first = self.next;
        *self.lens.get_mut(usize::from(first))? = count;
        self.next = (first + count) & self.mask;
        self.free -= count;
        self.first = first;
        Some(first)
    }

    #[inline]
    fn next(&self, id: u16) -> Option<u16> {
        let behind = (id.wrapping_sub(self.first) & self.mask) + 1;
        (behind < self.len(self.first)).then_some((id + 1) & self.mask)
    }

    #[inline]
    fn give(&mut self, id: u16) {
        self.posted += self.len(id);
    }

    #[inline]
    fn get_back(&mut self, id: u16) -> bool {
        let is_next = self.posted > 0 && id == self.oldest;
        if is_next {
            let len = self.len(id);
            self.posted -= len;
            self.oldest = (id + len) & self.mask;
        }
        is_next
    }

    #[inline]
    fn recycle(&mut self, first: u16) {
        self.free += self.len(first);
    }

    #[inline]
    fn oldest(&self) -> Option<u16> {
        (self.posted > 0).then_some(self.oldest)
    }

    #[inline]
    fn turn(&self) -> u16 {
        self.oldest
    }

    fn state(&self) -> BuffersState {
        let mut first = self.oldest;
        let mut left = self.posted;
        let mut posted = Vec::new();
        while left > 0 {
            let len = self.len(first).clamp(1, left);
            posted.push(len);
            first = (first + len) & self.mask;
            left -= len;
        }
        BuffersState::Ordered { oldest: self.oldest, posted }
    }

    fn continued(n: u16, state: &BuffersState) -> Option<OrderedBuffers> {
        let BuffersState::Ordered { oldest, posted } = state else { return None };
        let total =
            posted.iter().try_fold(0u16, |sum, len| sum.checked_add(*len).filter(|sum| *sum <= n && *len > 0))?;
        let mut ids = OrderedBuffers::new(n);
        if *oldest > ids.mask {
            return None;
        }
        ids.oldest = *oldest;
        ids.posted = total;
        ids.free = n - total;
        ids.next = *oldest;
        for len in posted {
            *ids.lens.get_mut(usize::from(ids.next))? = *len;
            ids.next = (ids.next + len) & ids.mask;
        }
        Some(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a successor restores the owner of each buffer, including the chains; a state that lacks a buffer or
    /// contains a buffer twice is refused.
    #[test]
    fn another_process_restores_the_owner_of_each_buffer() {
        fn used<B: DriverBuffers>() -> B {
            let mut ids = B::new(8);
            let firsts = [3, 1, 2].map(|count| {
                let first = ids.take(count).unwrap();
                ids.give(first);
                first
            });
            assert!(ids.get_back(firsts[0]));
            ids.recycle(firsts[0]);
            ids
        }
        fn same<B: DriverBuffers>() {
            let ids = used::<B>();
            let again = B::continued(8, &ids.state()).unwrap();
            assert_eq!((again.state(), again.free(), again.oldest()), (ids.state(), ids.free(), ids.oldest()));
            assert_eq!(ids.free(), 5);
        }
        same::<Ids>();
        same::<OrderedBuffers>();
        let any = |free: Vec<u16>, posted| Ids::continued(4, &BuffersState::Any { free, posted }).is_some();
        assert!(any(vec![0, 1], vec![vec![3, 2]]));
        assert!(!any(vec![0, 1], vec![vec![3]]), "one is missing");
        assert!(!any(vec![0, 1, 2], vec![vec![3, 2]]), "one is there twice");
        assert!(!any(vec![0, 1, 4], vec![vec![3, 2]]), "there is no such buffer");
        assert!(!any(vec![0, 1, 2, 3], vec![vec![]]), "a chain of none");
        let ordered =
            |oldest, posted| OrderedBuffers::continued(4, &BuffersState::Ordered { oldest, posted }).is_some();
        assert!(ordered(3, vec![1, 3]));
        assert!(!ordered(4, vec![]) && !ordered(0, vec![3, 2]) && !ordered(0, vec![0]));
    }

    /// Objective: ordered buffers come back only in order, each buffer once and each chain as a whole, even after the
    /// numbers wrap around.
    #[test]
    fn ordered_buffers_come_back_in_order() {
        let mut ids = OrderedBuffers::new(8);
        for round in 0..100u16 {
            let first = ids.take(3).unwrap();
            assert_eq!(first, (round * 4) & 7);
            assert_eq!(ids.next(first), Some((first + 1) & 7));
            assert_eq!(ids.next((first + 2) & 7), None);
            ids.give(first);
            let single = ids.take(1).unwrap();
            assert_eq!(ids.next(single), None);
            ids.give(single);
            assert_eq!(ids.free(), 4);
            assert!(!ids.get_back(single), "not its turn");
            assert!(ids.get_back(first));
            assert!(!ids.get_back(first));
            assert!(ids.get_back(single));
            assert_eq!(ids.oldest(), None);
            ids.recycle(first);
            ids.recycle(single);
            assert_eq!(ids.free(), 8);
        }
        assert_eq!(ids.take(9), None);
    }
}
