//! Check: the process limits: descriptors, locked memory, real-time priority.

use std::fs;

use super::files;
use super::row::CheckRow;
use crate::units;

const CHECK: &str = "limits";

/// The hard limits, to which the daemon raises its soft limits. `None` means that there is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HardLimits {
    files: Option<u64>,
    locked: Option<u64>,
    priority: Option<u64>,
}

/// Checks the limits of the daemon or, if there is none, of this process, because a daemon that is started from here
/// inherits them. `locked` is the number of bytes already locked for network interfaces (AF_XDP).
pub fn look(pid: Option<u32>, locked: u64) -> CheckRow {
    let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let text = files::read(format!("/proc/{process}/limits")).unwrap_or_default();
    let open = pid.and_then(|_| Some(fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64));
    judge(&text, open, locked)
}

fn judge(text: &str, open: Option<u64>, locked: u64) -> CheckRow {
    let Some(limits) = parse(text) else { return CheckRow::unknown(CHECK, "/proc does not show the limits") };
    let priority = match limits.priority {
        Some(0) => "not allowed".to_owned(),
        Some(most) => format!("up to {most}"),
        None => "allowed".to_owned(),
    };
    let open_now = open.map(|open| format!(" ({open} open)")).unwrap_or_default();
    let found = format!(
        "{} descriptors{open_now}, {} of locked memory, real-time priority {priority} without root",
        limits.files.map_or_else(|| "unlimited".to_owned(), |most| most.to_string()),
        limits.locked.map_or_else(|| "any amount".to_owned(), units::memory),
    );
    let row = CheckRow::ok(CHECK, found)
        .figure("descriptors", limits.files)
        .figure("descriptors_open", open)
        .figure("locked_bytes", limits.locked)
        .figure("realtime_priority", limits.priority);
    advise(row, limits, open.unwrap_or(0), locked)
}

fn advise(row: CheckRow, limits: HardLimits, open: u64, locked: u64) -> CheckRow {
    /// Number of descriptors for about 500 ports with two rings each: up to four descriptors per ring.
    const MANY: u64 = 4096;
    if limits.files.is_some_and(|most| most.saturating_sub(open) < MANY / 2 || most < MANY) {
        row.advise(
            "A ring takes three or four descriptors, so a port takes about eight: a switch with hundreds of ports \
             would exceed this limit.",
            format!(
                "a higher hard limit of open files for the daemon: `LimitNOFILE=` of its unit, or `ulimit -Hn`; \
                 at least {MANY}"
            ),
        )
    } else if limits.locked.is_some_and(|most| locked > 0 && most < 2 * locked) {
        row.advise(
            format!(
                "Interfaces keep frames in locked memory, {} so far: another interface may exceed the limit.",
                units::memory(locked)
            ),
            "more locked memory for the daemon: `LimitMEMLOCK=` of its unit, or `ulimit -Hl`",
        )
    } else {
        row
    }
}

/// Parses the text of /proc/PID/limits: name, soft limit, hard limit. `None` if one of the limits is missing or
/// malformed.
fn parse(text: &str) -> Option<HardLimits> {
    let hard = |name: &str| -> Option<Option<u64>> {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        match rest.split_whitespace().nth(1)? {
            "unlimited" => Some(None),
            number => number.parse().ok().map(Some),
        }
    };
    let [files, locked, priority] = ["Max open files", "Max locked memory", "Max realtime priority"].map(hard);
    Some(HardLimits { files: files?, locked: locked?, priority: priority? })
}

#[cfg(test)]
mod tests {
    use super::super::row::CheckState;
    use super::*;

    fn limits(files: &str, locked: &str) -> String {
        format!(
            "\
Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 {files}              files
Max locked memory         65536                {locked}             bytes
Max realtime priority     0                    0
"
        )
    }

    /// Objective: the hard limits are checked; too few descriptors yield advice, and so does too little locked memory
    /// for another interface.
    #[test]
    fn low_hard_limits_yield_advice() {
        let row = judge(&limits("20000", "8388608"), Some(34), 0);
        let text = "20000 descriptors (34 open), 8.0 MiB of locked memory, real-time priority not allowed without root";
        assert_eq!((row.state, &*row.found), (CheckState::Ok, text));
        assert_eq!(judge(&limits("unlimited", "unlimited"), None, 9 << 30).state, CheckState::Ok);
        assert!(judge(&limits("1024", "unlimited"), None, 0).what_to_do.contains("LimitNOFILE"));
        assert!(judge(&limits("5000", "unlimited"), Some(4000), 0).what_to_do.contains("LimitNOFILE"));
        assert!(judge(&limits("20000", "8388608"), None, 5 << 20).what_to_do.contains("LimitMEMLOCK"));
    }

    /// Objective: limits that cannot be parsed are unknown.
    #[test]
    fn unreadable_limits_are_unknown() {
        assert_eq!(judge("", None, 0).state, CheckState::Unknown);
        assert_eq!(judge("Max open files  many", None, 0).state, CheckState::Unknown);
    }
}
