//! Counters that another process advances and this one reads while both run.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::{BenchError, Result};

/// Counters in one block.
pub const COUNTERS: usize = 16;
/// Two cache lines apart: the hardware fetches lines in pairs.
const STRIDE: usize = 128;
const SIZE: usize = COUNTERS * STRIDE;

/// A block of [`COUNTERS`] counters in shared memory.
#[derive(Debug)]
pub struct SharedCounters {
    memory: OwnedFd,
    base: NonNull<u8>,
}

// SAFETY: the mapping is reached only as `&AtomicU64`, which is Sync; `base` is never handed out; munmap happens once,
// in drop.
unsafe impl Send for SharedCounters {}
// SAFETY: as above: a shared reference gives only shared references to atomics.
unsafe impl Sync for SharedCounters {}

impl SharedCounters {
    /// A new block, all zero.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub fn create() -> Result<Self> {
        let what = "creating shared counters";
        let memory = memfd_create("netvale-bench-counters", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(BenchError::io(what))?;
        ftruncate(&memory, SIZE as u64).map_err(BenchError::io(what))?;
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).map_err(BenchError::io(what))?;
        Self::map(memory)
    }

    /// The block that another process made, named by its [`SharedCounters::path`].
    ///
    /// # Errors
    /// The block does not exist, or is not one of these.
    pub fn open(path: &str) -> Result<Self> {
        let what = format!("opening the shared counters {path}");
        let file = File::options().read(true).write(true).open(path).map_err(BenchError::io(what))?;
        let size = file.metadata().map_err(BenchError::io("measuring the shared counters"))?.len();
        let sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if size != SIZE as u64 || !sealed {
            return Err(BenchError::Usage(format!(
                "{path} holds no counters; bench-worker is started by the bench only"
            )));
        }
        Self::map(file.into())
    }

    fn map(memory: OwnedFd) -> Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing; the descriptor is valid.
        let base = unsafe { mmap(ptr::null_mut(), SIZE, access, MapFlags::SHARED, memory.as_fd(), 0) }
            .map_err(BenchError::io("mapping shared counters"))?;
        let base = NonNull::new(base.cast()).ok_or_else(|| BenchError::Usage("the kernel mapped address 0".into()))?;
        Ok(Self { memory, base })
    }

    /// A path under which a child process can open the block for as long as this process has it.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.memory.as_raw_fd())
    }

    /// Counter `index`; indices wrap at [`COUNTERS`].
    #[must_use]
    pub fn counter(&self, index: usize) -> &AtomicU64 {
        let offset = index % COUNTERS * STRIDE;
        // SAFETY:
        // - offset + 8 ≤ SIZE, and the mapping is SIZE bytes, sealed against shrinking (set in `create`, checked in
        //   `open`);
        // - it is 8-aligned: the mapping starts at a page, STRIDE is a multiple of 8;
        // - every process reaches it as an atomic only, and any bits are a valid u64;
        // - the reference borrows `self`, which keeps the mapping.
        unsafe { self.base.add(offset).cast::<AtomicU64>().as_ref() }
    }
}

impl Drop for SharedCounters {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `map` mapped; references into it borrowed `self`, so none is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// Objective: two mappings of one block see each other's counts, and counters do not overlap.
    #[test]
    fn shared_between_mappings() {
        let ours = SharedCounters::create().expect("memory");
        let theirs = SharedCounters::open(&ours.path()).expect("the same block");
        theirs.counter(0).store(7, Ordering::Relaxed);
        theirs.counter(COUNTERS - 1).store(9, Ordering::Relaxed);
        assert_eq!(ours.counter(0).load(Ordering::Relaxed), 7);
        assert_eq!(ours.counter(COUNTERS - 1).load(Ordering::Relaxed), 9);
        assert_eq!(ours.counter(1).load(Ordering::Relaxed), 0);
    }

    /// Objective: something that is no block of counters is refused.
    #[test]
    fn refuses_other_files() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert!(SharedCounters::open(&file.path().display().to_string()).is_err());
        assert!(SharedCounters::open("/nonexistent").is_err());
    }
}
