//! Drives DPDK's `dpdk-testpmd` through its prompt and reads its counters.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::contender::Env;
use crate::disturb::threads_named;
use crate::error::{BenchError, Result, Skip};
use crate::pin;
use crate::sys::child::Child;
use crate::sys::hugepages::Hugepages;
use crate::sys::{need_program, need_root, scratch};

/// testpmd's prompt.
const PROMPT: &str = "testpmd> ";
/// It maps and clears its memory first.
const START_LIMIT: Duration = Duration::from_secs(60);
/// A command answers immediately, but its thread shares a CPU with a forwarding thread that never sleeps.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);
/// Memory of one process, MiB, and the hugepages for it.
const MEMORY: u64 = 512;
/// 2 MiB pages of one process.
pub const PAGES: u64 = MEMORY / 2;

/// Refuses when testpmd cannot run here.
///
/// # Errors
/// [`Skip`] if something is missing; it says what.
pub fn available(env: &Env, cores: usize) -> std::result::Result<(), Skip> {
    need_program("dpdk-testpmd", "dpdk-dev")?;
    need_root("hugepages")?;
    pin::need(cores, &env.cores)
}

/// The folder, hugepages and sockets that the processes of one set-up share.
#[derive(Debug)]
pub struct Place {
    // Dropped in this order: the mount lies inside the folder.
    _pages: Hugepages,
    folder: TempDir,
}

impl Place {
    /// Room for `processes` processes, and `more` hugepages for somebody else.
    ///
    /// # Errors
    /// Not root, or too little memory.
    pub fn new(processes: u64, more: u64) -> Result<Self> {
        let folder = scratch("dpdk")?;
        let pages = Hugepages::reserve(processes * PAGES + more, &folder.path().join("huge"))?;
        Ok(Self { _pages: pages, folder })
    }

    /// The folder for sockets and logs.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The path of `name` in the folder, as text.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

/// The arguments to start one process with.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// Distinguishes processes of one place.
    pub name: &'a str,
    /// CPUs: the main thread goes to the first, a forwarding thread to each.
    pub cores: &'a [usize],
    /// The virtual devices.
    pub vdevs: &'a [String],
    /// `--single-file-segments`: needed by virtio-user and memif.
    pub single_file: bool,
    /// `--forward-mode`.
    pub forward: &'a str,
    /// Length of generated frames, without FCS.
    pub frame_bytes: u32,
    /// Frames a burst.
    pub burst: u32,
    /// Further arguments for the application.
    pub more: &'a [String],
    /// Further arguments for DPDK's environment.
    pub eal: &'a [&'a str],
}

impl Setup<'_> {
    fn lcores(&self) -> String {
        let main = format!("0@{}", self.cores.first().copied().unwrap_or(0));
        let workers = self.cores.iter().enumerate().map(|(index, core)| format!("{}@{core}", index + 1));
        std::iter::once(main).chain(workers).collect::<Vec<_>>().join(",")
    }

    fn command(&self, place: &Place, namespace: Option<&str>) -> Command {
        let mut command = Command::new(if namespace.is_some() { "nsenter" } else { "stdbuf" });
        if let Some(path) = namespace {
            command.arg(format!("--net={path}")).arg("stdbuf");
        }
        // DPDK keeps its sockets and locks below this folder instead of /var/run.
        command.env("RUNTIME_DIRECTORY", place.path());
        command.args(["-oL", "dpdk-testpmd", "--lcores", &self.lcores(), "--no-pci", "--no-telemetry"]);
        command.args(["-m", &MEMORY.to_string(), "--huge-dir", &place.file("huge"), "--file-prefix", self.name]);
        for vdev in self.vdevs {
            command.args(["--vdev", vdev]);
        }
        if self.single_file {
            command.arg("--single-file-segments");
        }
        command.args(self.eal);
        command.args(["--", "-i", "--no-mlockall"]);
        command.arg(format!("--forward-mode={}", self.forward));
        command.arg(format!("--txpkts={}", self.frame_bytes));
        command.arg(format!("--burst={}", self.burst));
        command.arg(format!("--nb-cores={}", self.cores.len()));
        command.args(self.more);
        command
    }
}

/// A running testpmd.
pub struct Testpmd {
    child: Child,
    threads: Vec<(u32, u32)>,
}

impl Testpmd {
    /// Starts a process and waits for its prompt; nothing is forwarded yet.
    ///
    /// # Errors
    /// testpmd ends or prints nothing; the error holds the end of its log.
    pub fn start(setup: &Setup<'_>, place: &Place) -> Result<Self> {
        Self::start_in(setup, place, None)
    }

    /// Starts testpmd in the network namespace at a path.
    ///
    /// # Errors
    /// As [`Testpmd::start`].
    pub fn start_in(setup: &Setup<'_>, place: &Place, namespace: Option<&str>) -> Result<Self> {
        let log = place.path().join(format!("{}.log", setup.name));
        let child = Child::spawn(setup.command(place, namespace), &log)?;
        child.expect(PROMPT, START_LIMIT).map_err(|error| match error {
            BenchError::Silent { output, .. } => failed(&output, &log),
            other => other,
        })?;
        let threads = threads_named(child.pid(), &["lcore-worker", "rte-worker", "dpdk-worker"]);
        Ok(Self { child, threads })
    }

    /// Gives a command and returns its answer.
    ///
    /// # Errors
    /// testpmd ended or does not answer.
    pub fn command(&mut self, line: &str) -> Result<String> {
        self.child.say(line)?;
        self.child.expect(PROMPT, COMMAND_LIMIT)
    }

    /// The counters of all ports, and when they were read.
    ///
    /// # Errors
    /// testpmd ended, does not answer, or answers something else.
    pub fn counters(&mut self) -> Result<(Vec<PortCounters>, Instant)> {
        let asked = Instant::now();
        let answer = self.command("show port stats all")?;
        let middle = asked + asked.elapsed() / 2;
        let ports = parse_counters(&answer);
        if ports.is_empty() {
            let output = crate::sys::child::tail(&answer).to_owned();
            return Err(BenchError::Unreadable {
                program: "dpdk-testpmd".into(),
                what: "port counters".into(),
                output,
            });
        }
        Ok((ports, middle))
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The forwarding threads, as `(pid, tid)`.
    #[must_use]
    pub fn threads(&self) -> &[(u32, u32)] {
        &self.threads
    }

    /// Stops all its threads where they are.
    ///
    /// # Errors
    /// testpmd has ended.
    pub fn freeze(&self) -> Result<()> {
        self.child.freeze()
    }

    /// Lets them go on.
    ///
    /// # Errors
    /// testpmd has ended.
    pub fn thaw(&self) -> Result<()> {
        self.child.thaw()
    }
}

fn failed(output: &str, log: &Path) -> BenchError {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let output = format!("{output}\n{log}");
    BenchError::Failed {
        program: "dpdk-testpmd".into(),
        status: "it did not come to its prompt".into(),
        output: crate::sys::child::tail(&output).to_owned(),
    }
}

/// Counters of one port since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames received.
    pub rx: u64,
    /// Frames sent.
    pub tx: u64,
}

/// Reads the answer to `show port stats all`; ports in the order shown.
#[must_use]
pub fn parse_counters(answer: &str) -> Vec<PortCounters> {
    let mut ports = Vec::new();
    for line in answer.lines() {
        if line.contains("NIC statistics for port") {
            ports.push(PortCounters::default());
        } else if let Some(port) = ports.last_mut() {
            if let Some(count) = field(line, "RX-packets:") {
                port.rx = count;
            }
            if let Some(count) = field(line, "TX-packets:") {
                port.tx = count;
            }
        }
    }
    ports
}

fn field(line: &str, name: &str) -> Option<u64> {
    line.split_once(name)?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a captured answer of testpmd 22.11 with two ports is read; echo, borders and rates are passed over.
    #[test]
    fn captured_answer() {
        let answer = "show port stats all\r\n\n\
            \x20 ######################## NIC statistics for port 0  ########################\n\
            \x20 RX-packets: 58413822   RX-missed: 0          RX-bytes:  0\n\
            \x20 RX-errors: 0\n\
            \x20 RX-nombuf:  0         \n\
            \x20 TX-packets: 58413823   TX-errors: 0          TX-bytes:  0\n\n\
            \x20 Throughput (since last show)\n\
            \x20 Rx-pps:     39567332          Rx-bps:            0\n\
            \x20 Tx-pps:     39567332          Tx-bps:            0\n\
            \x20 ############################################################################\n\n\
            \x20 ######################## NIC statistics for port 1  ########################\n\
            \x20 RX-packets: 5          RX-missed: 0          RX-bytes:  0\n\
            \x20 TX-packets: 6          TX-errors: 0          TX-bytes:  0\n\
            testpmd> ";
        let expected = [PortCounters { rx: 58_413_822, tx: 58_413_823 }, PortCounters { rx: 5, tx: 6 }];
        assert_eq!(parse_counters(answer), expected);
    }

    /// Objective: text without counters gives none, and a broken number does not panic.
    #[test]
    fn other_text() {
        assert!(parse_counters("Bad arguments\ntestpmd> ").is_empty());
        let broken = "NIC statistics for port 0\nRX-packets: many\nRX-packets:";
        assert_eq!(parse_counters(broken), [PortCounters::default()]);
    }

    /// Objective: every core gets a forwarding thread and the main thread shares the first core.
    #[test]
    fn lcores_share_the_first_core() {
        let setup = Setup {
            name: "a",
            cores: &[2, 5],
            vdevs: &["net_ring0".into()],
            single_file: false,
            forward: "macswap",
            frame_bytes: 60,
            burst: 32,
            more: &[],
            eal: &[],
        };
        assert_eq!(setup.lcores(), "0@2,1@2,2@5");
    }
}
