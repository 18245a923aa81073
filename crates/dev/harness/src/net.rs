//! Network namespaces, and interfaces in them.

use std::io::BufRead;
use std::process::{Command, Stdio};

use crate::{ChildProcess, FailedStep};

/// A network namespace and the sleeping process that keeps it, which ends when this value is dropped.
#[derive(Debug)]
pub struct NamespaceHost(ChildProcess);

impl NamespaceHost {
    /// Creates a network namespace.
    ///
    /// # Errors
    /// Namespaces are not permitted here.
    pub fn new() -> Result<NamespaceHost, FailedStep> {
        let what = "create a network namespace";
        let mut command = Command::new("unshare");
        // The process prints a line once it is inside its namespace.
        command.args(["--net", "--", "sh", "-c", "echo in; exec sleep 300"]).stdout(Stdio::piped());
        let mut process = ChildProcess::start(&mut command)?;
        let mut word = String::new();
        if let Some(mut lines) = process.lines() {
            lines.read_line(&mut word).map_err(FailedStep::to(what))?;
        }
        if word.trim() != "in" {
            return Err(FailedStep::to(what)(std::io::Error::other("unshare --net failed")));
        }
        Ok(NamespaceHost(process))
    }

    /// Returns the process id, which identifies the namespace.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Returns a command that runs in the namespace.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid())).arg("--").arg(program).args(arguments);
        command
    }
}

/// Environment variable that is set in the process that [`inside`] starts.
const INSIDE: &str = "NETVALE_TEST_NAMESPACE";

/// Runs the calling test again under unshare(1) with these options. Returns true in the inner process, which runs the
/// test, and false in the outer process, which has nothing left to do.
///
/// # Errors
/// The test fails inside the namespace; the error has its output.
pub fn inside(options: &[&str]) -> Result<bool, FailedStep> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(true);
    }
    // The thread of a test has the test's name.
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    let what = || format!("run {name} in a namespace");
    let own = std::env::current_exe().map_err(FailedStep::to(what()))?;
    let mut command = Command::new("unshare");
    command.args(options).arg(own).args(["--exact", name, "--nocapture"]).env(INSIDE, "1");
    let output = command.output().map_err(FailedStep::to(what()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() && text.contains("1 passed") {
        return Ok(false);
    }
    Err(FailedStep::to(what())(std::io::Error::other(text)))
}

/// Runs ip(8) with blank-separated arguments.
///
/// # Errors
/// ip is not installed, or fails; the error has its message.
pub fn ip(line: &str) -> Result<(), FailedStep> {
    let what = || format!("run ip {line}");
    let output = Command::new("ip").args(line.split_whitespace()).output().map_err(FailedStep::to(what()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(FailedStep::to(what())(std::io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())))
}

/// Creates a veth pair whose ends are up, and on which the stack sends no multicasts of its own.
///
/// # Errors
/// Same as [`ip`].
pub fn cable(a: &str, b: &str, queues: u32) -> Result<(), FailedStep> {
    let shape = format!("numrxqueues {queues} numtxqueues {queues}");
    ip(&format!("link add {a} {shape} type veth peer name {b} {shape}"))?;
    for name in [a, b] {
        let switch = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        std::fs::write(&switch, "1").map_err(FailedStep::to(format!("write {switch}")))?;
        ip(&format!("link set {name} up"))?;
    }
    Ok(())
}
