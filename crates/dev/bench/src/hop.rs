//! Measures the distance between two CPUs: the time that a cache line takes from one CPU to the other.
//!
//! A hypervisor places a virtual machine's CPUs on cores with or without a common cache, and moves them at any time.
//! All figures for two CPUs depend on this placement, by a factor of up to five; records therefore contain the distance
//! that was measured during their runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::pin::pin;

/// Number of round trips in one attempt.
const TRIPS: u64 = 2000;
/// Number of attempts, of which the shortest counts, because the CPUs may be interrupted during an attempt.
const ATTEMPTS: u64 = 8;
/// The value by which one thread tells the other thread to end.
const END: u64 = u64::MAX;

/// A value that shares its cache line, and the adjacent line that hardware prefetches with it, with no other data.
#[derive(Default)]
#[repr(align(128))]
struct LoneValue(AtomicU64);

/// Returns the time that a cache line takes between the first two of `cpus`, in nanoseconds; `None` if there is only
/// one CPU, or if threads cannot run on these CPUs.
pub fn nanoseconds(cpus: &[usize]) -> Option<f64> {
    let (near, far) = match *cpus {
        [near, far, ..] if near != far => (near, far),
        _ => return None,
    };
    let ask = LoneValue::default();
    let reply = LoneValue::default();
    let shortest = std::thread::scope(|scope| {
        scope.spawn(|| {
            if pin(far).is_ok() {
                answer(&ask, &reply);
            } else {
                reply.0.store(END, Ordering::Release);
            }
        });
        let asking = scope.spawn(|| {
            let times = (0..ATTEMPTS).map(|attempt| trips(attempt * TRIPS, &ask, &reply));
            let shortest = pin(near).ok().and_then(|()| times.collect::<Option<Vec<_>>>()?.into_iter().min());
            ask.0.store(END, Ordering::Release);
            shortest
        });
        asking.join().ok().flatten()
    });
    shortest.map(|time| time.as_nanos() as f64 / (2 * TRIPS) as f64)
}

/// Measures one attempt; `None` if the other thread does not answer.
fn trips(after: u64, ask: &LoneValue, reply: &LoneValue) -> Option<Duration> {
    let start = Instant::now();
    for number in after + 1..=after + TRIPS {
        ask.0.store(number, Ordering::Release);
        loop {
            match reply.0.load(Ordering::Acquire) {
                END => return None,
                answered if answered == number => break,
                _ => {}
            }
        }
    }
    Some(start.elapsed())
}

fn answer(ask: &LoneValue, reply: &LoneValue) {
    let mut last = 0;
    loop {
        match ask.0.load(Ordering::Acquire) {
            END => break,
            number if number == last => {}
            number => {
                last = number;
                reply.0.store(number, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the distance between two CPUs is measured; for a single CPU, there is no distance.
    #[test]
    fn two_cpus_have_a_distance() {
        let cpus = crate::pin::allowed().expect("CPUs");
        assert_eq!(nanoseconds(&cpus[..1]), None);
        assert_eq!(nanoseconds(&cpus).is_some_and(|time| time > 0.0), cpus.len() > 1);
        assert_eq!(nanoseconds(&[cpus[0], cpus[0]]), None, "the same CPU");
        assert_eq!(nanoseconds(&[cpus[0], usize::MAX]), None, "no such CPU");
        assert_eq!(nanoseconds(&[usize::MAX, cpus[0]]), None, "no such CPU");
    }
}
