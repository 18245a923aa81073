//! What is to be measured, as the command line says it.

use std::time::Duration;

use clap::Args;

use crate::error::{BenchError, Result};

/// The number of times that a disturbed run is repeated where figures are to be published.
const REPEATS: usize = 5;

/// The cases to measure, and the number of runs.
#[derive(Args, Clone, Debug, Default)]
pub struct Measure {
    /// Scenarios; all when none is given (see --list).
    #[arg(value_name = "SCENARIO")]
    pub scenarios: Vec<String>,

    /// Only the variant of that name, or those whose names contain one of these texts.
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    pub variant: Vec<String>,

    /// Runs that count, for each case.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub runs: usize,

    /// Seconds a run.
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub seconds: f64,

    /// Frame lengths to go through, without CRC [default: the scenario's].
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub frame_bytes: Vec<u32>,

    /// Batches to go through, in frames [default: the scenario's].
    #[arg(long, value_name = "FRAMES", value_delimiter = ',')]
    pub batch: Vec<u32>,

    /// Numbers of ports or rings to go through [default: the scenario's].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub ports: Vec<u32>,

    /// Numbers of busy foreign threads to go through [default: the scenario's].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub foreign: Vec<u32>,

    /// CPUs to pin to, in order of use [default: the first two allowed].
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    pub cpus: Vec<usize>,
}

/// The settings of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Runs that count, per contender.
    pub runs: usize,
    /// Length of one run.
    pub window: Duration,
    /// Length of the warm-up run that does not count.
    pub warm_up: Duration,
    /// The number of times that a disturbed run is repeated before it is kept and marked.
    pub repeats: usize,
}

impl Measure {
    /// The runs; `quick`: at most three of a quarter of a second, none of them repeated, to see that all works.
    pub fn plan(&self, quick: bool) -> Result<Plan> {
        if self.runs == 0 || !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return Err(BenchError::Usage("--runs must be at least 1 and --seconds above 0, at most 3600".into()));
        }
        let window = Duration::from_secs_f64(self.seconds);
        if quick {
            let quarter = Duration::from_millis(250);
            return Ok(Plan { runs: self.runs.min(3), window: window.min(quarter), warm_up: quarter / 2, repeats: 0 });
        }
        Ok(Plan { runs: self.runs, window, warm_up: window.min(Duration::from_millis(500)), repeats: REPEATS })
    }

    /// Whether a variant is asked for, where these are all. A text that is some variant's whole name stands for that
    /// one only.
    pub fn wants(&self, variant: &str, all: &[&str]) -> bool {
        let fits = |part: &String| variant == part || variant.contains(part) && !all.contains(&part.as_str());
        self.variant.is_empty() || self.variant.iter().any(fits)
    }
}
