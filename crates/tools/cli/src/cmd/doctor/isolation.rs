//! Check: isolated CPUs.

use super::files;
use super::row::Row;
use super::watched::Load;

const CHECK: &str = "isolation";

/// Checks; `None` on a machine too small to reserve a CPU.
pub fn look(online: usize, workers: &[Load]) -> Option<Row> {
    let cpus = |file: &str| files::cpus(&files::read(format!("/sys/devices/system/cpu/{file}")).unwrap_or_default());
    judge(online, &cpus("isolated"), &cpus("nohz_full"), workers)
}

fn judge(online: usize, isolated: &[usize], tickless: &[usize], workers: &[Load]) -> Option<Row> {
    /// The minimum number of CPUs worth dividing.
    const WORTH: usize = 4;
    if isolated.is_empty() {
        let found = "no CPU is kept for netvale; the kernel's `isolcpus=LIST nohz_full=LIST` keep other programs off CPUs, for the steadiest latency";
        return (online >= WORTH).then(|| Row::ok(CHECK, found).figure("isolated", Vec::<usize>::new()));
    }
    let mut found = format!("{} isolated", files::named(isolated));
    if !tickless.is_empty() {
        found.push_str(&format!(", without the kernel's tick: {}", files::list(tickless)));
    }
    let row = Row::ok(CHECK, found).figure("isolated", isolated).figure("nohz_full", tickless);
    let uses = |worker: &Load| worker.cpu.is_some_and(|cpu| isolated.contains(&(cpu as usize)));
    if workers.is_empty() || workers.iter().any(uses) {
        return Some(row);
    }
    let few: Vec<_> = isolated.iter().copied().take(workers.len()).collect();
    Some(row.advise(
        "Only threads that are pinned there run on them, and no worker is: they stay idle.",
        format!("`netvale up --cpu {}` (`cpus` in the configuration)", files::list(&few)),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::row::State;
    use super::*;

    /// Objective: isolated CPUs that no worker uses yield advice; without any, only large machines get advice.
    #[test]
    fn isolated() {
        let worker = |cpu| [Load { index: 0, cpu, busy: 0.0, polled: 0.0, ingresses: 0 }];
        let row = judge(64, &[2, 3], &[3], &worker(None)).expect("a row");
        assert!(row.state == State::Advice && row.what_to_do.contains("--cpu 2`"), "{row:?}");
        let state = |online, isolated: &[usize], cpu| judge(online, isolated, &[], &worker(cpu)).map(|row| row.state);
        assert_eq!(state(64, &[2, 3], Some(3)), Some(State::Ok));
        assert_eq!(state(64, &[], None), Some(State::Ok));
        assert_eq!(state(2, &[], None), None);
        assert_eq!(judge(8, &[7], &[], &[]).map(|row| row.state), Some(State::Ok));
    }
}
