//! `netvale doctor` on the machine of the tests, whatever its state.

use crate::common::fake;

use crate::common;
use crate::common::up;

use std::process::Output;

use common::{netvale, stdout};
use fake::FakeDaemon;
use netvale_control::request::Request;
use serde_json::Value;
use up::Up;

/// Checks that have a row on every machine, except for [`LARGE_ONLY`].
const ALWAYS: [&str; 12] = [
    "cpus",
    "neighbours",
    "steal",
    "wake-up",
    "governor",
    "idle-states",
    "clock",
    "huge-pages",
    "limits",
    "kernel",
    "sandbox",
    "isolation",
];
/// The check that has a row only on large machines.
const LARGE_ONLY: &str = "isolation";

fn json(output: &Output) -> Value {
    let text = stdout(output);
    assert_eq!(text.lines().count(), 1, "one object on one line: {text}");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the row of a check; null if there is none.
fn row<'a>(report: &'a Value, check: &str) -> &'a Value {
    let rows = report["checks"].as_array().expect("rows");
    rows.iter().find(|row| row["check"] == check).unwrap_or(&Value::Null)
}

/// Asserts that each check has its row, that each row is complete, and that the number of rows with advice equals the
/// reported number.
fn assert_rows(report: &Value, more: &[&str]) {
    for check in ALWAYS.iter().filter(|&&check| check != LARGE_ONLY).chain(more) {
        assert!(row(report, check)["found"].as_str().is_some_and(|found| !found.is_empty()), "{check}: {report}");
    }
    let rows = report["checks"].as_array().expect("rows");
    let advice: Vec<_> = rows.iter().filter(|row| row["state"] == "advice").collect();
    assert_eq!(report["advice"], advice.len());
    assert!(advice.iter().all(|row| row["why"].is_string() && row["what_to_do"].is_string()), "{report}");
}

/// Objective: without a daemon, all checks of the machine are made, and the text says that there is no daemon.
#[test]
fn doctor_checks_the_machine_without_a_daemon() {
    let dir = tempfile::tempdir().expect("a folder");
    let run = |args: &[&str]| {
        let mut command = netvale();
        command.arg("--run-dir").arg(dir.path()).args(["doctor", "--seconds", "0.2"]).args(args);
        command.output().expect("the binary starts")
    };
    let report = json(&run(&["--json"]));
    assert_rows(&report, &[]);
    assert!(report["daemon"].is_null() && report["no_daemon"].is_string(), "{report}");
    assert!(row(&report, "workers").is_null() && row(&report, "receivers").is_null());
    assert!(row(&report, "cpus")["figures"]["allowed"].as_u64().is_some_and(|cpus| cpus > 0), "{report}");
    assert!(row(&report, "clock")["figures"]["read_ns"].as_f64().is_some_and(|cost| cost > 0.0), "{report}");

    let text = stdout(&run(&["-v"]));
    assert!(text.contains("without a daemon") && text.contains("faster here"), "{text}");
    let has = |check: &str| text.lines().any(|line| line.starts_with(&format!("{check} ")));
    assert!(ALWAYS.iter().filter(|&&check| check != LARGE_ONLY).all(|check| has(check)), "{text}");
}

/// Objective: the report names a running daemon, and has rows for its workers and receivers.
#[test]
fn doctor_names_the_daemon_and_its_workers() {
    let up = Up::start(&["--workers", "2"]);
    let report = json(&up.run("doctor --seconds 0.2 --json"));
    assert_rows(&report, &["workers", "receivers"]);
    assert_eq!((&report["daemon"]["pid"], &report["no_daemon"]), (&up.pid().into(), &Value::Null));
    let workers = &row(&report, "workers")["figures"]["workers"];
    assert_eq!(workers.as_array().map(Vec::len), Some(2), "{report}");
    let text = stdout(&up.run("doctor --seconds 0.2"));
    assert!(text.contains(&format!("(pid {})", up.pid())) && text.contains("; 2 workers, not pinned"), "{text}");
}

/// Objective: a receiver that is not read is named, with its loss.
#[test]
fn doctor_names_a_slow_receiver() {
    let up = Up::start(&[]);
    let receiver = up.start_program("pkt-gen -i vale0:slow@conf:slots=64 -f rx");
    up.wait_for_port("vale0:slow");
    receiver.signal(rustix::process::Signal::STOP);
    let sender = up.start_program("pkt-gen -i vale0:tx -f tx");
    up.wait_for_port("vale0:tx");
    up::until("drops", || up.show("vale0:slow")["drops"]["no-room"].as_u64() > Some(0));
    let report = json(&up.run("doctor --seconds 0.5 --json"));
    drop((sender, receiver));
    let receivers = row(&report, "receivers");
    assert_eq!(receivers["state"], "advice", "{report}");
    let port = &receivers["figures"]["no_room"][0];
    assert_eq!(port["port"], "vale0:slow", "{report}");
    assert!(port["per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
}

/// Objective: shares of the workers' time use the daemon's clock, not the command's clock; the daemon gets only
/// requests that it supports.
#[test]
fn shares_are_of_the_daemons_clock() {
    let daemon = FakeDaemon::start();
    let mut command = netvale();
    command.arg("--run-dir").arg(daemon.dir()).args(["doctor", "--seconds", "0.1", "--json"]);
    let report = json(&command.output().expect("the binary starts"));
    let worker = &row(&report, "workers")["figures"]["workers"][0];
    assert_eq!((&worker["busy"], &worker["asleep"]), (&0.25.into(), &0.75.into()), "{report}");
    let is_look = |request: &Request| matches!(request, Request::Version | Request::StatsAll(_) | Request::PortList(_));
    assert!(daemon.requests().iter().all(is_look), "{:?}", daemon.requests());
}
