//! Checks: the CPUs available to netvale, the placement of its threads, and isolated CPUs.

use std::path::Path;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::cgroup::{self, Quota};
use super::files;
use super::row::{CheckRow, rounded};
use super::watched::WorkerLoad;

const CHECK: &str = "cpus";

/// The CPUs available to a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cpus {
    pub online: usize,
    /// Numbers of the CPUs in the process's affinity mask.
    pub allowed: Vec<usize>,
    pub quota: Quota,
}

impl Cpus {
    /// Returns the CPUs of a process, by default of this process; `None` if the kernel does not report them.
    pub fn of(pid: Option<Pid>) -> Option<Cpus> {
        let set = sched_getaffinity(pid).ok()?;
        let allowed: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
        let online = files::read("/sys/devices/system/cpu/online").map(|text| files::cpus(&text).len());
        let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.as_raw_pid().to_string());
        let groups = files::read(Path::new("/proc").join(process).join("cgroup")).unwrap_or_default();
        let mounts = files::read("/proc/self/mountinfo").unwrap_or_default();
        let quota = cgroup::quota(&groups, &mounts, |path| files::read(path));
        Some(Cpus { online: online.unwrap_or(0).max(allowed.len()), allowed, quota })
    }

    /// Returns how much CPU time the process may use, as a number of CPUs.
    pub fn usable(&self) -> f64 {
        let allowed = self.allowed.len() as f64;
        self.quota.cpus().map_or(allowed, |quota| quota.min(allowed))
    }

    fn about(&self) -> String {
        let allowed = self.allowed.len();
        let online = self.online;
        let mut text = match (allowed, online) {
            (1, 1) => "1 CPU".to_owned(),
            _ if allowed == online => format!("{online} CPUs"),
            _ => format!("{allowed} of {online} CPUs ({})", files::named(&self.allowed)),
        };
        text.push_str(&match self.quota {
            Quota::Unknown => String::new(),
            Quota::Unlimited => ", no quota".to_owned(),
            Quota::Limited { quota_us, period_us } => format!(
                ", with a quota of {:.2} CPUs ({} of every {} ms)",
                quota_us as f64 / period_us as f64,
                millis(quota_us),
                millis(period_us)
            ),
        });
        text
    }
}

fn millis(us: u64) -> f64 {
    rounded(us as f64 / 1000.0)
}

/// A worker that is awake for more than this share of its time needs a CPU of its own.
const AWAKE: f64 = 0.5;

/// Judges the CPUs for these workers; the list is empty if no daemon was examined.
pub fn judge(cpus: Option<&Cpus>, workers: &[WorkerLoad]) -> CheckRow {
    let Some(cpus) = cpus else { return CheckRow::unknown(CHECK, "the kernel does not show which CPUs may be used") };
    let placed = placement(workers);
    let row = CheckRow::ok(CHECK, cpus.about() + &placed)
        .figure("online", cpus.online)
        .figure("allowed", cpus.allowed.len())
        .figure("quota_cpus", cpus.quota.cpus().map(rounded))
        .figure("workers", workers.len());
    advise(row, cpus, workers)
}

fn advise(row: CheckRow, cpus: &Cpus, workers: &[WorkerLoad]) -> CheckRow {
    let count = workers.len();
    let allowed = cpus.allowed.len();
    let awake = workers.iter().filter(|worker| 1.0 - worker.asleep() > AWAKE).count();
    // CPUs are needed for all workers, and for one program that sends or receives.
    let wanted = (count.max(1) + 1).min(allowed);
    if let Some(pause) = cpus.quota.pause_us().filter(|_| cpus.usable() < wanted as f64) {
        row.advise(
            format!(
                "Once the quota is used up, all threads stop until the next period, for up to {} ms.",
                millis(pause)
            ),
            "a larger quota (systemd: `CPUQuota=`, containers: `--cpus`). Until then, `netvale up --spin-us 0`: \
             polling without frames uses the quota up, too",
        )
    } else if let Some(cpu) = shared_cpu(workers) {
        row.advise(
            format!("Two workers are pinned to CPU {cpu}: they take turns, and forward no more than one would."),
            "one CPU for each worker: `netvale up --cpu LIST` (`cpus` in the configuration), or fewer `--workers`",
        )
    } else if count > allowed {
        row.advise(
            format!("{count} workers, {awake} of them awake most of the time, take turns on fewer CPUs."),
            "fewer workers than CPUs: `netvale up --workers N` (`workers` in the configuration)",
        )
    } else if allowed == 1 {
        row.advise(
            "The worker and the programs take turns on one CPU. While one of them polls, the other waits.",
            "a second CPU; on one, `netvale up --spin-us 0` (`spin_us = 0`), so that a worker without frames yields \
             the CPU",
        )
    } else {
        row
    }
}

fn placement(workers: &[WorkerLoad]) -> String {
    let pinned: Vec<_> = workers.iter().filter_map(|worker| worker.cpu).map(|cpu| cpu.to_string()).collect();
    let count = match workers.len() {
        0 => return String::new(),
        1 => "1 worker".to_owned(),
        many => format!("{many} workers"),
    };
    match pinned.len() {
        0 => format!("; {count}, not pinned"),
        1 => format!("; {count} on CPU {}", pinned.concat()),
        _ => format!("; {count} on CPUs {}", pinned.join(", ")),
    }
}

/// Returns a CPU to which two workers are pinned, if there is one.
fn shared_cpu(workers: &[WorkerLoad]) -> Option<u32> {
    let mut pinned: Vec<_> = workers.iter().filter_map(|worker| worker.cpu).collect();
    pinned.sort_unstable();
    pinned.windows(2).find(|two| two[0] == two[1]).map(|two| two[0])
}

/// Checks for isolated CPUs; returns `None` if the machine has too few CPUs to reserve one.
pub fn isolation(online: usize, workers: &[WorkerLoad]) -> Option<CheckRow> {
    let cpus = |file: &str| files::cpus(&files::read(format!("/sys/devices/system/cpu/{file}")).unwrap_or_default());
    judge_isolation(online, &cpus("isolated"), &cpus("nohz_full"), workers)
}

fn judge_isolation(online: usize, isolated: &[usize], tickless: &[usize], workers: &[WorkerLoad]) -> Option<CheckRow> {
    const CHECK: &str = "isolation";
    /// Minimum number of CPUs for which it is worthwhile to isolate one.
    const WORTH: usize = 4;
    if isolated.is_empty() {
        let found = "no CPU is isolated; the kernel parameters `isolcpus=LIST nohz_full=LIST` keep other programs off \
                     CPUs, for the steadiest latency";
        return (online >= WORTH).then(|| CheckRow::ok(CHECK, found).figure("isolated", Vec::<usize>::new()));
    }
    let mut found = format!("{} isolated", files::named(isolated));
    if !tickless.is_empty() {
        found.push_str(&format!(", without the kernel's tick: {}", files::list(tickless)));
    }
    let row = CheckRow::ok(CHECK, found).figure("isolated", isolated).figure("nohz_full", tickless);
    let uses = |worker: &WorkerLoad| worker.cpu.is_some_and(|cpu| isolated.contains(&(cpu as usize)));
    if workers.is_empty() || workers.iter().any(uses) {
        return Some(row);
    }
    let few: Vec<_> = isolated.iter().copied().take(workers.len()).collect();
    Some(row.advise(
        "Only threads that are pinned to these CPUs run on them. No worker is pinned there: they stay idle.",
        format!("`netvale up --cpu {}` (`cpus` in the configuration)", files::list(&few)),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::row::CheckState;
    use super::*;

    fn cpus(allowed: usize, online: usize, quota: Quota) -> Cpus {
        Cpus { online, allowed: (0..allowed).collect(), quota }
    }

    fn workers(count: u32, cpu: impl Fn(u32) -> Option<u32>, polled: f64) -> Vec<WorkerLoad> {
        let load = |index| WorkerLoad { index, cpu: cpu(index), busy: 0.0, polled, ingresses: 1 };
        (0..count).map(load).collect()
    }

    /// Objective: a single CPU yields advice, with or without a daemon; many CPUs yield none.
    #[test]
    fn a_single_cpu_yields_advice() {
        let one = cpus(1, 1, Quota::Unlimited);
        for daemon in [workers(0, |_| None, 0.0), workers(1, |_| None, 0.0)] {
            let row = judge(Some(&one), &daemon);
            assert!(row.state == CheckState::Advice && row.what_to_do.contains("--spin-us 0"), "{row:?}");
        }
        let row = judge(Some(&cpus(64, 64, Quota::Unlimited)), &workers(4, Some, 1.0));
        assert_eq!((row.state, &*row.found), (CheckState::Ok, "64 CPUs, no quota; 4 workers on CPUs 0, 1, 2, 3"));
        assert_eq!(judge(Some(&cpus(2, 64, Quota::Unknown)), &[]).found, "2 of 64 CPUs (CPUs 0-1)");
        assert_eq!(judge(None, &[]).state, CheckState::Unknown);
    }

    /// Objective: a quota of 10 % yields advice with the length of the pause; a sufficient quota yields none.
    #[test]
    fn a_small_quota_yields_advice() {
        let tenth = Quota::Limited { quota_us: 10_000, period_us: 100_000 };
        let row = judge(Some(&cpus(2, 2, tenth)), &[]);
        assert_eq!(row.found, "2 CPUs, with a quota of 0.10 CPUs (10 of every 100 ms)");
        assert!(row.state == CheckState::Advice && row.why.contains("90 ms"), "{row:?}");
        let eight = Quota::Limited { quota_us: 800_000, period_us: 100_000 };
        assert_eq!(judge(Some(&cpus(64, 64, eight)), &workers(2, |_| None, 0.0)).state, CheckState::Ok);
    }

    /// Objective: more workers than CPUs, and two workers on one CPU, yield advice.
    #[test]
    fn crowded_workers_yield_advice() {
        let two = cpus(2, 2, Quota::Unlimited);
        assert!(judge(Some(&two), &workers(3, |_| None, 1.0)).why.contains("3 of them awake"));
        assert!(judge(Some(&two), &workers(2, |_| Some(1), 0.0)).why.contains("CPU 1"));
    }

    /// Objective: isolated CPUs that no worker uses yield advice; if no CPU is isolated, only machines with enough CPUs
    /// get a result.
    #[test]
    fn unused_isolated_cpus_yield_advice() {
        let worker = |cpu| [WorkerLoad { index: 0, cpu, busy: 0.0, polled: 0.0, ingresses: 0 }];
        let row = judge_isolation(64, &[2, 3], &[3], &worker(None)).expect("a row");
        assert!(row.state == CheckState::Advice && row.what_to_do.contains("--cpu 2`"), "{row:?}");
        let state =
            |online, isolated: &[usize], cpu| judge_isolation(online, isolated, &[], &worker(cpu)).map(|row| row.state);
        assert_eq!(state(64, &[2, 3], Some(3)), Some(CheckState::Ok));
        assert_eq!(state(64, &[], None), Some(CheckState::Ok));
        assert_eq!(state(2, &[], None), None);
        assert_eq!(judge_isolation(8, &[7], &[], &[]).map(|row| row.state), Some(CheckState::Ok));
    }
}
