//! What the tour happens on: a daemon, two hosts (network namespaces), and commands run on them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::CliError;

/// A child that ends with its owner.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Ended already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Waits until it ends by itself and returns its standard output.
    pub fn finish(mut self) -> Result<String, CliError> {
        let mut text = String::new();
        if let Some(out) = self.0.stdout.as_mut() {
            std::io::Read::read_to_string(out, &mut text).map_err(|e| failed("read a program's output", &e))?;
        }
        let status = self.0.wait().map_err(|e| failed("wait for a program", &e))?;
        if status.success() {
            Ok(text)
        } else {
            Err(failed("run a program", &format!("it ended with {status}\n{text}")))
        }
    }

    /// Its standard output, line by line.
    pub fn lines(&mut self) -> Option<BufReader<ChildStdout>> {
        self.0.stdout.take().map(BufReader::new)
    }

    /// Asks it to end, as Ctrl-C does.
    pub fn interrupt(&self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            // Gone already is as good.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
    }
}

pub fn failed(what: &str, why: &dyn std::fmt::Display) -> CliError {
    CliError::failed(
        format!("the demo could not {what}: {why}"),
        "the output above may say why; `netvale up` shows whether the daemon runs",
    )
}

/// Starts a program with its output to be read.
pub fn start(command: &mut Command) -> Result<Process, CliError> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    child.map(Process).map_err(|e| failed(&format!("start {}", command.get_program().to_string_lossy()), &e))
}

/// A network namespace, held open by a sleeping process.
pub struct Host(Process);

impl Host {
    /// A new one.
    pub fn new() -> Result<Host, CliError> {
        // It says a word once it is in its namespace.
        let mut process = start(Command::new("unshare").args(["--net", "--", "sh", "-c", "echo in; exec sleep 300"]))?;
        let mut word = String::new();
        if let Some(mut lines) = process.lines() {
            lines.read_line(&mut word).map_err(|e| failed("make a network namespace", &e))?;
        }
        if word.trim() != "in" {
            return Err(failed("make a network namespace", &"unshare --net failed"));
        }
        Ok(Host(process))
    }

    /// Its process id: names the namespace.
    pub fn pid(&self) -> u32 {
        self.0.0.id()
    }

    /// A command that runs on it.
    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut c = Command::new("nsenter");
        c.arg(format!("--net=/proc/{}/ns/net", self.pid())).arg("--").arg(program).args(args);
        c
    }

    /// Runs a command on it to its end. Returns its output.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String, CliError> {
        start(&mut self.command(program, args))?.finish()
    }
}

/// A daemon of the demo's own.
pub struct Daemon {
    me: PathBuf,
    dir: tempfile::TempDir,
    _process: Process,
}

impl Daemon {
    /// Starts it and waits until it answers.
    pub fn start() -> Result<Daemon, CliError> {
        let me = std::env::current_exe().map_err(|e| failed("find its own program", &e))?;
        let dir =
            tempfile::Builder::new().prefix("netvale-demo-").tempdir().map_err(|e| failed("make a folder", &e))?;
        let mut up = Command::new(&me);
        up.arg("--run-dir").arg(dir.path()).args(["up", "--log-level", "warn"]);
        let process = start(&mut up)?;
        let daemon = Daemon { me, dir, _process: process };
        let start = Instant::now();
        while netvale_control::client::Client::connect(daemon.dir()).is_err() {
            if start.elapsed() > Duration::from_secs(10) {
                return Err(failed("reach its daemon", &"it did not answer in 10 seconds"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    /// Its run directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A netvale command that talks to it.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(&self.me);
        c.arg("--run-dir").arg(self.dir()).args(args);
        c
    }

    /// Runs a netvale command to its end. Returns its output.
    pub fn run(&self, args: &[&str]) -> Result<String, CliError> {
        start(&mut self.command(args))?.finish()
    }

    /// Waits until a port is there.
    pub fn wait_for_port(&self, name: &str) -> Result<(), CliError> {
        let start = Instant::now();
        while self.run(&["list", "--json"])?.find(name).is_none() {
            if start.elapsed() > Duration::from_secs(10) {
                return Err(failed("see a port", &format!("{name} did not come")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}
