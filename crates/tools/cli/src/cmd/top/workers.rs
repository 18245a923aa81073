//! Computes how workers spent their time, from two readings.

use netvale_control::types::{AllStats, WorkerStats};

/// Shares of a worker's time in percent, and its own counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerShares {
    /// The worker's counters.
    pub worker: WorkerStats,
    /// Time spent forwarding, excluding lost time.
    pub busy: f64,
    /// Time during which other threads used the worker's CPU.
    pub lost: f64,
    /// Time spent polling without finding work.
    pub polled: f64,
    /// Time asleep while frames waited for room.
    pub waited: f64,
    /// Time asleep with nothing to do.
    pub slept: f64,
}

/// Returns the shares of each worker in the later reading.
pub fn between(earlier: &AllStats, later: &AllStats) -> Vec<WorkerShares> {
    let passed = later.now_ns.saturating_sub(earlier.now_ns).max(1) as f64;
    let of = |worker: &WorkerStats| {
        let before = earlier.workers.iter().find(|before| before.index == worker.index).copied().unwrap_or_default();
        let share = |nanos: fn(&WorkerStats) -> u64| {
            (100.0 * nanos(worker).saturating_sub(nanos(&before)) as f64 / passed).min(100.0)
        };
        let lost = share(|w| w.preempted_ns);
        let waited = share(|w| w.waited_ns);
        WorkerShares {
            worker: *worker,
            busy: (share(|w| w.busy_ns) - lost).max(0.0),
            lost,
            polled: share(|w| w.polled_ns),
            waited,
            slept: (share(|w| w.slept_ns) - waited).max(0.0),
        }
    };
    later.workers.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the parts of a worker's time do not overlap, and add up to the whole time.
    #[test]
    fn the_parts_of_a_workers_time_add_up() {
        let sample = |seconds: u64| {
            let tenths = |n: u64| n * seconds * 100_000_000;
            let worker = WorkerStats {
                busy_ns: tenths(4),
                preempted_ns: tenths(1),
                polled_ns: tenths(1),
                slept_ns: tenths(5),
                waited_ns: tenths(2),
                ..WorkerStats::default()
            };
            AllStats { now_ns: tenths(10), workers: vec![worker], ..AllStats::default() }
        };
        let all = between(&sample(1), &sample(3));
        let shares: Vec<_> = all.iter().map(|s| [s.busy, s.lost, s.polled, s.waited, s.slept]).collect();
        assert_eq!(shares, [[30.0, 10.0, 10.0, 20.0, 30.0]]);
    }
}
