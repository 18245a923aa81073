//! The send time of each frame of a recording.

use std::num::NonZeroU64;
use std::time::Duration;

/// The speed at which a recording is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplayPace {
    /// As fast as possible.
    Fast,
    /// With the recorded gaps between frames divided by this factor.
    Recorded(Speed),
    /// With this many frames per second, evenly spaced.
    Rate(NonZeroU64),
}

impl ReplayPace {
    /// Returns the pace for a factor: 0 is as fast as possible, 1 as recorded, 2 twice as fast. `None` if the factor is
    /// negative or not finite.
    pub fn times(factor: f64) -> Option<ReplayPace> {
        if factor == 0.0 { Some(ReplayPace::Fast) } else { Speed::new(factor).map(ReplayPace::Recorded) }
    }
}

/// A finite factor above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed(f64);

impl Speed {
    /// The factor 1: as recorded.
    pub const ONE: Speed = Speed(1.0);

    /// Creates a factor; `None` unless it is above 0 and finite.
    pub fn new(factor: f64) -> Option<Speed> {
        (factor.is_finite() && factor > 0.0).then_some(Speed(factor))
    }
}

/// Converts recorded times to send times, frame by frame. Send times never go backwards: a frame with an earlier
/// recorded time than the frame before it is sent right after that frame.
#[derive(Debug)]
pub struct Pacer {
    pace: ReplayPace,
    frames: u64,
    /// Send time at the start of this pass over the recording.
    begun: Duration,
    /// Recorded time of the first frame of this pass; `None` before that frame.
    first: Option<Duration>,
    /// The latest time recorded in this pass.
    latest: Duration,
    last: Duration,
}

/// If a recorded time is earlier than the latest recorded time by at least this duration, the recording clock was set
/// back, and later gaps are measured on the new clock. A smaller step back means that frames were recorded out of
/// order.
const BACK: Duration = Duration::from_secs(1);

impl Pacer {
    /// Creates a pacer at the beginning of a recording.
    pub fn new(pace: ReplayPace) -> Self {
        Pacer { pace, frames: 0, begun: Duration::ZERO, first: None, latest: Duration::ZERO, last: Duration::ZERO }
    }

    /// Creates a pacer that continues after `frames` frames in earlier passes, the last of which was sent at `last`.
    pub(crate) fn after(pace: ReplayPace, frames: u64, last: Duration) -> Self {
        Pacer { frames, begun: last, last, ..Pacer::new(pace) }
    }

    /// Number of frames so far, and the send time of the last frame.
    pub(crate) fn done(&self) -> (u64, Duration) {
        (self.frames, self.last)
    }

    /// Starts another pass over the recording. The first frame of the new pass follows the last frame of the previous
    /// pass immediately or, at a fixed rate, after the usual gap.
    pub fn again(&mut self) {
        self.begun = self.last;
        self.first = None;
        self.latest = Duration::ZERO;
    }

    /// Returns the send time of the next frame, recorded at `time`, since the start of sending.
    pub fn due(&mut self, time: Duration) -> Duration {
        let due = match self.pace {
            ReplayPace::Fast => Duration::ZERO,
            ReplayPace::Recorded(Speed(factor)) => {
                if time.saturating_add(BACK) < self.latest {
                    self.again();
                }
                self.latest = self.latest.max(time);
                let since = time.saturating_sub(*self.first.get_or_insert(time));
                let gap = Duration::try_from_secs_f64(since.as_secs_f64() / factor).unwrap_or(Duration::MAX);
                self.begun.saturating_add(gap)
            }
            ReplayPace::Rate(pps) => {
                let nanos = u128::from(self.frames) * 1_000_000_000 / u128::from(pps.get());
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
        };
        self.frames += 1;
        self.last = self.last.max(due);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Objective: recorded gaps are kept, divided by the factor; a second pass continues where the first pass ended.
    #[test]
    fn recorded_gaps_are_kept() {
        let mut p = Pacer::new(ReplayPace::times(2.0).unwrap());
        assert_eq!([1000, 1010, 1004, 1030].map(|t| p.due(MS(t))), [0, 5, 5, 15].map(MS));
        p.again();
        assert_eq!([1000, 1010].map(|t| p.due(MS(t))), [15, 20].map(MS));
    }

    /// Objective: after the recording clock is set back, later gaps are kept; frames out of order do not count as a
    /// clock set back.
    #[test]
    fn gaps_are_kept_after_a_clock_goes_back() {
        let mut p = Pacer::new(ReplayPace::times(1.0).unwrap());
        let times = [90_000, 90_010, 90_004, 90_020, 500, 530, 520, 540, 10];
        assert_eq!(times.map(|t| p.due(MS(t))), [0, 10, 10, 20, 20, 50, 50, 60, 60].map(MS));
        p.again();
        assert_eq!([90_000, 90_010].map(|t| p.due(MS(t))), [60, 70].map(MS));
    }

    /// Objective: a fixed rate is even, even across passes, and ignores recorded times.
    #[test]
    fn a_rate_is_even_across_passes() {
        let mut p = Pacer::new(ReplayPace::Rate(NonZeroU64::new(1000).unwrap()));
        assert_eq!([7, 3, 9].map(|t| p.due(MS(t))), [0, 1, 2].map(MS));
        p.again();
        assert_eq!(p.due(MS(7)), MS(3));
    }

    /// Objective: invalid factors are refused.
    #[test]
    fn invalid_factors_are_refused() {
        assert_eq!(ReplayPace::times(0.0), Some(ReplayPace::Fast));
        assert_eq!(ReplayPace::times(1.0), Some(ReplayPace::Recorded(Speed::ONE)));
        assert!([-1.0, f64::NAN, f64::INFINITY].iter().all(|&f| ReplayPace::times(f).is_none()));
    }

    proptest! {
        /// Objective: for all recorded times and factors, nothing panics and send times never go backwards.
        #[test]
        fn sending_never_goes_backwards(
            factor in 1e-300f64..1e300,
            times in prop::collection::vec((0..=u64::MAX, 0u32..1_000_000_000), 1..50),
        ) {
            let mut p = Pacer::new(ReplayPace::times(factor).unwrap());
            let mut last = Duration::ZERO;
            for (i, (s, n)) in times.into_iter().enumerate() {
                if i % 7 == 6 { p.again() }
                let due = p.due(Duration::new(s, n));
                prop_assert!(due >= last);
                last = due;
            }
        }
    }
}
