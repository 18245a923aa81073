//! A daemon that is killed and restarted in the same folder.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use netvale_control::client::Client;
use netvale_control::types::AttachParams;
use netvale_harness::daemon::scratch;
use netvale_harness::{Launch, TestDaemon};
use rustix::process::Signal;
use serde_json::Value;

/// The file that stays in the folder: if it were removed, two daemons could lock different files of the same name.
const LOCK: &str = "lock";
/// The text in a daemon's log that reports a panic.
const PANIC: &str = "panicked at";

/// A daemon under test, and its log.
pub struct Netvale {
    daemon: TestDaemon,
    log: PathBuf,
}

impl Deref for Netvale {
    type Target = TestDaemon;

    fn deref(&self) -> &TestDaemon {
        &self.daemon
    }
}

impl Netvale {
    /// Starts `program up` with these arguments, in a folder of its own that users can read. The daemon's log is
    /// appended to the file `log`.
    pub fn start(program: &Path, arguments: &[&str], log: PathBuf) -> Result<Netvale, String> {
        let dir = scratch("soak").map_err(|e| e.to_string())?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
        let launch = Launch::up(program, &[arguments, &["--log-level", "warn"]].concat()).log_to(log.clone());
        let daemon = TestDaemon::start_in(dir, launch, None).map_err(|e| format!("{e}; its log: {}", log.display()))?;
        Ok(Netvale { daemon, log })
    }

    /// Starts the next process.
    pub fn start_again(&self) -> Result<(), String> {
        self.daemon.start_again().map_err(|e| format!("{e}; its log: {}", self.log.display()))
    }

    /// Kills the daemon with SIGKILL.
    pub fn kill(&self) {
        // Ending fails only if the process has already ended.
        let _ = self.daemon.end(Signal::KILL);
    }

    /// Ends the daemon with SIGTERM, as service managers do. Returns descriptions of faults, such as files left in its
    /// folder.
    pub fn stop(&self) -> Vec<String> {
        if self.daemon.id() == 0 {
            return Vec::new();
        }
        let mut wrong = Vec::new();
        match self.daemon.end(Signal::TERM) {
            Err(why) => wrong.push(format!("the daemon did not end after SIGTERM: {why}")),
            Ok(status) if !status.success() => wrong.push(format!("the daemon ended with {status}")),
            Ok(_) => {}
        }
        let left = self.files().into_iter().filter(|name| name != LOCK);
        wrong.extend(left.map(|name| format!("the daemon left {name} in its run directory")));
        wrong
    }

    /// Returns the names of the files in the daemon's folder.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir()).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns the lines of the daemon's log that report a panic.
    pub fn panics(&self) -> Vec<String> {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.contains(PANIC)).map(str::to_owned).collect()
    }

    /// Returns the reasons for which the daemon has evicted these ports.
    pub fn reasons(&self, ports: &[&String]) -> Vec<String> {
        let evicted = self.control().and_then(|mut client| client.evicted().map_err(|e| e.to_string()));
        let evicted = evicted.unwrap_or_default().into_iter().filter(|one| ports.contains(&&one.port));
        evicted.map(|one| format!("{}, {} s ago: {}", one.port, one.age_seconds, one.reason)).collect()
    }

    /// Opens a connection to the daemon's control socket.
    pub fn control(&self) -> Result<Client, String> {
        self.daemon.control().map_err(|e| e.to_string())
    }

    /// Attaches a port.
    pub fn attach(&self, switch: &str, port: &str, options: Value) -> Result<(), String> {
        let options = serde_json::from_value(options).map_err(|e| e.to_string())?;
        let params = AttachParams { switch: switch.into(), port: port.into(), options };
        self.control()?.attach(params).map(drop).map_err(|e| format!("{port}: {e}"))
    }

    /// Returns the number of frames of a port that were not passed on: frames dropped for any reason, and frames sent
    /// while their receiver had no open queue. `None` if the daemon does not answer.
    pub fn drops(&self, port: &str) -> Option<u64> {
        let info = self.control().ok()?.show(port).ok()?;
        let idle: u64 = info.rings.iter().map(|ring| ring.idle).sum();
        Some(info.drops.values().sum::<u64>() + idle)
    }
}
