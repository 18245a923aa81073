//! Help, manual pages and completions are made from one definition; errors of the command line have advice.

use crate::common;

use common::{netvale, run, stderr, stdout};

const SUBCOMMANDS: [&str; 20] = [
    "up",
    "stop",
    "attach",
    "detach",
    "apply",
    "export",
    "list",
    "show",
    "table",
    "top",
    "doctor",
    "pkt-gen",
    "bridge",
    "fwd",
    "lb",
    "dump",
    "replay",
    "demo",
    "man",
    "completions",
];

/// Objective: every subcommand has short and long help that end with the exit codes.
#[test]
fn every_subcommand_has_short_and_long_help() {
    for sub in SUBCOMMANDS {
        for flag in ["-h", "--help"] {
            let text = stdout(&run([sub, flag]));
            assert!(text.contains("--run-dir") && text.contains("3  daemon unreachable"), "{sub} {flag}: {text}");
        }
    }
}

/// Objective: each subcommand has a manual page with its options and the exit codes.
#[test]
fn each_subcommand_has_a_manual_page() {
    let dir = tempfile::tempdir().expect("a folder");
    let pages = dir.path().join("new/man1");
    stdout(&netvale().arg("man").arg(&pages).output().expect("the binary starts"));
    for sub in SUBCOMMANDS {
        let text = std::fs::read_to_string(pages.join(format!("netvale-{sub}.1"))).expect("a page");
        assert!(text.contains(".SH OPTIONS") && text.contains("request refused"), "{sub}");
    }
    for page in ["netvale.1", "netvale.toml.5", "netvale.7"] {
        assert!(pages.join(page).exists(), "{page}");
    }
}

/// Objective: each shell has a completion script, and the requests that it makes return the subcommands.
#[test]
fn each_shell_has_a_completion_script() {
    for shell in ["bash", "zsh", "fish"] {
        let text = stdout(&run(["completions", shell]));
        assert!(text.contains(&format!("NETVALE_COMPLETE={shell}")), "{text}");
        let asked = netvale().env("NETVALE_COMPLETE", shell).args(["--", "netvale", ""]).output();
        let text = stdout(&asked.expect("the binary starts"));
        assert!(SUBCOMMANDS.iter().all(|sub| text.lines().any(|line| line.starts_with(sub))), "{shell}: {text}");
    }
}

/// Objective: an invalid command line has exit code 2.
#[test]
fn a_wrong_command_line_gives_exit_code_2() {
    let wrong: [&[&str]; 8] = [
        &["lits"],
        &["up", "--workers", "0"],
        &["up", "--cpu", "3-1"],
        &["up", "--poll-always", "--spin-us", "3"],
        &["up", "--socket-mode", "0999"],
        &["up", "--rt-priority", "100"],
        &["attach", "vale0", "a", "--vnet-hdr", "11"],
        &["top", "--delay", "0"],
    ];
    for args in wrong {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{args:?}");
    }
}

/// Objective: a program whose output is closed ends quietly.
#[test]
fn a_closed_output_ends_the_program_quietly() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = netvale().args(["completions", "bash"]).stdout(writer).output().expect("the binary starts");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}
