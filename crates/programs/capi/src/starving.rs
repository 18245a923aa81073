//! A warning, printed once, for a program that spins at a real-time priority: while the program waits for room in a
//! ring, it may keep the daemon's worker, which would empty that ring, from running.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libc::{SCHED_DEADLINE, SCHED_FIFO, SCHED_RESET_ON_FORK, SCHED_RR};

/// Time for which a ring must stay full, without progress, before the warning. It is longer than the kernel's
/// throttling of real-time threads (`sched_rt_runtime_us`: by default 50 ms of each second), during which a worker with
/// real-time priority does not run either.
const PATIENCE: Duration = Duration::from_millis(100);
/// Maximum interval between syncs that count as spinning.
const GAP: Duration = Duration::from_millis(10);
/// Number of syncs between reads of the clock.
const LOOK_EVERY: u32 = 64;

/// Detects that a program spins on a tx ring that stays full.
#[derive(Debug, Default)]
pub struct FullRing {
    syncs: AtomicU32,
    /// The ring's tail at the last sync that found the ring full.
    tail: AtomicU32,
    /// Time, in nanoseconds of [`now`], of the first check that found the current tail, if the program has checked
    /// without a pause since; 0 after the tail has moved.
    since: AtomicU64,
    /// Time of the last check, in nanoseconds of [`now`].
    seen: AtomicU64,
}

static SAID: AtomicBool = AtomicBool::new(false);

impl FullRing {
    /// Records that a sync found the ring full, with the tail `tail`.
    #[cold]
    pub fn found(&self, tail: u32) {
        if self.tail.swap(tail, Ordering::Relaxed) != tail {
            self.since.store(0, Ordering::Relaxed);
            return;
        }
        if !self.syncs.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) || SAID.load(Ordering::Relaxed) {
            return;
        }
        if self.stands(now()) {
            warn();
        }
    }

    /// Called at each check while the tail does not move. Returns whether it has not moved for [`PATIENCE`], during
    /// which successive checks were at most [`GAP`] apart.
    fn stands(&self, now: u64) -> bool {
        let nanos = |d: Duration| d.as_nanos() as u64;
        let since = self.since.load(Ordering::Relaxed);
        let seen = self.seen.swap(now, Ordering::Relaxed);
        if since == 0 || now.saturating_sub(seen) > nanos(GAP) {
            self.since.store(now, Ordering::Relaxed);
            return false;
        }
        now.saturating_sub(since) > nanos(PATIENCE)
    }
}

/// Returns the nanoseconds since the first call, never 0.
fn now() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

/// Returns the scheduling policy and the priority of the calling thread; `None` if it is not a real-time thread.
fn real_time() -> Option<(&'static str, i32)> {
    // SAFETY: the call concerns the calling thread, and has no argument in memory.
    let policy = unsafe { libc::sched_getscheduler(0) };
    let name = match policy & !SCHED_RESET_ON_FORK {
        SCHED_FIFO => "SCHED_FIFO",
        SCHED_RR => "SCHED_RR",
        SCHED_DEADLINE => "SCHED_DEADLINE",
        _ => return None,
    };
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel fills one structure, which lives during the call.
    unsafe { libc::sched_getparam(0, &raw mut parameters) };
    Some((name, parameters.sched_priority))
}

fn warn() {
    let Some((policy, priority)) = real_time() else { return };
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    netvale_control::note!(
        "netvale: a thread at {policy} priority {priority} has spun for {} ms on a full ring that the \
         daemon does not empty: the thread may keep the daemon's worker off the CPU. Start the daemon with \
         'netvale up --rt-priority {}', or pin the worker to a CPU of its own (--cpu).",
        PATIENCE.as_millis(),
        (priority + 1).clamp(1, 99)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a ring counts as stuck if checks in close succession find it full for 100 ms, but not earlier, and
    /// not if there was a pause between checks.
    #[test]
    fn a_ring_counts_as_stuck_after_100_ms() {
        let full = FullRing::default();
        let ms = |n: u64| 1 + n * 1_000_000;
        assert!((0..=100).all(|n| !full.stands(ms(n))));
        assert!(full.stands(ms(101)));
        assert!(!full.stands(ms(1000)) && !full.stands(ms(1005)) && !full.stands(ms(1014)));
        assert!((1015..=1100).all(|n| !full.stands(ms(n))) && full.stands(ms(1101)));
    }
}
