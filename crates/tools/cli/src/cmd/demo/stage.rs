//! The set-up and the output of the demonstration: a daemon, hosts (network namespaces), and commands that run on them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use netvale_harness::net::{NamespaceHost, ip};
use netvale_harness::{ChildProcess, FailedStep, Launch, until};
use serde_json::Value;

use crate::{CliError, out};

/// Time limit for the daemon's start, and for the attachment of a port.
const LIMIT: Duration = Duration::from_secs(10);

/// A row of the closing table.
pub struct Figure {
    pub what: &'static str,
    pub value: String,
    pub json: Value,
}

/// The demonstration's text output; silent with `--json`.
pub struct Guide {
    pub quiet: bool,
}

impl Guide {
    pub fn say(&self, text: &str) -> Result<(), CliError> {
        if self.quiet { Ok(()) } else { out::line(text) }
    }

    pub fn station(&self, title: &str) -> Result<(), CliError> {
        self.say(&format!("\n== {title}"))
    }

    pub fn command(&self, text: &str) -> Result<(), CliError> {
        self.say(&format!("   $ {text}"))
    }

    pub fn output(&self, text: &str) -> Result<(), CliError> {
        text.lines().filter(|l| !l.trim().is_empty()).try_for_each(|l| self.say(&format!("   {l}")))
    }
}

pub fn failed(what: &str, why: &dyn std::fmt::Display) -> CliError {
    CliError::failed(
        format!("the demo could not {what}: {why}"),
        "the output above may show the cause; check that `netvale up` starts",
    )
}

/// Converts a failed step of the harness to an error.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub fn harness(why: FailedStep) -> CliError {
    failed(&why.what, &why.source)
}

/// Starts a program with piped output.
pub fn start(command: &mut Command) -> Result<ChildProcess, CliError> {
    ChildProcess::start(command.stdout(Stdio::piped())).map_err(harness)
}

/// Waits until a program ends. Returns its standard output.
pub fn finish(process: ChildProcess) -> Result<String, CliError> {
    let output = process.output(None).map_err(harness)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(failed("run a program", &format!("the program ended with {}\n{text}", output.status)))
    }
}

/// Runs a command on a host until it ends. Returns its output.
pub fn run_on(host: &NamespaceHost, program: &str, args: &[&str]) -> Result<String, CliError> {
    finish(start(&mut host.command(program, args))?)
}

/// Creates a namespace, and attaches it to a switch by a TAP with this name and address.
pub fn host(
    guide: &Guide,
    daemon: &DemoDaemon,
    switch: &str,
    name: &str,
    address: &str,
) -> Result<NamespaceHost, CliError> {
    let host = NamespaceHost::new().map_err(harness)?;
    let port = format!("tap:{name}");
    guide.command(&format!(
        "netvale attach {switch} {port}; ip link set {name} netns …; ip addr add {address} dev {name}"
    ))?;
    daemon.run(&["attach", switch, &port])?;
    ip(&format!("link set {name} netns {}", host.pid())).map_err(harness)?;
    run_on(&host, "ip", &["addr", "add", address, "dev", name])?;
    run_on(&host, "ip", &["link", "set", name, "up"])?;
    run_on(&host, "ip", &["link", "set", "lo", "up"])?;
    Ok(host)
}

/// The daemon that the demonstration starts for itself.
pub struct DemoDaemon {
    program: PathBuf,
    daemon: netvale_harness::TestDaemon,
}

impl DemoDaemon {
    pub fn start() -> Result<DemoDaemon, CliError> {
        let me = std::env::current_exe().map_err(|e| failed("find the path of its program", &e))?;
        let daemon = netvale_harness::TestDaemon::start(Launch::up(&me, &["--log-level", "warn"]).loud());
        Ok(DemoDaemon { program: me, daemon: daemon.map_err(harness)? })
    }

    pub fn dir(&self) -> &Path {
        self.daemon.dir()
    }

    /// Returns a netvale command that uses the demonstration's daemon.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--run-dir").arg(self.dir()).args(args);
        command
    }

    /// Runs a netvale command until it ends. Returns its output.
    pub fn run(&self, args: &[&str]) -> Result<String, CliError> {
        finish(start(&mut self.command(args))?)
    }

    pub fn wait_for_port(&self, name: &str) -> Result<(), CliError> {
        let is_there = || self.run(&["list", "--json"]).is_ok_and(|list| list.contains(name));
        if until(LIMIT, Duration::from_millis(20), is_there) {
            return Ok(());
        }
        Err(failed("find a port", &format!("{name} did not appear")))
    }
}
