//! Who takes part, and a started set-up that can be measured.

use std::any::Any;
use std::rc::Rc;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::case::Case;
use crate::disturb::Disturbance;
use crate::error::{Result, Skip};
use crate::sys::part::{Part, Parts};
use crate::sys::{Needs, need};

/// The CPUs to pin to, in order of use. Where there is only one, it is both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores(pub usize, pub usize);

impl Cores {
    /// The first two of those given.
    pub fn of(cpus: &[usize]) -> Self {
        let first = cpus.first().copied().unwrap_or(0);
        Self(first, cpus.get(1).copied().unwrap_or(first))
    }
}

type Start = Box<dyn Fn(&Case, Cores) -> Result<Session>>;

/// Somebody who can be measured: netvale or a peer.
pub struct Contender {
    /// A short name without spaces: `netvale`, `dpdk-memif`.
    pub name: &'static str,
    /// One line: which set-up this is.
    pub about: &'static str,
    needs: Needs,
    fits: Box<dyn Fn(&Case) -> bool>,
    start: Start,
}

impl Contender {
    /// A contender that needs this to run, and is started so for cases that it fits: where comparing it is fair.
    pub fn new(
        name: &'static str,
        about: &'static str,
        needs: Needs,
        fits: impl Fn(&Case) -> bool + 'static,
        start: impl Fn(&Case, Cores) -> Result<Session> + 'static,
    ) -> Self {
        Self { name, about, needs, fits: Box::new(fits), start: Box::new(start) }
    }

    /// Whether this contender can do `case`, in the sense that comparing it there is fair.
    pub fn fits(&self, case: &Case) -> bool {
        (self.fits)(case)
    }

    /// Whether it can run on this machine, on these CPUs.
    pub fn available(&self, cpus: &[usize]) -> std::result::Result<(), Skip> {
        need(self.needs, cpus.len())
    }

    /// Sets everything up. The session is idle (uses no CPU) until [`Session::resume`].
    pub fn start(&self, case: &Case, cpus: &[usize]) -> Result<Session> {
        (self.start)(case, Cores::of(cpus))
    }
}

/// Contenders, a row each: name and description; what it needs, the cases that it fits, and what starts it.
macro_rules! contenders {
    ($($name:expr, $about:expr; $needs:expr, $fits:expr, $start:expr;)+) => {
        vec![$($crate::contender::Contender::new($name, $about, $needs, $fits, $start)),+]
    };
}
pub(crate) use contenders;

/// Further facts for the record, by name.
pub type Facts = Vec<(String, String)>;
/// Measures for about so long.
pub type Measurement = Box<dyn FnMut(Duration) -> Result<Sample>>;
/// Turns a set-up to another case. Returns whether it can measure that one, too.
type Turning = Box<dyn FnMut(&Case) -> bool>;

/// A set-up that can be measured again and again. Dropping it takes down all that it started, also on failure.
///
/// Sessions share cores, so one that is not being measured must use no CPU: the runner brackets each measurement
/// with `resume` and `pause`.
pub struct Session {
    // Dropped in this order.
    measuring: Measurement,
    check: Option<Box<dyn Fn() -> Result<()>>>,
    turning: Option<Turning>,
    parts: Parts,
    kept: Vec<Box<dyn Any>>,
    /// A description of how the cores are used.
    pub cores: String,
    /// Whether the frames' bytes are read or written, not just descriptors.
    pub touched: bool,
    /// Facts that are known from the start.
    pub facts: Facts,
}

impl Session {
    /// A session in which this process does all the work, and only while it measures.
    pub fn new(
        cores: impl Into<String>,
        touched: bool,
        measuring: impl FnMut(Duration) -> Result<Sample> + 'static,
    ) -> Self {
        let cores = cores.into();
        let measuring = Box::new(measuring);
        let parts = Vec::new();
        let kept = Vec::new();
        Self { measuring, check: None, turning: None, parts, kept, cores, touched, facts: Vec::new() }
    }

    /// One that can measure other cases without being set up anew, which takes long: those that `turning` takes.
    pub fn turning(mut self, turning: impl FnMut(&Case) -> bool + 'static) -> Self {
        self.turning = Some(Box::new(turning));
        self
    }

    /// Turns it to another case, while it is idle. Returns whether it can measure that one, too.
    pub fn turn(&mut self, case: &Case) -> bool {
        self.turning.as_mut().is_some_and(|turn| turn(case))
    }

    /// Whether there are other cases that it can measure.
    pub fn can_turn(&self) -> bool {
        self.turning.is_some()
    }

    /// Stopped between measurements, after the parts before it.
    pub fn with(mut self, part: &Rc<impl Part + 'static>) -> Self {
        self.parts.push(Rc::clone(part) as Rc<dyn Part>);
        self
    }

    /// The same for several parts.
    pub fn with_all(mut self, parts: Parts) -> Self {
        self.parts.extend(parts);
        self
    }

    /// Taken down after all that is there before.
    pub fn keeping(mut self, thing: impl Any) -> Self {
        self.kept.push(Box::new(thing));
        self
    }

    /// A fact about the set-up.
    pub fn fact(mut self, name: &str, value: impl ToString) -> Self {
        self.facts.push((name.to_owned(), value.to_string()));
        self
    }

    /// Checked after each measurement, while all is stopped.
    pub fn checked(mut self, check: impl Fn() -> Result<()> + 'static) -> Self {
        self.check = Some(Box::new(check));
        self
    }

    /// Measured in another way, made of its own.
    pub fn wrapped<M: FnMut(Duration) -> Result<Sample> + 'static>(
        mut self,
        wrap: impl FnOnce(Measurement) -> M,
    ) -> Self {
        self.measuring = Box::new(wrap(self.measuring));
        self
    }

    /// With all parts stopped: the state in which it is handed over.
    pub fn idle(self) -> Result<Self> {
        self.parts.iter().try_for_each(|part| part.freeze())?;
        Ok(self)
    }

    /// Lets traffic flow (or get ready to).
    pub fn resume(&mut self) -> Result<()> {
        self.parts.iter().rev().try_for_each(|part| part.thaw())
    }

    /// Stops using CPU.
    pub fn pause(&mut self) -> Result<()> {
        self.parts.iter().try_for_each(|part| part.freeze())?;
        self.check.as_ref().map_or(Ok(()), |check| check())
    }

    /// Measures for about `window`.
    pub fn measure(&mut self, window: Duration) -> Result<Sample> {
        (self.measuring)(window)
    }

    /// The processes that do the measured work, this one included if it does.
    pub fn processes(&self) -> Vec<u32> {
        self.parts.iter().flat_map(|part| part.pids()).collect()
    }
}

/// One measurement.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The figure, in the case's unit.
    pub value: f64,
    /// The disturbance by other work on the machine.
    pub disturbance: Disturbance,
    /// Single latencies in nanoseconds, where the scenario has them.
    pub latencies: Option<Histogram<u64>>,
    /// Share of the time of all CPUs that the measured programs got, per cent, where the scenario looks at it.
    pub cpu_percent: Option<f64>,
    /// Further facts about it.
    pub facts: Facts,
}

impl Sample {
    /// A sample without anything further.
    pub fn new(value: f64, disturbance: Disturbance) -> Self {
        Self { value, disturbance, ..Self::default() }
    }

    /// A sample of single times, whose figure is that quantile of theirs, in microseconds.
    pub fn of_times(times: Histogram<u64>, quantile: f64, disturbance: Disturbance) -> Self {
        let value = times.value_at_quantile(quantile) as f64 / 1000.0;
        Self { latencies: Some(times), ..Self::new(value, disturbance) }
    }

    /// A fact about it.
    pub fn fact(mut self, name: &str, value: impl ToString) -> Self {
        self.facts.push((name.to_owned(), value.to_string()));
        self
    }
}
