//! The unit of the service manager, `dist/netvale.service`: how much it permits, and that this is enough.

use crate::common;
use crate::common::confinement;
use crate::common::up;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output, Stdio};

use common::stdout;
use netvale_harness::net::{cable, inside};
use up::until;

const UNIT: &str = include_str!("../../../../../dist/netvale.service");
/// Maximum exposure of each unit that systemd-analyze(1) may report, in tenths, on a scale up to 10.0. Of the daemon's
/// exposure, 4 tenths are for IP sockets, which tunnels need (its own sandbox permits only UDP), and 2 for openat2(2),
/// by which users' files and sockets are looked up.
const MOST: [(&str, &str); 2] =
    [("dist/netvale.service", "--threshold=26"), ("dist/netvale-metrics.service", "--threshold=20")];
const KINDS: &str = include_str!("../../../../../scripts/packages-kinds.txt");
/// Sources that list what the sandbox permits the daemon's own code and its kinds of ports.
const SANDBOX: [&str; 7] = [
    include_str!("../../../../daemon/src/system/sandbox.rs"),
    include_str!("../../../../daemon/src/system/sandbox/arguments.rs"),
    include_str!("../../../../daemon/src/ports/guest.rs"),
    include_str!("../../../../daemon/src/ports/nic/kernel.rs"),
    include_str!("../../../../daemon/src/ports/tap.rs"),
    include_str!("../../../../daemon/src/ports/tunnel/kernel.rs"),
    include_str!("../../../../daemon/src/ports/virtio.rs"),
];
const USER: u32 = 70_310;

fn analyze(arguments: &[&str]) -> Option<Output> {
    match Command::new("systemd-analyze").args(arguments).env("SYSTEMD_PAGER", "").output() {
        Ok(output) => Some(output),
        Err(_) => {
            netvale_harness::skip("systemd-analyze is not installed");
            None
        }
    }
}

/// Objective: systemd accepts every line of the units, and rates their exposure no higher than [`MOST`].
#[test]
fn systemd_rates_the_exposure_no_worse() {
    for (unit, most) in MOST {
        let unit = netvale_system_tests::root().join(unit).display().to_string();
        let Some(output) = analyze(&["security", "--offline=yes", "--no-pager", most, &unit]) else { return };
        let table = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{table}{said}");
        assert_eq!(said, "", "{table}");
    }
}

/// Returns the values of a setting in the unit, in their order.
fn settings(name: &str) -> Vec<&'static str> {
    UNIT.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

/// Returns systemd's groups of system calls, with their members; `None` if systemd-analyze is not installed.
fn groups() -> Option<BTreeMap<String, Vec<String>>> {
    let text = stdout(&analyze(&["syscall-filter", "--no-pager"])?);
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut group = String::new();
    for line in text.lines() {
        match line.trim() {
            name if line.starts_with('@') => group = name.to_owned(),
            member if !member.is_empty() && !member.starts_with('#') => {
                groups.entry(group.clone()).or_default().push(member.to_owned());
            }
            _ => {}
        }
    }
    Some(groups)
}

fn calls(groups: &BTreeMap<String, Vec<String>>, name: &str) -> BTreeSet<String> {
    match groups.get(name) {
        Some(members) => members.iter().flat_map(|member| calls(groups, member)).collect(),
        None => BTreeSet::from([name.to_owned()]),
    }
}

/// Objective: the unit's system call filter permits all calls that the daemon's own filter permits, and the calls
/// needed to install that filter, but no calls that change users, modules or mounts.
#[test]
fn the_unit_leaves_all_system_calls_needed() {
    let Some(groups) = groups() else { return };
    let mut left = BTreeSet::new();
    for line in settings("SystemCallFilter") {
        let of = |names: &str| names.split_whitespace().flat_map(|name| calls(&groups, name)).collect::<BTreeSet<_>>();
        match line.strip_prefix('~') {
            Some(taken) => left = &left - &of(taken),
            None => left.extend(of(line)),
        }
    }
    let words = SANDBOX.iter().flat_map(|source| source.split("libc::SYS_").skip(1));
    let name =
        |word: &str| word.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default().to_owned();
    let used: BTreeSet<_> = words.map(name).collect();
    assert!(used.len() > 60, "{used:?}");
    let missing: Vec<_> = used.difference(&left).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // This setting would forbid openat2(2) altogether, because a filter cannot read the call's mode bits, which are in
    // memory.
    assert!(!UNIT.lines().any(|line| line == "RestrictSUIDSGID=yes"), "openat2(2)");
    for entering in
        ["execve", "capset", "landlock_restrict_self", "seccomp", "prctl", "socketpair", "fchownat", "chmod"]
    {
        assert!(left.contains(entering), "{entering}");
    }
    for taken in ["setuid", "mount", "init_module", "ptrace", "keyctl", "kexec_load", "chroot", "perf_event_open"] {
        assert!(!left.contains(taken), "{taken}");
    }
}

/// Objective: the unit permits every kind of socket that the daemon's own sandbox permits.
#[test]
fn the_unit_leaves_every_address_family_needed() {
    let left = settings("RestrictAddressFamilies").concat();
    let left: BTreeSet<_> = left.split(' ').collect();
    let words = SANDBOX.iter().flat_map(|source| source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let used: BTreeSet<_> = words.filter(|word| word.starts_with("AF_")).collect();
    assert!(used.contains("AF_INET6"), "{used:?}");
    assert_eq!(left, used);
}

/// Objective: every kind of port is in the table by which scripts/packages-inside.sh attaches them under the unit, and
/// the table can be parsed.
#[test]
fn every_kind_is_tried() {
    use netvale_portspec::AttachSpec;
    let rows: Vec<Vec<_>> = KINDS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|row| row.split('|').map(str::trim).collect())
        .collect();
    for row in &rows {
        let [kind, options, _, _, _] = row[..] else { panic!("five columns are expected: {row:?}") };
        let port =
            AttachSpec::parse(options.split(' ').next().unwrap_or_default()).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(kind, if port.prefix().is_empty() { "local" } else { port.prefix() }, "{row:?}");
    }
    let tried = |kind: &str| rows.iter().any(|row| row[0] == if kind.is_empty() { "local" } else { kind });
    let missing: Vec<_> = AttachSpec::PREFIXES.iter().filter(|kind| !tried(kind)).collect();
    assert!(missing.is_empty(), "scripts/packages-kinds.txt lacks {missing:?}");
}

/// Objective: with the user and capabilities of the unit, TAPs and interfaces work.
#[test]
fn taps_and_interfaces_work_with_the_units_capabilities() {
    if !common::is_root("only root can become another user")
        || !inside(&["--net"]).unwrap_or_else(|why| panic!("{why}"))
    {
        return;
    }
    cable("nva", "nvb", 1).unwrap_or_else(|why| panic!("{why}"));
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(USER), Some(USER)).unwrap();
    let mut names = settings("AmbientCapabilities").concat().to_lowercase();
    // The daemon needs this capability if the limit of locked memory could not be lifted (the unit lifts it).
    if rustix::process::getrlimit(rustix::process::Resource::Memlock).maximum.is_some() {
        names.push_str(" cap_ipc_lock");
    }
    let kept = names.split(' ').map(|name| name.replace("cap_", "+")).collect::<Vec<_>>().join(",");
    let user = USER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps", &kept, "--ambient-caps", &kept]);
    command.args(["--bounding-set", &format!("-all,{kept}"), "--no-new-privs"]);
    let program = folder.path().join("netvale");
    netvale_system_tests::copy_program("netvale", &program);
    command.arg(&program).arg("--run-dir").arg(folder.path()).arg("up").stderr(Stdio::null());
    let daemon = up::Guarded(command.spawn().unwrap().into());
    let run = |line: &str| {
        Command::new(&program)
            .arg("--run-dir")
            .arg(folder.path())
            .args(line.split(' '))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    until("it answers", || run("list").status.success());
    stdout(&run("attach vale0 tap:nv0"));
    stdout(&run("attach vale0 netmap:nva"));
    stdout(&run("pkt-gen -i vale0:a -f tx -n 100"));
    for thread in confinement::threads(daemon.0.id()) {
        thread.assert_confined();
        thread.assert_user(USER);
    }
    stdout(&run("stop"));
    daemon.output();
}
