//! A set of descriptor numbers, with one bit per number. The set has no lock, so that signal handlers can read it.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

use crate::table::MAX_FDS;

/// A set of marked descriptor numbers.
pub struct FdMarks([AtomicU64; MAX_FDS / 64]);

impl FdMarks {
    /// Creates an empty set.
    pub const fn new() -> FdMarks {
        FdMarks([const { AtomicU64::new(0) }; MAX_FDS / 64])
    }

    #[inline]
    fn place(&self, number: c_int) -> Option<(&AtomicU64, u64)> {
        let i = usize::try_from(number).ok()?;
        Some((self.0.get(i / 64)?, 1 << (i % 64)))
    }

    /// Returns whether a number is in the range that can be marked.
    pub fn fits(&self, number: c_int) -> bool {
        self.place(number).is_some()
    }

    /// Returns whether a number is marked.
    #[inline]
    pub fn has(&self, number: c_int) -> bool {
        self.place(number).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
    }

    /// Marks or unmarks a number. Returns whether it was marked before; false for a number that cannot be marked.
    pub fn set(&self, number: c_int, on: bool) -> bool {
        let Some((word, bit)) = self.place(number) else { return false };
        let was = if on { word.fetch_or(bit, Ordering::AcqRel) } else { word.fetch_and(!bit, Ordering::AcqRel) };
        was & bit != 0
    }
}
