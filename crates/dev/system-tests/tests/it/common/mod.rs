//! Runs the `netvale` program.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod confinement;
pub mod fake;
pub mod guest;
pub mod libs;
pub mod ptnet;
pub mod published;
pub mod responder;
pub mod runtime;
pub mod sequence;
pub mod traffic;
pub mod up;

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

/// Returns a command that starts `netvale`, without a run directory from the environment.
pub fn netvale() -> Command {
    let mut command = Command::new(netvale_system_tests::netvale());
    command.env_remove("NETVALE_RUN_DIR").env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
    command
}

/// Runs `netvale` with these arguments until it ends.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    netvale().args(args).output().expect("the binary starts")
}

/// Whether these programs are installed. If one is not, reports *skipped*.
pub fn has(programs: &[&str]) -> bool {
    let dirs = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin:/bin";
    let is_missing = |program: &&&str| !std::env::split_paths(&dirs).any(|dir| dir.join(program).exists());
    let missing = programs.iter().find(is_missing);
    missing.iter().for_each(|program| netvale_harness::skip(&format!("{program} is not installed")));
    missing.is_none()
}

/// Whether this process is root. If not, reports *skipped* with the reason `why`.
pub fn is_root(why: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        netvale_harness::skip(why);
    }
    is_root
}

/// Runs a shell script with the variables `netvale`, `dir` and `more`, in a network namespace of its own. The script
/// must succeed within `seconds`. Returns its output.
pub fn script(seconds: &str, text: &str, dir: &std::path::Path, more: &[(&str, &str)]) -> String {
    let mut command = Command::new("timeout");
    command.args([seconds, "unshare", "-n", "sh", "-ec", text]).env_remove("NETVALE_RUN_DIR");
    command.env("netvale", netvale_system_tests::netvale()).env("dir", dir).envs(more.iter().copied());
    let output = command.output().expect("unshare runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
    let log = || std::fs::read_to_string(dir.join("log")).unwrap_or_default();
    assert!(output.status.success(), "{text}\nThe daemon: {}", log());
    text
}

/// Returns the standard output of a run, which must have succeeded.
pub fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, stderr(output));
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Returns the standard error of a run.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
