//! A daemon started by `netvale up`, and programs that use it.

use std::ffi::OsStr;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use netvale_harness::{ChildProcess, Launch, Manager, TestDaemon};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{stderr, stdout};

/// Time limit of every wait.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A child process that ends with the test at the latest.
pub struct Guarded(pub ChildProcess);

impl Guarded {
    /// Starts a program whose standard input is empty, and whose output is piped.
    pub fn start(command: &mut Command) -> Guarded {
        Guarded(ChildProcess::start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).expect("it starts"))
    }

    /// Waits until the child ends by itself. Returns its output. A child that does not end is killed after a while, so
    /// that the test fails instead of hanging.
    pub fn output(self) -> Output {
        self.0.output(Some(LIMIT * 2)).expect("it ends")
    }

    /// Sends the child a signal.
    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.0.id().cast_signed()).expect("a process");
        kill_process(id, signal).expect("it runs");
    }
}

/// The daemon and its successors, which end with the test.
pub struct Up(TestDaemon);

impl Deref for Up {
    type Target = TestDaemon;

    fn deref(&self) -> &TestDaemon {
        &self.0
    }
}

impl Up {
    pub fn start(args: &[&str]) -> Up {
        Up::launch(Launch::up(&netvale_system_tests::netvale(), args))
    }

    pub fn launch(launch: Launch) -> Up {
        Up(TestDaemon::start(launch).expect("the daemon starts"))
    }

    /// Starts a daemon through a service manager. The daemon's log is stored.
    pub fn managed(args: &[&str]) -> Up {
        let dir = netvale_harness::daemon::scratch("run").expect("a folder");
        let launch = Launch::up(&netvale_system_tests::netvale(), args).log_to(dir.path().join("log"));
        let manager = Manager::new().expect("it listens");
        Up(TestDaemon::start_in(dir, launch, Some(manager)).expect("the daemon starts"))
    }

    /// Returns the log of all managed daemons.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).expect("it can be read")
    }

    /// Ends the daemon with `signal`, and starts another daemon.
    pub fn restart(&self, signal: Signal) {
        self.0.restart(signal, || ()).expect("another one starts");
    }

    pub fn manager(&self) -> &Manager {
        self.0.manager().expect("it is managed")
    }

    /// Returns the id of the process that answers.
    pub fn pid(&self) -> u32 {
        self.control().expect("it answers").daemon_pid().expect("it is seen")
    }

    /// Replaces the daemon by another process, which must then answer.
    pub fn upgrade(&self) {
        let before = self.pid();
        let mut command = self.command(["upgrade"]);
        // The new daemon inherits this command's output, so waiting for the output's end would never return.
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("the binary starts");
        assert!(status.success(), "{status}");
        assert_ne!(before, self.pid());
    }

    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = crate::common::netvale();
        command.arg("--run-dir").arg(self.dir()).args(args);
        command
    }

    /// Returns the command `netvale run --`, without the program.
    pub fn preload(&self) -> Command {
        let mut command = self.command(["run", "--lib-dir"]);
        command.arg(netvale_system_tests::programs()).arg("--");
        command
    }

    /// Runs a subcommand (blank-separated words) until it ends.
    pub fn run(&self, line: &str) -> Output {
        self.command(line.split_whitespace()).output().expect("the binary starts")
    }

    /// Returns the output of a subcommand that must succeed.
    pub fn must(&self, words: &[&str]) -> String {
        stdout(&self.command(words).output().expect("the binary starts"))
    }

    /// Starts a subcommand.
    pub fn start_program(&self, line: &str) -> Guarded {
        Guarded::start(&mut self.command(line.split_whitespace()))
    }

    /// Sends frames to all ports of vale0 until the returned value is dropped: for a guest that may take long to start.
    /// The rate is low enough for a guest on a busy machine.
    pub fn stream(&self) -> Guarded {
        self.start_program("pkt-gen -i vale0:gen -f tx -R 2000")
    }

    /// Returns a port's `show --json`; null if the port does not exist.
    pub fn show(&self, port: &str) -> Value {
        serde_json::from_slice(&self.run(&format!("show {port} --json")).stdout).unwrap_or_default()
    }

    pub fn notes(&self, port: &str) -> String {
        self.show(port)["notes"].to_string()
    }

    /// Attaches a device of `kind` for a guest as port `name` of vale0. Returns the path of the device's socket.
    pub fn attach(&self, kind: &str, name: &str, options: &str) -> PathBuf {
        let socket = self.path(&format!("{name}.sock"));
        stdout(&self.run(&format!("attach vale0 {kind}:{} --name {name} {options}", socket.display())));
        socket
    }

    /// Returns the numbers of frames and bytes that a port sent into the switch (`in`), or received from it (`out`).
    pub fn moved(&self, port: &str, dir: &str) -> (u64, u64) {
        let shown = self.show(port);
        let rings = shown["rings"].as_array().cloned().unwrap_or_default();
        let of = |what: &str| rings.iter().filter(|r| r["dir"] == dir).filter_map(|r| r[what].as_u64()).sum();
        (of("frames"), of("bytes"))
    }

    pub fn wait_for_port(&self, port: &str) {
        until(port, || self.show(port)["state"] == "open");
    }

    /// Returns the number of frames that a port's rings of one direction carried.
    pub fn frames(&self, port: &str, direction: &str) -> u64 {
        self.moved(port, direction).0
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // A successor may have replaced the process that the test started.
        let last = self.control().ok().and_then(|mut client| client.daemon_pid());
        if let Some(pid) = last.and_then(|pid| Pid::from_raw(pid.cast_signed())) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

pub fn until(what: &str, done: impl FnMut() -> bool) {
    assert!(netvale_harness::until(LIMIT, Duration::from_millis(5), done), "time is up: {what}");
}

/// Returns whether a program listens at the UNIX socket `path`. The socket's file exists a moment before the program
/// listens (proc_pid_net(5): the flag is `__SO_ACCEPTCON`).
pub fn listens(path: &Path) -> bool {
    const ACCEPTS: &str = "00010000";
    let sockets = fs::read_to_string("/proc/net/unix").expect("a list of sockets");
    sockets.lines().any(|line| {
        let mut fields = line.split_whitespace();
        fields.nth(3) == Some(ACCEPTS) && fields.nth(3).is_some_and(|name| Path::new(name) == path)
    })
}

/// Returns the last line of a successful program's output, parsed as JSON.
pub fn last_json(output: &Output) -> Value {
    let text = stdout(output);
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|e| panic!("{e}: {text}\n{}", stderr(output)))
}
