//! A few numbers that a process records while it works and that outlive it: its progress, for a successor after a kill.
//!
//! They lie twice in a memfd of their own: newer numbers are written beside the previous ones, and count only once
//! complete. So one copy is whole whenever the process is killed. Recording costs a few stores, and no system call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::mapping::{Mapping, Pages, sealed_memfd};
use crate::words::Words;

/// How many numbers are recorded together.
pub const NUMBERS: usize = 12;
/// Bytes of the memory.
const BYTES: usize = 4096;
/// Indices of the newest record's number and of the first record: words of 32 bits.
const NEWEST: usize = 0;
const FIRST: usize = 16;

/// Numbers that outlive the process. One thread writes them.
#[derive(Debug)]
pub struct Noted {
    file: OwnedFd,
    words: Words,
    newest: u32,
}

impl Noted {
    /// Creates memory for numbers, all 0.
    ///
    /// # Errors
    /// The error of creating the memory.
    pub fn new() -> Result<Noted, Errno> {
        let (file, mapping, _) = sealed_memfd("netvale-noted", BYTES as u64, Pages::Ordinary)?;
        Self::with(file, mapping)
    }

    /// Continues another process's record.
    ///
    /// # Errors
    /// `EINVAL` if the memory is too small or could be truncated; otherwise the error of mmap(2).
    pub fn continued(file: OwnedFd) -> Result<Noted, Errno> {
        let mapping = Mapping::map(file.as_fd(), BYTES)?;
        Self::with(file, mapping)
    }

    fn with(file: OwnedFd, mapping: Mapping) -> Result<Noted, Errno> {
        let words = Words::new(&Arc::new(mapping), 0, BYTES / 4).ok_or(Errno::INVAL)?;
        let newest = words.load(NEWEST);
        Ok(Noted { file, words, newest })
    }

    /// The word at which a record begins.
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
        // They count from here on.
        self.words.store(NEWEST, self.newest);
    }

    /// A copy of the last record. A foreign process may have written any value there.
    pub fn read(&self) -> [u64; NUMBERS] {
        let place = Self::place(self.words.load(NEWEST));
        std::array::from_fn(|i| self.words.load_wide(place + 2 * i))
    }
}

impl AsFd for Noted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(noted: &Noted) -> Noted {
        Noted::continued(noted.as_fd().try_clone_to_owned().unwrap()).unwrap()
    }

    /// Objective: another process finds the last record, and its own continue from there.
    #[test]
    #[cfg_attr(miri, ignore = "memfd is not available under Miri")]
    fn outlives() {
        let mut noted = Noted::new().unwrap();
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

    /// Objective: an incomplete record does not count, whatever its contents.
    #[test]
    #[cfg_attr(miri, ignore = "memfd is not available under Miri")]
    fn incomplete() {
        let mut noted = Noted::new().unwrap();
        noted.write([3; NUMBERS]);
        for i in 0..2 * NUMBERS {
            noted.words.store(Noted::place(noted.newest + 1) + i, 9);
            assert_eq!(again(&noted).read(), [3; NUMBERS]);
        }
    }

    /// Objective: memory that is too small, or that could be truncated, is refused.
    #[test]
    #[cfg_attr(miri, ignore = "memfd is not available under Miri")]
    fn other_files() {
        let small = sealed_memfd("netvale-test", BYTES as u64 / 2, Pages::Ordinary).unwrap().0;
        assert_eq!(Noted::continued(small).unwrap_err(), Errno::INVAL);
        let open = rustix::fs::memfd_create("netvale-test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, BYTES as u64).unwrap();
        assert_eq!(Noted::continued(open).unwrap_err(), Errno::INVAL);
    }
}
