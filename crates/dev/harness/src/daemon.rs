//! A daemon in a run directory of its own, which can be started, ended in any way, restarted, and replaced by a
//! successor.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use netvale_control::client::Client;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

pub use crate::scratch;
use crate::{ChildProcess, FailedStep, Launch, Manager, until};

/// Time limit for a daemon to answer or to end.
const LIMIT: Duration = Duration::from_secs(60);
/// File name of the control socket.
const CONTROL_SOCKET: &str = "control.sock";

/// Waits for at most `limit` until the daemon in `run_dir` answers a request; its socket exists before it can answer.
/// Returns whether the daemon answers. `is_alive` returns whether the daemon still runs.
pub fn ready(run_dir: &Path, limit: Duration, mut is_alive: impl FnMut() -> bool) -> bool {
    let answers = || Client::connect(run_dir).is_ok_and(|mut client| client.version().is_ok());
    let mut answered = false;
    until(limit, Duration::from_millis(2), || {
        answered = answers();
        answered || !is_alive()
    });
    answered
}

/// A daemon: successive processes in one run directory. Dropping the daemon kills the running process.
#[derive(Debug)]
pub struct TestDaemon {
    launch: Launch,
    manager: Option<Manager>,
    // Declared before the folder, so that the process is killed before the folder is removed.
    process: Mutex<Option<ChildProcess>>,
    lives: AtomicU32,
    dir: TempDir,
}

impl TestDaemon {
    /// Starts a daemon, and waits until it answers.
    ///
    /// # Errors
    /// The daemon does not start, ends, or does not answer within a minute.
    pub fn start(launch: Launch) -> Result<TestDaemon, FailedStep> {
        TestDaemon::start_in(scratch("run")?, launch, None)
    }

    /// Starts a daemon in the folder `dir`. If `manager` is given, it starts the daemon's processes, and stores the
    /// daemon's descriptors and state between these processes.
    ///
    /// # Errors
    /// Same as [`TestDaemon::start`].
    pub fn start_in(dir: TempDir, launch: Launch, manager: Option<Manager>) -> Result<TestDaemon, FailedStep> {
        let daemon = TestDaemon { launch, manager, process: Mutex::default(), lives: AtomicU32::new(0), dir };
        daemon.start_again()?;
        Ok(daemon)
    }

    /// Starts the next process, with everything that the service manager has stored.
    ///
    /// # Errors
    /// Same as [`TestDaemon::start`].
    pub fn start_again(&self) -> Result<(), FailedStep> {
        let mut process = match &self.manager {
            Some(manager) => manager.start(&self.launch, self.dir())?,
            None => ChildProcess::start(&mut self.launch.command(self.dir()))?,
        };
        let is_alive = || matches!(process.child().try_wait(), Ok(None));
        if !ready(self.dir(), LIMIT, is_alive) {
            let why = std::io::Error::other(format!("no answer within {} s, or the daemon has ended", LIMIT.as_secs()));
            return Err(FailedStep::to("reach the daemon")(why));
        }
        *self.process() = Some(process);
        self.lives.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Sends a signal to the running process, and waits until it ends. Returns its exit status.
    ///
    /// # Errors
    /// No process runs, or it does not end within a minute.
    pub fn end(&self, signal: Signal) -> Result<ExitStatus, FailedStep> {
        if let Some(process) = &*self.process() {
            process.signal(signal);
        }
        self.wait()
    }

    /// Waits until the running process ends by itself. Returns its exit status.
    ///
    /// # Errors
    /// Same as [`TestDaemon::end`].
    pub fn wait(&self) -> Result<ExitStatus, FailedStep> {
        let ended = self.process().take().map(|mut process| process.ended_within(LIMIT));
        ended.flatten().ok_or_else(|| FailedStep::to("end the daemon")(std::io::ErrorKind::TimedOut.into()))
    }

    /// Waits until the service manager has stored the daemon's state, ends the running process with `signal`, runs
    /// `meanwhile`, and starts the next process.
    ///
    /// # Errors
    /// Same as [`TestDaemon::start`] and [`TestDaemon::end`].
    pub fn restart(&self, signal: Signal, meanwhile: impl FnOnce()) -> Result<(), FailedStep> {
        self.is_kept()?;
        self.end(signal)?;
        meanwhile();
        self.start_again()
    }

    /// Waits until the service manager has stored the daemon's state, which the daemon sends before it reads the next
    /// request.
    ///
    /// # Errors
    /// The daemon or the service manager does not answer.
    pub fn is_kept(&self) -> Result<(), FailedStep> {
        self.call("version", &json!({})).map_err(FailedStep::to("reach the daemon"))?;
        self.manager.as_ref().map_or(Ok(()), Manager::sync)
    }

    /// Starts a successor, after `as_successor` has changed its command. Returns whether the successor took over. On a
    /// busy machine, the running process may continue instead; the successor then ends.
    ///
    /// # Errors
    /// The successor cannot be started, or neither of the two processes has ended within a minute.
    pub fn is_succeeded(&self, as_successor: impl FnOnce(&mut Command)) -> Result<bool, FailedStep> {
        let mut command = self.launch.command(self.dir());
        self.manager.iter().for_each(|manager| manager.accompany(&mut command));
        as_successor(&mut command);
        let mut next = ChildProcess::start(&mut command)?;
        let mut running = self.process();
        let before =
            running.as_mut().ok_or_else(|| FailedStep::to("find the daemon")(std::io::ErrorKind::NotFound.into()))?;
        let mut has_ended = None;
        let mut has_failed = false;
        until(LIMIT, Duration::from_millis(1), || {
            has_ended = before.ended_within(Duration::ZERO);
            has_failed = has_ended.is_none() && next.ended_within(Duration::ZERO).is_some();
            has_ended.is_some() || has_failed
        });
        match has_ended {
            Some(status) if status.success() => *running = Some(next),
            Some(status) => {
                return Err(FailedStep::to("take over from the daemon")(std::io::Error::other(status.to_string())));
            }
            None if has_failed => return Ok(false),
            None => return Err(FailedStep::to("take over from the daemon")(std::io::ErrorKind::TimedOut.into())),
        }
        drop(running);
        self.lives.fetch_add(1, Ordering::Relaxed);
        if ready(self.dir(), LIMIT, || true) {
            return Ok(true);
        }
        Err(FailedStep::to("reach the successor")(std::io::ErrorKind::TimedOut.into()))
    }

    /// Returns the process id; 0 if no process runs.
    pub fn id(&self) -> u32 {
        self.process().as_ref().map_or(0, ChildProcess::id)
    }

    /// Returns the number of processes that this daemon has had.
    pub fn lives(&self) -> u32 {
        self.lives.load(Ordering::Relaxed)
    }

    /// Returns the exit status of the running process, if that process has ended by itself; `None` while it runs.
    pub fn has_ended(&self) -> Option<ExitStatus> {
        self.process().as_mut()?.ended_within(Duration::ZERO)
    }

    /// Returns the run directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of a file in the run directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// Returns the service manager; `None` if the daemon was started without one.
    pub fn manager(&self) -> Option<&Manager> {
        self.manager.as_ref()
    }

    /// Opens a connection to the daemon's control socket.
    ///
    /// # Errors
    /// The daemon does not answer within a minute.
    pub fn control(&self) -> Result<Client, FailedStep> {
        Client::connect_within(self.dir(), LIMIT)
            .map_err(|e| FailedStep::to("reach the daemon")(std::io::Error::other(e)))
    }

    /// Sends a request. Returns the unparsed answer.
    ///
    /// # Errors
    /// The daemon does not run, or closes the connection.
    pub fn call(&self, method: &str, params: &Value) -> std::io::Result<Value> {
        let mut stream = UnixStream::connect(self.path(CONTROL_SOCKET))?;
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        writeln!(stream, "{request}")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    fn process(&self) -> MutexGuard<'_, Option<ChildProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
