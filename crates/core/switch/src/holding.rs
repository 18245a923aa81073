//! Limits on holding senders back for a lossless port.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a lossless receiver may hold a batch back without taking any sender's frames. A receiver that has stopped
/// reading must not stop its senders permanently.
pub const WITHOUT_PROGRESS: Duration = Duration::from_millis(500);
/// How long a lossless receiver may hold a batch back in total, even if it takes frames.
pub const FOR_A_BATCH: Duration = Duration::from_secs(5);
/// How long a batch waits for a receiver that was woken and has not run yet: longer than a scheduler's time slice.
pub const FOR_A_WAKE_UP: Duration = Duration::from_millis(10);
/// After holding a batch for *t*, a port may not hold senders for 10·*t*, because the senders also have frames for
/// other ports. A port thus holds senders at most one eleventh of the time.
const PAUSE: u32 = 10;

/// The run-time state that limits how long a port holds senders back.
#[derive(Debug)]
pub(crate) struct HoldLimit {
    base: Instant,
    /// Time from which the port may hold senders again, in milliseconds since `base`.
    until: AtomicU64,
    /// The receiver's `Room::progress` when it was last woken but did not run in time. Until `Room::progress` changes,
    /// senders do not wait for another wake-up of the receiver.
    stopped_at: AtomicU64,
}

impl Default for HoldLimit {
    fn default() -> HoldLimit {
        HoldLimit { base: Instant::now(), until: AtomicU64::new(0), stopped_at: AtomicU64::new(u64::MAX) }
    }
}

impl HoldLimit {
    /// Whether senders may be held back.
    pub(crate) fn is_allowed(&self) -> bool {
        self.now() >= self.until.load(Ordering::Relaxed)
    }

    /// Forbids holding for a while, because the port was so slow that a batch was held back for `held`.
    pub(crate) fn suspend(&self, held: Duration) {
        self.until.store(self.now() + (PAUSE * held).as_millis() as u64, Ordering::Relaxed);
    }

    /// Whether to wait for a receiver that was woken and whose `Room::progress` is `progress`. Senders wait only once
    /// for a receiver that makes no progress.
    pub(crate) fn is_awaited(&self, progress: u32) -> bool {
        self.stopped_at.load(Ordering::Relaxed) != u64::from(progress)
    }

    /// Records that the receiver was woken and did not run in time.
    pub(crate) fn await_no_more(&self, progress: u32) {
        self.stopped_at.store(u64::from(progress), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.base.elapsed().as_millis() as u64
    }
}
