//! Counters of frames, bytes, and drops by reason.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::latency::Histogram;
pub use crate::reason::DropReason;
use crate::steps::{self, Step};

/// Number of drop reasons.
pub const REASONS: usize = DropReason::ALL.len();

/// Counters of one ring (or queue) in one direction. They are cumulative, and any thread may read them at any time.
#[derive(Debug)]
pub struct RingCounters {
    frames: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
    drops: [AtomicU64; REASONS],
    latency: Histogram,
}

impl Default for RingCounters {
    fn default() -> RingCounters {
        let (frames, bytes, batches, latency) = Default::default();
        RingCounters { frames, bytes, batches, drops: std::array::from_fn(|_| AtomicU64::new(0)), latency }
    }
}

impl RingCounters {
    /// Counts a batch of frames that passed through the ring; an empty batch does not count.
    #[inline]
    pub fn passed(&self, frames: u64, bytes: u64) {
        self.passed_in(u64::from(frames > 0), frames, bytes);
    }

    /// Counts several batches of frames that passed through the ring.
    #[inline]
    pub fn passed_in(&self, batches: u64, frames: u64, bytes: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.batches.fetch_add(batches, Ordering::Relaxed);
    }

    /// Counts frames dropped for one reason, and reports the drop to traces as a step.
    // Cold, so that only the path that drops a frame saves registers for the call.
    #[cold]
    #[inline(never)]
    pub fn dropped(&self, why: DropReason, frames: u64) {
        self.dropped_before(why, frames);
        if frames > 0 {
            steps::step(Step::Dropped(why, frames as u32));
        }
    }

    /// Counts dropped frames whose drop was already reported to traces as a step.
    #[inline]
    pub fn dropped_before(&self, why: DropReason, frames: u64) {
        if let Some(c) = self.drops.get(why as usize) {
            c.fetch_add(frames, Ordering::Relaxed);
        }
    }

    /// Number of frames that passed through the ring.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Number of bytes in the frames that passed through the ring, without virtio-net headers.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of batches in which frames passed through the ring.
    pub fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Number of frames dropped for one reason.
    pub fn drops(&self, why: DropReason) -> u64 {
        self.drops.get(why as usize).map_or(0, |c| c.load(Ordering::Relaxed))
    }

    /// Latencies of the timed frames from this ring.
    pub fn latency(&self) -> &Histogram {
        &self.latency
    }

    /// The reasons for which frames were dropped, with the number of frames. [`DropReason::Idle`] is not listed.
    pub fn all_drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        let reasons = DropReason::ALL.iter().filter(|&&why| why != DropReason::Idle);
        reasons.map(|&r| (r, self.drops(r))).filter(|&(_, n)| n > 0)
    }

    /// Number of frames for which there was no receiver.
    pub fn idle(&self) -> u64 {
        self.drops(DropReason::Idle)
    }
}
