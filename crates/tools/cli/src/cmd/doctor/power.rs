//! Checks: settings that save power but add latency: the frequency governor and the idle states.

use std::collections::BTreeMap;

use super::files;
use super::row::CheckRow;

const SYS: &str = "/sys/devices/system/cpu";

/// Checks the governors of these CPUs.
pub fn governor(cpus: &[usize]) -> CheckRow {
    let read = |cpu| files::read(format!("{SYS}/cpu{cpu}/cpufreq/scaling_governor"));
    let governors: Vec<_> = cpus.iter().filter_map(read).collect();
    judge_governors(&governors, files::read(format!("{SYS}/cpu0/cpufreq/scaling_driver")).as_deref())
}

fn judge_governors(governors: &[String], driver: Option<&str>) -> CheckRow {
    const CHECK: &str = "governor";
    let mut counts = BTreeMap::new();
    for governor in governors {
        *counts.entry(governor.as_str()).or_insert(0_usize) += 1;
    }
    let about = |governor: &str, count| format!("{governor} on {count} {}", if count == 1 { "CPU" } else { "CPUs" });
    let texts: Vec<_> = counts.iter().map(|(governor, count)| about(governor, *count)).collect();
    if counts.is_empty() {
        return CheckRow::unknown(CHECK, "there is no cpufreq: the host or the firmware decides");
    }
    let driver = driver.map(|driver| format!(" ({driver})")).unwrap_or_default();
    let row = CheckRow::ok(CHECK, texts.join(", ") + &driver).figure("governors", serde_json::json!(counts));
    row.advise_if(
        counts.keys().any(|&governor| governor != "performance"),
        "An idle CPU clocks down, and speeds up again only after milliseconds of work. netvale works in shorter \
         bursts.",
        "`cpupower frequency-set -g performance`, or the desktop's power settings",
    )
}

/// An idle state of a CPU, and the time that the CPU takes to leave it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IdleState {
    name: String,
    latency_us: u64,
}

/// Checks the enabled idle states of the first of these CPUs that has idle states.
pub fn idle_states(cpus: &[usize]) -> CheckRow {
    judge_idle(&cpus.iter().copied().find_map(idle_of).unwrap_or_default())
}

/// Returns the enabled idle states of one CPU; `None` if the CPU has no idle states. One CPU is enough: except on
/// hybrid machines, all CPUs have the same idle states.
fn idle_of(cpu: usize) -> Option<Vec<IdleState>> {
    let state = |number| {
        let of = |file: &str| files::read(format!("{SYS}/cpu{cpu}/cpuidle/state{number}/{file}"));
        let idle = IdleState { name: of("name")?, latency_us: of("latency")?.parse().ok()? };
        Some((of("disable").as_deref() == Some("1"), idle))
    };
    let states: Vec<_> = (0..).map_while(state).collect();
    let enabled = states.iter().filter(|(disabled, _)| !disabled).map(|(_, idle)| idle.clone());
    (!states.is_empty()).then(|| enabled.collect())
}

fn judge_idle(states: &[IdleState]) -> CheckRow {
    const CHECK: &str = "idle-states";
    /// An idle state counts as deep if the CPU takes longer than this to leave it, in microseconds. Netvale polls for a
    /// shorter time than this before it sleeps.
    const DEEP_US: u64 = 50;
    let Some(deepest) = states.iter().max_by_key(|state| state.latency_us) else {
        return CheckRow::unknown(CHECK, "there is no cpuidle: the host or the firmware decides");
    };
    let deep: Vec<_> = states.iter().filter(|state| state.latency_us > DEEP_US).collect();
    let about = |state: &IdleState| format!("{} ({} µs to wake up)", state.name, state.latency_us);
    if deep.is_empty() {
        let found = format!("the deepest is {}", about(deepest));
        return CheckRow::ok(CHECK, found).figure("deepest_us", deepest.latency_us);
    }
    let names: Vec<_> = deep.iter().map(|state| about(state)).collect();
    CheckRow::ok(CHECK, format!("deep ones are enabled: {}", names.join(", ")))
        .figure("deepest_us", deepest.latency_us)
        .advise(
            "A CPU takes that long to leave a deep state: the first frame after a pause waits.",
            format!(
                "`cpupower idle-set -D {DEEP_US}` turns them off until the next boot, at the cost of power; or \
                 `netvale up --poll-always`"
            ),
        )
}

#[cfg(test)]
mod tests {
    use super::super::row::CheckState;
    use super::*;

    fn governors(names: &[&str]) -> CheckRow {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        judge_governors(&names, Some("intel_pstate"))
    }

    /// Objective: any CPU without the governor `performance` yields advice; for a virtual machine without cpufreq, the
    /// result is unknown.
    #[test]
    fn a_cpu_without_the_performance_governor_yields_advice() {
        assert_eq!(governors(&["performance"; 64]).state, CheckState::Ok);
        let row = governors(&["powersave", "performance", "powersave"]);
        assert_eq!(
            (row.state, &*row.found),
            (CheckState::Advice, "performance on 1 CPU, powersave on 2 CPUs (intel_pstate)")
        );
        assert_eq!(governors(&[]).state, CheckState::Unknown);
    }

    /// Objective: idle states that a CPU takes more than 50 µs to leave yield advice that names them; without cpuidle,
    /// the result is unknown.
    #[test]
    fn idle_states_of_a_cpu() {
        let state = |name: &str, latency_us| IdleState { name: name.into(), latency_us };
        let shallow = [state("POLL", 0), state("C1", 2)];
        assert_eq!(judge_idle(&shallow).found, "the deepest is C1 (2 µs to wake up)");
        let row = judge_idle(&[state("POLL", 0), state("C1E", 10), state("C6", 133), state("C10", 890)]);
        assert!(
            row.state == CheckState::Advice && row.found.contains("C6 (133 µs") && !row.found.contains("C1E"),
            "{row:?}"
        );
        assert_eq!(judge_idle(&[]).state, CheckState::Unknown);
    }
}
