//! Accounting of a worker's time: busy, idle, asleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netvale_mem::calls::own_time;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::WorkerTimeStats;
use crate::stalls::{WatchedThread, nanoseconds};

/// Time without work after which a worker reads the clock at every poll; before that, it reads the clock only every few
/// polls.
const OFTEN: Duration = Duration::from_micros(5);
/// Number of busy rounds between two clock reads.
const ROUNDS: u32 = 128;

/// Time awake after which the time awake is compared with the thread's CPU time. Each comparison takes a system call.
const COMPARED: Duration = Duration::from_millis(10);

/// Accounts for a worker's time. While the worker is busy, the clock is read only every [`ROUNDS`] rounds, because
/// reading it takes time.
pub(super) struct WorkerClock {
    watched: Arc<WatchedThread>,
    since: Instant,
    is_busy: bool,
    looks: u32,
    idle_for: Duration,
    /// Time that the worker has been awake since `used` was read.
    awake: Duration,
    /// The thread's CPU time when it was last read.
    used: Duration,
    /// Last observed tick of the kernel's clock.
    tick: Timespec,
}

/// Returns the time of the kernel's last tick. This needs neither a system call nor the processor's counter.
fn tick() -> Timespec {
    clock_gettime(ClockId::MonotonicCoarse)
}

/// Adds a time to a counter. Only one thread may write the counter.
pub(super) fn add(to: &AtomicU64, time: Duration) {
    to.store(to.load(Ordering::Relaxed) + time.as_nanos() as u64, Ordering::Release);
}

impl WorkerTimeStats {
    /// Returns the nanoseconds spent asleep so far, including the current sleep. The value never decreases.
    pub fn slept(&self) -> u64 {
        let since = self.asleep_since.load(Ordering::Acquire);
        let slept = self.slept_ns.load(Ordering::Acquire);
        let lasts = since != 0 && self.asleep_since.load(Ordering::Acquire) == since;
        let now = slept + if lasts { nanoseconds(Instant::now()).saturating_sub(since) } else { 0 };
        self.told.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

impl WorkerClock {
    pub(super) fn new(watched: Arc<WatchedThread>) -> WorkerClock {
        let since = Instant::now();
        let zero = Duration::ZERO;
        WorkerClock { watched, since, is_busy: false, looks: 0, idle_for: zero, awake: zero, used: zero, tick: tick() }
    }

    /// Whether the kernel's clock has ticked since the last call, which means that a few milliseconds have passed.
    #[inline]
    pub(super) fn has_ticked(&mut self) -> bool {
        let before = std::mem::replace(&mut self.tick, tick());
        before != self.tick
    }

    fn turn(&mut self, into: &AtomicU64) -> Duration {
        let now = Instant::now();
        let spent = now.duration_since(self.since);
        add(into, spent);
        self.since = now;
        self.watched.progress(now);
        spent
    }

    fn turn_awake(&mut self, stats: &WorkerTimeStats, into: &AtomicU64) -> Duration {
        let spent = self.turn(into);
        self.awake += spent;
        if self.awake > COMPARED {
            self.compare(stats);
        }
        spent
    }

    /// Compares the time awake since the last call with the CPU time. Adds the difference, in which the worker had no
    /// CPU, to the statistics.
    fn compare(&mut self, stats: &WorkerTimeStats) {
        let used = own_time();
        let mine = used.saturating_sub(std::mem::replace(&mut self.used, used));
        add(&stats.preempted_ns, std::mem::take(&mut self.awake).saturating_sub(mine));
    }

    #[inline]
    pub(super) fn busy(&mut self, stats: &WorkerTimeStats) {
        self.looks = self.looks.wrapping_add(1);
        // For the first batch after an idle time, almost all time since the last read of the clock was spent on this
        // batch. Later reads are rare; they keep the numbers in `netvale top` current for a worker that is never idle.
        if !self.is_busy || self.looks.is_multiple_of(ROUNDS) {
            self.turn_awake(stats, &stats.busy_ns);
            self.is_busy = true;
        }
    }

    /// Returns the time since a poll last found work. In the first microseconds, the clock is read only every few
    /// polls, because reading it takes longer than a poll.
    pub(super) fn idle(&mut self, stats: &WorkerTimeStats) -> Duration {
        if self.is_busy {
            self.turn_awake(stats, &stats.busy_ns);
            self.is_busy = false;
            self.looks = 0;
            self.idle_for = Duration::ZERO;
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(8) || self.idle_for > OFTEN {
            let spent = self.turn_awake(stats, &stats.polled_ns);
            self.idle_for += spent;
        }
        self.idle_for
    }

    pub(super) fn before_sleep(&mut self, stats: &WorkerTimeStats) {
        self.turn_awake(stats, &stats.polled_ns);
        self.compare(stats);
        self.watched.rest();
        stats.asleep_since.store(nanoseconds(self.since), Ordering::Release);
        stats.sleeps.fetch_add(1, Ordering::Relaxed);
    }

    /// Accounts for a sleep that has ended. Returns the length of the sleep.
    pub(super) fn after_sleep(&mut self, stats: &WorkerTimeStats) -> Duration {
        // This store precedes the addition to the sum, so that a reader may miss the sleep for a moment, but never
        // counts it twice.
        stats.asleep_since.store(0, Ordering::Release);
        let slept = self.turn(&stats.slept_ns);
        self.looks = 0;
        self.idle_for = Duration::ZERO;
        slept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the time asleep includes a sleep in progress, equals the worker's own count after that sleep, and
    /// never decreases.
    #[test]
    fn a_sleep_that_lasts() {
        let stats = WorkerTimeStats::default();
        let mut clock = WorkerClock::new(WatchedThread::new("a test".into()));
        let mut last = 0;
        for _ in 0..3 {
            clock.before_sleep(&stats);
            let before = stats.slept();
            assert!(before >= last);
            while stats.slept() < before + 1_000_000 {
                std::thread::yield_now();
            }
            let during = stats.slept();
            assert!(stats.slept_ns.load(Ordering::Relaxed) < during);
            clock.after_sleep(&stats);
            last = stats.slept();
            assert!(last >= during);
            assert_eq!(last, stats.slept_ns.load(Ordering::Relaxed));
        }
    }

    /// Objective: at any moment, while a worker repeatedly sleeps and wakes, the time asleep does not decrease and does
    /// not exceed the elapsed time.
    #[test]
    fn the_time_asleep_never_decreases() {
        let stats = Arc::new(WorkerTimeStats::default());
        let begun = Instant::now();
        let sleeper = {
            let stats = Arc::clone(&stats);
            let mut clock = WorkerClock::new(WatchedThread::new("a test".into()));
            std::thread::spawn(move || {
                for _ in 0..100_000 {
                    clock.before_sleep(&stats);
                    clock.after_sleep(&stats);
                }
            })
        };
        let mut last = 0;
        while !sleeper.is_finished() {
            let slept = stats.slept();
            assert!(slept >= last && Duration::from_nanos(slept) <= begun.elapsed());
            last = slept;
        }
        sleeper.join().expect("it ends");
    }
}
