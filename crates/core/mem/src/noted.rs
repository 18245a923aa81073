//! Records of a process's progress, as numbers that outlive the process: if it is killed, a successor continues from
//! them.
//!
//! A memfd holds two records of the numbers. A process writes new numbers to the older record, and makes that record
//! the valid one only when the record is complete, so that one record is complete whenever the process is killed. This
//! takes a few stores, and no system call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::mapping::{Mapping, PageKind, sealed_memfd};
use crate::words::Words;

/// How many numbers a record contains.
pub const NUMBERS: usize = 12;
/// Size of the memory, bytes.
const BYTES: usize = 4096;
/// Index of the 32-bit word that holds the number of the valid record.
const NEWEST: usize = 0;
/// Index of the 32-bit word at which the first record begins.
const FIRST: usize = 16;

/// The recorded numbers. One thread writes them.
#[derive(Debug)]
pub struct NotedCounts {
    file: OwnedFd,
    words: Words,
    newest: u32,
}

impl NotedCounts {
    /// Creates the memory, with all numbers 0.
    ///
    /// # Errors
    /// The error of creating the memory.
    pub fn new() -> Result<NotedCounts, Errno> {
        let (file, mapping, _) = sealed_memfd("netvale-noted", BYTES as u64, PageKind::Ordinary)?;
        Self::with(file, mapping)
    }

    /// Takes over the records in `file`, the memory of a predecessor process.
    ///
    /// # Errors
    /// `EINVAL` if the memory is too small or could be truncated; otherwise the error of mmap(2).
    pub fn continued(file: OwnedFd) -> Result<NotedCounts, Errno> {
        let mapping = Mapping::map(file.as_fd(), BYTES)?;
        Self::with(file, mapping)
    }

    fn with(file: OwnedFd, mapping: Mapping) -> Result<NotedCounts, Errno> {
        let words = Words::new(&Arc::new(mapping), 0, BYTES / 4).ok_or(Errno::INVAL)?;
        let newest = words.load(NEWEST);
        Ok(NotedCounts { file, words, newest })
    }

    /// Returns the index of the word at which record number `notes` begins.
    fn place(notes: u32) -> usize {
        FIRST + (notes % 2) as usize * 2 * NUMBERS
    }

    /// Replaces the recorded numbers.
    pub fn write(&mut self, numbers: [u64; NUMBERS]) {
        self.newest = self.newest.wrapping_add(1);
        let place = Self::place(self.newest);
        for (i, number) in numbers.into_iter().enumerate() {
            self.words.store_wide(place + 2 * i, number);
        }
        // This store makes the new record the valid one.
        self.words.store(NEWEST, self.newest);
    }

    /// Returns a copy of the valid record. Another process may have written any value.
    pub fn read(&self) -> [u64; NUMBERS] {
        let place = Self::place(self.words.load(NEWEST));
        std::array::from_fn(|i| self.words.load_wide(place + 2 * i))
    }
}

impl AsFd for NotedCounts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(noted: &NotedCounts) -> NotedCounts {
        NotedCounts::continued(noted.as_fd().try_clone_to_owned().unwrap()).unwrap()
    }

    /// Objective: another process finds the last complete record, and writes the next records.
    #[test]
    #[cfg_attr(miri, ignore = "memfd is not available under Miri")]
    fn another_process_finds_the_last_record() {
        let mut noted = NotedCounts::new().unwrap();
        assert_eq!(again(&noted).read(), [0; NUMBERS]);
        for i in 1..5 {
            noted.write([i << 33 | i; NUMBERS]);
            assert_eq!(again(&noted).read(), [i << 33 | i; NUMBERS]);
        }
        let mut next = again(&noted);
        drop(noted);
        next.write([7; NUMBERS]);
        assert_eq!(again(&next).read(), [7; NUMBERS]);
    }

    /// Objective: an incomplete record does not become valid, whatever its contents.
    #[test]
    #[cfg_attr(miri, ignore = "memfd is not available under Miri")]
    fn an_incomplete_record_does_not_count() {
        let mut noted = NotedCounts::new().unwrap();
        noted.write([3; NUMBERS]);
        for i in 0..2 * NUMBERS {
            noted.words.store(NotedCounts::place(noted.newest + 1) + i, 9);
            assert_eq!(again(&noted).read(), [3; NUMBERS]);
        }
    }

    /// Objective: memory that is too small, or that could be truncated, is refused.
    #[test]
    #[cfg_attr(miri, ignore = "memfd is not available under Miri")]
    fn small_or_shrinkable_memory_is_refused() {
        let small = sealed_memfd("netvale-test", BYTES as u64 / 2, PageKind::Ordinary).unwrap().0;
        assert_eq!(NotedCounts::continued(small).unwrap_err(), Errno::INVAL);
        let open = rustix::fs::memfd_create("netvale-test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, BYTES as u64).unwrap();
        assert_eq!(NotedCounts::continued(open).unwrap_err(), Errno::INVAL);
    }
}
