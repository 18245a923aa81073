//! Detects whether other work disturbed a measurement.
//!
//! Two events spoil a figure: a pinned thread had to give up its CPU, or other processes used CPU time (and with it
//! cache and memory). Both events are counted during the window of a run. If a run exceeds the limits, it is discarded
//! and repeated.
//!
//! The number of involuntary switches alone does not show a disturbance: kernel threads preempt a busy thread a few
//! times per second for some microseconds. The main criterion is the time for which a runnable thread *waited* (second
//! field of `schedstat`). The number of switches is the second criterion, and the only one if the kernel has no
//! `schedstat`.

use std::fs;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A run is disturbed if a thread waited for its CPU for more than this share of the window.
pub const MAX_WAITED_PERCENT: f64 = 1.0;
/// A run is disturbed if a thread lost its CPU to other threads more than this many times per second.
pub const MAX_SWITCHES_A_SECOND: f64 = 50.0;
/// A run is disturbed if other processes used more than this share of one core.
pub const MAX_FOREIGN_PERCENT: f64 = 6.0;

/// Number of clock ticks per second in `/proc`: `USER_HZ`, 100 on all supported architectures.
const TICKS_A_SECOND: f64 = 100.0;

/// The disturbance of a run by other work on the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Number of involuntary context switches per second of the watched thread that has the largest number.
    pub switches_a_second: f64,
    /// Share of the window, in per cent, for which a watched thread was ready but did not run; the largest value of all
    /// watched threads.
    pub waited_percent: f64,
    /// CPU time that all other processes used, in per cent of one core.
    pub foreign_percent: f64,
}

impl Disturbance {
    /// Returns whether the run must be repeated because it exceeds a limit.
    pub fn spoils(&self) -> bool {
        self.switches_a_second > MAX_SWITCHES_A_SECOND
            || self.waited_percent > MAX_WAITED_PERCENT
            || self.foreign_percent > MAX_FOREIGN_PERCENT
    }

    /// Returns the severity, by which the least disturbed of several attempts is chosen.
    pub fn score(&self) -> f64 {
        self.waited_percent + self.foreign_percent + self.switches_a_second / 100.0
    }

    /// Adds the counters of one watched thread; the result is determined by the most disturbed thread.
    pub fn with_thread(mut self, switches: u64, waited: Duration, window: Duration) -> Self {
        let seconds = window.as_secs_f64().max(1e-9);
        self.switches_a_second = self.switches_a_second.max(switches as f64 / seconds);
        self.waited_percent = self.waited_percent.max(100.0 * waited.as_secs_f64() / seconds);
        self
    }
}

/// Scheduling counters of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCounters {
    /// Number of involuntary context switches.
    pub switches: u64,
    /// Time for which the thread was ready but did not run.
    pub waited: Duration,
}

impl ThreadCounters {
    /// Reads the calling thread's counters.
    pub fn of_this_thread() -> Self {
        Self::read("/proc/thread-self")
    }

    /// Reads the counters of thread `tid` of process `pid`. All counters are zero if the thread has ended.
    pub fn of(pid: u32, tid: u32) -> Self {
        Self::read(&format!("/proc/{pid}/task/{tid}"))
    }

    fn read(folder: &str) -> Self {
        let status = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
        let schedstat = fs::read_to_string(format!("{folder}/schedstat")).unwrap_or_default();
        Self { switches: involuntary_switches(&status).unwrap_or(0), waited: waited(&schedstat).unwrap_or_default() }
    }

    /// Returns the increase of the counters since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            switches: self.switches.saturating_sub(earlier.switches),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

/// Watches the machine from [`Watch::start`] to [`Watch::finish`].
#[derive(Debug)]
pub struct Watch {
    started: Instant,
    processes: Vec<u32>,
    foreign: u64,
    threads: Vec<(u32, u32, ThreadCounters)>,
}

impl Watch {
    /// Starts watching. `processes` are the processes that belong to the measurement; this process always belongs to
    /// it. `threads`, as `(pid, tid)`, are the pinned threads of other processes. Threads of this process report
    /// through [`Disturbance::with_thread`].
    pub fn start(processes: &[u32], threads: &[(u32, u32)]) -> Self {
        let mut processes = processes.to_vec();
        processes.push(std::process::id());
        Self {
            foreign: foreign_ticks(&processes),
            threads: threads.iter().map(|&(pid, tid)| (pid, tid, ThreadCounters::of(pid, tid))).collect(),
            processes,
            started: Instant::now(),
        }
    }

    /// Ends the window. Returns the disturbance during the window.
    pub fn finish(self) -> Disturbance {
        let window = self.started.elapsed();
        let mut result = Disturbance::default();
        for (pid, tid, before) in self.threads {
            let seen = ThreadCounters::of(pid, tid).since(before);
            result = result.with_thread(seen.switches, seen.waited, window);
        }
        let foreign = foreign_ticks(&self.processes).saturating_sub(self.foreign);
        result.foreign_percent = 100.0 * foreign as f64 / TICKS_A_SECOND / window.as_secs_f64().max(1e-9);
        result
    }
}

/// Returns the CPU time that `processes`, including their ended threads, and the kernel's packet processing have used.
pub fn cpu_time(processes: &[u32]) -> Duration {
    let ticks: u64 = processes.iter().copied().chain(ksoftirqd()).map(process_ticks).sum();
    Duration::from_secs_f64(ticks as f64 / TICKS_A_SECOND)
}

/// Returns the ticks that all processes except `processes` and the kernel's packet processing have used.
fn foreign_ticks(processes: &[u32]) -> u64 {
    let total = fs::read_to_string("/proc/stat").ok().as_deref().and_then(busy_ticks).unwrap_or(0);
    let own = processes.iter().copied().chain(ksoftirqd()).map(process_ticks).sum();
    total.saturating_sub(own)
}

fn process_ticks(pid: u32) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok().as_deref().and_then(used_ticks).unwrap_or(0)
}

/// Returns the kernel threads that process packets in softirqs for network peers, which is part of the measured work.
/// Kernel threads never change their pid, so one lookup suffices.
fn ksoftirqd() -> impl Iterator<Item = u32> {
    static PIDS: std::sync::OnceLock<Vec<u32>> = std::sync::OnceLock::new();
    PIDS.get_or_init(|| processes_named("ksoftirqd")).iter().copied()
}

/// Returns the processes, including kernel threads, whose name starts with `prefix`.
pub fn processes_named(prefix: &str) -> Vec<u32> {
    tasks_named("/proc", &[prefix]).collect()
}

/// Returns the tasks of a folder in `/proc` whose name starts with one of `prefixes`.
fn tasks_named(folder: &str, prefixes: &[&str]) -> impl Iterator<Item = u32> {
    let tasks = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = tasks.filter(|task| {
        let name = fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
    });
    named.filter_map(|task| task.file_name().to_str()?.parse().ok())
}

/// Returns the threads of `pid` whose name starts with one of `prefixes`, as `(pid, tid)`.
pub fn threads_named(pid: u32, prefixes: &[&str]) -> Vec<(u32, u32)> {
    tasks_named(&format!("/proc/{pid}/task"), prefixes).map(|tid| (pid, tid)).collect()
}

/// Returns user + nice + system + irq + softirq + steal from the first line of `/proc/stat`. Steal time counts, because
/// a hypervisor that takes the CPU disturbs the measurement just as a process does.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = fields[..] else { return None };
    Some(user + nice + system + irq + softirq + steal)
}

/// Returns utime + stime + cutime + cstime (fields 14 to 17) from `/proc/PID/stat`. The name in field 2 may contain
/// anything, so fields are counted from the last parenthesis.
fn used_ticks(stat: &str) -> Option<u64> {
    let behind_name = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum()
}

fn involuntary_switches(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// Returns the second field of `schedstat`: nanoseconds spent waiting on a run queue.
fn waited(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: CPU time is summed without idle and iowait, but with steal.
    #[test]
    fn busy_is_everything_but_idle() {
        let stat = "cpu  100 20 30 99999 8888 4 5 6 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_ticks(stat), Some(165));
        assert_eq!(busy_ticks("cpu  1 2"), None);
        assert_eq!(busy_ticks(""), None);
    }

    /// Objective: a process name with spaces and parentheses does not shift the fields.
    #[test]
    fn process_time_behind_a_strange_name() {
        let stat = "42 (a) b (c) R 1 1 1 0 -1 4194560 10 0 0 0 7 5 3 1 20 0 1 0 100 1 1\n";
        assert_eq!(used_ticks(stat), Some(16));
        assert_eq!(used_ticks("42 nonsense"), None);
    }

    /// Objective: a thread's counters are found in the texts of the kernel's files.
    #[test]
    fn thread_counters_are_found_in_kernel_texts() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t12\n";
        assert_eq!(involuntary_switches(status), Some(12));
        assert_eq!(waited("111 2500 3\n"), Some(Duration::from_nanos(2500)));
        assert_eq!(waited(""), None);
    }

    /// Objective: each of the three criteria alone marks a run as disturbed; the most disturbed thread determines the
    /// result.
    #[test]
    fn each_criterion_alone_spoils_a_run() {
        let window = Duration::from_secs(1);
        let calm =
            Disturbance { foreign_percent: 5.9, ..Default::default() }.with_thread(3, Duration::from_millis(1), window);
        assert!(!calm.spoils());
        assert!(calm.with_thread(51, Duration::ZERO, window).spoils());
        assert!(calm.with_thread(0, Duration::from_millis(11), window).spoils());
        assert!(Disturbance { foreign_percent: 6.1, ..Default::default() }.spoils());
        let worst = calm.with_thread(0, Duration::from_millis(20), window).with_thread(0, Duration::ZERO, window);
        assert!((worst.waited_percent - 2.0).abs() < 1e-9);
    }

    /// Objective: CPU time includes the work of a thread that has ended.
    #[test]
    fn cpu_time_grows() {
        let own = [std::process::id()];
        let before = cpu_time(&own);
        let grown = move || cpu_time(&own) > before;
        let work = std::thread::spawn(move || while !grown() {});
        work.join().expect("no panic");
        assert!(cpu_time(&own) > before);
    }

    /// Objective: the `/proc` of this machine is parsed, and a thread of this process is found by name.
    #[test]
    fn the_text_of_this_machine_is_understood() {
        let stat = fs::read_to_string("/proc/stat").expect("/proc");
        assert!(busy_ticks(&stat).is_some());
        assert!(process_ticks(std::process::id()) < busy_ticks(&stat).expect("checked"));
        let named = std::thread::Builder::new().name("watched-one".into());
        let handle = named.spawn(|| threads_named(std::process::id(), &["watched"]).len()).expect("a thread");
        assert_eq!(handle.join().expect("no panic"), 1);
    }
}
