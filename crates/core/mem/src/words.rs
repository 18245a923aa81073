//! Words of shared memory outside rings and status blocks, such as a device's header.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mapping::Mapping;

/// A run of aligned little-endian 32-bit words, which a peer may write at any time. Accesses never panic: a word
/// outside the run reads as 0, and a write to it does nothing.
#[derive(Clone, Debug)]
pub struct Words {
    first: NonNull<u8>,
    count: usize,
    _map: Arc<Mapping>,
}

// SAFETY: all access is through atomics inside a mapping that the Arc keeps alive.
unsafe impl Send for Words {}
// SAFETY: a shared view offers the same atomic accesses as an owned one.
unsafe impl Sync for Words {}

impl Words {
    /// Creates a view of `count` words at `offset`; `None` if not all of the words are in the mapping, or the words are
    /// misaligned.
    pub fn new(map: &Arc<Mapping>, offset: u64, count: usize) -> Option<Words> {
        let first = map.at(offset, 4 * count as u64, 4)?;
        Some(Words { first, count, _map: Arc::clone(map) })
    }

    fn word(&self, index: usize) -> Option<&AtomicU32> {
        // SAFETY: `new` checked that `count` aligned words begin at `first`; the mapping lives as long as self; all
        // accesses are atomic.
        (index < self.count).then(|| unsafe { AtomicU32::from_ptr(self.first.as_ptr().add(4 * index).cast()) })
    }

    /// Returns a snapshot of a word. Everything that the writer of the word wrote before it is visible.
    pub fn load(&self, index: usize) -> u32 {
        #[cfg(fuzzing)]
        crate::probe::read();
        self.word(index).map_or(0, |w| w.load(Ordering::Acquire))
    }

    /// Writes a word. A reader of the word also sees all earlier writes of this thread.
    pub fn store(&self, index: usize, value: u32) {
        if let Some(w) = self.word(index) {
            w.store(value, Ordering::Release);
        }
    }

    /// Writes a 64-bit value to the words `index` and `index + 1`, the low half first. A reader may see one half
    /// changed.
    pub fn store_wide(&self, index: usize, value: u64) {
        self.store(index, value as u32);
        self.store(index + 1, (value >> 32) as u32);
    }

    /// Returns the 64-bit value in the words `index` (low half) and `index + 1`, which are read one after the other.
    pub fn load_wide(&self, index: usize) -> u64 {
        u64::from(self.load(index)) | u64::from(self.load(index + 1)) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: words are read and written at the right addresses, and no word outside the run is accessed.
    #[test]
    fn words_are_read_from_the_right_places() {
        let map = Arc::new(Mapping::private(4096).unwrap());
        let words = Words::new(&map, 4088, 2).unwrap();
        words.store_wide(0, 0x1122_3344_5566_7788);
        assert_eq!((words.load(0), words.load(1), words.load(2)), (0x5566_7788, 0x1122_3344, 0));
        words.store(2, 1);
        assert_eq!(words.load_wide(0), 0x1122_3344_5566_7788);
        assert!(Words::new(&map, 4092, 2).is_none() && Words::new(&map, 2, 1).is_none());
    }
}
