//! The commands that a new user types.

use netvale_harness::daemon::ready;
use tempfile::TempDir;

use super::*;

const START_LIMIT: Duration = Duration::from_secs(10);
/// Maximum time between two reports of a pkt-gen, which reports ten times a second if it gets a CPU.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of pkt-gen's reports in milliseconds.
const REPORT_MS: &str = "100";

/// `netvale up` with defaults, except for a run directory of its own.
pub struct Up {
    child: Child,
    folder: TempDir,
}

impl Up {
    /// Starts a daemon and waits until it answers.
    pub fn start() -> Result<Up> {
        let folder = sys::scratch("crowded")?;
        let mut command = Command::new(sys::netvale()?);
        command.env_remove("NETVALE_RUN_DIR").arg("--run-dir").arg(folder.path().join("run")).arg("up");
        let log = folder.path().join("up.log");
        let mut this = Up { child: Child::spawn(command, &log)?, folder };
        if ready(&this.dir(), START_LIMIT, || this.child.alive()) {
            return Ok(this);
        }
        let status = format!("no answer within {} s", START_LIMIT.as_secs());
        Err(BenchError::failed("netvale up", status, &std::fs::read_to_string(log).unwrap_or_default()))
    }

    /// Returns the daemon's run directory.
    pub fn dir(&self) -> PathBuf {
        self.folder.path().join("run")
    }
}

impl Part for Up {
    fn children(&self) -> Vec<&Child> {
        vec![&self.child]
    }
}

/// A running `netvale pkt-gen`.
pub struct PktGen {
    /// The process of pkt-gen.
    pub child: Rc<Child>,
}

/// A line of pkt-gen's output.
#[derive(Debug, Deserialize)]
struct Report {
    frames: u64,
    seconds: f64,
}

impl PktGen {
    /// Starts pkt-gen on a port of the daemon.
    pub fn start(daemon: &Up, port: &str, function: &str, frame_bytes: u32) -> Result<PktGen> {
        let mut command = Command::new(sys::netvale()?);
        command.arg("--run-dir").arg(daemon.dir());
        command.args(["pkt-gen", "-i", port, "-f", function, "-l", &frame_bytes.to_string()]);
        command.args(["--json", "-T", REPORT_MS]);
        let log = daemon.folder.path().join(format!("{function}.log"));
        Ok(PktGen { child: Rc::new(Child::spawn(command, &log)?) })
    }

    fn report(&self) -> Result<Report> {
        let line = self.child.expect("\n", PATIENCE)?;
        serde_json::from_str(&line).map_err(|_| BenchError::unreadable("netvale pkt-gen", "a report", &line))
    }

    /// Waits until frames have arrived.
    pub fn wait_for_frames(&self) -> Result<()> {
        let end = Instant::now() + START_LIMIT;
        while Instant::now() < end {
            if self.report()?.frames > 0 {
                return Ok(());
            }
        }
        Err(BenchError::NoTraffic("netvale".into()))
    }

    /// Measures the frames per second for about `window` from now.
    pub fn rate(&self, window: Duration) -> Result<f64> {
        let start = Instant::now();
        let mut counted = Counted::default();
        while counted.seconds < window.as_secs_f64() {
            let report = self.report()?;
            counted.add(&report, start.elapsed());
        }
        Ok(counted.frames as f64 / counted.seconds)
    }
}

/// The sum of the reports whose whole interval is after the start of the measurement.
#[derive(Debug, Default)]
struct Counted {
    frames: u64,
    seconds: f64,
}

impl Counted {
    /// Adds a report that came at the time `arrived` after the start of the measurement. Ignores the report if part of
    /// its interval was before the start, when the program was still settling or was stopped.
    fn add(&mut self, report: &Report, arrived: Duration) {
        if report.seconds <= arrived.as_secs_f64() {
            self.frames += report.frames;
            self.seconds += report.seconds;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a line of pkt-gen's output is parsed, and reports about times before the start do not count.
    #[test]
    fn a_line_of_pkt_gen_is_read() {
        let line =
            r#"{"what":"rate","frames":500,"bytes":30000,"seconds":0.1,"pps":5000.0,"bps":1.0,"average_batch":9.5}"#;
        let report: Report = serde_json::from_str(line).expect("a report");
        let mut counted = Counted::default();
        for arrived in [1, 99, 150, 250] {
            counted.add(&report, Duration::from_millis(arrived));
        }
        assert_eq!(counted.frames, 1000);
        assert!((counted.seconds - 0.2).abs() < 1e-9);
    }
}
