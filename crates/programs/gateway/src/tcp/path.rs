//! Round-trip times (RFC 6298) and congestion control (RFC 5681, RFC 6582) of a connection to a guest.
//!
//! The switch drops frames when a guest's queue is full, so the gateway must slow down. The state of the path is a
//! [`PathState`].

use std::time::{Duration, Instant};

use super::seq::TcpSeq;

/// The shortest retransmission timeout.
const MIN_RTO: Duration = Duration::from_millis(200);
/// The longest retransmission timeout.
const MAX_RTO: Duration = Duration::from_secs(30);
/// The retransmission timeout before the first measurement.
const FIRST_RTO: Duration = Duration::from_secs(1);
/// The initial congestion window, in segments.
const FIRST_WINDOW: u32 = 16;
/// The largest congestion window, in bytes.
const MAX_WINDOW: u32 = 4 << 20;
/// Number of duplicate acknowledgements that trigger a fast retransmit.
const DUPLICATES: u32 = 3;

/// The congestion state of the path to a guest.
#[derive(Debug)]
pub struct PathState {
    mss: u32,
    window: u32,
    threshold: u32,
    duplicates: u32,
    /// During fast recovery: the highest sequence number that had been sent when the loss was detected.
    recover: Option<TcpSeq>,
    rtt: Option<RttEstimate>,
    backoff: u32,
    /// The sequence number whose acknowledgement ends the current round-trip measurement, and the time at which that
    /// number was sent.
    timed: Option<(TcpSeq, Instant)>,
}

#[derive(Debug)]
struct RttEstimate {
    smoothed: Duration,
    variation: Duration,
}

impl PathState {
    /// Returns the state of a path without measurements.
    pub fn new(mss: u16) -> Self {
        let mss = u32::from(mss);
        PathState {
            mss,
            window: FIRST_WINDOW * mss,
            threshold: MAX_WINDOW,
            duplicates: 0,
            recover: None,
            rtt: None,
            backoff: 0,
            timed: None,
        }
    }

    /// Returns the congestion window, in bytes.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Returns the retransmission timeout.
    pub fn rto(&self) -> Duration {
        let first = |rtt: &RttEstimate| (rtt.smoothed + 4 * rtt.variation).max(MIN_RTO);
        let base = self.rtt.as_ref().map_or(FIRST_RTO, first);
        base.saturating_mul(1 << self.backoff.min(8)).min(MAX_RTO)
    }

    /// Records that new bytes up to sequence number `end` were sent.
    pub fn sent(&mut self, end: TcpSeq, now: Instant) {
        self.timed.get_or_insert((end, now));
    }

    /// Records that `bytes` more bytes were acknowledged, up to `una`. Returns `true` for a partial acknowledgement:
    /// the next bytes belong to the same loss and must be retransmitted, too.
    pub fn acknowledged(&mut self, bytes: u32, una: TcpSeq, now: Instant) -> bool {
        self.duplicates = 0;
        self.backoff = 0;
        if let Some((_, since)) = self.timed.take_if(|(end, _)| !una.is_before(*end)) {
            self.measure(now.saturating_duration_since(since));
        }
        match self.recover {
            Some(end) if una.is_before(end) => return true,
            Some(_) => {
                self.recover = None;
                self.window = self.threshold;
            }
            None if self.window < self.threshold => self.grow(bytes),
            None => self.grow((u64::from(self.mss) * u64::from(bytes) / u64::from(self.window)) as u32 + 1),
        }
        false
    }

    fn grow(&mut self, bytes: u32) {
        self.window = self.window.saturating_add(bytes).min(MAX_WINDOW);
    }

    fn measure(&mut self, rtt: Duration) {
        match &mut self.rtt {
            None => self.rtt = Some(RttEstimate { smoothed: rtt, variation: rtt / 2 }),
            Some(estimate) => {
                estimate.variation = (3 * estimate.variation + estimate.smoothed.abs_diff(rtt)) / 4;
                estimate.smoothed = (7 * estimate.smoothed + rtt) / 8;
            }
        }
    }

    /// Records a duplicate acknowledgement, while `flight` bytes, up to `end`, are in flight. Returns whether the first
    /// segment must be retransmitted.
    pub fn duplicate(&mut self, flight: u32, end: TcpSeq) -> bool {
        self.duplicates += 1;
        if self.duplicates != DUPLICATES || self.recover.is_some() {
            return false;
        }
        self.slow_down(flight);
        self.window = self.threshold;
        self.recover = Some(end);
        true
    }

    /// Records a retransmission timeout with `flight` bytes in flight.
    pub fn timed_out(&mut self, flight: u32) {
        self.slow_down(flight);
        self.window = self.mss;
        self.recover = None;
        self.backoff += 1;
    }

    /// Doubles the timeout although nothing was lost, so that the guest's closed window is probed less and less often.
    pub fn back_off(&mut self) {
        self.backoff += 1;
        self.timed = None;
    }

    fn slow_down(&mut self, flight: u32) {
        self.threshold = (flight / 2).max(2 * self.mss);
        self.duplicates = 0;
        // A retransmitted segment is not timed (Karn's algorithm).
        self.timed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_set_the_time_to_wait() {
        let mut path = PathState::new(1000);
        let now = Instant::now();
        assert_eq!(path.rto(), FIRST_RTO);
        path.sent(TcpSeq(100), now);
        path.acknowledged(50, TcpSeq(50), now + Duration::from_secs(9));
        path.acknowledged(50, TcpSeq(100), now + Duration::from_secs(1));
        assert_eq!(path.rto(), Duration::from_secs(3));
        path.timed_out(1000);
        assert_eq!(path.rto(), Duration::from_secs(6));
        (0..20).for_each(|_| path.timed_out(1000));
        assert_eq!(path.rto(), MAX_RTO);
    }

    #[test]
    fn losses_halve_the_window_once() {
        let mut path = PathState::new(1000);
        let now = Instant::now();
        for n in 1..=100 {
            path.acknowledged(1000, TcpSeq(n * 1000), now);
        }
        assert_eq!(path.window(), 116_000);
        assert!(!path.duplicate(80_000, TcpSeq(180_000)) && !path.duplicate(80_000, TcpSeq(180_000)));
        assert!(path.duplicate(80_000, TcpSeq(180_000)) && !path.duplicate(80_000, TcpSeq(180_000)));
        assert_eq!(path.window(), 40_000);
        assert!(path.acknowledged(1000, TcpSeq(101_000), now), "the next one is missing, too");
        assert!(!path.acknowledged(79_000, TcpSeq(180_000), now));
        assert_eq!(path.window(), 40_000);
        path.acknowledged(40_000, TcpSeq(220_000), now);
        assert_eq!(path.window(), 41_001, "from here on, a segment for each window");
    }
}
