//! The cost of a daemon whose ports have no traffic.

use std::fs;

use super::*;

/// Time limit for a daemon to fall asleep.
const FALL_ASLEEP: Duration = Duration::from_millis(100);

const SIXTEEN: Variant = Variant { ports: &[16], ..Variant::TWO_PORTS };

/// The scenario: a daemon whose ports have no traffic.
pub const SCENARIO: Scenario = Scenario {
    name: "idle",
    about: "the cost of idle ports: CPU use of the daemon, and memory per port (the daemon's and the port's region)",
    variants: &[
        Variant { name: "cpu", unit: Unit::Percent, ..SIXTEEN },
        Variant { name: "memory-a-port", unit: Unit::Kib, ..SIXTEEN },
    ],
    needs: &[ONE],
    start,
};

fn start(case: &Case, cores: Cores) -> Result<Session> {
    let daemon = Daemon::start(None, cores.0, "")?;
    let pid = daemon.pid();
    let processes = [pid, std::process::id()];
    let before = memory_kib(&processes)?;
    let ports = (0..case.ports).map(|index| daemon.open(&format!("vale0:p{index}"), 0)).collect::<Result<Vec<_>>>()?;
    let kib_a_port = (memory_kib(&processes)? - before) / f64::from(case.ports.max(1));
    let unit = case.unit;
    let measuring = move |window| {
        let watch = Watch::start(&[pid], &[]);
        let percent = cpu_percent(pid, window)?;
        Ok(Sample::new(if unit == Unit::Kib { kib_a_port } else { percent }, watch.finish()))
    };
    let session = Session::new(format!("the daemon on CPU {}", cores.0), false, measuring);
    Ok(session.keeping(ports).keeping(daemon))
}

/// Returns the CPU use of a process during a window, which begins when the process has had time to fall asleep.
pub fn cpu_percent(pid: u32, window: Duration) -> Result<f64> {
    interrupt::sleep(FALL_ASLEEP)?;
    let before = cpu_time(pid)?;
    let start = Instant::now();
    interrupt::sleep(window)?;
    Ok(100.0 * (cpu_time(pid)? - before).as_secs_f64() / start.elapsed().as_secs_f64())
}

/// Returns the CPU time of all threads of a process (first field of `schedstat`).
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let folder = format!("/proc/{pid}/task");
    let mut nanos = 0;
    for task in fs::read_dir(&folder).map_err(BenchError::io(folder.clone()))?.flatten() {
        let file = task.path().join("schedstat");
        let text = fs::read_to_string(&file).map_err(BenchError::io(file.display().to_string()))?;
        nanos += text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

/// Returns the memory of processes, in which shared memory counts once: `Pss` of `smaps_rollup`.
pub fn memory_kib(pids: &[u32]) -> Result<f64> {
    sum_of_kib(pids, "smaps_rollup", "Pss:")
}

/// Returns the sum, over the processes, of the number in the line that begins with `name` in `/proc/PID/FILE`, in KiB.
pub fn sum_of_kib(pids: &[u32], file: &str, name: &str) -> Result<f64> {
    pids.iter()
        .map(|pid| {
            let file = format!("/proc/{pid}/{file}");
            let text = fs::read_to_string(&file).map_err(BenchError::io(file.clone()))?;
            kib(&text, name).ok_or_else(|| BenchError::Usage(format!("{file} has no line {name}")))
        })
        .sum()
}

fn kib(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::child::Child;
    use std::process::Command;

    /// Objective: the kernel's figures of a process are parsed, and CPU time grows with work.
    #[test]
    fn the_kernels_figures_of_a_process_are_read() {
        assert!(memory_kib(&[std::process::id()]).expect("smaps_rollup") > 100.0);
        let folder = tempfile::tempdir().expect("a folder");
        let mut endless = Command::new("sh");
        endless.args(["-c", "while :; do :; done"]);
        let busy = Child::spawn(endless, &folder.path().join("log")).expect("a shell is there");
        let before = cpu_time(busy.pid()).expect("schedstat");
        let grown = || Ok((cpu_time(busy.pid())? > before).then_some(()));
        assert!(interrupt::poll_until(Duration::from_secs(10), grown).expect("it runs").is_some());
        assert_eq!(kib("Rss: 5 kB\nPss:      1234 kB\nPss_Dirty: 7 kB\n", "Pss:"), Some(1234.0));
        assert_eq!(kib("Rss: 5 kB\n", "Pss:"), None);
    }
}
