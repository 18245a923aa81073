//! The two traits of the harness: who takes part, and a started set-up that can be measured.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::case::Case;
use crate::disturb::Disturbance;
use crate::error::{Result, Skip};

/// The resources that a contender may use.
#[derive(Clone, Debug)]
pub struct Env {
    /// The CPUs to pin to, in order of use. Never empty.
    pub cores: Vec<usize>,
}

impl Env {
    /// The first two CPUs.
    ///
    /// # Errors
    /// [`Skip::TooFewCpus`] when there is only one.
    pub fn two_cores(&self) -> std::result::Result<(usize, usize), Skip> {
        match self.cores[..] {
            [first, second, ..] => Ok((first, second)),
            _ => Err(Skip::TooFewCpus { needed: 2, given: self.cores.len() }),
        }
    }
}

/// Somebody who can be measured: netvale or a peer.
pub trait Contender {
    /// A short name without spaces: `netvale`, `dpdk-memif`.
    fn name(&self) -> &str;

    /// One line: which set-up this is.
    fn about(&self) -> &str;

    /// Whether this contender can do `case`, in the sense that comparing it there is fair.
    fn fits(&self, case: &Case) -> bool;

    /// Whether it can run on this machine.
    ///
    /// # Errors
    /// Why not, and what would help.
    fn available(&self, env: &Env) -> std::result::Result<(), Skip>;

    /// Sets everything up. The session is idle (uses no CPU) until [`Session::resume`].
    ///
    /// # Errors
    /// Whatever the set-up ran into; all that it had started is taken down again.
    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>>;
}

/// A set-up that can be measured again and again. Dropping it takes down all that it started, also on failure.
///
/// Sessions share cores, so one that is not being measured must use no CPU: the runner brackets each measurement
/// with `resume` and `pause`.
pub trait Session {
    /// Lets traffic flow (or get ready to).
    ///
    /// # Errors
    /// A part of the set-up is gone.
    fn resume(&mut self) -> Result<()> {
        Ok(())
    }

    /// Stops using CPU.
    ///
    /// # Errors
    /// A part of the set-up is gone.
    fn pause(&mut self) -> Result<()> {
        Ok(())
    }

    /// Measures for about `window`.
    ///
    /// # Errors
    /// A part of the set-up is gone, or nothing moved.
    fn measure(&mut self, window: Duration) -> Result<Sample>;

    /// A description of how the cores are used.
    fn cores(&self) -> String;

    /// Whether the frames' bytes are read or written, not just descriptors.
    fn touched(&self) -> bool;

    /// The processes that do the measured work, this one included if it does.
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Further facts about the set-up, for the record.
    fn context(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The figure, in the case's unit.
    pub value: f64,
    /// The disturbance by other work on the machine.
    pub disturbance: Disturbance,
    /// Single latencies in nanoseconds, where the scenario has them.
    pub latencies: Option<Histogram<u64>>,
    /// Share of the time of all CPUs that the measured programs got, per cent, where the scenario looks at it.
    pub cpu_percent: Option<f64>,
}

impl Sample {
    /// A sample without single latencies and CPU share.
    #[must_use]
    pub fn new(value: f64, disturbance: Disturbance) -> Self {
        Self { value, disturbance, latencies: None, cpu_percent: None }
    }
}
