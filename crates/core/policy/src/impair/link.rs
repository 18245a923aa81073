//! Transmission times of frames on a link with a rate, and the link's queue.

use super::spec;

const NANOS: u64 = 1_000_000_000;

/// A link that sends one frame after the other at its rate.
#[derive(Clone, Debug)]
pub(super) struct LinkModel {
    /// Bits per second, at least 1.
    rate: u64,
    overhead: i32,
    cell: u32,
    cell_overhead: i32,
    /// Maximum wait of a frame, nanoseconds: the transmission time of a full queue; `None` if unlimited.
    queue: Option<u64>,
    /// Time at which the last frame has been sent, nanoseconds.
    free: u64,
    /// Remainder of the last frame's transmission time, in 1 / `rate` nanoseconds.
    rest: u64,
}

impl LinkModel {
    /// Creates an idle link.
    pub fn new(spec: spec::LinkSpec) -> Self {
        let rate = spec.rate.bits().max(1);
        let queue = spec.queue.map(|queue| {
            let nanos = u128::from(queue.bytes()) * 8 * u128::from(NANOS) / u128::from(rate);
            u64::try_from(nanos).unwrap_or(u64::MAX)
        });
        let spec::LinkSpec { overhead, cell, cell_overhead, .. } = spec;
        Self { rate, overhead, cell, cell_overhead, queue, free: 0, rest: 0 }
    }

    /// Whether a new frame would wait longer than a full queue takes to send. A queue may thus exceed its size by one
    /// frame, so a size of 0 bytes works.
    #[inline]
    pub fn is_full(&self, now: u64) -> bool {
        self.queue.is_some_and(|queue| self.free.saturating_sub(now) > queue)
    }

    /// Sends a frame of `len` bytes. Returns the frame's transmission time, and the time at which the frame has been
    /// sent, both in nanoseconds.
    #[inline]
    pub fn send(&mut self, now: u64, len: u32) -> (u64, u64) {
        let time = self.time(self.bytes(len));
        self.free = self.free.max(now).saturating_add(time);
        (time, self.free)
    }

    /// Returns the number of bytes that a frame of `len` bytes occupies on the link.
    #[inline]
    fn bytes(&self, len: u32) -> u64 {
        let bytes = u64::from(len).saturating_add_signed(i64::from(self.overhead));
        if self.cell == 0 {
            return bytes;
        }
        let cell = u64::from(self.cell).saturating_add_signed(i64::from(self.cell_overhead));
        bytes.div_ceil(u64::from(self.cell)).saturating_mul(cell)
    }

    /// Returns the transmission time of `bytes`, nanoseconds. The remainder counts towards the next frame's time.
    #[inline]
    fn time(&mut self, bytes: u64) -> u64 {
        let parts = bytes.checked_mul(8 * NANOS).and_then(|parts| parts.checked_add(self.rest));
        let Some(parts) = parts else { return self.long_time(bytes) };
        self.rest = parts % self.rate;
        parts / self.rate
    }

    /// Like [`LinkModel::time`], for numbers whose intermediate results exceed 64 bits.
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

    fn link(rate: u64, overhead: i32, cell: u32, cell_overhead: i32) -> LinkModel {
        LinkModel::new(spec::LinkSpec { rate: Rate::from_bits(rate), overhead, cell, cell_overhead, queue: None })
    }

    /// Objective: overheads and cells count as in netem; ATM takes 53 bytes for each 48 bytes of a frame, as in
    /// tc-netem(8).
    #[test]
    fn bytes_on_the_link() {
        assert_eq!(link(1, 0, 0, 0).bytes(1500), 1500);
        assert_eq!(link(1, 20, 0, 0).bytes(1500), 1520);
        assert_eq!(link(1, -14, 0, 0).bytes(10), 0);
        assert_eq!(link(1, 0, 48, 5).bytes(48), 53);
        assert_eq!(link(1, 0, 48, 5).bytes(49), 106);
        assert_eq!(link(1, 0, 48, -50).bytes(49), 0);
    }

    /// Objective: frames whose transmission time is not a whole number of nanoseconds take the right total time.
    #[test]
    fn no_time_is_lost() {
        let mut link = link(10_000_000_000, 0, 0, 0);
        let times: Vec<u64> = (0..5).map(|_| link.send(0, 64).0).collect();
        assert_eq!(times, [51, 51, 51, 51, 52]);
        assert_eq!(link.free, 256);
    }

    /// Objective: times beyond 64 bits saturate.
    #[test]
    fn times_beyond_64_bits_saturate() {
        let mut link = link(1, i32::MAX, 1, i32::MAX);
        assert_eq!(link.send(0, u32::MAX), (u64::MAX, u64::MAX));
        assert_eq!(link.send(u64::MAX, 1500).1, u64::MAX);
        let mut fast = self::link(u64::MAX, i32::MAX, 0, 0);
        assert_eq!(fast.send(0, u32::MAX).0, 2);
    }

    /// Objective: a queue refuses frames that would wait longer than the transmission time of a full queue.
    #[test]
    fn a_full_queue_refuses_frames() {
        let queue = Some(Size::from_bytes(3000));
        let rate = Rate::from_bits(12_000_000);
        let mut link = LinkModel::new(spec::LinkSpec { rate, overhead: 0, cell: 0, cell_overhead: 0, queue });
        for _ in 0..3 {
            assert!(!link.is_full(0));
            link.send(0, 1500);
        }
        assert!(link.is_full(0) && !link.is_full(1_000_000));
    }
}
