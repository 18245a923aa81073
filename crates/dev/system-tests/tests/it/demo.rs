//! The demonstration, run as a user runs it, with short measurements.

use std::process::Command;

/// Returns why the demonstration cannot run here; `None` if it can.
fn hindrance() -> Option<String> {
    for program in ["unshare", "nsenter", "ip", "ping", "iperf3", "curl"] {
        if Command::new(program).arg("--version").output().is_err() {
            return Some(format!("{program} is not installed (scripts/install-deps.sh test-system)"));
        }
    }
    let mut probe = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        probe.args(["--user", "--map-root-user"]);
    }
    let allowed = probe.args(["--net", "--mount-proc", "--pid", "--fork", "true"]).status().is_ok_and(|s| s.success());
    if !allowed {
        return Some("namespaces are not permitted here".to_owned());
    }
    (!std::path::Path::new("/dev/net/tun").exists()).then(|| "there is no /dev/net/tun".to_owned())
}

/// Objective: ping, TCP, VLANs and a link of 50 ms, pkt-gen across the switch and over a pipe, a capture, and a page
/// through a gateway all work, twice in a row, and nothing is left behind.
#[test]
fn the_demo_works_twice_in_a_row() {
    if let Some(why) = hindrance() {
        netvale_harness::skip(&why);
        return;
    }
    for _ in 0..2 {
        let out =
            Command::new(netvale_system_tests::netvale()).args(["demo", "--seconds", "1", "--json"]).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{text}\n{errors}");
        let figures: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        let figures = figures.as_object().unwrap();
        // The measurement on network interfaces needs root.
        let root = std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
        assert_eq!(figures.len(), if root { 8 } else { 7 }, "{figures:?}");
        let late = figures["ping over a link of 50 ms"].as_f64().unwrap();
        assert!(late >= 50.0, "{late}");
        for (what, value) in figures {
            assert!(value.as_f64().is_some_and(|v| v > 0.0), "{what}: {value}");
        }
    }
}
