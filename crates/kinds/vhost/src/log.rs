//! The dirty log: a bitmap of guest pages, in which a device marks the pages that it writes while the guest migrates to
//! another host (vhost-user, "Migration").
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use netvale_mem::Mapping;
use netvale_virtio::device::live::WriteLog;
use netvale_virtio::memory::{MemoryError, map};

/// Size in bytes of a page of guest memory, for which the log has one bit (`VHOST_LOG_PAGE`).
const PAGE: u64 = 4096;

/// A dirty log, in memory that a front end shares.
#[derive(Debug)]
pub struct DirtyLog {
    map: Mapping,
    bits: NonNull<u8>,
    len: u64,
    offset: u64,
    file: Arc<OwnedFd>,
}

// SAFETY: `bits` is an address inside `map`, which moves to the other thread together with it; the front end's bytes
// are only accessed as atomics.
unsafe impl Send for DirtyLog {}
// SAFETY: a shared reference allows the same accesses as an owned value, all of which are atomic.
unsafe impl Sync for DirtyLog {}

impl DirtyLog {
    /// Maps a log of `len` bytes.
    ///
    /// # Errors
    /// [`MemoryError`] if the log cannot be mapped.
    pub fn new(file: OwnedFd, offset: u64, len: u64) -> Result<DirtyLog, MemoryError> {
        if len == 0 {
            return Err(MemoryError::Empty);
        }
        let file = Arc::new(file);
        let map = map(Arc::clone(&file), offset, len)?;
        Ok(DirtyLog { bits: map.start(), map, len, offset, file })
    }

    /// Returns the log's length, its offset in its file, and the file.
    pub fn file(&self) -> ([u64; 2], &Arc<OwnedFd>) {
        ([self.len, self.offset], &self.file)
    }
}

impl WriteLog for DirtyLog {
    /// Marks the pages of `len` bytes at guest address `guest`. The caller must have written the bytes: if a page were
    /// marked first, the front end could read the mark and copy the page before the write. Pages beyond the end of the
    /// log, whose size the front end chose, are not marked.
    fn mark(&self, guest: u64, len: u64) {
        let Some(last) = len.checked_sub(1).map(|more| guest.saturating_add(more) / PAGE) else { return };
        for page in guest / PAGE..=last {
            if page / 8 >= self.len {
                return;
            }
            // SAFETY: the offset is below `len`, so the byte is inside the mapping. The front end also accesses the
            // byte, so the access is atomic.
            let byte = unsafe { AtomicU8::from_ptr(self.bits.as_ptr().add((page / 8) as usize)) };
            byte.fetch_or(1 << (page % 8), Ordering::AcqRel);
        }
    }

    /// Returns whether the log's file was truncated.
    fn is_damaged(&self) -> bool {
        self.map.is_damaged()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::io::Read;

    /// Objective: exactly the touched pages are marked, and nothing outside the log.
    #[test]
    fn exactly_the_touched_pages_are_marked() {
        let fd = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, 4096 + 4).unwrap();
        let log = DirtyLog::new(fd.try_clone().unwrap(), 4096, 4).unwrap();
        log.mark(0, 1);
        log.mark(0x1fff, 2);
        log.mark(0x9000, 0);
        log.mark(0xa000, 0x1000);
        log.mark(0x1_f000, u64::MAX);
        log.mark(u64::MAX, 1);
        let mut bytes = Vec::new();
        std::fs::File::from(fd).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes[..4096], [0; 4096]);
        assert_eq!(bytes[4096..], [0b111, 0b100, 0, 0x80]);
    }

    /// Objective: a log that is empty or does not fit its file is refused.
    #[test]
    fn a_log_that_does_not_fit_is_refused() {
        let fd = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
        assert!(matches!(DirtyLog::new(fd.try_clone().unwrap(), 0, 0), Err(MemoryError::Empty)));
        assert!(matches!(DirtyLog::new(fd.try_clone().unwrap(), 8, u64::MAX), Err(MemoryError::Wraps { .. })));
        assert!(matches!(DirtyLog::new(fd.try_clone().unwrap(), 0, 8), Err(MemoryError::FileTooShort { past: 8 })));
    }
}
