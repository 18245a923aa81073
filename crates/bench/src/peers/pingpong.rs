//! Two threads that hand one message back and forth, and the one-way times they see.
//!
//! One-way time is half a round trip: no two clocks are compared.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::contender::Sample;
use crate::disturb::{ThreadCounters, Watch};
use crate::error::{BenchError, Result};
use crate::{interrupt, pin};

/// Round trips before counting starts, and the longest time for them.
const WARM_UP: usize = 1000;
/// See [`WARM_UP`].
const WARM_UP_LIMIT: Duration = Duration::from_millis(500);

/// The CPUs of the near and the far side; `None` where the scheduler places them.
pub type Cores = Option<(usize, usize)>;

/// One side of the hand-off. Both calls block.
pub trait Side: Send {
    /// Wakes the other side.
    ///
    /// # Errors
    /// The system call fails.
    fn send(&mut self) -> Result<()>;
    /// Waits for the other side. `false` when nothing came for a while.
    ///
    /// # Errors
    /// The system call fails.
    fn wait(&mut self) -> Result<bool>;
}

/// Lets `near` and `far` on their `cores` play for `window`, by way of `processes` if others take part. The median
/// one-way time is the figure, in microseconds.
///
/// # Errors
/// A side fails, or a message is lost.
pub fn play(
    who: &str,
    near: &mut dyn Side,
    far: &mut dyn Side,
    cores: Cores,
    processes: &[u32],
    window: Duration,
) -> Result<Sample> {
    let over = &AtomicBool::new(false);
    let (histogram, counters, beside) = std::thread::scope(|scope| {
        let echo = scope.spawn(move || answer(far, cores.map(|cores| cores.1), over));
        let asking = scope.spawn(move || {
            let asked = ask(who, near, cores.map(|cores| cores.0), window);
            over.store(true, Ordering::Relaxed);
            // The far side waits for one more message before it looks.
            let told = near.send();
            asked.and_then(|result| told.map(|()| result))
        });
        let watch = Watch::start(processes, &[]);
        let asked = asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let beside = watch.finish();
        let answered = echo.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        interrupt::check()?;
        let (histogram, counters) = asked?;
        answered?;
        Ok::<_, BenchError>((histogram, counters, beside))
    })?;
    // Threads on one core wait for each other by design; only across cores does waiting mean that somebody else ran.
    let beside = match cores {
        Some((near, far)) if near != far => beside.with_thread(counters.switches, counters.waited, window),
        _ => beside,
    };
    let median = histogram.value_at_quantile(0.5) as f64 / 1000.0;
    Ok(Sample { value: median, disturbance: beside, latencies: Some(histogram), cpu_percent: None })
}

fn answer(far: &mut dyn Side, core: Option<usize>, over: &AtomicBool) -> Result<()> {
    core.map(pin::pin).transpose()?;
    while !over.load(Ordering::Relaxed) {
        // The last message ends the game and is not answered: an answer would greet the next game.
        if far.wait()? && !over.load(Ordering::Relaxed) {
            far.send()?;
        }
    }
    Ok(())
}

fn ask(
    who: &str,
    near: &mut dyn Side,
    core: Option<usize>,
    window: Duration,
) -> Result<(Histogram<u64>, ThreadCounters)> {
    core.map(pin::pin).transpose()?;
    let mut one_way = empty_histogram()?;
    let lost = || BenchError::NoTraffic(who.to_owned());
    let started = Instant::now();
    for _ in 0..WARM_UP {
        round_trip(near)?.ok_or_else(lost)?;
        if started.elapsed() > WARM_UP_LIMIT {
            break;
        }
    }
    let before = ThreadCounters::of_this_thread();
    let end = Instant::now() + window;
    while Instant::now() < end {
        let time = round_trip(near)?.ok_or_else(lost)? / 2;
        one_way.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
    Ok((one_way, ThreadCounters::of_this_thread().since(before)))
}

fn round_trip(near: &mut dyn Side) -> Result<Option<Duration>> {
    let started = Instant::now();
    near.send()?;
    Ok(near.wait()?.then(|| started.elapsed()))
}

/// A histogram of nanoseconds up to ten seconds with three digits.
///
/// # Errors
/// Never in practice: the bounds are constants.
pub fn empty_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).map_err(|error| BenchError::Usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    struct Channel(Sender<()>, Receiver<()>);

    impl Side for Channel {
        fn send(&mut self) -> Result<()> {
            // The other side may be gone at the very end.
            let _ = self.0.send(());
            Ok(())
        }
        fn wait(&mut self) -> Result<bool> {
            Ok(self.1.recv_timeout(Duration::from_millis(100)).is_ok())
        }
    }

    /// Objective: round trips are counted into the histogram and the game ends on both sides.
    #[test]
    fn plays_and_ends() {
        let core = *pin::allowed().expect("affinity").first().expect("a CPU");
        let (to_far, from_near) = channel();
        let (to_near, from_far) = channel();
        let (mut near, mut far) = (Channel(to_far, from_far), Channel(to_near, from_near));
        let sample = play("x", &mut near, &mut far, Some((core, core)), &[], Duration::from_millis(20))
            .expect("nothing is lost");
        assert!(!sample.latencies.expect("recorded").is_empty());
        assert!(sample.value > 0.0);
    }
}
