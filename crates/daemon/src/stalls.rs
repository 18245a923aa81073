//! Detection of stalls: operations that take too long, in the main thread or a worker. These threads must not wait.
//!
//! A thread reports progress ([`WatchedThread::progress`]) and idleness ([`WatchedThread::rest`]), and counts its own
//! finished stalls. The watching thread (`system::watch`) detects stalls in progress and writes the log, because
//! workers do not write to the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Duration above which an operation counts as a stall.
pub const LIMIT: Duration = Duration::from_millis(100);

/// Origin of the times in this module.
static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);

static ALL: Mutex<Vec<Weak<WatchedThread>>> = Mutex::new(Vec::new());

/// A thread that must not wait, and the times with which its stalls are detected.
#[derive(Debug)]
pub struct WatchedThread {
    name: String,
    /// Start of the current operation, in nanoseconds since [`BASE`]; 0 while the thread is idle.
    since: AtomicU64,
    stalls: AtomicU64,
    /// Duration of the longest stall since the last report, in nanoseconds.
    longest: AtomicU64,
    /// Start of the last operation that was reported while it was still in progress.
    reported: AtomicU64,
}

impl WatchedThread {
    /// Registers a thread to be watched until the returned value is dropped.
    pub fn new(name: String) -> Arc<WatchedThread> {
        let zero = || AtomicU64::new(0);
        let one = WatchedThread { name, since: zero(), stalls: zero(), longest: zero(), reported: zero() };
        let one = Arc::new(one);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&one));
        one
    }

    /// Marks the start of the thread's next operation.
    pub fn progress(&self, now: Instant) {
        let now = nanoseconds(now);
        // No other thread writes this word.
        let before = self.since.load(Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
        if before != 0 && now.saturating_sub(before) > LIMIT.as_nanos() as u64 {
            self.stalls.fetch_add(1, Ordering::Relaxed);
            self.longest.fetch_max(now - before, Ordering::Relaxed);
        }
    }

    /// Marks the thread as idle. [`WatchedThread::progress`] must be called before, because it checks the duration of
    /// the operation that ends here.
    pub fn rest(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// Whether the current operation has lasted longer than `limit`.
    pub fn hangs(&self, now: Instant, limit: Duration) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        since != 0 && nanoseconds(now).saturating_sub(since) > limit.as_nanos() as u64
    }

    /// Returns the number of finished operations that took longer than [`LIMIT`].
    pub fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }

    fn report(&self, now: u64) {
        let longest = self.longest.swap(0, Ordering::Relaxed);
        if longest != 0 {
            let ms = longest / 1_000_000;
            tracing::warn!(ms, "{} was held up: its operation took too long, or it got no CPU time", self.name);
        }
        let since = self.since.load(Ordering::Relaxed);
        let lasts = since != 0 && now.saturating_sub(since) > LIMIT.as_nanos() as u64;
        if lasts && self.reported.swap(since, Ordering::Relaxed) != since {
            let ms = (now - since) / 1_000_000;
            tracing::warn!(ms, "{} is held up: its operation takes too long, or it gets no CPU time", self.name);
        }
    }
}

pub(crate) fn nanoseconds(at: Instant) -> u64 {
    // 1 is added because 0 stands for an idle thread.
    at.saturating_duration_since(*BASE).as_nanos() as u64 + 1
}

/// Logs stalls that have ended since the last call, and stalls in progress.
pub fn report() {
    let all: Vec<_> = ALL.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
    let now = nanoseconds(Instant::now());
    all.iter().for_each(|one| one.report(now));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: an operation that exceeds the limit is counted once; idle time is not counted, however long it is.
    #[test]
    fn only_work_is_counted() {
        let thread = WatchedThread::new("test".into());
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        thread.progress(after(0));
        thread.progress(after(99));
        assert_eq!(thread.stalls(), 0);
        thread.progress(after(200));
        assert_eq!(thread.stalls(), 1);
        assert!(!thread.hangs(after(290), LIMIT) && thread.hangs(after(310), LIMIT));
        thread.rest();
        assert!(!thread.hangs(after(900), LIMIT));
        thread.progress(after(900));
        thread.progress(after(901));
        assert_eq!(thread.stalls(), 1);
    }
}
