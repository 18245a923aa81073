//! Transmission times of frames, and their waits.

use super::spec;

const NANOS: u64 = 1_000_000_000;

/// A link that sends one frame after the other at its rate.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// Bits per second, at least 1.
    rate: u64,
    overhead: i32,
    cell: u32,
    cell_overhead: i32,
    /// Limit of a frame's wait in nanoseconds: the transmission time of the queue's bytes.
    queue: Option<u64>,
    /// When the last frame has been sent.
    free: u64,
    /// Remainder of the last frame's time, in 1 / `rate` nanoseconds.
    rest: u64,
}

impl Link {
    /// An idle link.
    pub fn new(spec: spec::Link) -> Self {
        let rate = spec.rate.bits().max(1);
        let queue = spec.queue.map(|queue| {
            let nanos = u128::from(queue.bytes()) * 8 * u128::from(NANOS) / u128::from(rate);
            u64::try_from(nanos).unwrap_or(u64::MAX)
        });
        let spec::Link { overhead, cell, cell_overhead, .. } = spec;
        Self { rate, overhead, cell, cell_overhead, queue, free: 0, rest: 0 }
    }

    /// Whether more bytes wait than the queue holds. A queue may overflow by one frame, so one of no bytes works.
    #[inline]
    pub fn is_full(&self, now: u64) -> bool {
        self.queue.is_some_and(|queue| self.free.saturating_sub(now) > queue)
    }

    /// Takes a frame of `len` bytes. Returns its transmission time, and when it has been sent.
    #[inline]
    pub fn send(&mut self, now: u64, len: u32) -> (u64, u64) {
        let time = self.time(self.bytes(len));
        self.free = self.free.max(now).saturating_add(time);
        (time, self.free)
    }

    /// Bytes on the link of a frame of `len` bytes.
    #[inline]
    fn bytes(&self, len: u32) -> u64 {
        let bytes = u64::from(len).saturating_add_signed(i64::from(self.overhead));
        if self.cell == 0 {
            return bytes;
        }
        let cell = u64::from(self.cell).saturating_add_signed(i64::from(self.cell_overhead));
        bytes.div_ceil(u64::from(self.cell)).saturating_mul(cell)
    }

    /// Transmission time of `bytes`, in nanoseconds. The remainder counts towards the next frame's time.
    #[inline]
    fn time(&mut self, bytes: u64) -> u64 {
        let parts = bytes.checked_mul(8 * NANOS).and_then(|parts| parts.checked_add(self.rest));
        let Some(parts) = parts else { return self.long_time(bytes) };
        self.rest = parts % self.rate;
        parts / self.rate
    }

    /// The same for times beyond 64 bits of intermediate results.
    #[cold]
    fn long_time(&mut self, bytes: u64) -> u64 {
        let rate = u128::from(self.rate);
        let parts = u128::from(bytes) * u128::from(8 * NANOS) + u128::from(self.rest);
        self.rest = (parts % rate) as u64;
        u64::try_from(parts / rate).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Rate, Size};

    fn link(rate: u64, overhead: i32, cell: u32, cell_overhead: i32) -> Link {
        Link::new(spec::Link { rate: Rate::from_bits(rate), overhead, cell, cell_overhead, queue: None })
    }

    /// Objective: overheads and cells count as in netem, for ATM as in tc-netem(8): 53 bytes for each 48.
    #[test]
    fn bytes_on_the_link() {
        assert_eq!(link(1, 0, 0, 0).bytes(1500), 1500);
        assert_eq!(link(1, 20, 0, 0).bytes(1500), 1520);
        assert_eq!(link(1, -14, 0, 0).bytes(10), 0);
        assert_eq!(link(1, 0, 48, 5).bytes(48), 53);
        assert_eq!(link(1, 0, 48, 5).bytes(49), 106);
        assert_eq!(link(1, 0, 48, -50).bytes(49), 0);
    }

    /// Objective: frames whose time is not a whole number of nanoseconds take the right total time.
    #[test]
    fn no_time_is_lost() {
        let mut link = link(10_000_000_000, 0, 0, 0);
        let times: Vec<u64> = (0..5).map(|_| link.send(0, 64).0).collect();
        assert_eq!(times, [51, 51, 51, 51, 52]);
        assert_eq!(link.free, 256);
    }

    /// Objective: times beyond 64 bits saturate.
    #[test]
    fn long_times() {
        let mut link = link(1, i32::MAX, 1, i32::MAX);
        assert_eq!(link.send(0, u32::MAX), (u64::MAX, u64::MAX));
        assert_eq!(link.send(u64::MAX, 1500).1, u64::MAX);
        let mut fast = self::link(u64::MAX, i32::MAX, 0, 0);
        assert_eq!(fast.send(0, u32::MAX).0, 2);
    }

    /// Objective: a queue refuses frames that would wait longer than its bytes take.
    #[test]
    fn queue_ends() {
        let queue = Some(Size::from_bytes(3000));
        let rate = Rate::from_bits(12_000_000);
        let mut link = Link::new(spec::Link { rate, overhead: 0, cell: 0, cell_overhead: 0, queue });
        for _ in 0..3 {
            assert!(!link.is_full(0));
            link.send(0, 1500);
        }
        assert!(link.is_full(0) && !link.is_full(1_000_000));
    }
}
