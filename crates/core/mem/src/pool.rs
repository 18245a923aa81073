//! The free objects (rings, buffers or `netmap_if`s) of a pool, recorded in the host's private memory, which no peer
//! can write.

use std::ops::Range;

/// The free and used objects of one pool, identified by their indices.
#[derive(Debug)]
pub struct Pool {
    used: Vec<bool>,
    free: u32,
    /// Index at which the next search starts: this delays the reuse of objects and keeps searches short.
    next: u32,
    reserved: u32,
    /// Number of times that objects were taken or given back.
    changes: u64,
}

impl Pool {
    /// Creates a pool of `num` objects; the first `reserved` are never handed out.
    pub fn new(num: u32, reserved: u32) -> Self {
        let mut used = vec![false; num as usize];
        let reserved = reserved.min(num);
        used[..reserved as usize].fill(true);
        Pool { used, free: num - reserved, next: reserved, reserved, changes: 0 }
    }

    /// Creates a pool in which the objects in `used` and the reserved ones are used.
    pub fn with_used(num: u32, reserved: u32, used: &[Range<u32>]) -> Self {
        let mut this = Self::new(num, reserved);
        for i in used.iter().flat_map(|range| range.start..range.end.min(num)) {
            this.take_this(i);
        }
        this
    }

    /// Takes object `i`. Returns false if the object is used or does not exist.
    pub fn take_this(&mut self, i: u32) -> bool {
        match self.used.get_mut(i as usize) {
            Some(used) if !*used => {
                *used = true;
                self.free -= 1;
                self.changes += 1;
                true
            }
            _ => false,
        }
    }

    /// The used objects, without the reserved ones, as ranges of indices.
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

    /// Returns the first object from `from` on that is used (if `is_used` is set) or free (otherwise); the number of
    /// objects if there is none.
    fn next_that(&self, from: u32, is_used: bool) -> u32 {
        /// Number of objects examined together.
        const TOGETHER: usize = 64;
        let rest = self.used.get(from as usize..).unwrap_or_default();
        let skipped =
            rest.chunks(TOGETHER).take_while(|some| some.iter().fold(true, |all, &used| all & (used != is_used)));
        let skipped = skipped.map(<[bool]>::len).sum::<usize>();
        let found = rest[skipped..].iter().position(|&used| used == is_used);
        from + found.map_or(rest.len(), |found| skipped + found) as u32
    }

    /// A number that changes whenever the set of used objects changes.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Number of free objects.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Number of objects, including the reserved ones.
    pub fn len(&self) -> u32 {
        self.used.len() as u32
    }

    /// Whether the pool has no objects, neither free nor used.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// Takes one object; `None` if all are used.
    pub fn take(&mut self) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        let n = self.len();
        let found = (0..n).map(|k| (self.next + k) % n).find(|&i| !self.used[i as usize])?;
        self.used[found as usize] = true;
        self.free -= 1;
        self.changes += 1;
        self.next = (found + 1) % n;
        Some(found)
    }

    /// Takes `count` adjacent objects; `None` if no such run is free.
    pub fn take_run(&mut self, count: u32) -> Option<Range<u32>> {
        let mut run = 0;
        for i in 0..self.len() {
            run = if self.used[i as usize] { 0 } else { run + 1 };
            if run == count {
                let range = i + 1 - count..i + 1;
                self.used[range.start as usize..range.end as usize].fill(true);
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
        match self.used.get_mut(i as usize) {
            Some(used) if *used && i >= self.reserved => {
                *used = false;
                self.free += 1;
                self.changes += 1;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #![proptest_config(crate::test_config())]
        /// Objective: compared with a set as the model, no object is handed out twice, and none is lost.
        #[test]
        fn behaves_like_a_set(ops in proptest::collection::vec((0u8..3, 0u32..24), 0..200)) {
            let mut pool = Pool::new(20, 2);
            let mut model = HashSet::new();
            for (op, i) in ops {
                match op {
                    0 => match pool.take() {
                        Some(x) => { prop_assert!(x >= 2 && model.insert(x)); }
                        None => prop_assert_eq!(model.len(), 18),
                    },
                    1 => prop_assert_eq!(pool.give(i), model.remove(&i)),
                    _ => if let Some(r) = pool.take_run(i % 5 + 1) {
                        for x in r { prop_assert!(x >= 2 && model.insert(x)); }
                    },
                }
                prop_assert_eq!(pool.free() as usize, 18 - model.len());
                let again = Pool::with_used(20, 2, &pool.used());
                prop_assert_eq!((&again.used, again.free), (&pool.used, pool.free));
            }
        }
    }
}
