//! Limits on holding senders back for a lossless port.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a lossless receiver may hold a batch back without taking a frame of it: one that stopped reading must not
/// stop others for good.
pub const WITHOUT_PROGRESS: Duration = Duration::from_millis(500);
/// How long it may hold a batch back if it takes a frame now and then.
pub const FOR_A_BATCH: Duration = Duration::from_secs(5);
/// How long a batch waits for a receiver that was woken and has not run yet: longer than a scheduler's slice.
pub const FOR_A_WAKE_UP: Duration = Duration::from_millis(10);
/// After holding a batch for *t*, a port may not hold senders for 10·*t*: at most 1 s in 11. Their frames are for other
/// ports, too.
const PAUSE: u32 = 10;

/// End of the time during which a port may not hold senders.
#[derive(Debug)]
pub(crate) struct Holding {
    base: Instant,
    /// In milliseconds since `base`.
    until: AtomicU64,
    /// The receiver's progress at the last fruitless wait: until it moves it is not waited for again.
    stopped_at: AtomicU64,
}

impl Default for Holding {
    fn default() -> Holding {
        Holding { base: Instant::now(), until: AtomicU64::new(0), stopped_at: AtomicU64::new(u64::MAX) }
    }
}

impl Holding {
    /// Whether senders may be held back.
    pub(crate) fn is_allowed(&self) -> bool {
        self.now() >= self.until.load(Ordering::Relaxed)
    }

    /// Suspends holding after the port was too slow: a batch was held for `held`.
    pub(crate) fn suspend(&self, held: Duration) {
        self.until.store(self.now() + (PAUSE * held).as_millis() as u64, Ordering::Relaxed);
    }

    /// Whether to wait for a receiver that was woken. A stopped one is waited for once.
    pub(crate) fn is_awaited(&self, progress: u32) -> bool {
        self.stopped_at.load(Ordering::Relaxed) != u64::from(progress)
    }

    /// Records that the receiver was woken, and did not run in time.
    pub(crate) fn await_no_more(&self, progress: u32) {
        self.stopped_at.store(u64::from(progress), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.base.elapsed().as_millis() as u64
    }
}
