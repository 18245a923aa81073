//! What to measure, as given on the command line.

use std::time::Duration;

use clap::Args;

use crate::error::{BenchError, Result};

/// How often a disturbed run is repeated if the figures are meant for publication.
const REPEATS: usize = 5;

/// The cases to measure, and the number of runs.
#[derive(Args, Clone, Debug, Default)]
pub struct Measure {
    /// Scenarios; default: all (see --list).
    #[arg(value_name = "SCENARIO")]
    pub scenarios: Vec<String>,

    /// Only variants whose names contain one of these texts. A text that is a variant's whole name selects only that
    /// variant.
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    pub variant: Vec<String>,

    /// Runs of each case that count.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub runs: usize,

    /// Seconds per run.
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub seconds: f64,

    /// Frame lengths to measure, without CRC [default: the scenario's].
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub frame_bytes: Vec<u32>,

    /// Batches to measure, in frames [default: the scenario's].
    #[arg(long, value_name = "FRAMES", value_delimiter = ',')]
    pub batch: Vec<u32>,

    /// Numbers of ports or rings to measure [default: the scenario's].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub ports: Vec<u32>,

    /// Numbers of busy foreign threads to measure [default: the scenario's].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub foreign: Vec<u32>,

    /// CPUs for pinned threads, in order of use [default: the first two allowed].
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    pub cpus: Vec<usize>,
}

/// The settings of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of runs of each contender that count. Warm-up runs and repeated runs do not count.
    pub runs: usize,
    /// Length of one run.
    pub window: Duration,
    /// Length of the warm-up run, which does not count.
    pub warm_up: Duration,
    /// How often a disturbed run is repeated before it is kept and marked.
    pub repeats: usize,
}

impl Measure {
    /// Returns the settings. With `quick`, there are at most three runs of at most a quarter of a second, and no run is
    /// repeated: this only checks that everything works.
    pub fn plan(&self, quick: bool) -> Result<Plan> {
        if self.runs == 0 || !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return Err(BenchError::Usage("expected --runs of at least 1 and --seconds above 0 and up to 3600".into()));
        }
        let window = Duration::from_secs_f64(self.seconds);
        if quick {
            let quarter = Duration::from_millis(250);
            return Ok(Plan { runs: self.runs.min(3), window: window.min(quarter), warm_up: quarter / 2, repeats: 0 });
        }
        Ok(Plan { runs: self.runs, window, warm_up: window.min(Duration::from_millis(500)), repeats: REPEATS })
    }

    /// Returns whether a variant is requested, where `all` are the scenario's variants. A text that equals the whole
    /// name of a variant selects only that variant.
    pub fn wants(&self, variant: &str, all: &[&str]) -> bool {
        let fits = |part: &String| variant == part || variant.contains(part) && !all.contains(&part.as_str());
        self.variant.is_empty() || self.variant.iter().any(fits)
    }
}
