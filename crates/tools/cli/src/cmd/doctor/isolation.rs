//! Check: isolated CPUs.

use super::files;
use super::row::CheckRow;
use super::watched::WorkerLoad;

const CHECK: &str = "isolation";

/// Checks for isolated CPUs; returns `None` if the machine has too few CPUs to reserve one.
pub fn look(online: usize, workers: &[WorkerLoad]) -> Option<CheckRow> {
    let cpus = |file: &str| files::cpus(&files::read(format!("/sys/devices/system/cpu/{file}")).unwrap_or_default());
    judge(online, &cpus("isolated"), &cpus("nohz_full"), workers)
}

fn judge(online: usize, isolated: &[usize], tickless: &[usize], workers: &[WorkerLoad]) -> Option<CheckRow> {
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

    /// Objective: isolated CPUs that no worker uses yield advice; if no CPU is isolated, only machines with enough CPUs
    /// get a result.
    #[test]
    fn unused_isolated_cpus_yield_advice() {
        let worker = |cpu| [WorkerLoad { index: 0, cpu, busy: 0.0, polled: 0.0, ingresses: 0 }];
        let row = judge(64, &[2, 3], &[3], &worker(None)).expect("a row");
        assert!(row.state == CheckState::Advice && row.what_to_do.contains("--cpu 2`"), "{row:?}");
        let state = |online, isolated: &[usize], cpu| judge(online, isolated, &[], &worker(cpu)).map(|row| row.state);
        assert_eq!(state(64, &[2, 3], Some(3)), Some(CheckState::Ok));
        assert_eq!(state(64, &[], None), Some(CheckState::Ok));
        assert_eq!(state(2, &[], None), None);
        assert_eq!(judge(8, &[7], &[], &[]).map(|row| row.state), Some(CheckState::Ok));
    }
}
