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

/// Returns the standard output of a run, which must have succeeded.
pub fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, stderr(output));
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Returns the standard error of a run.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
