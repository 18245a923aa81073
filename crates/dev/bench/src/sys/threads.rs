//! Pinned threads that repeat their work for a window of time.

use std::hint;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::disturb::{Disturbance, ThreadCounters, Watch};
use crate::error::{BenchError, Result};
use crate::{interrupt, pin};

/// How long threads run before counting starts, until caches, branch predictors and clocks have settled.
const WARM_UP: Duration = Duration::from_millis(50);

/// One round of a job. Returns the number of units (frames, round trips) that it moved. It must not block for long.
pub type Round<'a> = Box<dyn FnMut() -> Result<u64> + Send + 'a>;

/// The work of a pinned thread.
pub struct Job<'a> {
    /// The CPU to which the thread is pinned.
    pub core: usize,
    /// The thread's work.
    pub round: Round<'a>,
}

impl<'a> Job<'a> {
    /// Creates a job that repeats `round` on `core`.
    pub fn new(core: usize, round: impl FnMut() -> Result<u64> + Send + 'a) -> Self {
        Self { core, round: Box::new(round) }
    }
}

/// The work of one thread in the window.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Number of units moved or made: frames, bytes, or round trips.
    pub count: u64,
    /// The time during which the thread counted.
    pub elapsed: Duration,
}

impl Done {
    /// Returns the number of units per second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

const WARM: u8 = 0;
const COUNT: u8 = 1;
const STOP: u8 = 2;

/// Runs all jobs simultaneously: first for a warm-up, then for `window`, in which they count. Returns the jobs'
/// results, in their order, and what disturbed the measurement.
pub fn run_pinned(jobs: Vec<Job<'_>>, window: Duration) -> Result<(Vec<Done>, Disturbance)> {
    run_pinned_with(jobs, window, &[], &[])
}

/// Like [`run_pinned`], beside other processes that belong to the measurement and their pinned threads, as
/// `(pid, tid)`.
pub fn run_pinned_with(
    jobs: Vec<Job<'_>>,
    window: Duration,
    processes: &[u32],
    threads: &[(u32, u32)],
) -> Result<(Vec<Done>, Disturbance)> {
    let phase = AtomicU8::new(WARM);
    let phase = &phase;
    std::thread::scope(|scope| {
        let started: Vec<_> = jobs.into_iter().map(|job| scope.spawn(move || work(job, phase))).collect();
        let watch = interrupt::sleep(WARM_UP).map(|()| Watch::start(processes, threads));
        phase.store(COUNT, Ordering::Relaxed);
        let slept = interrupt::sleep(window);
        phase.store(STOP, Ordering::Relaxed);
        let finished: Vec<_> = started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        slept?;
        collect(finished, watch?.finish())
    })
}

fn collect(finished: Vec<Result<(Done, ThreadCounters)>>, mut beside: Disturbance) -> Result<(Vec<Done>, Disturbance)> {
    let mut done = Vec::new();
    for thread in finished {
        let (figures, counters) = thread?;
        beside = beside.with_thread(counters.switches, counters.waited, figures.elapsed);
        done.push(figures);
    }
    Ok((done, beside))
}

fn work(mut job: Job<'_>, phase: &AtomicU8) -> Result<(Done, ThreadCounters)> {
    pin::pin(job.core)?;
    while phase.load(Ordering::Relaxed) == WARM {
        (job.round)()?;
        hint::spin_loop();
    }
    let before = ThreadCounters::of_this_thread();
    let started = Instant::now();
    let mut count = 0;
    while phase.load(Ordering::Relaxed) == COUNT {
        count += (job.round)()?;
    }
    let elapsed = started.elapsed();
    Ok((Done { count, elapsed }, ThreadCounters::of_this_thread().since(before)))
}

/// Returns the sum of several threads' counts as a rate per second.
pub fn total_rate(who: &str, done: &[Done]) -> Result<f64> {
    let total: f64 = done.iter().map(Done::rate).sum();
    if total > 0.0 { Ok(total) } else { Err(BenchError::NoTraffic(who.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each job's rounds are counted on its own thread, and a failing job ends the others with its error.
    #[test]
    fn rounds_are_counted_and_failures_end_all_jobs() {
        let core = *pin::allowed().expect("affinity").first().expect("a CPU");
        let jobs = vec![Job::new(core, || Ok(2)), Job::new(core, || Ok(0))];
        let (done, _) = run_pinned(jobs, Duration::from_millis(20)).expect("nothing fails");
        assert!(matches!(done[..], [first, second] if first.count > 0 && first.count % 2 == 0 && second.count == 0));
        assert!(total_rate("x", &done).expect("moved") > 0.0);
        let failing = vec![Job::new(core, || Err(BenchError::Usage("broken".into()))), Job::new(core, || Ok(1))];
        assert!(run_pinned(failing, Duration::from_millis(5)).is_err());
        assert!(matches!(total_rate("x", &[]), Err(BenchError::NoTraffic(_))));
    }
}
