//! Drives DPDK's `dpdk-testpmd` through its prompt and reads its counters.

use tempfile::TempDir;

use crate::peers::newer_dpdk::NewerDpdk;
use crate::prelude::*;
use crate::sys::hugepages::Hugepages;
use crate::sys::scratch;

/// testpmd's prompt.
const PROMPT: &str = "testpmd> ";
/// Time limit of the start: testpmd maps and clears its memory first.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Time limit of a command: testpmd answers immediately, but the answering thread shares a CPU with a forwarding thread
/// that never sleeps.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);
/// Memory of one process in MiB.
const MEMORY: u64 = 512;
/// Hugepages of 2 MiB for one process.
pub const PAGES: u64 = MEMORY / 2;

/// The needs of testpmd.
pub const NEEDS: &[Need] = &[Need::Program("dpdk-testpmd", "dpdk-dev"), Need::Root("hugepages"), Need::Cpus(2)];

/// The folder, hugepages and sockets that the processes of one set-up share.
#[derive(Debug)]
pub struct Place {
    // Fields are dropped in this order: the mount is inside the folder.
    _pages: Hugepages,
    folder: TempDir,
    newer: Option<NewerDpdk>,
}

impl Place {
    /// Creates a place for `processes` processes, with `more` hugepages for other programs.
    pub fn new(processes: u64, more: u64) -> Result<Self> {
        let folder = scratch("dpdk")?;
        let pages = Hugepages::reserve(processes * PAGES + more, &folder.path().join("huge"))?;
        Ok(Self { _pages: pages, folder, newer: None })
    }

    /// Makes the processes of this place use a newer DPDK than the DPDK of the system.
    pub fn of(self, newer: NewerDpdk) -> Self {
        Self { newer: Some(newer), ..self }
    }

    /// Returns the folder for sockets and logs.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of `name` in the folder, as text.
    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

/// The arguments of one process.
#[derive(Clone, Debug, Default)]
pub struct Arguments<'a> {
    /// A name that no other process with the same folder has.
    pub name: &'a str,
    /// The CPUs: each has a forwarding thread, and the first also runs the main thread.
    pub cores: Vec<usize>,
    /// The virtual devices.
    pub vdevs: Vec<String>,
    /// The forwarding mode (`--forward-mode`), such as `io`, `mac` or `rxonly`.
    pub forward: &'a str,
    /// Length of generated frames, without FCS.
    pub frame_bytes: u32,
    /// Frames per burst.
    pub burst: u32,
    /// Further arguments for the application.
    pub more: Vec<String>,
    /// Further arguments for DPDK's environment.
    pub eal: &'a [&'a str],
    /// The network namespace in which the process is started; `None`: the namespace of the calling process.
    pub namespace: Option<&'a Netns>,
}

impl<'a> Arguments<'a> {
    /// Creates arguments with testpmd's default burst of 32 frames.
    pub fn new(name: &'a str, case: &Case, cores: &[usize], vdevs: &[String], forward: &'a str) -> Self {
        let frame_bytes = case.frame_bytes;
        Self { name, cores: cores.into(), vdevs: vdevs.into(), forward, frame_bytes, burst: 32, ..Self::default() }
    }

    fn lcores(&self) -> String {
        let main = format!("0@{}", self.cores.first().copied().unwrap_or(0));
        let workers = self.cores.iter().enumerate().map(|(index, core)| format!("{}@{core}", index + 1));
        std::iter::once(main).chain(workers).collect::<Vec<_>>().join(",")
    }

    fn command(&self, place: &Place) -> Command {
        let stdbuf = "stdbuf";
        let mut command = self.namespace.map_or_else(|| Command::new(stdbuf), |inside| inside.command(stdbuf));
        // Makes DPDK create its sockets and locks below this folder instead of /var/run.
        command.env("RUNTIME_DIRECTORY", place.path());
        let program = place.newer.as_ref().map_or_else(|| vec!["dpdk-testpmd".into()], NewerDpdk::testpmd);
        command.arg("-oL").args(program);
        command.args(["-v", "--lcores", &self.lcores(), "--no-pci", "--no-telemetry"]);
        command.args(["-m", &MEMORY.to_string(), "--huge-dir", &place.file("huge"), "--file-prefix", self.name]);
        for vdev in &self.vdevs {
            command.args(["--vdev", vdev]);
        }
        // virtio-user and memif share memory by one descriptor.
        if self.vdevs.iter().any(|vdev| vdev.starts_with("net_virtio_user") || vdev.starts_with("net_memif")) {
            command.arg("--single-file-segments");
        }
        command.args(self.eal);
        command.args(["--", "-i", "--no-mlockall"]);
        command.arg(format!("--forward-mode={}", self.forward));
        command.arg(format!("--txpkts={}", self.frame_bytes));
        command.arg(format!("--burst={}", self.burst));
        command.arg(format!("--nb-cores={}", self.cores.len()));
        command.args(&self.more);
        command
    }
}

/// A running testpmd.
pub struct Testpmd {
    child: Child,
    threads: Vec<(u32, u32)>,
    release: Option<String>,
}

impl Testpmd {
    /// Starts a process, waits for its prompt, and sends `commands`. The process is left running.
    pub fn start(arguments: &Arguments<'_>, place: &Place, commands: &[&str]) -> Result<Rc<Self>> {
        let log = place.path().join(format!("{}.log", arguments.name));
        let child = Child::spawn(arguments.command(place), &log)?;
        let said = child.expect(PROMPT, START_LIMIT).map_err(|error| match error {
            BenchError::Silent { output, .. } => failed(&output, &log),
            other => other,
        })?;
        let threads = threads_named(child.pid(), &["lcore-worker", "rte-worker", "dpdk-worker"]);
        // Newer releases print their version on stderr.
        let errors = std::fs::read_to_string(&log).unwrap_or_default();
        let release = parse_release(&said).or_else(|| parse_release(&errors)).map(str::to_owned);
        let this = Self { child, threads, release };
        commands.iter().try_for_each(|line| this.command(line).map(drop))?;
        Ok(Rc::new(this))
    }

    /// Returns DPDK's release as printed by the program; `None` if no release was found in its output.
    pub fn release(&self) -> Option<&str> {
        self.release.as_deref()
    }

    /// Sends a command and returns its answer.
    pub fn command(&self, line: &str) -> Result<String> {
        self.child.say(line)?;
        self.child.expect(PROMPT, COMMAND_LIMIT)
    }

    /// Returns the number of frames that `port` has received (`None`: all ports together), with the time of counting.
    pub fn received(&self, port: Option<usize>) -> Result<Tally> {
        let asked = Instant::now();
        let answer = self.command("show port stats all")?;
        let middle = asked + asked.elapsed() / 2;
        let ports = parse_counters(&answer);
        if ports.is_empty() {
            return Err(BenchError::unreadable("dpdk-testpmd", "port counters", &answer));
        }
        Ok((port.map_or_else(|| ports.iter().sum(), |port| ports.get(port).copied().unwrap_or(0)), middle))
    }
}

impl Part for Testpmd {
    fn children(&self) -> Vec<&Child> {
        vec![&self.child]
    }

    fn threads(&self) -> Vec<(u32, u32)> {
        self.threads.clone()
    }
}

fn failed(output: &str, log: &Path) -> BenchError {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    BenchError::failed("dpdk-testpmd", "no prompt in its output", &format!("{output}\n{log}"))
}

/// Parses the output of `-v`.
fn parse_release(said: &str) -> Option<&str> {
    said.split_once("RTE Version: 'DPDK ")?.1.split_once('\'').map(|(release, _)| release)
}

/// Parses the answer to `show port stats all`. Returns the frames received by each port, in the order shown.
fn parse_counters(answer: &str) -> Vec<u64> {
    let mut ports = Vec::new();
    for line in answer.lines() {
        if line.contains("NIC statistics for port") {
            ports.push(0);
        } else if let Some((port, count)) = ports.last_mut().zip(field(line, "RX-packets:")) {
            *port = count;
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

    /// Objective: a recorded answer of testpmd 22.11 with two ports is parsed; echo, borders and rates are skipped.
    #[test]
    fn a_captured_answer_of_testpmd_is_read() {
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
        assert_eq!(parse_counters(answer), [58_413_822, 5]);
    }

    /// Objective: text without counters yields no counters, and a malformed number causes no panic.
    #[test]
    fn text_without_counters_gives_none() {
        assert!(parse_counters("Bad arguments\ntestpmd> ").is_empty());
        let broken = "NIC statistics for port 0\nRX-packets: many\nRX-packets:";
        assert_eq!(parse_counters(broken), [0]);
    }

    /// Objective: the release is found in the output of a start, and in no other text.
    #[test]
    fn releases() {
        let said = "EAL: Detected CPU lcores: 2\nEAL: RTE Version: 'DPDK 22.11.11'\nEAL: Selected IOVA mode 'VA'\n";
        assert_eq!(parse_release(said), Some("22.11.11"));
        assert_eq!(parse_release("EAL: RTE Version: 'DPDK 22"), None);
        assert_eq!(parse_release("testpmd> "), None);
    }

    /// Objective: every core has a forwarding thread, and the main thread shares the first core.
    #[test]
    fn lcores_share_the_first_core() {
        let setup = Arguments { name: "a", cores: vec![2, 5], ..Arguments::default() };
        assert_eq!(setup.lcores(), "0@2,1@2,2@5");
    }
}
