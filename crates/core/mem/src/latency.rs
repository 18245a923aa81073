//! The latency of frames from their ring to their delivery: a histogram for each ring, from sampled batches.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::steps;

/// The upper bounds of a histogram's buckets, in nanoseconds. One more bucket counts longer latencies.
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

/// Number of buckets of a histogram, including the bucket for longer latencies.
pub const PARTS: usize = BOUNDS.len() + 1;

/// A histogram of latencies. Its counts only grow, and any thread may read them at any time.
#[derive(Debug, Default)]
pub struct Histogram {
    parts: [AtomicU64; PARTS],
    sum: AtomicU64,
}

impl Histogram {
    /// Adds frames with a latency of `nanoseconds` each.
    pub fn add(&self, nanoseconds: u64, frames: u64) {
        let part = BOUNDS.partition_point(|bound| *bound < nanoseconds);
        if let Some(part) = self.parts.get(part) {
            part.fetch_add(frames, Ordering::Relaxed);
            self.sum.fetch_add(nanoseconds.saturating_mul(frames), Ordering::Relaxed);
        }
    }

    /// Number of frames in each bucket: the frames whose latency is above the previous bucket's bound, up to the
    /// bucket's own bound.
    #[must_use]
    pub fn parts(&self) -> [u64; PARTS] {
        self.parts.each_ref().map(|part| part.load(Ordering::Relaxed))
    }

    /// The non-empty buckets: upper bound in nanoseconds (`None` for the last bucket), and number of frames.
    pub fn filled(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        bounds().zip(self.parts()).filter(|(_, frames)| *frames > 0)
    }

    /// Adds the sum and the buckets of another histogram; does nothing if the other histogram has different bounds.
    pub fn add_parts(&self, sum: u64, parts: &[(Option<u64>, u64)]) {
        let part = |bound| bounds().position(|own| own == bound).and_then(|at| self.parts.get(at));
        if parts.iter().all(|(bound, _)| part(*bound).is_some()) {
            parts
                .iter()
                .for_each(|(bound, frames)| _ = part(*bound).map(|part| part.fetch_add(*frames, Ordering::Relaxed)));
            self.sum.fetch_add(sum, Ordering::Relaxed);
        }
    }

    /// Sum of all latencies, in nanoseconds.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

/// The upper bound of each bucket, in nanoseconds; `None` for the last bucket.
pub fn bounds() -> impl Iterator<Item = Option<u64>> {
    BOUNDS.into_iter().map(Some).chain([None])
}

static ONE_OF: AtomicU32 = AtomicU32::new(0);

/// Sets the sampling rate: one of `one_of` batches in each ring is timed; with 0, no batch is timed.
pub fn set_sampling(one_of: u32) {
    ONE_OF.store(one_of, Ordering::Relaxed);
    steps::set_timed(one_of > 0);
}

/// The sampling rate: one of this many batches in each ring is timed; with 0, no batch is timed.
#[must_use]
pub fn sampling() -> u32 {
    ONE_OF.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a latency is counted in the first bucket whose bound it does not exceed, or in the last bucket.
    #[test]
    fn a_latency_counts_in_the_part_that_bounds_it() {
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

    /// Objective: one histogram can be added to another, unless their bounds differ.
    #[test]
    fn histograms_add_up_unless_their_bounds_differ() {
        let [one, other] = <[Histogram; 2]>::default();
        one.add(400, 3);
        one.add(2_000_000_000, 1);
        other.add(500, 1);
        let filled: Vec<_> = one.filled().collect();
        assert_eq!(filled, [(Some(500), 3), (None, 1)]);
        other.add_parts(one.sum(), &filled);
        assert_eq!(other.filled().collect::<Vec<_>>(), [(Some(500), 4), (None, 1)]);
        assert_eq!(other.sum(), 1200 + 2_000_000_000 + 500);
        other.add_parts(7, &[(Some(500), 1), (Some(501), 1)]);
        assert_eq!((other.parts()[0], other.sum()), (4, 2_000_001_700));
    }
}
