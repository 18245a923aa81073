//! A token bucket ([`TokenBucket`]), which limits a rate and permits a burst after a pause.

use std::time::{Duration, Instant};

/// Nanoseconds in a second.
const SECOND: u128 = 1_000_000_000;
/// Minimum burst in bytes, which is several TCP segments.
const LEAST_BURST: u64 = 16 << 10;
/// Lower bound of a [piece](TokenBucket::piece) in bytes: the payload of one TCP segment.
const LEAST_PIECE: u64 = 1448;
/// Upper bound of a [piece](TokenBucket::piece) in bytes: the maximum that one call reads.
const MOST_PIECE: u64 = 64 << 10;

/// A rate of units (bytes or flows), and the number of units that may pass now, which is negative if there is a debt.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// Units per second; at least 1.
    rate: u64,
    burst: i64,
    /// Minimum number of units that a stream passes at a time. If fewer units are available, the stream waits.
    piece: i64,
    level: i64,
    at: Instant,
}

impl TokenBucket {
    /// Returns a full bucket for `rate` bytes per second: after a pause, the bytes of 50 ms at this rate, or 16 KiB if
    /// that is more, may pass in a burst.
    pub fn of_bytes(rate: u64, now: Instant) -> Self {
        let piece = (rate / 200).clamp(LEAST_PIECE, MOST_PIECE);
        let burst = (rate / 20).max(LEAST_BURST).max(2 * piece);
        let burst = i64::try_from(burst).unwrap_or(i64::MAX / 2);
        TokenBucket { rate: rate.max(1), burst, piece: piece.cast_signed(), level: burst, at: now }
    }

    /// Returns a full bucket for `rate` events per second: after a pause, the events of one second may happen together.
    pub fn of_events(rate: u32, now: Instant) -> Self {
        let rate = rate.max(1);
        TokenBucket { rate: rate.into(), burst: rate.into(), piece: 1, level: rate.into(), at: now }
    }

    /// Returns a bucket with the rate and the burst of `new`, and the level of this bucket, limited to the new burst.
    pub fn changed_to(&self, new: TokenBucket) -> Self {
        TokenBucket { level: self.level.min(new.burst), at: self.at, ..new }
    }

    /// Adds the units for the time since the last call.
    pub fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_nanos();
        let gained = passed * u128::from(self.rate) / SECOND;
        let missing = i128::from(self.burst) - i128::from(self.level);
        if gained.cast_signed() >= missing {
            self.level = self.burst;
            self.at = now;
        } else {
            // The cast loses nothing: the gain is less than the burst, which is an i64.
            self.level += gained as i64;
            // The remainder of the time counts towards the next unit.
            self.at += Duration::from_nanos((gained * SECOND / u128::from(self.rate)) as u64);
        }
    }

    /// Returns how many units a stream may pass: 0, or at least a [piece](TokenBucket::piece).
    pub fn stream(&mut self, now: Instant) -> usize {
        self.refill(now);
        if self.level >= self.piece { self.level as usize } else { 0 }
    }

    /// Returns the minimum number of units that a stream passes.
    pub fn piece(&self) -> usize {
        self.piece as usize
    }

    /// Spends units for data that cannot wait, unless the bucket's debt has already reached one burst. Returns whether
    /// the data may pass.
    pub fn pass(&mut self, units: usize, now: Instant) -> bool {
        self.refill(now);
        let passes = self.level > -self.burst;
        if passes {
            self.spend(units);
        }
        passes
    }

    /// Takes one unit if there is one. Returns whether a unit was taken.
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let taken = self.level >= 1;
        self.level -= i64::from(taken);
        taken
    }

    /// Removes units that have passed.
    pub fn spend(&mut self, units: usize) {
        self.level = self.level.saturating_sub(i64::try_from(units).unwrap_or(i64::MAX));
    }

    /// Returns the time at which a stream may pass a [piece](TokenBucket::piece).
    pub fn next(&self, now: Instant) -> Instant {
        let missing = (i128::from(self.piece) - i128::from(self.level)).max(0).cast_unsigned();
        let nanos = (missing * SECOND).div_ceil(u128::from(self.rate));
        let at = self.at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 4));
        at.max(now)
    }

    /// Returns whether the bucket is full, like a new bucket.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.level == self.burst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_stream_passes_its_rate_and_a_burst_at_the_beginning() {
        let begin = Instant::now();
        let mut bucket = TokenBucket::of_bytes(1_000_000, begin);
        let mut passed = 0;
        for ms in 0..1000 {
            let may = bucket.stream(begin + ms * MS);
            bucket.spend(may);
            passed += may;
        }
        assert!((1_040_000..1_060_000).contains(&passed), "{passed}");
    }

    #[test]
    fn a_slow_rate_loses_no_fraction_of_a_unit() {
        let begin = Instant::now();
        let mut bucket = TokenBucket::of_events(3, begin);
        let taken = (0..100_000).filter(|step| bucket.take(begin + Duration::from_micros(100) * *step)).count();
        assert_eq!(taken, 3 + 29, "ten seconds, and the burst");
    }

    #[test]
    fn a_stream_waits_until_there_is_a_piece() {
        let begin = Instant::now();
        let mut bucket = TokenBucket::of_bytes(1000, begin);
        let all = bucket.stream(begin);
        bucket.spend(all);
        assert_eq!(bucket.stream(begin + MS), 0);
        let next = bucket.next(begin + MS);
        assert_eq!(next, begin + 1448 * MS);
        assert_eq!((bucket.stream(next - MS), bucket.stream(next)), (0, 1448));
    }

    /// Objective: datagrams pass at the full rate even while a stream takes all units that are left.
    #[test]
    fn datagrams_go_before_a_stream() {
        let begin = Instant::now();
        let mut bucket = TokenBucket::of_bytes(1_000_000, begin);
        let mut passed = 0;
        for ms in 0..1000 {
            let now = begin + ms * MS;
            let may = bucket.stream(now);
            bucket.spend(may);
            passed += (0..10).filter(|_| bucket.pass(1000, now)).count();
        }
        assert!((950..1150).contains(&passed), "{passed}");
    }

    #[test]
    fn rates_and_times_may_be_extreme() {
        let begin = Instant::now();
        for rate in [0, 1, u64::MAX] {
            let mut bucket = TokenBucket::of_bytes(rate, begin);
            bucket.spend(usize::MAX);
            bucket.refill(begin + Duration::from_secs(1 << 32));
            assert!(bucket.next(begin) >= begin);
            bucket.spend(usize::MAX);
        }
        let slower = TokenBucket::of_events(1000, begin).changed_to(TokenBucket::of_events(2, begin));
        assert_eq!(slower.level, 2);
    }
}
