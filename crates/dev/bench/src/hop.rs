//! Measures the distance between two CPUs: the time that a cache line takes from one to the other.
//!
//! A hypervisor places a virtual machine's CPUs on cores with or without a common cache, and moves them at any time.
//! All figures with two CPUs depend on that, by a factor of up to five; records therefore contain the distance during
//! their runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::pin::pin;

/// Round trips per attempt.
const TRIPS: u64 = 2000;
/// Attempts, of which the shortest counts: the CPUs may be interrupted.
const ATTEMPTS: u64 = 8;
/// The value by which a thread tells the other to end.
const END: u64 = u64::MAX;

/// A value alone in its cache lines, including the one that hardware prefetches with it.
#[derive(Default)]
#[repr(align(128))]
struct LoneValue(AtomicU64);

/// Returns the time that a cache line takes between the first two of `cpus`, in nanoseconds; `None` if there is only
/// one CPU, or threads cannot run there.
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

/// Measures an attempt; `None` if the other thread does not answer.
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

    /// Objective: the distance between two CPUs is measured; a single CPU has none.
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
