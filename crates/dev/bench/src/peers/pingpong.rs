//! Two threads that send one message back and forth, and measure one-way times or round trips.
//!
//! The one-way time is half a round trip, so that no two clocks are compared.

use std::sync::atomic::{AtomicBool, Ordering};

use hdrhistogram::Histogram;

use crate::disturb::ThreadCounters;
use crate::prelude::*;

/// Number of round trips before counting starts.
const WARM_UP: usize = 1000;
/// Time limit for the round trips before counting starts.
const WARM_UP_LIMIT: Duration = Duration::from_millis(500);

/// One side of the exchange. Both calls block.
pub trait Side: Send {
    /// Wakes the other side.
    fn send(&mut self) -> Result<()>;
    /// Waits for the other side. Returns `false` if no message came within the time limit of the implementation.
    fn wait(&mut self) -> Result<bool>;
}

/// The parameters of an exchange.
pub struct Game {
    /// Name of the contender, for the error about a lost message.
    pub who: &'static str,
    /// The CPUs of the near and the far side; `None`: the scheduler places the threads.
    pub cores: Option<Cores>,
    /// Other processes that take part.
    pub processes: Vec<u32>,
}

/// Returns a measurement in which `near` and `far` exchange a message. The figure is the median one-way time in
/// microseconds.
pub fn between(game: Game, near: impl Side, far: impl Side) -> impl FnMut(Duration) -> Result<Sample> {
    playing(game, near, far, 2)
}

/// Like [`between`], but the figure is the median time of a whole round trip.
pub fn round_trips(game: Game, near: impl Side, far: impl Side) -> impl FnMut(Duration) -> Result<Sample> {
    playing(game, near, far, 1)
}

fn playing(game: Game, mut near: impl Side, mut far: impl Side, ways: u32) -> impl FnMut(Duration) -> Result<Sample> {
    move |window| play(&game, &mut near, &mut far, window, ways)
}

/// Exchanges messages for `window`. The recorded times are the times of round trips, divided by `ways`.
fn play(game: &Game, near: &mut dyn Side, far: &mut dyn Side, window: Duration, ways: u32) -> Result<Sample> {
    let over = &AtomicBool::new(false);
    let (histogram, counters, beside) = std::thread::scope(|scope| {
        let echo = scope.spawn(move || answer(far, game.cores.map(|cores| cores.1), over));
        let asking = scope.spawn(move || {
            let asked = ask(game, near, window, ways);
            over.store(true, Ordering::Relaxed);
            // The far side checks whether the exchange is over only when a message arrives.
            let told = near.send();
            asked.and_then(|result| told.map(|()| result))
        });
        let watch = Watch::start(&game.processes, &[]);
        let asked = asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let beside = watch.finish();
        let answered = echo.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        interrupt::check()?;
        let (histogram, counters) = asked?;
        answered?;
        Ok::<_, BenchError>((histogram, counters, beside))
    })?;
    // Threads on one core wait for each other by design. Only across cores does waiting mean that another program ran.
    let beside = match game.cores {
        Some(Cores(near, far)) if near != far => beside.with_thread(counters.switches, counters.waited, window),
        _ => beside,
    };
    Ok(Sample::of_times(histogram, 0.5, beside))
}

fn answer(far: &mut dyn Side, core: Option<usize>, over: &AtomicBool) -> Result<()> {
    core.map(pin::pin).transpose()?;
    while !over.load(Ordering::Relaxed) {
        // The last message ends the exchange and is not answered: the next exchange would receive the answer.
        if far.wait()? && !over.load(Ordering::Relaxed) {
            far.send()?;
        }
    }
    Ok(())
}

fn ask(game: &Game, near: &mut dyn Side, window: Duration, ways: u32) -> Result<(Histogram<u64>, ThreadCounters)> {
    game.cores.map(|cores| pin::pin(cores.0)).transpose()?;
    let mut times = empty_histogram()?;
    let lost = || BenchError::NoTraffic(game.who.to_owned());
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
        let time = round_trip(near)?.ok_or_else(lost)? / ways;
        times.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
    Ok((times, ThreadCounters::of_this_thread().since(before)))
}

fn round_trip(near: &mut dyn Side) -> Result<Option<Duration>> {
    let started = Instant::now();
    near.send()?;
    Ok(near.wait()?.then(|| started.elapsed()))
}

/// Creates a histogram of nanoseconds, up to ten seconds, with three significant digits.
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
            // At the very end, the other side may be gone.
            let _ = self.0.send(());
            Ok(())
        }
        fn wait(&mut self) -> Result<bool> {
            Ok(self.1.recv_timeout(Duration::from_millis(100)).is_ok())
        }
    }

    /// Objective: round trips are counted in the histogram, and the exchange ends on both sides.
    #[test]
    fn a_game_is_counted_and_ends_on_both_sides() {
        let core = *pin::allowed().expect("affinity").first().expect("a CPU");
        let (to_far, from_near) = channel();
        let (to_near, from_far) = channel();
        let game = Game { who: "x", cores: Some(Cores(core, core)), processes: Vec::new() };
        let mut play = between(game, Channel(to_far, from_far), Channel(to_near, from_near));
        let sample = play(Duration::from_millis(20)).expect("nothing is lost");
        assert!(!sample.latencies.expect("recorded").is_empty());
        assert!(sample.value > 0.0);
    }
}
