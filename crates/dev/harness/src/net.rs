//! Network namespaces, and interfaces in them.

use std::io::BufRead;
use std::process::{Command, Stdio};

use crate::{Failed, Process};

/// A network namespace, held open by a sleeping process.
#[derive(Debug)]
pub struct Host(Process);

impl Host {
    /// Creates a network namespace.
    ///
    /// # Errors
    /// Namespaces are not permitted here.
    pub fn new() -> Result<Host, Failed> {
        let what = "make a network namespace";
        let mut command = Command::new("unshare");
        // It prints a line once it is inside its namespace.
        command.args(["--net", "--", "sh", "-c", "echo in; exec sleep 300"]).stdout(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let mut word = String::new();
        if let Some(mut lines) = process.lines() {
            lines.read_line(&mut word).map_err(Failed::to(what))?;
        }
        if word.trim() != "in" {
            return Err(Failed::to(what)(std::io::Error::other("unshare --net failed")));
        }
        Ok(Host(process))
    }

    /// The process id, which identifies the namespace.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// A command that runs in the namespace.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid())).arg("--").arg(program).args(arguments);
        command
    }
}

/// Set in the process inside a namespace.
const INSIDE: &str = "NETVALE_TEST_NAMESPACE";

/// Reruns the calling test under unshare(1) with these options. Returns whether this process is the inner one: the
/// outer one has nothing left to do.
///
/// # Errors
/// The test fails inside: its output is included.
pub fn inside(options: &[&str]) -> Result<bool, Failed> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(true);
    }
    // A test's thread is named after the test.
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    let what = || format!("run {name} in a namespace");
    let own = std::env::current_exe().map_err(Failed::to(what()))?;
    let mut command = Command::new("unshare");
    command.args(options).arg(own).args(["--exact", name, "--nocapture"]).env(INSIDE, "1");
    let output = command.output().map_err(Failed::to(what()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() && text.contains("1 passed") {
        return Ok(false);
    }
    Err(Failed::to(what())(std::io::Error::other(text)))
}

/// Runs ip(8) with arguments separated by blanks.
///
/// # Errors
/// ip is not installed, or fails: its message is included.
pub fn ip(line: &str) -> Result<(), Failed> {
    let what = || format!("run ip {line}");
    let output = Command::new("ip").args(line.split_whitespace()).output().map_err(Failed::to(what()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failed::to(what())(std::io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())))
}

/// Creates a pair of connected interfaces, up and quiet: the stack sends no multicasts of its own.
///
/// # Errors
/// As [`ip`].
pub fn cable(a: &str, b: &str, queues: u32) -> Result<(), Failed> {
    let shape = format!("numrxqueues {queues} numtxqueues {queues}");
    ip(&format!("link add {a} {shape} type veth peer name {b} {shape}"))?;
    for name in [a, b] {
        let switch = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        std::fs::write(&switch, "1").map_err(Failed::to(format!("write {switch}")))?;
        ip(&format!("link set {name} up"))?;
    }
    Ok(())
}
