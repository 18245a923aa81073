//! A few numbers that are noted while a process works, and that outlive it: how far it has come, for the one that goes
//! on after it was killed.
//!
//! They lie in a memfd of their own, twice: the newer ones are written beside those before them, and count only once
//! they are complete. So whenever the process is killed, one of both is whole. To note costs a few stores, and no
//! system call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::mapping::{Mapping, Pages, sealed_memfd};
use crate::words::Words;

/// How many numbers are noted together.
pub const NUMBERS: usize = 12;
/// Bytes of the memory.
const BYTES: usize = 4096;
/// Where the number of the newest notes is, and where notes begin: words of 32 bits.
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
    /// Makes memory for numbers, which are 0.
    ///
    /// # Errors
    /// There is no memory, or no descriptor.
    pub fn new() -> Result<Noted, Errno> {
        let (file, mapping, _) = sealed_memfd("netvale-noted", BYTES as u64, Pages::Ordinary)?;
        Self::with(file, mapping)
    }

    /// Goes on with what another process noted.
    ///
    /// # Errors
    /// `EINVAL` if the memory is too small or could be cut short; otherwise whatever mmap(2) returns.
    pub fn continued(file: OwnedFd) -> Result<Noted, Errno> {
        let mapping = Mapping::map(file.as_fd(), BYTES)?;
        Self::with(file, mapping)
    }

    fn with(file: OwnedFd, mapping: Mapping) -> Result<Noted, Errno> {
        let words = Words::new(&Arc::new(mapping), 0, BYTES / 4).ok_or(Errno::INVAL)?;
        let newest = words.load(NEWEST);
        Ok(Noted { file, words, newest })
    }

    /// The word at which those notes begin.
    fn place(notes: u32) -> usize {
        FIRST + (notes % 2) as usize * 2 * NUMBERS
    }

    /// Notes these numbers in place of those before.
    pub fn write(&mut self, numbers: [u64; NUMBERS]) {
        self.newest = self.newest.wrapping_add(1);
        let place = Self::place(self.newest);
        for (i, number) in numbers.into_iter().enumerate() {
            self.words.store_wide(place + 2 * i, number);
        }
        // They count from now on.
        self.words.store(NEWEST, self.newest);
    }

    /// A copy of the numbers that were noted last. They are what a process of any kind may have written there.
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

    /// Objective: another process finds what was noted last, and its own notes go on from there.
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

    /// Objective: notes that were not completed do not count, whatever they would be.
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

    /// Objective: memory that is too small, or that somebody could cut short, is refused.
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
