//! Counters that another process advances while this one reads them.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use netvale_mem::Mapping;
use netvale_mem::mapping::{PageKind, sealed_memfd};

use crate::error::{BenchError, Result};

/// Number of counters in a block.
pub const COUNTERS: usize = 16;
/// Distance between counters: two cache lines, because the hardware fetches lines in pairs.
const STRIDE: usize = 128;
const SIZE: usize = COUNTERS * STRIDE;

/// A block of [`COUNTERS`] counters in shared memory of fixed size.
pub struct SharedCounters {
    memory: OwnedFd,
    mapping: Mapping,
}

impl SharedCounters {
    /// Creates a block, all zero.
    pub fn create() -> Result<Self> {
        let made = sealed_memfd("netvale-bench-counters", SIZE as u64, PageKind::Ordinary);
        let (memory, mapping, _) = made.map_err(BenchError::io("creating shared counters"))?;
        Ok(Self { memory, mapping })
    }

    /// Opens the block that another process made, by its [`SharedCounters::path`].
    pub fn open(path: &str) -> Result<Self> {
        let what = || BenchError::io(format!("opening the shared counters {path}"));
        let file = File::options().read(true).write(true).open(path).map_err(what())?;
        let unfit = |_| BenchError::Usage(format!("{path} has no counters; only netvale-bench starts workers"));
        let mapping = Mapping::map(file.as_fd(), SIZE).map_err(unfit)?;
        Ok(Self { memory: file.into(), mapping })
    }

    /// Returns a path by which a child process can open the block as long as this process has the block open.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.memory.as_raw_fd())
    }

    /// Returns counter `index`; indices wrap at [`COUNTERS`].
    pub fn counter(&self, index: usize) -> &AtomicU64 {
        let offset = index % COUNTERS * STRIDE;
        // SAFETY:
        // - offset + 8 ≤ SIZE, and the mapping is SIZE bytes of a file that is sealed against shrinking;
        // - the address is 8-aligned: the mapping starts at a page, STRIDE is a multiple of 8;
        // - every process accesses the counter only as an atomic, and any bits are a valid u64;
        // - the reference borrows `self`, which keeps the mapping.
        unsafe { self.mapping.start().add(offset).cast::<AtomicU64>().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// Objective: two mappings of one block share their counts, and counters do not overlap.
    #[test]
    fn two_mappings_see_each_others_counts() {
        let ours = SharedCounters::create().expect("memory");
        let theirs = SharedCounters::open(&ours.path()).expect("the same block");
        theirs.counter(0).store(7, Ordering::Relaxed);
        theirs.counter(COUNTERS - 1).store(9, Ordering::Relaxed);
        assert_eq!(ours.counter(0).load(Ordering::Relaxed), 7);
        assert_eq!(ours.counter(COUNTERS - 1).load(Ordering::Relaxed), 9);
        assert_eq!(ours.counter(1).load(Ordering::Relaxed), 0);
    }

    /// Objective: a file that is not a block of counters is refused.
    #[test]
    fn other_files_are_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert!(SharedCounters::open(&file.path().display().to_string()).is_err());
        assert!(SharedCounters::open("/nonexistent").is_err());
    }
}
