//! The stage of the tour: a daemon, two hosts (network namespaces), and commands run on them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use netvale_harness::net::Host;
use netvale_harness::{Failed, Launch, Process, until};

use crate::CliError;

/// Time limit for the daemon, and for a port.
const LIMIT: Duration = Duration::from_secs(10);

pub fn failed(what: &str, why: &dyn std::fmt::Display) -> CliError {
    CliError::failed(
        format!("the demo could not {what}: {why}"),
        "the output above may say why; `netvale up` shows whether the daemon runs",
    )
}

/// Turns a failed step of the harness into an error.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub fn harness(why: Failed) -> CliError {
    failed(&why.what, &why.source)
}

/// Starts a program with piped output.
pub fn start(command: &mut Command) -> Result<Process, CliError> {
    Process::start(command.stdout(Stdio::piped())).map_err(harness)
}

/// Waits until a program ends by itself. Returns its standard output.
pub fn finish(process: Process) -> Result<String, CliError> {
    let output = process.output(None).map_err(harness)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(failed("run a program", &format!("it ended with {}\n{text}", output.status)))
    }
}

/// Runs a command on a host until it ends. Returns its output.
pub fn run_on(host: &Host, program: &str, args: &[&str]) -> Result<String, CliError> {
    finish(start(&mut host.command(program, args))?)
}

/// The demo's own daemon.
pub struct Daemon {
    program: PathBuf,
    daemon: netvale_harness::Daemon,
}

impl Daemon {
    /// Starts the daemon and waits until it answers.
    pub fn start() -> Result<Daemon, CliError> {
        let me = std::env::current_exe().map_err(|e| failed("find its own program", &e))?;
        let daemon = netvale_harness::Daemon::start(Launch::up(&me, &["--log-level", "warn"]).loud());
        Ok(Daemon { program: me, daemon: daemon.map_err(harness)? })
    }

    /// The daemon's run directory.
    pub fn dir(&self) -> &Path {
        self.daemon.dir()
    }

    /// A netvale command that talks to the daemon.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--run-dir").arg(self.dir()).args(args);
        command
    }

    /// Runs a netvale command until it ends. Returns its output.
    pub fn run(&self, args: &[&str]) -> Result<String, CliError> {
        finish(start(&mut self.command(args))?)
    }

    /// Waits until a port exists.
    pub fn wait_for_port(&self, name: &str) -> Result<(), CliError> {
        let is_there = || self.run(&["list", "--json"]).is_ok_and(|list| list.contains(name));
        if until(LIMIT, Duration::from_millis(20), is_there) {
            return Ok(());
        }
        Err(failed("see a port", &format!("{name} did not come")))
    }
}
