//! The cost of a daemon with ports on which nothing happens.

use std::fs;
use std::time::{Duration, Instant};

use netvale::Port;

use super::own::Daemon;
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::disturb::Watch;
use crate::error::{BenchError, Result, Skip};
use crate::scenarios::{Scenario, Variant};
use crate::{interrupt, pin};

/// The longest that a daemon may take to fall asleep.
const FALL_ASLEEP: Duration = Duration::from_millis(100);

const SIXTEEN: Variant = Variant { ports: &[16], ..Variant::TWO_PORTS };

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "idle",
    about: "what idle ports cost: the daemon's CPU, and memory a port (its own and the port's region)",
    variants: &[
        Variant { name: "cpu", unit: Unit::Percent, ..SIXTEEN },
        Variant { name: "memory-a-port", unit: Unit::Kib, ..SIXTEEN },
    ],
    ours: Some(|| Box::new(Idle)),
};

/// Netvale's daemon.
pub struct Idle;

impl Contender for Idle {
    fn name(&self) -> &str {
        "netvale"
    }

    fn about(&self) -> &str {
        "a daemon with open ports and no traffic"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        pin::need(1, &env.cores)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let core = env.cores.first().copied().unwrap_or(0);
        let daemon = Daemon::start(core, "")?;
        let processes = [daemon.worker.pid(), std::process::id()];
        let before = memory_kib(&processes)?;
        let ports =
            (0..case.ports).map(|index| daemon.open(&format!("vale0:p{index}"), 0)).collect::<Result<Vec<_>>>()?;
        let kib_a_port = (memory_kib(&processes)? - before) / f64::from(case.ports.max(1));
        Ok(Box::new(Quiet { unit: case.unit, core, kib_a_port, _ports: ports, daemon }))
    }
}

struct Quiet {
    unit: Unit,
    core: usize,
    kib_a_port: f64,
    _ports: Vec<Port>,
    daemon: Daemon,
}

impl Session for Quiet {
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let pid = self.daemon.worker.pid();
        interrupt::sleep(FALL_ASLEEP)?;
        let watch = Watch::start(&[pid], &[]);
        let (before, start) = (cpu_time(pid)?, Instant::now());
        interrupt::sleep(window)?;
        let percent = 100.0 * (cpu_time(pid)? - before).as_secs_f64() / start.elapsed().as_secs_f64();
        let value = if self.unit == Unit::Kib { self.kib_a_port } else { percent };
        Ok(Sample::new(value, watch.finish()))
    }

    fn cores(&self) -> String {
        format!("the daemon on {}", self.core)
    }

    fn touched(&self) -> bool {
        false
    }
}

/// CPU time of all threads of a process, to the nanosecond (first field of `schedstat`).
fn cpu_time(pid: u32) -> Result<Duration> {
    let folder = format!("/proc/{pid}/task");
    let mut nanos = 0;
    for task in fs::read_dir(&folder).map_err(BenchError::io(folder.clone()))?.flatten() {
        let file = task.path().join("schedstat");
        let text = fs::read_to_string(&file).map_err(BenchError::io(file.display().to_string()))?;
        nanos += text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

/// Memory of processes, what they share counted once: `Pss` of `smaps_rollup`.
fn memory_kib(pids: &[u32]) -> Result<f64> {
    pids.iter()
        .map(|pid| {
            let file = format!("/proc/{pid}/smaps_rollup");
            let text = fs::read_to_string(&file).map_err(BenchError::io(file.clone()))?;
            pss_kib(&text).ok_or_else(|| BenchError::Usage(format!("{file} has no line Pss")))
        })
        .sum()
}

fn pss_kib(rollup: &str) -> Option<f64> {
    rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::child::Child;
    use std::process::Command;

    /// Objective: the kernel's figures of a process can be read, and CPU time grows with work.
    #[test]
    fn kernel_figures() {
        assert!(memory_kib(&[std::process::id()]).expect("smaps_rollup") > 100.0);
        let folder = tempfile::tempdir().expect("a folder");
        let mut endless = Command::new("sh");
        endless.args(["-c", "while :; do :; done"]);
        let busy = Child::spawn(endless, &folder.path().join("log")).expect("a shell is there");
        let before = cpu_time(busy.pid()).expect("schedstat");
        let grown = || Ok((cpu_time(busy.pid())? > before).then_some(()));
        assert!(interrupt::poll_until(Duration::from_secs(10), grown).expect("it runs").is_some());
        assert_eq!(pss_kib("Rss: 5 kB\nPss:      1234 kB\nPss_Dirty: 7 kB\n"), Some(1234.0));
        assert_eq!(pss_kib("Rss: 5 kB\n"), None);
    }
}
