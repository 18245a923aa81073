//! The command line of `netvale-bench`.

use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_netvale-bench")).args(args).output().expect("the binary starts")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A short run of the scenario that has no requirements.
const COPY: [&str; 6] = ["copy", "--quick", "--runs", "1", "--seconds", "1"];

/// Objective: scenarios and peers are listed; an unknown name is a usage error that names the option to list them.
#[test]
fn scenarios_and_peers_are_listed() {
    assert!(stdout(&bench(&["--list"])).contains("scenarios:"));
    assert!(!stdout(&bench(&["--help"])).contains("worker"));
    let output = bench(&["no-such-scenario"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--list"));
}

/// Objective: with foreign threads, results have the programs' share of CPU time, and a plot shows the rate for each
/// number of threads.
#[test]
fn crowded_machines_are_reported_and_plotted() {
    let dir = tempfile::tempdir().expect("a folder");
    let results = dir.path().join("results");
    let args = ["crowded", "--variant", "ping-p99", "--foreign", "0,3", "--peers-only", "--against", "eventfd"];
    let text = stdout(&bench(&[&args[..], &["--quick", "--runs", "1", "--json"]].concat()));
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let foreign: Vec<_> = lines.iter().map(|line| line["foreign"].as_u64()).collect();
    assert_eq!(foreign, [Some(0), Some(3)]);
    for line in &lines {
        assert_eq!(line["percentiles"][8][0], 99.0);
        assert_eq!(line["contender"], "eventfd");
        let share = line["cpu_percent"].as_f64().expect("a share");
        assert!((0.0..=110.0).contains(&share), "{share}");
    }
    std::fs::write(&results, text).expect("room for a file");
    let text = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let written = stdout(&bench(&["report", "-o", &text(dir.path()), &text(&results)]));
    assert!(written.contains("crowded-ping-p99-by-foreign-60B-1batch-2ports.svg"), "{written}");
}

/// Objective: a report is written from result files.
#[test]
fn a_report_is_written_from_result_files() {
    let dir = tempfile::tempdir().expect("a folder");
    let results = dir.path().join("results");
    let out = dir.path().join("report");
    std::fs::write(&results, stdout(&bench(&[&COPY[..], &["--json"]].concat()))).expect("room for a file");
    let text = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let written = stdout(&bench(&["report", "-o", &text(&out), &text(&results)]));
    assert!(written.lines().count() > 0, "no file");
    assert!(written.lines().all(|file| std::path::Path::new(file).exists()), "{written}");
}

/// Objective: two builds are compared case by case; a program that is not a benchmark is refused.
#[test]
fn two_builds_are_compared_case_by_case() {
    let own = env!("CARGO_BIN_EXE_netvale-bench");
    let args = ["ab", own, own, "copy", "--runs", "2", "--seconds", "0.25", "--json", "--tolerance", "100"];
    let text = stdout(&bench(&args));
    let line: serde_json::Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    assert!(line["scenario"] == "copy" && line["old"]["runs"] == 2 && line["ratio"]["median"].as_f64() > Some(0.0));
    let output = bench(&["ab", "/bin/false", own, "copy", "--runs", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(bench(&["ab", "/nonexistent", own, "copy"]).status.code(), Some(1));
}

mod as_root {
    use super::*;

    /// Tests whose runs include the contenders of the kernel and of Open vSwitch, and take as long as these contenders
    /// need.
    mod measuring {
        use super::*;

        /// Returns the number of lines that a run prints, and the lines that are neither measured nor skipped for a
        /// reason in `lacks`.
        fn lines(args: &[&str], lacks: &[&str]) -> (usize, Vec<String>) {
            let output = bench(&[args, &["--quick", "--runs", "1", "--json"]].concat());
            let text = String::from_utf8_lossy(&output.stdout);
            let lines: Vec<serde_json::Value> =
                text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
            let is_fine = |line: &serde_json::Value| {
                let is_skipped =
                    line["skipped"].as_str().is_some_and(|why| lacks.iter().any(|what| why.contains(what)));
                let is_positive = |name: &str| line[name].as_f64() > Some(0.0);
                is_skipped || is_positive("median") && (line["peer"].is_null() || is_positive("peer_median"))
            };
            let wrong = lines.iter().filter(|line| !is_fine(line)).map(ToString::to_string);
            let said = String::from_utf8_lossy(&output.stderr);
            (lines.len(), wrong.map(|line| format!("{line}: {said}")).collect())
        }

        /// Runs the bench, and asserts that it prints `least` lines or more, each measured or skipped for a reason in
        /// `lacks`. Programs of other projects that did not start in time on a busy machine get a second attempt.
        fn is_measured(args: &[&str], least: usize, lacks: &[&str]) {
            let (mut count, mut wrong) = lines(args, lacks);
            if wrong.iter().any(|line| line.contains("\"skipped\"")) {
                eprintln!("once more: {wrong:?}");
                (count, wrong) = lines(args, lacks);
            }
            assert!(count >= least && wrong.is_empty(), "{count} lines, of which {wrong:?}");
        }

        /// Objective: frames arrive between unpinned programs: over netvale's switch and pipe if `netvale` is built,
        /// over packet sockets as root.
        #[test]
        fn frames_arrive_between_unpinned_programs() {
            let args = ["crowded", "--variant", "switch,pipe", "--foreign", "1"];
            let against = ["--against", "linux-bridge-veth,af-packet-veth"];
            is_measured(&[&args[..], &against].concat(), 2, &["root", "installed"]);
        }

        /// Objective: frames and TCP arrive over the tunnels of the kernel and of OVS-DPDK, if available, and over
        /// netvale's tunnels.
        #[test]
        fn frames_and_tcp_arrive_over_the_tunnels() {
            let args = ["vxlan", "--variant", "frames,frames-cut,tcp", "--against", "kernel-vxlan,ovs-dpdk-vxlan"];
            is_measured(&args, 3, &["root", "installed", "hugepages", "CPUs"]);
        }
    }
}
