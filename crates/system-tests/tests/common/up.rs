//! A daemon as `netvale up` runs it, and programs beside it.
#![allow(dead_code, reason = "each test program uses a part")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use netvale_harness::{Daemon, Process};
use serde_json::Value;

use super::common::{stderr, stdout};

/// For anything that is waited for.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A child that does not outlive the test.
pub struct Guarded(pub Process);

impl Guarded {
    /// Its output; it must end by itself. One that does not is killed after a while, so that the test fails instead of lasting for ever.
    pub fn output(self) -> Output {
        self.0.output(Some(LIMIT * 2)).expect("it ends")
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_raw(self.0.id().cast_signed()).expect("a process");
        rustix::process::kill_process(id, signal).expect("it runs");
    }
}

/// The daemon.
pub struct Up(Daemon);

impl Up {
    pub fn start(args: &[&str]) -> Up {
        let daemon = Daemon::start(&netvale_system_tests::netvale(), args, LIMIT, |command| {
            command.env_remove("XDG_RUNTIME_DIR").stdout(Stdio::null()).stderr(Stdio::null());
        });
        Up(daemon.expect("the daemon starts"))
    }

    pub fn pid(&self) -> u32 {
        self.0.process().id()
    }

    pub fn dir(&self) -> &Path {
        self.0.dir()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.0.command(args);
        command.env_remove("NETVALE_RUN_DIR").env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
        command
    }

    /// Runs a subcommand (words separated by blanks) to its end.
    pub fn run(&self, line: &str) -> Output {
        self.command(line.split_whitespace()).output().expect("the binary starts")
    }

    /// Starts one.
    pub fn start_program(&self, line: &str) -> Guarded {
        let mut command = self.command(line.split_whitespace());
        Guarded(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts").into())
    }

    /// What a port's `show --json` says; null while there is no such port.
    pub fn show(&self, port: &str) -> Value {
        serde_json::from_slice(&self.run(&format!("show {port} --json")).stdout).unwrap_or_default()
    }

    pub fn wait_for_port(&self, port: &str) {
        until(port, || self.show(port)["state"] == "open");
    }

    /// Frames that a port's rings of one direction carried.
    pub fn frames(&self, port: &str, direction: &str) -> u64 {
        let shown = self.show(port);
        let rings = shown["rings"].as_array().cloned().unwrap_or_default();
        rings.iter().filter(|ring| ring["dir"] == direction).filter_map(|ring| ring["frames"].as_u64()).sum()
    }
}

pub fn until(what: &str, done: impl FnMut() -> bool) {
    assert!(netvale_harness::until(LIMIT, Duration::from_millis(5), done), "time is up: {what}");
}

/// The last line of JSON that a successful program printed.
pub fn last_json(output: &Output) -> Value {
    let text = stdout(output);
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|e| panic!("{e}: {text}\n{}", stderr(output)))
}
