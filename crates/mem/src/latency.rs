//! How long frames take, from their ring until they are delivered: a histogram for each ring, of batches that are timed now and then.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::steps;

/// The upper bounds of a histogram's parts, in nanoseconds. What takes longer than the last is in one part more.
pub const BOUNDS: [u64; 20] = [
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
];

/// Number of a histogram's parts.
pub const PARTS: usize = BOUNDS.len() + 1;

/// How long frames took. Cumulative; anybody may read it at any time.
#[derive(Debug, Default)]
pub struct Histogram {
    parts: [AtomicU64; PARTS],
    sum: AtomicU64,
}

impl Histogram {
    /// Adds frames that took that many nanoseconds each.
    pub fn add(&self, nanoseconds: u64, frames: u64) {
        let part = BOUNDS.partition_point(|bound| *bound < nanoseconds);
        if let Some(part) = self.parts.get(part) {
            part.fetch_add(frames, Ordering::Relaxed);
            self.sum.fetch_add(nanoseconds.saturating_mul(frames), Ordering::Relaxed);
        }
    }

    /// Frames in each part: above the bound before, and up to its own.
    #[must_use]
    pub fn parts(&self) -> [u64; PARTS] {
        self.parts.each_ref().map(|part| part.load(Ordering::Relaxed))
    }

    /// Nanoseconds that all its frames took together.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

static ONE_OF: AtomicU32 = AtomicU32::new(0);

/// Has one of that many batches timed, in each ring; 0: none.
pub fn set_sampling(one_of: u32) {
    ONE_OF.store(one_of, Ordering::Relaxed);
    steps::set_timed(one_of > 0);
}

/// Of how many batches one is timed; 0: none is.
#[must_use]
pub fn sampling() -> u32 {
    ONE_OF.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a time lies in the part whose bound it does not exceed, and beyond the last bound in one of its own.
    #[test]
    fn parts() {
        let histogram = Histogram::default();
        for (nanoseconds, frames) in [(0, 1), (500, 2), (501, 4), (1_000_000_000, 8), (1_000_000_001, 16)] {
            histogram.add(nanoseconds, frames);
        }
        let parts = histogram.parts();
        assert_eq!((parts[0], parts[1], parts[19], parts[20]), (3, 4, 8, 16));
        assert_eq!(parts.iter().sum::<u64>(), 31);
        assert_eq!(histogram.sum(), 1000 + 4 * 501 + 8_000_000_000 + 16 * 1_000_000_001);
        assert!(BOUNDS.is_sorted());
    }
}
