//! A daemon as `netvale up` runs it, and programs beside it.
#![allow(dead_code, reason = "each test program uses a part")]

use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::common::{netvale, stderr, stdout};

/// For anything that is waited for.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A child that does not outlive the test.
pub struct Guarded(pub Option<Child>);

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Guarded {
    /// Its output; it must end by itself. One that does not is killed after a while, so that the test fails instead of lasting for ever.
    pub fn output(mut self) -> Output {
        let child = self.0.take().expect("running");
        let id = rustix::process::Pid::from_child(&child);
        let (ended, ends) = mpsc::channel::<()>();
        let watch = std::thread::spawn(move || {
            if ends.recv_timeout(LIMIT * 2) == Err(RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
        });
        let output = child.wait_with_output().expect("it ends");
        drop(ended);
        watch.join().expect("it does not panic");
        output
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(self.0.as_ref().expect("running"));
        rustix::process::kill_process(id, signal).expect("it runs");
    }
}

/// The daemon.
pub struct Up {
    pub dir: tempfile::TempDir,
    daemon: Guarded,
}

impl Up {
    pub fn start(args: &[&str]) -> Up {
        let dir = tempfile::tempdir().expect("a folder");
        let mut command = netvale();
        command.arg("up").arg("--run-dir").arg(dir.path()).args(args).stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = Guarded(Some(command.spawn().expect("the binary starts")));
        let up = Up { dir, daemon };
        until("the daemon listens", || UnixStream::connect(up.file("control.sock")).is_ok());
        // The socket is there before the daemon is ready to answer.
        stdout(&up.run("list"));
        up
    }

    pub fn pid(&self) -> u32 {
        self.daemon.0.as_ref().expect("running").id()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = netvale();
        command.arg("--run-dir").arg(self.dir.path()).args(args);
        command
    }

    /// Runs a subcommand (words separated by blanks) to its end.
    pub fn run(&self, line: &str) -> Output {
        self.command(line.split_whitespace()).output().expect("the binary starts")
    }

    /// Starts one.
    pub fn start_program(&self, line: &str) -> Guarded {
        let mut command = self.command(line.split_whitespace());
        Guarded(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts")))
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

pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "time is up: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The last line of JSON that a successful program printed.
pub fn last_json(output: &Output) -> Value {
    let text = stdout(output);
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|e| panic!("{e}: {text}\n{}", stderr(output)))
}
