//! A daemon that is killed and started again in the same folder.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use netvale_control::client::Client;
use netvale_control::types::AttachParams;
use netvale_harness::Process;
use netvale_harness::daemon::{ready, scratch};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// How long a daemon may take to start, or to end.
const LIMIT: Duration = Duration::from_secs(30);
/// The file that stays: without it, two daemons could lock different files of one name.
const LOCK: &str = "lock";
/// What a daemon leaves of a panic in its log.
const PANIC: &str = "panicked at";

/// The daemon.
pub struct Netvale {
    program: PathBuf,
    arguments: Vec<String>,
    process: Option<Process>,
    dir: TempDir,
    log: PathBuf,
    /// Processes so far.
    pub lives: u32,
}

impl Netvale {
    /// Starts `program up` with these arguments, in a folder of its own that users can look into. Its log goes on in the file `log`.
    pub fn start(program: &Path, arguments: &[&str], log: PathBuf) -> Result<Netvale, String> {
        let dir = scratch("soak").map_err(|e| e.to_string())?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
        let arguments = arguments.iter().map(|&argument| argument.into()).collect();
        let mut this = Netvale { program: program.into(), arguments, process: None, dir, log, lives: 0 };
        this.start_again()?;
        Ok(this)
    }

    /// Starts the next process.
    pub fn start_again(&mut self) -> Result<(), String> {
        let failed = |what: &str| format!("{what}: {}", self.log.display());
        let log = File::options().append(true).create(true).open(&self.log).map_err(|e| e.to_string())?;
        let mut command = Command::new(&self.program);
        command.env_remove("NETVALE_RUN_DIR").env_remove("XDG_RUNTIME_DIR");
        command.arg("--run-dir").arg(self.dir.path()).arg("up").args(&self.arguments);
        command.args(["--log-level", "warn"]).stdout(Stdio::null()).stderr(log);
        let mut process = Process::start(&mut command).map_err(|e| e.to_string())?;
        let is_ready = ready(self.dir.path(), LIMIT, || matches!(process.child().try_wait(), Ok(None)));
        self.lives += 1;
        self.process = Some(process);
        if is_ready { Ok(()) } else { Err(failed("the daemon does not start; its log")) }
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Its process, zero if there is none.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, Process::id)
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> Option<String> {
        let ended = self.process.as_mut()?.child().try_wait().ok()??;
        Some(ended.to_string())
    }

    /// Kills it: SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Ends it as service managers do. Returns what is wrong with how it ended, and what it left in its folder.
    pub fn stop(&mut self) -> Vec<String> {
        let Some(mut process) = self.process.take() else { return Vec::new() };
        process.signal(Signal::TERM);
        let mut status = None;
        netvale_harness::until(LIMIT, Duration::from_millis(10), || {
            status = process.child().try_wait().ok().flatten();
            status.is_some()
        });
        let mut wrong = Vec::new();
        match status {
            None => wrong.push(format!("the daemon does not end within {} s of SIGTERM", LIMIT.as_secs())),
            Some(status) if !status.success() => wrong.push(format!("the daemon ended with {status}")),
            Some(_) => {}
        }
        let left = self.files().into_iter().filter(|name| name != LOCK);
        wrong.extend(left.map(|name| format!("the daemon left {name} in its run directory")));
        wrong
    }

    /// The files in its folder.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Lines of its log that speak of a panic.
    pub fn panics(&self) -> Vec<String> {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.contains(PANIC)).map(str::to_owned).collect()
    }

    /// A connection to its control socket.
    pub fn control(&self) -> Result<Client, String> {
        Client::connect_within(self.dir.path(), LIMIT).map_err(|e| e.to_string())
    }

    /// Attaches a port.
    pub fn attach(&self, switch: &str, port: &str, options: Value) -> Result<(), String> {
        let options = serde_json::from_value(options).map_err(|e| e.to_string())?;
        let params = AttachParams { switch: switch.into(), port: port.into(), options };
        self.control()?.attach(params).map(drop).map_err(|e| format!("{port}: {e}"))
    }

    /// Frames dropped at a port so far, for whatever reason; `None` if it does not answer.
    pub fn drops(&self, port: &str) -> Option<u64> {
        Some(self.control().ok()?.show(port).ok()?.drops.values().sum())
    }
}
