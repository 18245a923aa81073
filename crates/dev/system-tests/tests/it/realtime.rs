//! Programs that spin at a real-time priority, and a daemon whose workers have a higher priority.

use crate::common;
use crate::common::libs;
use crate::common::up;

use std::process::{Command, Output};

use common::{netvale, stderr};
use up::Up;

/// Runs the program `realtime`, which occupies every CPU at priority 5, beside a daemon with these arguments; `None` if
/// real-time priorities are not permitted.
fn spin(args: &[&str]) -> Option<Output> {
    let permitted =
        Command::new("chrt").args(["-f", "20", "true"]).output().is_ok_and(|output| output.status.success());
    if !permitted {
        netvale_harness::skip("SCHED_FIFO is not permitted here");
        return None;
    }
    let up = Up::start(args);
    let program = libs::compile("realtime", up.dir());
    let mut command = Command::new(&program);
    command.args(["vale0:a", "vale0:b"]).env("NETVALE_RUN_DIR", up.dir());
    let output = libs::finish(command);
    assert!(output.status.success() || output.status.code() == Some(77), "{}", stderr(&output));
    Some(output).filter(|output| output.status.success())
}

fn frames(output: &Output) -> u64 {
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number of frames")
}

/// Objective: workers with a higher priority than the programs forward frames while the programs spin on all CPUs, and
/// the program prints no warning.
#[test]
fn workers_above_programs_forward_beside_them() {
    let Some(output) = spin(&["--rt-priority", "10"]) else { return };
    // A worker with a lower priority would forward about four full rings, in the pauses that the kernel enforces.
    assert!(frames(&output) > 20_000, "{} frames: {}", frames(&output), stderr(&output));
    assert!(!stderr(&output).contains("spun"), "{}", stderr(&output));
}

/// Objective: a program that keeps the worker off every CPU prints one line about it, with advice.
#[test]
fn a_starved_worker_is_told_in_one_line() {
    let Some(output) = spin(&[]) else { return };
    let text = stderr(&output);
    assert_eq!(text.matches("has spun for").count(), 1, "{} frames: {text}", frames(&output));
    assert!(text.contains("SCHED_FIFO priority 5") && text.contains("--rt-priority 6"), "{text}");
}

/// Objective: a daemon without the permission ends before it serves any client; the error names the permission.
#[test]
fn a_daemon_without_the_permission_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice", "--"]).arg(netvale().get_program());
    command.arg("up").arg("--run-dir").arg(dir.path()).args(["--rt-priority", "7"]);
    let Ok(output) = command.output() else {
        netvale_harness::skip("no setpriv");
        return;
    };
    let text = stderr(&output);
    if text.contains("setpriv:") {
        netvale_harness::skip(&text);
        return;
    }
    assert!(
        !output.status.success() && text.contains("real-time priority 7") && text.contains("CAP_SYS_NICE"),
        "{text}"
    );
    assert!(
        !dir.path().join("control.sock").exists()
            || std::os::unix::net::UnixStream::connect(dir.path().join("control.sock")).is_err()
    );
}
