//! The parts that our own sides of scenarios share: a daemon in a process of its own, and ports opened from it.

use std::path::Path;
use std::time::Duration;

use netvale::{Options, Port};
use netvale_control::client::Client;
use netvale_control::types::{PortStats, StatsReply};
use netvale_daemon::config::File;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::sys::netns::Netns;
use crate::sys::worker::{Context, Worker};

/// The role of [`daemon_role`].
pub const DAEMON: &str = "daemon";
/// The name of the daemon's forwarding threads.
pub const FORWARDING: &str = "netvale-w";
const START_LIMIT: Duration = Duration::from_secs(10);

/// The arguments that the daemon is started with.
#[derive(Debug, Serialize, Deserialize)]
struct DaemonTask {
    dir: String,
    cpu: usize,
    more: String,
}

/// A daemon with one worker, pinned, as `netvale up` runs it but for the sandbox.
pub struct Daemon {
    /// The daemon's process.
    pub worker: Worker,
    dir: TempDir,
}

impl Daemon {
    /// Starts one whose worker runs on `cpu`; `more` is appended to its configuration.
    ///
    /// # Errors
    /// The daemon does not start.
    pub fn start(cpu: usize, more: &str) -> Result<Daemon> {
        Self::spawn(cpu, more, |task| Worker::spawn(DAEMON, cpu, task))
    }

    /// Starts a daemon in a network namespace, where it creates TAPs.
    ///
    /// # Errors
    /// The daemon does not start.
    pub fn start_in(namespace: &Netns, cpu: usize, more: &str) -> Result<Daemon> {
        Self::spawn(cpu, more, |task| Worker::spawn_in(namespace, DAEMON, cpu, task))
    }

    fn spawn(cpu: usize, more: &str, spawn: impl FnOnce(&DaemonTask) -> Result<Worker>) -> Result<Daemon> {
        let dir = crate::sys::scratch("daemon")?;
        let task = DaemonTask { dir: dir.path().display().to_string(), cpu, more: more.to_owned() };
        Ok(Daemon { worker: spawn(&task)?, dir })
    }

    /// The daemon's run directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Opens a port with `slots` slots a ring.
    ///
    /// # Errors
    /// The daemon's refusal.
    pub fn open(&self, name: &str, slots: u32) -> Result<Port> {
        open(self.dir(), name, slots)
    }

    /// A connection to its control socket.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn control(&self) -> Result<Client> {
        Client::connect(self.dir()).map_err(|error| failed(&error))
    }

    /// The daemon's counters.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn stats(&self) -> Result<StatsReply> {
        self.control()?.stats().map_err(|error| failed(&error))
    }

    /// Frames dropped at all ports.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn drops(&self) -> Result<u64> {
        Ok(self.stats()?.ports.iter().map(|port| port.drops).sum())
    }

    /// Waits until its switches have taken `frames` frames in.
    ///
    /// # Errors
    /// They do not come, or the daemon has ended.
    pub fn wait_for_frames(&self, frames: u64) -> Result<()> {
        let arrived = || {
            // Where there is no switch, what comes from the other end goes out.
            let beside = |port: &PortStats| if port.switch.is_none() { port.out_frames } else { 0 };
            let taken: u64 = self.stats()?.ports.iter().map(|port| port.in_frames + beside(port)).sum();
            Ok((taken >= frames).then_some(()))
        };
        interrupt::poll_until(START_LIMIT, arrived)?.ok_or_else(|| BenchError::NoTraffic("the daemon's switch".into()))
    }
}

/// Turns an error of the daemon into a scenario's error.
pub fn failed(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Usage(format!("the daemon: {error}"))
}

/// A daemon, until it is killed.
///
/// # Errors
/// The daemon cannot start.
pub fn daemon_role(context: &Context) -> Result<()> {
    let task: DaemonTask = context.arguments()?;
    let text = format!("run_dir = {:?}\ncpus = [{}]\nsandbox = false\n{}", task.dir, task.cpu, task.more);
    let config = File::parse(&text).map_err(|e| failed(&e))?.into_config().map_err(|e| failed(&e))?;
    let daemon = std::thread::spawn(move || netvale_daemon::run(config).map_err(|e| e.to_string()));
    if netvale_harness::daemon::ready(Path::new(&task.dir), START_LIMIT, || !daemon.is_finished()) {
        context.ready()?;
    }
    match daemon.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => Err(failed(&e)),
        Err(_) => Err(failed(&"it panicked")),
    }
}

/// Opens a port of the daemon in `dir` with `slots` slots a ring.
///
/// # Errors
/// The daemon's refusal.
pub fn open(dir: &Path, name: &str, slots: u32) -> Result<Port> {
    let options = Options { run_dir: Some(dir.into()), slots, ..Options::default() };
    Port::open_with(name, &options).map_err(|e| failed(&e))
}
