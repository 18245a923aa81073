//! Contenders (netvale and its peers), and their sessions: set-ups that are ready to measure.

use std::any::Any;
use std::rc::Rc;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::case::Case;
use crate::disturb::Disturbance;
use crate::error::{Result, Skip};
use crate::sys::part::{Part, Parts};
use crate::sys::{Needs, need};

/// The CPUs to which threads are pinned, in order of use. If there is only one CPU, both fields have the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores(pub usize, pub usize);

impl Cores {
    /// Returns the first two of the given CPUs.
    pub fn of(cpus: &[usize]) -> Self {
        let first = cpus.first().copied().unwrap_or(0);
        Self(first, cpus.get(1).copied().unwrap_or(first))
    }
}

type Start = Box<dyn Fn(&Case, Cores) -> Result<Session>>;

/// A contender: netvale or a peer.
pub struct Contender {
    /// A short name without spaces: `netvale`, `dpdk-memif`.
    pub name: &'static str,
    /// A description of the set-up, in one line.
    pub about: &'static str,
    needs: Needs,
    fits: Box<dyn Fn(&Case) -> bool>,
    start: Start,
}

impl Contender {
    /// Creates a contender with its needs, the cases that it fits, and the function that starts it. `fits` returns
    /// whether the comparison is fair for a case.
    pub fn new(
        name: &'static str,
        about: &'static str,
        needs: Needs,
        fits: impl Fn(&Case) -> bool + 'static,
        start: impl Fn(&Case, Cores) -> Result<Session> + 'static,
    ) -> Self {
        Self { name, about, needs, fits: Box::new(fits), start: Box::new(start) }
    }

    /// Returns whether the contender fits `case`, that is, whether the comparison is fair.
    pub fn fits(&self, case: &Case) -> bool {
        (self.fits)(case)
    }

    /// Checks whether the contender can run on this machine and these CPUs.
    pub fn available(&self, cpus: &[usize]) -> std::result::Result<(), Skip> {
        need(self.needs, cpus.len())
    }

    /// Sets everything up. The session uses no CPU until [`Session::resume`].
    pub fn start(&self, case: &Case, cpus: &[usize]) -> Result<Session> {
        (self.start)(case, Cores::of(cpus))
    }
}

/// Creates contenders from rows, each with a contender's name, description, needs, the cases that it fits, and the
/// function that starts it.
macro_rules! contenders {
    ($($name:expr, $about:expr; $needs:expr, $fits:expr, $start:expr;)+) => {
        vec![$($crate::contender::Contender::new($name, $about, $needs, $fits, $start)),+]
    };
}
pub(crate) use contenders;

/// Further facts for the record, as pairs of name and value.
pub type Facts = Vec<(String, String)>;
/// A function that measures for about the given time.
pub type Measurement = Box<dyn FnMut(Duration) -> Result<Sample>>;
/// A function that changes a set-up to another case. Returns whether the set-up can measure that case.
type Turning = Box<dyn FnMut(&Case) -> bool>;

/// A set-up that can be measured repeatedly. When the session is dropped, all that it started ends, even after an
/// error.
///
/// Sessions share cores, so a session must use no CPU except between `resume` and `pause`, which the runner calls
/// around each measurement.
pub struct Session {
    // The order of the fields matters, because fields are dropped in their order.
    measuring: Measurement,
    check: Option<Box<dyn Fn() -> Result<()>>>,
    turning: Option<Turning>,
    parts: Parts,
    kept: Vec<Box<dyn Any>>,
    /// A description of how the cores are used.
    pub cores: String,
    /// Whether programs read or write the frames' bytes, not just descriptors.
    pub touched: bool,
    /// Facts about the set-up, which are known from the start.
    pub facts: Facts,
}

impl Session {
    /// Creates a session for which this process does all the work, and only during measurements.
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

    /// Lets the session change to other cases, which avoids a long set-up for each case. `turning` changes the session,
    /// and returns whether it can measure the case.
    pub fn turning(mut self, turning: impl FnMut(&Case) -> bool + 'static) -> Self {
        self.turning = Some(Box::new(turning));
        self
    }

    /// Changes the session, which must be idle, to another case. Returns whether the session can measure that case.
    pub fn turn(&mut self, case: &Case) -> bool {
        self.turning.as_mut().is_some_and(|turn| turn(case))
    }

    /// Returns whether the session can change to other cases.
    pub fn can_turn(&self) -> bool {
        self.turning.is_some()
    }

    /// Adds a part that is stopped between measurements. Parts are stopped in the order in which they were added.
    pub fn with(mut self, part: &Rc<impl Part + 'static>) -> Self {
        self.parts.push(Rc::clone(part) as Rc<dyn Part>);
        self
    }

    /// Adds several parts.
    pub fn with_all(mut self, parts: Parts) -> Self {
        self.parts.extend(parts);
        self
    }

    /// Adds an object that is dropped after all objects that were added before.
    pub fn keeping(mut self, thing: impl Any) -> Self {
        self.kept.push(Box::new(thing));
        self
    }

    /// Adds a fact about the set-up.
    pub fn fact(mut self, name: &str, value: impl ToString) -> Self {
        self.facts.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds a check that runs after each measurement, while everything is stopped.
    pub fn checked(mut self, check: impl Fn() -> Result<()> + 'static) -> Self {
        self.check = Some(Box::new(check));
        self
    }

    /// Replaces the measurement by `around`, which gets the original measurement as its first argument.
    pub fn wrapped(self, mut around: impl FnMut(&mut Measurement, Duration) -> Result<Sample> + 'static) -> Self {
        let mut inner = self.measuring;
        Self { measuring: Box::new(move |window| around(&mut inner, window)), ..self }
    }

    /// Stops all parts. Contenders must return their sessions in this state.
    pub fn idle(self) -> Result<Self> {
        self.parts.iter().try_for_each(|part| part.freeze())?;
        Ok(self)
    }

    /// Continues all parts, so that frames pass, or can pass during the measurement.
    pub fn resume(&mut self) -> Result<()> {
        self.parts.iter().rev().try_for_each(|part| part.thaw())
    }

    /// Stops all parts, so that the session uses no CPU.
    pub fn pause(&mut self) -> Result<()> {
        self.parts.iter().try_for_each(|part| part.freeze())?;
        self.check.as_ref().map_or(Ok(()), |check| check())
    }

    /// Measures for about `window`.
    pub fn measure(&mut self, window: Duration) -> Result<Sample> {
        (self.measuring)(window)
    }

    /// Returns the processes that do the measured work. This process is included if it does some of that work.
    pub fn processes(&self) -> Vec<u32> {
        self.parts.iter().flat_map(|part| part.pids()).collect()
    }
}

/// One measurement.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The figure, in the case's unit.
    pub value: f64,
    /// How much other work on the machine disturbed the measurement.
    pub disturbance: Disturbance,
    /// All measured latencies in nanoseconds; `None` if the scenario measures no latencies.
    pub latencies: Option<Histogram<u64>>,
    /// Share of all CPUs' time that the measured programs got, in per cent, `None` if the scenario does not measure it.
    pub cpu_percent: Option<f64>,
    /// Further facts about the sample.
    pub facts: Facts,
}

impl Sample {
    /// Creates a sample with only a figure.
    pub fn new(value: f64, disturbance: Disturbance) -> Self {
        Self { value, disturbance, ..Self::default() }
    }

    /// Creates a sample from single times. Its figure is the given quantile of these times, in microseconds.
    pub fn of_times(times: Histogram<u64>, quantile: f64, disturbance: Disturbance) -> Self {
        let value = times.value_at_quantile(quantile) as f64 / 1000.0;
        Self { latencies: Some(times), ..Self::new(value, disturbance) }
    }

    /// Adds a fact about the sample.
    pub fn fact(mut self, name: &str, value: impl ToString) -> Self {
        self.facts.push((name.to_owned(), value.to_string()));
        self
    }
}
