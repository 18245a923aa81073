//! The free objects (rings, buffers or `netmap_if`s) of a pool, recorded in the host's private memory, which no peer
//! can write.

use std::ops::Range;

/// Number of objects whose bits one word of the bitmap holds.
const BITS: u32 = u64::BITS;

/// The free and used objects of one pool, identified by their indices.
#[derive(Debug)]
pub struct Pool {
    /// A bit for each object, set if the object is used.
    used: Vec<u64>,
    len: u32,
    free: u32,
    /// Index at which the next search starts: this delays the reuse of objects and keeps searches short.
    next: u32,
    reserved: u32,
    /// Number of times that objects were taken or given back.
    changes: u64,
}

impl Pool {
    /// Creates a pool of `num` objects; the first `reserved` objects are never handed out.
    pub fn new(num: u32, reserved: u32) -> Self {
        let used = vec![0; num.div_ceil(BITS) as usize];
        let reserved = reserved.min(num);
        let mut this = Pool { used, len: num, free: num - reserved, next: reserved, reserved, changes: 0 };
        (0..reserved).for_each(|i| this.set(i, true));
        this
    }

    /// Creates a pool in which the reserved objects and the objects in `used` count as used.
    pub fn with_used(num: u32, reserved: u32, used: &[Range<u32>]) -> Self {
        let mut this = Self::new(num, reserved);
        for i in used.iter().flat_map(|range| range.start..range.end.min(num)) {
            this.take_this(i);
        }
        this
    }

    /// Takes object `i`. Returns false if the object is used or does not exist.
    pub fn take_this(&mut self, i: u32) -> bool {
        if self.is_used(i) != Some(false) {
            return false;
        }
        self.set(i, true);
        self.free -= 1;
        self.changes += 1;
        true
    }

    /// The used objects, without the reserved objects, as ranges of indices.
    pub fn used(&self) -> Vec<Range<u32>> {
        let mut runs = Vec::new();
        let mut begin = self.next_that(self.reserved, true);
        while begin < self.len() {
            let end = self.next_that(begin, false);
            runs.push(begin..end);
            begin = self.next_that(end, true);
        }
        runs
    }

    /// Returns the first object from `from` on that is used (if `is_used` is set) or free (otherwise). If there is no
    /// such object, returns the number of objects.
    fn next_that(&self, from: u32, is_used: bool) -> u32 {
        let mut at = from;
        while at < self.len {
            let word = self.used[(at / BITS) as usize];
            let all_wanted = if is_used { word } else { !word };
            let wanted = all_wanted >> (at % BITS);
            if wanted != 0 {
                return (at + wanted.trailing_zeros()).min(self.len);
            }
            at = (at / BITS + 1) * BITS;
        }
        self.len
    }

    /// Whether object `i` is used; `None` if it does not exist.
    fn is_used(&self, i: u32) -> Option<bool> {
        (i < self.len).then(|| self.used[(i / BITS) as usize] >> (i % BITS) & 1 != 0)
    }

    /// Records whether object `i`, which exists, is used.
    fn set(&mut self, i: u32, is_used: bool) {
        let word = &mut self.used[(i / BITS) as usize];
        *word = *word & !(1 << (i % BITS)) | u64::from(is_used) << (i % BITS);
    }

    /// A number that changes whenever the set of used objects changes.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Number of free objects.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Number of objects, including the reserved objects.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the pool has no objects, neither free nor used.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes one object; `None` if all objects are used.
    pub fn take(&mut self) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        let from_here = self.next_that(self.next, false);
        let found = if from_here < self.len { from_here } else { self.next_that(0, false) };
        self.set(found, true);
        self.free -= 1;
        self.changes += 1;
        self.next = (found + 1) % self.len;
        Some(found)
    }

    /// Takes `count` adjacent objects; `None` if no such run is free.
    pub fn take_run(&mut self, count: u32) -> Option<Range<u32>> {
        let mut run = 0;
        for i in 0..self.len() {
            run = if self.is_used(i) == Some(true) { 0 } else { run + 1 };
            if run == count {
                let range = i + 1 - count..i + 1;
                range.clone().for_each(|i| self.set(i, true));
                self.free -= count;
                self.changes += 1;
                return Some(range);
            }
        }
        None
    }

    /// Gives an object back to the pool. Returns whether the object was used: an index that is free, reserved or out of
    /// range (from a list that a peer overwrote) changes nothing.
    pub fn give(&mut self, i: u32) -> bool {
        if i < self.reserved || self.is_used(i) != Some(true) {
            return false;
        }
        self.set(i, false);
        self.free += 1;
        self.changes += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #![proptest_config(crate::test_config())]
        /// Objective: compared with a set as the model, no object is handed out twice, and no object is lost.
        #[test]
        fn behaves_like_a_set(
            num in prop_oneof![Just(20u32), Just(64), 65u32..140],
            ops in proptest::collection::vec((0u8..3, 0u32..145), 0..200),
        ) {
            let all = num as usize - 2;
            let mut pool = Pool::new(num, 2);
            let mut model = HashSet::new();
            for (op, i) in ops {
                match op {
                    0 => match pool.take() {
                        Some(x) => { prop_assert!(x >= 2 && model.insert(x)); }
                        None => prop_assert_eq!(model.len(), all),
                    },
                    1 => prop_assert_eq!(pool.give(i), model.remove(&i)),
                    _ => if let Some(r) = pool.take_run(i % 5 + 1) {
                        for x in r { prop_assert!(x >= 2 && model.insert(x)); }
                    },
                }
                prop_assert_eq!(pool.free() as usize, all - model.len());
                let again = Pool::with_used(num, 2, &pool.used());
                prop_assert_eq!((&again.used, again.free), (&pool.used, pool.free));
            }
        }
    }
}
