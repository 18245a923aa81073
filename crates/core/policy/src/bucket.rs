//! Rates: token buckets of one word each, from which any number of threads take tokens without a lock.
//!
//! A bucket is stored as the time at which it will be full again (the generic cell rate algorithm): taking tokens moves
//! that time into the future. A frame passes if any tokens are left, so a bucket is in debt by one frame at most, and
//! no frame is too long to pass. A frame's *weight* is the number of frames and bytes for which it counts.

mod group;

use std::sync::atomic::{AtomicU64, Ordering};

pub use group::{Group, GroupShare, MEMBERS};

/// Time units per nanosecond: fractions matter, as the shortest frame takes only 5 ns at 10^11 bits per second.
const PARTS: f64 = 64.0;
const PER_SECOND: f64 = 1e9 * PARTS;
/// Maximum length of a wait and of a burst, in time units. This is 10^6 seconds, so long that precision does not
/// matter.
const LONGEST: f64 = 1e6 * PER_SECOND;

fn parts(nanoseconds: u64) -> u64 {
    nanoseconds.saturating_mul(PARTS as u64)
}

/// A frame's weight. A GSO frame weighs as much as all segments into which it is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Number of frames.
    pub frames: u32,
    /// Number of bytes of all frames together.
    pub bytes: u32,
}

impl Weight {
    /// Returns the weight of a frame of `bytes` bytes.
    #[inline]
    #[must_use]
    pub const fn frame(bytes: usize) -> Weight {
        Weight { frames: 1, bytes: bytes as u32 }
    }

    /// Returns the sum of two weights.
    #[inline]
    #[must_use]
    pub fn plus(self, other: Weight) -> Weight {
        Weight { frames: self.frames.saturating_add(other.frames), bytes: self.bytes.saturating_add(other.bytes) }
    }
}

/// A limit: a rate, and the burst that may exceed it after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    per_byte: f64,
    per_frame: f64,
    burst: f64,
}

impl RateLimit {
    /// Creates a limit of `rate` bits per second, with bursts of `burst` bytes.
    #[must_use]
    pub fn bits(rate: u64, burst: u64) -> RateLimit {
        let per_byte = 8.0 * PER_SECOND / rate.max(1) as f64;
        RateLimit { per_byte, per_frame: 0.0, burst: (burst as f64 * per_byte).min(LONGEST) }
    }

    /// Creates a limit of `rate` frames per second, with bursts of `burst` frames.
    #[must_use]
    pub fn frames(rate: u64, burst: u64) -> RateLimit {
        let per_frame = PER_SECOND / rate.max(1) as f64;
        RateLimit { per_byte: 0.0, per_frame, burst: (burst as f64 * per_frame).min(LONGEST) }
    }

    fn of(&self, weight: Weight) -> f64 {
        f64::from(weight.bytes) * self.per_byte + f64::from(weight.frames) * self.per_frame
    }
}

/// A token bucket, full at first.
#[derive(Debug, Default)]
pub struct Bucket(AtomicU64);

impl Bucket {
    /// Returns how many of the frames with these weights, in order, may pass at time `now` (nanoseconds).
    #[inline]
    pub fn may(&self, limit: &RateLimit, now: u64, weights: impl Iterator<Item = Weight>) -> usize {
        let mut used = self.0.load(Ordering::Relaxed).saturating_sub(parts(now)) as f64;
        let mut frames = 0;
        for weight in weights {
            if used >= limit.burst {
                break;
            }
            used += limit.of(weight);
            frames += 1;
        }
        frames
    }

    /// Takes tokens for the first frames with these weights, as many as may pass. Returns the number of frames that may
    /// pass.
    #[inline]
    pub fn take(&self, limit: &RateLimit, now: u64, weights: impl Iterator<Item = Weight> + Clone) -> usize {
        let may = self.may(limit, now, weights.clone());
        if may > 0 {
            self.charge(limit, now, weights.take(may));
        }
        may
    }

    /// Takes the tokens of frames that pass whether or not enough tokens are left. If two threads pass a batch each at
    /// the same time, the bucket goes into debt, and later frames of both threads wait longer.
    pub fn charge(&self, limit: &RateLimit, now: u64, weights: impl Iterator<Item = Weight>) {
        self.add(now, weights.map(|weight| limit.of(weight)).sum());
    }

    /// Whether frames of this total weight may pass, in any order.
    #[inline]
    pub fn may_all(&self, limit: &RateLimit, now: u64, together: Weight) -> bool {
        let used = self.0.load(Ordering::Relaxed).saturating_sub(parts(now)) as f64;
        used + limit.of(together) <= limit.burst
    }

    fn add(&self, now: u64, used: f64) {
        let now = parts(now);
        let add = |full_at: u64| Some(full_at.max(now).saturating_add(used.min(LONGEST) as u64));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Time from `now` until a frame may pass, in nanoseconds; 0 if a frame may pass now.
    #[inline]
    pub fn wait(&self, limit: &RateLimit, now: u64) -> u64 {
        let begin = self.0.load(Ordering::Relaxed).saturating_sub(parts(now)) as f64;
        if begin < limit.burst { 0 } else { ((begin - limit.burst) / PARTS) as u64 + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    /// Sends frames of `len` bytes for `time` nanoseconds, waiting as the bucket requires. Returns the number of frames
    /// passed.
    fn greedy(bucket: &Bucket, limit: &RateLimit, len: usize, time: u64) -> u64 {
        let mut now = 7;
        let mut passed = 0;
        while now < time {
            passed += bucket.take(limit, now, std::iter::repeat_n(Weight::frame(len), 32)) as u64;
            now += bucket.wait(limit, now).max(1);
        }
        passed
    }

    /// Objective: over ten seconds, a greedy sender gets the rate plus the burst, from 10 kbit/s to 100 Gbit/s and from
    /// 60 bytes to 64 KiB.
    #[test]
    fn rates_are_kept() {
        for (rate, len) in
            [(10_000u64, 60usize), (10_000_000, 1514), (1_000_000_000, 65_000), (100_000_000_000, 60_000)]
        {
            let bucket = Bucket::default();
            let burst = 3 * len as u64;
            let time = 10 * SECOND;
            let got = greedy(&bucket, &RateLimit::bits(rate, burst), len, time) * len as u64 * 8;
            let expected = rate * 10 + burst * 8;
            let error = (got as f64 / expected as f64 - 1.0).abs();
            assert!(error < 0.01 || got.abs_diff(expected) <= 2 * 8 * len as u64, "{rate} {len}: {got} of {expected}");
        }
        let got = greedy(&Bucket::default(), &RateLimit::frames(1000, 10), 60, 10 * SECOND);
        assert!((10_009..=10_011).contains(&got), "{got}");
    }

    /// Objective: a pause allows one burst; a frame longer than the burst passes if any token is left.
    #[test]
    fn a_pause_allows_one_burst() {
        let bucket = Bucket::default();
        let limit = RateLimit::bits(8_000_000, 10_000);
        let take = |now, len, n| bucket.take(&limit, now, std::iter::repeat_n(Weight::frame(len), n));
        assert_eq!(take(SECOND, 1000, 100), 10);
        assert_eq!(take(SECOND, 1000, 100), 0);
        assert_eq!(bucket.wait(&limit, SECOND), 1, "the next token");
        assert_eq!(take(1000 * SECOND, 1000, 100), 10);
        assert_eq!(take(2000 * SECOND, 65_000, 2), 1);
        // 65,000 bytes take 65 ms, of which 10 ms were available.
        assert_eq!(bucket.wait(&limit, 2000 * SECOND).div_ceil(1_000_000), 56);
    }

    /// Objective: a GSO frame takes the tokens of all segments into which it is cut.
    #[test]
    fn a_segment_pays_for_all_its_frames() {
        let bucket = Bucket::default();
        let limit = RateLimit::frames(1000, 10);
        let segment = Weight { frames: 40, bytes: 60_000 };
        assert_eq!(bucket.take(&limit, SECOND, [segment, segment].into_iter()), 1);
        // 40 frames take 40 ms, of which 10 ms were available.
        assert_eq!(bucket.wait(&limit, SECOND).div_ceil(1_000_000), 31);
        assert_eq!(segment.plus(Weight::frame(60)), Weight { frames: 41, bytes: 60_060 });
    }

    proptest! {
        /// Objective: frames that may pass together also pass one by one, and take the same tokens.
        #[test]
        fn frames_pass_together_if_each_may_pass(
            lens in proptest::collection::vec(0usize..2000, 1..50),
            burst in 1u64..100_000,
            before in 0u64..100_000,
        ) {
            for limit in [RateLimit::bits(8_000_000, burst), RateLimit::frames(1_000_000, burst)] {
                let one = Bucket::default();
                let all = Bucket::default();
                let before = Weight::frame(before as usize);
                [&one, &all].iter().for_each(|bucket| bucket.charge(&limit, SECOND, [before].into_iter()));
                let weights = || lens.iter().map(|&len| Weight::frame(len));
                let sum = weights().fold(Weight::default(), Weight::plus);
                if all.may_all(&limit, SECOND, sum) {
                    all.charge(&limit, SECOND, [sum].into_iter());
                    prop_assert_eq!(one.take(&limit, SECOND, weights()), lens.len());
                    prop_assert!(one.0.load(Ordering::Relaxed).abs_diff(all.0.load(Ordering::Relaxed)) <= 1);
                }
            }
        }

        /// Objective: no rate, burst, length or time causes a panic or an endless loop.
        #[test]
        fn no_numbers_make_it_panic_or_loop(
            rate in 0u64..,
            burst in 0u64..,
            now in 0u64..1 << 60,
            len in 0usize..1 << 20,
            back in 0u64..SECOND,
        ) {
            for limit in [RateLimit::bits(rate, burst), RateLimit::frames(rate, burst)] {
                let bucket = Bucket::default();
                let frame = Weight::frame(len);
                bucket.take(&limit, now, [frame, frame].into_iter());
                bucket.charge(&limit, now, [frame].into_iter());
                prop_assert!(bucket.wait(&limit, now.saturating_sub(back)) <= 2_000_000 * SECOND);
                bucket.take(&limit, now.saturating_sub(back), [frame].into_iter());
            }
        }
    }
}
