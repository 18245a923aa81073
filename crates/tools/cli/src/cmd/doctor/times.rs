//! CPU time of the machine (`/proc/stat`) and of each process (`/proc/PID/stat`), from two samples.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use super::files;

/// Number of clock ticks per second in /proc. It is the same on all architectures that netvale supports.
const TICKS: f64 = 100.0;

/// CPU time of the machine in ticks, over all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MachineTicks {
    /// Ticks that programs and the kernel used.
    busy: u64,
    /// Ticks that the hypervisor took.
    steal: u64,
    /// All ticks, including idle ticks.
    all: u64,
    /// For each CPU, the ticks that programs and the kernel used.
    each: BTreeMap<usize, u64>,
}

/// CPU time of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProcessTicks {
    name: String,
    /// Start time of the process, which tells it from a later process with the same id.
    start: u64,
    ticks: u64,
}

/// A process's CPU time between two samples.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessUse {
    /// Process id.
    pub pid: u32,
    /// The name in `/proc/PID/stat`.
    pub name: String,
    /// CPU time divided by elapsed time: 1 means one CPU that was busy all the time.
    pub cpus: f64,
}

/// The CPU times of the machine and of all visible processes at one moment.
pub struct CpuSample {
    at: Instant,
    total: Option<MachineTicks>,
    processes: BTreeMap<u32, ProcessTicks>,
}

/// CPU time used between two samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuUse {
    /// The processes, busiest first.
    pub processes: Vec<ProcessUse>,
    /// CPU time that was used on all CPUs, as a number of CPUs; `None` if the kernel does not report it.
    pub busy_cpus: Option<f64>,
    /// Busy share of each CPU's time.
    pub each: BTreeMap<usize, f64>,
    /// Share of all CPU time that the hypervisor took; `None` if the kernel does not report it.
    pub steal: Option<f64>,
}

impl CpuUse {
    /// Returns the total idle time of these CPUs, as a number of CPUs; `None` if the use of one of these CPUs is
    /// unknown.
    pub fn idle(&self, cpus: &[usize]) -> Option<f64> {
        cpus.iter().map(|cpu| Some((1.0 - self.each.get(cpu)?).max(0.0))).sum()
    }
}

impl CpuSample {
    /// Reads the CPU times of the machine and of all visible processes.
    pub fn take() -> CpuSample {
        let total = files::read("/proc/stat").and_then(|text| total(&text));
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let processes = pids.filter_map(|pid| Some((pid, process(&files::read(format!("/proc/{pid}/stat"))?)?)));
        CpuSample { at: Instant::now(), total, processes: processes.collect() }
    }

    /// Returns the CPU time that was used since the sample `earlier`.
    pub fn since(&self, earlier: &CpuSample) -> CpuUse {
        let seconds = self.at.duration_since(earlier.at).as_secs_f64().max(0.001);
        let mut processes = used(&earlier.processes, &self.processes, seconds);
        processes.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
        let Some((then, now)) = earlier.total.as_ref().zip(self.total.as_ref()) else {
            return CpuUse { processes, ..CpuUse::default() };
        };
        let used = |then: u64, now: u64| now.saturating_sub(then) as f64 / TICKS / seconds;
        let each = now.each.iter().filter_map(|(cpu, &busy)| Some((*cpu, used(*then.each.get(cpu)?, busy))));
        let all = now.all.saturating_sub(then.all).max(1);
        let steal = now.steal.saturating_sub(then.steal) as f64 / all as f64;
        CpuUse { processes, busy_cpus: Some(used(then.busy, now.busy)), each: each.collect(), steal: Some(steal) }
    }
}

fn used(earlier: &BTreeMap<u32, ProcessTicks>, later: &BTreeMap<u32, ProcessTicks>, seconds: f64) -> Vec<ProcessUse> {
    let used = |(&pid, now): (&u32, &ProcessTicks)| {
        let then = earlier.get(&pid).filter(|then| then.start == now.start).map_or(0, |then| then.ticks);
        let ticks = now.ticks.saturating_sub(then);
        (ticks > 0).then(|| ProcessUse { pid, name: now.name.clone(), cpus: ticks as f64 / TICKS / seconds })
    };
    later.iter().filter_map(used).collect()
}

/// Parses /proc/stat: a line for all CPUs together, and one for each CPU. Returns `None` if the line for all CPUs is
/// missing.
fn total(text: &str) -> Option<MachineTicks> {
    let mut total = None;
    let mut each = BTreeMap::new();
    for (name, fields) in text.lines().filter_map(|line| line.strip_prefix("cpu")?.split_once(' ')) {
        let Some(ticks) = ticks(fields) else { continue };
        match name.parse() {
            Ok(cpu) => _ = each.insert(cpu, ticks.busy),
            Err(_) => total = Some(ticks),
        }
    }
    Some(MachineTicks { each, ..total? })
}

/// Parses the fields user, nice, system, idle, iowait, irq, softirq and steal of a line. Guest time is already part of
/// user. Returns `None` if fields are missing.
fn ticks(fields: &str) -> Option<MachineTicks> {
    let ticks: Vec<u64> = fields.split_whitespace().take(8).map(|field| field.parse().unwrap_or(0)).collect();
    let [user, nice, system, idle, iowait, irq, softirq, rest @ ..] = &ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    let steal = rest.first().copied().unwrap_or(0);
    Some(MachineTicks { busy, steal, all: busy + idle + iowait + steal, each: BTreeMap::new() })
}

/// Parses /proc/PID/stat. The name is in parentheses and may contain parentheses; fields 14, 15 and 22 are utime, stime
/// and starttime.
fn process(text: &str) -> Option<ProcessTicks> {
    let (name, rest) = text.split_once('(')?.1.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(ProcessTicks { name: name.replace(char::is_control, "?"), start: field(22)?, ticks: field(14)? + field(15)? })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stat(name: &str, start: u64, utime: u64, stime: u64) -> ProcessTicks {
        let text =
            format!("42 ({name}) R 1 42 42 0 -1 4194304 100 0 0 0 {utime} {stime} 0 0 20 0 1 0 {start} 2342912 100 1");
        process(&text).expect("a process")
    }

    /// Objective: names may contain blanks and parentheses, but no control character reaches the terminal; malformed
    /// text yields `None`.
    #[test]
    fn names_of_processes_cannot_move_the_cursor() {
        assert_eq!(stat("a) R 1 (b", 7, 30, 12), ProcessTicks { name: "a) R 1 (b".into(), start: 7, ticks: 42 });
        assert_eq!(stat("\u{1b}x", 7, 0, 0).name, "?x");
        assert!(["", "1 (x", "1 (x) R 2"].iter().all(|text| process(text).is_none()));
    }

    /// Objective: the CPU use of processes and of the machine is the difference between two samples, divided by the
    /// elapsed time; for a new process with a reused id, the earlier value counts as zero.
    #[test]
    fn use_is_the_difference_over_the_time() {
        let at = Instant::now();
        let first = CpuSample {
            at,
            total: total("cpu  1000 0 0 5000 0 0 0 10 0 0\ncpu0 100 0 0 50 0 0 0 0 0 0\ncpu1 1 1\n"),
            processes: [(1, stat("init", 1, 5, 0)), (8, stat("old", 2, 900, 0))].into(),
        };
        let second = CpuSample {
            at: at + Duration::from_secs(2),
            total: total("cpu  1150 20 20 5180 0 0 10 30 0 0\ncpu0 150 0 0 80 0 0 0 0 0 0\nintr 5\n"),
            processes: [(1, stat("init", 1, 5, 0)), (8, stat("new", 9, 100, 0)), (9, stat("yes", 9, 150, 40))].into(),
        };
        let spent = second.since(&first);
        let used: Vec<_> = spent.processes.iter().map(|used| (used.pid, &*used.name, used.cpus)).collect();
        assert_eq!(used, [(9, "yes", 0.95), (8, "new", 0.5)]);
        assert_eq!((spent.busy_cpus, spent.steal), (Some(1.0), Some(0.05)));
        assert_eq!(spent.each, [(0, 0.25)].into());
        assert_eq!((spent.idle(&[0]), spent.idle(&[0, 1])), (Some(0.75), None));
    }

    /// Objective: without /proc/stat the machine's figures are unknown; on kernels that do not report steal time, the
    /// steal time is unknown.
    #[test]
    fn missing_figures_are_unknown() {
        assert_eq!(total(""), None);
        assert_eq!(total("cpu0 1 2 3 4 5 6 7\n"), None);
        let each = BTreeMap::new();
        assert_eq!(total("cpu  1 2 3 4 5 6 7\n"), Some(MachineTicks { busy: 19, steal: 0, all: 28, each }));
    }
}
