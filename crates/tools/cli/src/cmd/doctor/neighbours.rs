//! Checks: other programs on this machine's CPUs, and other virtual machines on its host (steal time).

use std::collections::BTreeSet;

use serde_json::json;

use super::cpus::Cpus;
use super::files;
use super::row::{CheckRow, rounded};
use super::times::{CpuUse, ProcessUse};

const CHECK: &str = "neighbours";

/// Minimum CPU use, in CPUs, for which a program is listed.
const LISTED: f64 = 0.05;
/// Maximum number of listed programs.
const MOST: usize = 5;
/// Lack of CPU time that is tolerated, in CPUs, since no program is busy all the time.
const SLACK: f64 = 0.5;

/// The machine's activity during the watch, with the facts that tell netvale's use of the CPUs from that of other
/// programs.
pub struct Neighbours<'a> {
    /// The CPU time that the machine and its processes used.
    pub spent: &'a CpuUse,
    /// Process ids to ignore: the daemon's and this process's.
    pub own: &'a [u32],
    /// Process ids of programs with netvale ports.
    pub clients: &'a BTreeSet<u32>,
    pub cpus: &'a Cpus,
    /// Number of workers; 0 without a daemon.
    pub workers: usize,
}

impl Neighbours<'_> {
    fn others(&self) -> impl Iterator<Item = &ProcessUse> {
        self.spent.processes.iter().filter(|used| !self.is_ours(used))
    }

    /// Returns whether a process is netvale's own, or has netvale ports.
    fn is_ours(&self, used: &ProcessUse) -> bool {
        self.own.contains(&used.pid) || self.clients.contains(&used.pid)
    }

    /// Returns the CPU use, in CPUs, of processes that have ended or are not visible in this /proc.
    fn unseen(&self) -> f64 {
        let seen: f64 = self.spent.processes.iter().map(|used| used.cpus).sum();
        self.spent.busy_cpus.map_or(0.0, |busy| (busy - seen).max(0.0))
    }

    /// Returns the number of threads of netvale and its clients that need a CPU: the workers, and the busy programs.
    fn wanted(&self) -> f64 {
        let is_busy = |used: &&ProcessUse| self.clients.contains(&used.pid) && used.cpus > LISTED;
        let programs = self.spent.processes.iter().filter(is_busy).count();
        (self.workers.max(1) + programs.max(1)).min(self.cpus.allowed.len()) as f64
    }

    /// Returns how much CPU time other programs leave to netvale, as a number of CPUs. `used` is the CPU time of the
    /// other programs, as a number of CPUs, on all CPUs of the machine.
    fn left(&self, used: f64) -> f64 {
        let Some(busy) = self.busy_here() else { return self.cpus.online as f64 - used };
        let ours: f64 = self.spent.processes.iter().filter(|used| self.is_ours(used)).map(|used| used.cpus).sum();
        self.cpus.allowed.len() as f64 - (busy - ours).max(0.0)
    }

    /// Returns how much of the time of the CPUs available to netvale was busy, as a number of CPUs; `None` if all CPUs
    /// are available to netvale, or if the use of one of its CPUs is unknown.
    fn busy_here(&self) -> Option<f64> {
        if self.cpus.allowed.len() == self.cpus.online {
            return None;
        }
        self.cpus.allowed.iter().map(|cpu| self.spent.each.get(cpu)).sum()
    }
}

/// Checks whether other programs leave enough CPU time for netvale.
pub fn judge(facts: &Neighbours<'_>) -> CheckRow {
    if facts.spent.processes.is_empty() && facts.spent.busy_cpus.is_none() {
        return CheckRow::unknown(CHECK, "/proc does not show the other processes");
    }
    let listed: Vec<_> = facts.others().filter(|used| used.cpus > LISTED).take(MOST).collect();
    let unseen = facts.unseen();
    // The kernel counts whole ticks, so without this limit the sum might exceed the number of CPUs.
    let sum = (facts.others().map(|used| used.cpus).sum::<f64>() + unseen).min(facts.cpus.online as f64);
    let names = names(&listed, unseen);
    let figures = listed.iter().map(|used| json!({"pid": used.pid, "name": used.name, "cpus": rounded(used.cpus)}));
    let row = CheckRow::ok(CHECK, about(facts, sum, &names))
        .figure("cpus_used", rounded(sum))
        .figure("cpus_unseen", rounded(unseen))
        .figure("processes", figures.collect::<Vec<_>>());
    row.advise_if(
        !names.is_empty() && facts.left(sum) < facts.wanted() - SLACK,
        "A worker or a program with a port waits while another program has its CPU: up to milliseconds, for \
         frames that take less than a microsecond each.",
        "stop programs that do not use netvale, or keep them off its CPUs: `netvale up --cpu N` pins a worker, \
         `taskset -apc LIST PID` moves a program",
    )
}

/// Formats the CPU use of each listed program and, if it is high enough, the CPU use of invisible programs.
fn names(listed: &[&ProcessUse], unseen: f64) -> Vec<String> {
    let name = |used: &&ProcessUse| format!("{} (pid {}) {:.0} %", used.name, used.pid, used.cpus * 100.0);
    let mut names: Vec<_> = listed.iter().map(name).collect();
    if unseen > LISTED {
        names.push(format!("short-lived or hidden ones {:.0} %", unseen * 100.0));
    }
    names
}

fn about(facts: &Neighbours<'_>, sum: f64, names: &[String]) -> String {
    let mut text = format!("other programs use {sum:.2} of {} CPUs", facts.cpus.online);
    if !names.is_empty() {
        text = format!("{text}: {}", names.join(", "));
    }
    if let Some(busy) = facts.busy_here() {
        let cpus = &facts.cpus.allowed;
        let percent = (100.0 * busy / cpus.len() as f64).min(100.0);
        text.push_str(&format!("; netvale has {}, {percent:.0} % busy", files::named(cpus)));
    }
    text
}

/// Judges the hypervisor's steal time.
pub fn steal(spent: &CpuUse) -> CheckRow {
    /// Share of the CPU time above which steal time is noticeable.
    const FELT: f64 = 0.02;
    let Some(steal) = spent.steal else { return CheckRow::unknown("steal", "/proc/stat has no CPU times") };
    let row = CheckRow::ok("steal", format!("the hypervisor took {:.1} % of the CPU time", steal * 100.0))
        .figure("percent", rounded(steal * 100.0));
    row.advise_if(
        steal > FELT,
        "Other virtual machines use the CPUs of this one for that share of the time: meanwhile, everything here \
         stops, for milliseconds.",
        "fewer virtual machines on that host, or CPUs of its own for this one (libvirt: `vcpupin`; cloud: dedicated \
         CPUs)",
    )
}

#[cfg(test)]
mod tests {
    use super::super::cgroup::Quota;
    use super::super::row::CheckState;
    use super::*;

    fn used(pid: u32, name: &str, cpus: f64) -> ProcessUse {
        ProcessUse { pid, name: name.into(), cpus }
    }

    fn judged(processes: Vec<ProcessUse>, busy: f64, cpus: usize, clients: &[u32]) -> CheckRow {
        let spent = CpuUse { processes, busy_cpus: Some(busy), ..CpuUse::default() };
        let clients = clients.iter().copied().collect();
        let cpus = Cpus { online: cpus, allowed: (0..cpus).collect(), quota: Quota::Unlimited };
        judge(&Neighbours { spent: &spent, own: &[1, 2], clients: &clients, cpus: &cpus, workers: 1 })
    }

    /// Objective: two busy programs yield advice on 2 CPUs, and none on 64; the daemon does not count as another
    /// program.
    #[test]
    fn two_busy_neighbours_yield_advice_on_two_cpus() {
        let processes = vec![used(2, "netvale", 1.0), used(8, "yes", 0.9), used(9, "yes", 0.85), used(10, "sh", 0.01)];
        let row = judged(processes.clone(), 2.76, 2, &[]);
        assert_eq!(row.found, "other programs use 1.76 of 2 CPUs: yes (pid 8) 90 %, yes (pid 9) 85 %");
        assert_eq!((row.state, row.figures["cpus_used"].as_f64()), (CheckState::Advice, Some(1.76)));
        assert_eq!(judged(processes, 2.76, 64, &[]).state, CheckState::Ok);
        assert_eq!(judged(vec![used(8, "browser", 0.4)], 0.4, 2, &[]).state, CheckState::Ok);
    }

    /// Objective: programs with ports of netvale do not count as other programs; an idle machine yields no advice, even
    /// if it has only one CPU.
    #[test]
    fn programs_that_use_netvale_are_no_competitors() {
        let row = judged(vec![used(2, "netvale", 0.9), used(8, "pkt-gen", 0.9)], 1.8, 2, &[8]);
        assert_eq!((row.state, &*row.found), (CheckState::Ok, "other programs use 0.00 of 2 CPUs"));
        assert_eq!(judged(vec![used(5, "sshd", 0.02)], 0.02, 1, &[]).state, CheckState::Ok);
    }

    /// Objective: if netvale may use only some CPUs, only the load of these CPUs counts.
    #[test]
    fn only_the_load_of_allowed_cpus_counts() {
        let cpus = Cpus { online: 64, allowed: vec![4, 5], quota: Quota::Unlimited };
        let judged = |each: [f64; 2]| {
            let each = [(3, 1.0), (4, each[0]), (5, each[1])].into();
            let processes = vec![used(2, "netvale", 0.5), used(8, "yes", 1.0)];
            let spent = CpuUse { processes, busy_cpus: Some(2.0), each, steal: None };
            judge(&Neighbours { spent: &spent, own: &[2], clients: &BTreeSet::new(), cpus: &cpus, workers: 1 })
        };
        let row = judged([1.0, 0.8]);
        assert!(row.state == CheckState::Advice && row.found.ends_with("netvale has CPUs 4-5, 90 % busy"), "{row:?}");
        assert_eq!(judged([0.0, 0.5]).state, CheckState::Ok);
    }

    /// Objective: CPU use by invisible processes is reported too.
    #[test]
    fn use_by_unseen_processes_is_reported() {
        let row = judged(vec![used(8, "sh", 0.1)], 1.6, 2, &[]);
        assert!(row.state == CheckState::Advice && row.found.ends_with("short-lived or hidden ones 150 %"), "{row:?}");
    }

    /// Objective: steal time above 2 % yields advice; without /proc/stat, the result is unknown.
    #[test]
    fn stolen_time_yields_advice() {
        let spent = |steal| CpuUse { steal, ..CpuUse::default() };
        let states = [None, Some(0.0), Some(0.3)].map(|share| steal(&spent(share)).state);
        assert_eq!(states, [CheckState::Unknown, CheckState::Ok, CheckState::Advice]);
    }
}
