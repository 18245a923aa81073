//! A figure that is made of a counter: by how much it grows in a window.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::case::Case;
use crate::contender::{Sample, Session};
use crate::disturb::Watch;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::sys::part::Parts;
use crate::sys::worker::Worker;

/// A count, and when it was taken.
pub type Tally = (u64, Instant);
/// The time that processes run before counting starts.
pub const SETTLE: Duration = Duration::from_millis(50);
/// The longest wait for the first frame, which includes connecting and learning addresses.
const FIRST_FRAME: Duration = Duration::from_secs(15);

/// How it is counted.
#[derive(Clone, Debug, Default)]
pub struct CountOptions {
    /// The time that all run before.
    pub settle: Duration,
    /// Processes that belong to the measurement; `None` if nobody watches.
    pub pids: Option<Vec<u32>>,
    /// Those of their threads that must not have to wait, as `(pid, tid)`.
    pub threads: Vec<(u32, u32)>,
    /// Whether counting takes the counted ones' time, and is not watched, therefore.
    pub asks: bool,
    /// Who moved no frames, where that is an error.
    pub who: Option<&'static str>,
}

/// Measures by a counter.
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

/// Two processes that send and receive, measured by what the second one counts.
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

/// A session of processes that run by themselves, which is handed over once `count` grows.
pub struct ProcessSet {
    /// Who has no frames, if none come at first.
    pub who: &'static str,
    /// Whether that is an error later, too.
    pub is_strict: bool,
    /// The time that all run before counting starts.
    pub settle: Duration,
    /// All of its processes.
    pub parts: Parts,
}

impl ProcessSet {
    /// Waits until frames arrive, then stops all.
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
