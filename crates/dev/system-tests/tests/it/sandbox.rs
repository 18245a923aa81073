//! The daemon in its sandbox: what it has given up, and what it refuses at start.

use crate::common;
use crate::common::confinement;
use crate::common::up;

use common::{netvale, stderr, stdout};
use confinement::Thread;
use up::Up;

/// Objective: after start-up, every thread has a system call filter, cannot gain privileges, and has at most the
/// capabilities that ports need; ports work.
#[test]
fn rights_are_given_up() {
    let up = Up::start(&["--workers", "2"]);
    let threads = confinement::threads(up.pid());
    threads.iter().for_each(Thread::assert_confined);
    assert!(threads.len() >= 3, "the main thread and two workers");
    let rx = up.start_program("pkt-gen -i vale0:b -f rx -n 100 --json");
    up.wait_for_port("vale0:b");
    stdout(&up.run("pkt-gen -i vale0:a -f tx -n 100"));
    assert_eq!(up::last_json(&rx.output())["frames"], 100);
}

/// Objective: within the sandbox, a capture file can be written in permitted folders.
#[test]
fn captures_in_allowed_folders() {
    let up = Up::start(&[]);
    let file = up.path("in-run-dir.pcap");
    stdout(&up.run(&format!("attach vale0 pcap:out={} --name file", file.display())));
    stdout(&up.run("pkt-gen -i vale0:a -f tx -n 10"));
    stdout(&up.run("detach vale0 file"));
    let mut reader = netvale_pcapport::PcapReader::open(&file).expect("a capture");
    let mut frames = 0;
    while reader.next_frame().expect("whole").is_some() {
        frames += 1;
    }
    assert_eq!(frames, 10);
}

/// Objective: a mistake in a configuration file is reported with its line, and a value out of range with its permitted
/// values. The exit code is 1.
#[test]
fn bad_configurations_are_named_with_their_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("netvale.toml");
    for (text, words) in [
        ("workers = 1\nworkerz = 2\n", &["netvale.toml", "workerz", "2"][..]),
        ("[[port]]\nswitch = \"vale0\"\nport = \"a\"\ncolour = 1\n", &["colour", "4"]),
        ("workers = 0\n", &["workers"]),
        ("workers = \n", &["netvale.toml", "1"]),
    ] {
        std::fs::write(&file, text).expect("room");
        let mut command = netvale();
        let output = command.arg("up").arg("--config").arg(&file).arg("--run-dir").arg(folder.path()).output();
        let output = output.expect("the binary starts");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(words.iter().all(|word| said.contains(word)) && !said.contains("panicked"), "{text}: {said}");
    }
}

/// Objective: a taken name is refused, with advice, and exit code 4.
#[test]
fn a_taken_name_is_refused_with_exit_code_4() {
    let up = Up::start(&[]);
    stdout(&up.run("attach vale0 a"));
    let again = up.run("attach vale0 a");
    assert_eq!(again.status.code(), Some(4));
    assert!(stderr(&again).contains("already has a port a"), "{}", stderr(&again));
}
