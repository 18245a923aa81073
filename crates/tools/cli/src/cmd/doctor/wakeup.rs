//! Check: the cost of waking a sleeping thread, measured with netvale's own doorbells.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netvale_mem::notify::{Doorbell, nap};

use super::row::{CheckRow, rounded};
use crate::forward::run::pin;

const CHECK: &str = "wake-up";

/// Maximum number of round trips in a measurement.
const ROUNDS: usize = 250;
/// Minimum number of round trips from which percentiles are computed.
const LEAST: usize = 50;
/// Both threads sleep for this long before each round trip, so that their CPUs reach the same idle states as between
/// two frames.
const PAUSE: Duration = Duration::from_millis(1);
/// Time limit of a measurement; a measurement ends at this limit even if it has few round trips.
const LIMIT: Duration = Duration::from_secs(2);
/// Time after which a round trip counts as lost.
const LOST: Duration = Duration::from_secs(1);

/// Percentiles of the round trips, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundTrips {
    pub p50_us: f64,
    pub p99_us: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WakeUp {
    /// Round trips between two threads that the scheduler places; `None` if too few round trips were completed.
    pub free: Option<RoundTrips>,
    /// Round trips between two threads pinned to different CPUs, with the numbers of these CPUs; `None` if there is
    /// only one CPU, or if too few round trips were completed.
    pub apart: Option<((usize, usize), RoundTrips)>,
}

impl WakeUp {
    /// Measures wake-ups between threads that the scheduler places and, if there are two or more CPUs, between threads
    /// on two different CPUs.
    pub fn measure(cpus: &[usize]) -> WakeUp {
        let apart = match cpus {
            [first, second, ..] => measure(Some((*first, *second))).map(|trips| ((*first, *second), trips)),
            _ => None,
        };
        WakeUp { free: measure(None), apart }
    }
}

fn measure(cpus: Option<(usize, usize)>) -> Option<RoundTrips> {
    let there = Doorbell::new().ok()?;
    let back = Doorbell::new().ok()?;
    let stop = AtomicBool::new(false);
    let mut times = std::thread::scope(|scope| {
        let echo = || {
            cpus.into_iter().for_each(|(_, second)| pin(second));
            while !stop.load(Ordering::Acquire) {
                if nap(there.as_fd(), LOST) && there.drain() {
                    back.ring();
                }
            }
        };
        let ask = || {
            cpus.into_iter().for_each(|(first, _)| pin(first));
            round_trips(&there, &back)
        };
        scope.spawn(echo);
        // A separate thread measures: if it is pinned, the calling thread stays unpinned.
        let times = scope.spawn(ask).join().unwrap_or_default();
        stop.store(true, Ordering::Release);
        there.ring();
        times
    });
    quantiles(&mut times)
}

fn round_trips(there: &Doorbell, back: &Doorbell) -> Vec<Duration> {
    let end = Instant::now() + LIMIT;
    let mut times = Vec::with_capacity(ROUNDS);
    while times.len() < ROUNDS && Instant::now() < end {
        std::thread::sleep(PAUSE);
        let start = Instant::now();
        there.ring();
        if !nap(back.as_fd(), LOST) {
            break;
        }
        times.push(start.elapsed());
        back.drain();
    }
    times
}

fn quantiles(times: &mut [Duration]) -> Option<RoundTrips> {
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).map(|time| time.as_secs_f64() * 1e6);
    if times.len() < LEAST {
        return None;
    }
    Some(RoundTrips { p50_us: at(0.5)?, p99_us: at(0.99)? })
}

/// A median round trip above this, in microseconds, counts as slow. If the CPU is not in an idle state, a round trip
/// takes 5 to 20 µs.
const HIGH_US: f64 = 50.0;
/// A 99th percentile above this, in microseconds, means that other programs or virtual machines on the CPU delay
/// wake-ups.
const LATE_US: f64 = 1000.0;

/// Judges the measurements. `cpus` is the number of CPUs whose time netvale may use; `is_crowded` is set if other
/// programs used these CPUs during the measurement.
pub fn judge(measured: &WakeUp, cpus: f64, is_crowded: bool) -> CheckRow {
    let Some(free) = measured.free else {
        return CheckRow::unknown(CHECK, "too few wake-ups came in time to measure them");
    };
    let text =
        |trips: RoundTrips| format!("median {:.0} µs, one in a hundred above {:.0} µs", trips.p50_us, trips.p99_us);
    let mut row = CheckRow::ok(CHECK, format!("a round trip of two wake-ups takes: {}", text(free)))
        .figure("p50_us", rounded(free.p50_us))
        .figure("p99_us", rounded(free.p99_us));
    if let Some(((first, second), trips)) = measured.apart {
        row.found += &format!("; from CPU {first} to CPU {second}: {}", text(trips));
        row = row.figure("apart_p50_us", rounded(trips.p50_us)).figure("apart_p99_us", rounded(trips.p99_us));
    }
    let apart = measured.apart.map(|(_, trips)| trips);
    let highest = |of: fn(RoundTrips) -> f64| apart.map_or(of(free), |apart| of(apart).max(of(free)));
    let is_slow = highest(|trips| trips.p50_us) > HIGH_US;
    let is_late = highest(|trips| trips.p99_us) > LATE_US;
    match (is_slow, is_late) {
        (false, false) => row,
        _ if is_crowded => row.advise(
            "Other programs had the CPUs meanwhile (neighbours): a frame whose receiver must be woken waits for \
             them, too.",
            "first follow the advice on neighbours; `netvale up --rt-priority N` puts the workers before \
             ordinary programs",
        ),
        (true, _) => row.advise(
            "The first frame after a pause waits that long. Idle CPUs sleep deeply, or this is a virtual machine, \
             where a wake-up passes through the hypervisor.",
            spare_wakeups(cpus),
        ),
        (false, true) => row.advise(
            "Most wake-ups are fast. For the slow ones, a program or another virtual machine had the CPU: \
             frames wait that long.",
            "see neighbours and steal; `netvale up --rt-priority N` puts the workers before ordinary programs",
        ),
    }
}

/// Returns advice on how to reduce the number of wake-ups. Polling is advised only if a CPU can be spared for it.
fn spare_wakeups(cpus: f64) -> &'static str {
    if cpus < 2.0 {
        "larger batches, so that fewer wake-ups are needed (`-b` of pkt-gen). Polling instead (`--poll-always`) takes \
         a second CPU"
    } else {
        "`netvale up --poll-always` (a CPU for each worker), or a `--spin-us` longer than the pauses between frames; \
         see idle-states and governor, too"
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::CheckState;
    use super::*;

    fn state(p50_us: f64, p99_us: f64, apart: Option<f64>) -> CheckState {
        let apart = apart.map(|p50_us| ((0, 1), RoundTrips { p50_us, p99_us }));
        judge(&WakeUp { free: Some(RoundTrips { p50_us, p99_us }), apart }, 2.0, false).state
    }

    /// Objective: a high median or a long tail yields advice, even if only the measurement between two CPUs has it;
    /// without a measurement, the result is unknown.
    #[test]
    fn a_high_median_or_a_long_tail_yields_advice() {
        assert_eq!(state(12.0, 40.0, Some(20.0)), CheckState::Ok);
        assert_eq!(state(12.0, 40.0, None), CheckState::Ok);
        assert_eq!(state(80.0, 90.0, None), CheckState::Advice);
        assert_eq!(state(12.0, 40.0, Some(80.0)), CheckState::Advice);
        assert_eq!(state(12.0, 4000.0, None), CheckState::Advice);
        assert_eq!(judge(&WakeUp::default(), 2.0, false).state, CheckState::Unknown);
    }

    /// Objective: polling is not advised without a spare CPU; while other programs occupy the CPUs, the advice is only
    /// about these programs.
    #[test]
    fn polling_is_advised_only_with_a_spare_cpu() {
        let slow = WakeUp { free: Some(RoundTrips { p50_us: 80.0, p99_us: 90.0 }), apart: None };
        assert!(judge(&slow, 2.0, false).what_to_do.starts_with("`netvale up --poll-always`"));
        assert!(judge(&slow, 1.0, false).what_to_do.starts_with("larger batches"));
        assert!(judge(&slow, 2.0, true).what_to_do.starts_with("first follow the advice on neighbours"));
    }

    /// Objective: percentiles are taken from the sorted times; too few times yield no percentiles.
    #[test]
    fn quantiles_are_taken_from_sorted_times() {
        let mut times: Vec<_> = (1..=100).rev().map(Duration::from_micros).collect();
        assert_eq!(quantiles(&mut times), Some(RoundTrips { p50_us: 51.0, p99_us: 100.0 }));
        assert_eq!(quantiles(&mut times[..10]), None);
    }

    /// Objective: the measurement ends, and its round trips take more than zero time.
    #[test]
    fn the_measurement_ends_and_takes_time() {
        assert!(measure(None).is_none_or(|trips| trips.p50_us > 0.0));
    }
}
