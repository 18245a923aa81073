//! How long frames take, from their ring until they are delivered: a histogram for each ring, of batches that are timed
//! now and then.

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

    /// The parts that have frames: up to how many nanoseconds, none for the last one, and how many frames.
    pub fn filled(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        bounds().zip(self.parts()).filter(|(_, frames)| *frames > 0)
    }

    /// Adds what another histogram had, unless it had other bounds.
    pub fn add_parts(&self, sum: u64, parts: &[(Option<u64>, u64)]) {
        let part = |bound| bounds().position(|own| own == bound).and_then(|at| self.parts.get(at));
        if parts.iter().all(|(bound, _)| part(*bound).is_some()) {
            parts
                .iter()
                .for_each(|(bound, frames)| _ = part(*bound).map(|part| part.fetch_add(*frames, Ordering::Relaxed)));
            self.sum.fetch_add(sum, Ordering::Relaxed);
        }
    }

    /// Nanoseconds that all its frames took together.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

/// The upper bound of each part, none for the last one.
pub fn bounds() -> impl Iterator<Item = Option<u64>> {
    BOUNDS.into_iter().map(Some).chain([None])
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

    /// Objective: what one histogram has can be added to another one, unless its bounds are others.
    #[test]
    fn added() {
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
