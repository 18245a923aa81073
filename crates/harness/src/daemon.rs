//! A daemon in a run directory of its own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use netvale_control::client::Client;
use tempfile::TempDir;

use crate::{Failed, Process, until};

/// Creates a folder that is removed when dropped; its name begins with `netvale-PURPOSE-`.
///
/// # Errors
/// The folder cannot be created.
pub fn scratch(purpose: &str) -> Result<TempDir, Failed> {
    tempfile::Builder::new().prefix(&format!("netvale-{purpose}-")).tempdir().map_err(Failed::to("make a folder"))
}

/// Waits until the daemon in `run_dir` answers: its socket is there before it does. Returns whether it does; `is_alive` says whether it still may.
pub fn ready(run_dir: &Path, limit: Duration, mut is_alive: impl FnMut() -> bool) -> bool {
    let answers = || Client::connect(run_dir).is_ok_and(|mut client| client.version().is_ok());
    let mut answered = false;
    until(limit, Duration::from_millis(2), || {
        answered = answers();
        answered || !is_alive()
    });
    answered
}

/// A daemon as `netvale up` runs it.
#[derive(Debug)]
pub struct Daemon {
    program: PathBuf,
    // Dropped first.
    process: Process,
    dir: TempDir,
}

impl Daemon {
    /// Starts `program up` with more arguments, and waits until it answers. Its output goes where `redirect` says.
    ///
    /// # Errors
    /// The daemon does not start, ends, or does not answer within the limit.
    pub fn start(
        program: &Path,
        arguments: &[&str],
        limit: Duration,
        redirect: impl FnOnce(&mut Command),
    ) -> Result<Daemon, Failed> {
        let dir = scratch("run")?;
        let mut command = Command::new(program);
        command.env_remove("NETVALE_RUN_DIR").arg("--run-dir").arg(dir.path()).arg("up").args(arguments);
        redirect(&mut command);
        let mut process = Process::start(&mut command)?;
        let alive = || matches!(process.child().try_wait(), Ok(None));
        if !ready(dir.path(), limit, alive) {
            let why = std::io::Error::other(format!("it did not answer within {} s", limit.as_secs()));
            return Err(Failed::to("reach the daemon")(why));
        }
        Ok(Daemon { program: program.into(), process, dir })
    }

    /// The daemon's run directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The daemon's process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// A netvale command that talks to the daemon.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--run-dir").arg(self.dir()).args(arguments);
        command
    }
}
