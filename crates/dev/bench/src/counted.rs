//! Figures that are computed from the increase of a counter during a window.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::case::Case;
use crate::contender::{Sample, Session};
use crate::disturb::Watch;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::sys::part::Parts;
use crate::sys::worker::Worker;

/// A count, and the time at which it was read.
pub type Tally = (u64, Instant);
/// How long processes run before counting starts.
pub const SETTLE: Duration = Duration::from_millis(50);
/// Time limit until the first frame arrives, including the time for connecting and learning addresses.
const FIRST_FRAME: Duration = Duration::from_secs(15);

/// Options for a measurement from a counter.
#[derive(Clone, Debug, Default)]
pub struct CountOptions {
    /// How long all processes run before counting.
    pub settle: Duration,
    /// Processes that belong to the measurement; `None` if disturbances are not measured.
    pub pids: Option<Vec<u32>>,
    /// Threads of these processes, as `(pid, tid)`. If one of these threads waits for a CPU, that counts as a
    /// disturbance.
    pub threads: Vec<(u32, u32)>,
    /// Whether reading the counter takes CPU time of the counted processes; that time must not count as a disturbance.
    pub asks: bool,
    /// The name in the error message if no frames moved; `None` if a count of zero is not an error.
    pub who: Option<&'static str>,
}

/// Creates a measurement from a counter.
pub fn counted<C: FnMut() -> Result<Tally>>(
    case: &Case,
    how: CountOptions,
    mut count: C,
) -> impl FnMut(Duration) -> Result<Sample> + use<C> {
    let unit = case.unit;
    let frame_bytes = case.frame_bytes;
    move |window| {
        let watch = || how.pids.as_ref().map(|pids| Watch::start(pids, &how.threads));
        interrupt::sleep(how.settle)?;
        let around = if how.asks { None } else { watch() };
        let (before, start) = count()?;
        let inside = if how.asks { watch() } else { None };
        interrupt::sleep(window)?;
        let beside = inside.map(Watch::finish);
        let (after, end) = count()?;
        let beside = beside.or_else(|| around.map(Watch::finish)).unwrap_or_default();
        let frames = after.saturating_sub(before);
        let seconds = end.duration_since(start).as_secs_f64();
        match how.who {
            Some(who) if frames == 0 => Err(BenchError::NoTraffic(who.to_owned())),
            _ => Ok(Sample::new(unit.rate(frames, frame_bytes, seconds).unwrap_or(0.0), beside)),
        }
    }
}

/// Creates a session of a sending and a receiving process, whose figure is the receiver's count.
pub fn received(
    case: &Case,
    cores: impl Into<String>,
    touched: bool,
    [sender, receiver]: [&Rc<Worker>; 2],
    how: CountOptions,
) -> Session {
    let counts = Rc::clone(receiver);
    let measuring = counted(case, how, move || Ok(counts.tally()));
    Session::new(cores, touched, measuring).with(sender).with(receiver)
}

/// A set of processes that move frames without further commands. [`ProcessSet::session`] creates a session from the
/// set.
pub struct ProcessSet {
    /// The name in the error message if no frames arrive at the start.
    pub who: &'static str,
    /// Whether it is also an error if no frames arrive in a later measurement.
    pub is_strict: bool,
    /// How long all processes run before counting starts.
    pub settle: Duration,
    /// All processes of the set.
    pub parts: Parts,
}

impl ProcessSet {
    /// Waits until frames arrive, then stops all processes. Returns the session.
    pub fn session(
        self,
        case: &Case,
        cores: String,
        touched: bool,
        mut count: impl FnMut() -> Result<Tally> + 'static,
    ) -> Result<Session> {
        let (first, _) = count()?;
        let flows = interrupt::poll_until(FIRST_FRAME, || Ok((count()?.0 > first).then_some(())))?;
        flows.ok_or_else(|| BenchError::NoTraffic(self.who.to_owned()))?;
        let pids = Some(self.parts.iter().flat_map(|part| part.pids()).collect());
        let threads = self.parts.iter().flat_map(|part| part.threads()).collect();
        let who = self.is_strict.then_some(self.who);
        let how = CountOptions { settle: self.settle, pids, threads, asks: true, who };
        Session::new(cores, touched, counted(case, how, count)).with_all(self.parts).idle()
    }
}
