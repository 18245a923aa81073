//! A daemon that a program, such as a drop-in, starts for itself and ends.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use netvale_control::client::Client;
use rustix::fs::FlockOperation;

/// Maximum time to wait until a new daemon answers.
const LIMIT: Duration = Duration::from_secs(20);
/// Maximum time to wait until a daemon has ended; after this time, it is killed.
const ENDING: Duration = Duration::from_secs(10);
/// How long a start is retried while an earlier daemon still uses the run directory, because the program that started
/// it was killed.
const LEAVING: Duration = Duration::from_secs(2);
/// Polling interval.
const PAUSE: Duration = Duration::from_millis(2);

/// The reason why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct OwnDaemonFailure(String);

/// The process of the daemon. The process is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct OwnDaemon {
    child: Child,
    run_dir: PathBuf,
}

/// Returns whether a daemon uses a run directory: it then holds the directory's lock.
pub(crate) fn is_used(run_dir: &Path) -> bool {
    let lock = File::open(run_dir.join("lock")).ok();
    lock.is_some_and(|lock| rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_err())
}

impl OwnDaemon {
    /// Starts the daemon, which may have sockets in `folders`, and waits until it answers.
    pub(crate) fn start(run_dir: &Path, folders: &[&Path]) -> Result<OwnDaemon, OwnDaemonFailure> {
        OwnDaemon::run(run_dir, || command(run_dir, folders))
    }

    /// Starts the daemon with a configuration file, if one is given. Signals from the terminal do not reach the daemon:
    /// after Ctrl-C, the caller can end its other processes before the daemon.
    pub(crate) fn start_apart(run_dir: &Path, config: Option<&Path>) -> Result<OwnDaemon, OwnDaemonFailure> {
        OwnDaemon::run(run_dir, || {
            let mut command = command(run_dir, &[])?;
            config.iter().for_each(|file| _ = command.arg("--config").arg(file));
            command.process_group(0);
            Ok(command)
        })
    }

    fn run(run_dir: &Path, command: impl Fn() -> std::io::Result<Command>) -> Result<OwnDaemon, OwnDaemonFailure> {
        let begun = Instant::now();
        loop {
            let child = command().and_then(|mut command| command.spawn());
            let failed = |why| OwnDaemonFailure(format!("cannot start the switch's daemon: {why}"));
            let mut process = OwnDaemon { child: child.map_err(failed)?, run_dir: run_dir.to_owned() };
            match process.answers() {
                Ok(()) => return Ok(process),
                // An earlier daemon still has the run directory: the program that started that daemon was killed, so
                // the daemon is about to exit.
                Err(_) if begun.elapsed() < LEAVING && is_used(run_dir) => std::thread::sleep(10 * PAUSE),
                Err(why) => return Err(why),
            }
        }
    }

    /// Waits until the daemon answers. If it exits instead, returns its last message as the error.
    fn answers(&mut self) -> Result<(), OwnDaemonFailure> {
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(OwnDaemonFailure(self.last_words()));
            }
            // The process id is compared, since another user with write access to the folder could answer in the
            // daemon's place.
            let found = Client::connect(&self.run_dir).ok().and_then(|mut client| client.daemon_pid());
            if found == Some(self.child.id()) {
                self.pass_on_what_it_says();
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err(OwnDaemonFailure(format!("the switch's daemon did not answer within {} s", LIMIT.as_secs())))
    }

    /// Starts to copy the daemon's standard error to the standard error of this process.
    fn pass_on_what_it_says(&mut self) {
        let Some(mut from) = self.child.stderr.take() else { return };
        // The thread ends when the daemon ends. If the standard error of this process is closed, the messages are lost.
        std::thread::spawn(move || _ = std::io::copy(&mut from, &mut std::io::stderr()));
    }

    /// Returns the message that the daemon printed before it exited.
    fn last_words(&mut self) -> String {
        let mut said = String::new();
        self.child.stderr.take().into_iter().for_each(|mut from| _ = from.read_to_string(&mut said));
        let said = said.trim().strip_prefix("netvale: ").unwrap_or(said.trim());
        if said.is_empty() { "the switch's daemon ended without a message".to_owned() } else { said.to_owned() }
    }

    /// Returns whether the daemon has ended. It counts as running if, after an upgrade, a successor answers in its
    /// place.
    pub(crate) fn is_over(&mut self) -> bool {
        let has_ended = !matches!(self.child.try_wait(), Ok(None));
        has_ended && Client::connect(&self.run_dir).and_then(|mut client| client.version()).is_err()
    }

    /// Requests the daemon's shutdown, waits until the daemon has ended, and kills it if that takes too long.
    pub(crate) fn end(mut self) {
        let asked = Client::connect(&self.run_dir).and_then(|mut client| client.shutdown().map(|()| client));
        // After an upgrade, the daemon is not a child of this process, so the end of the connection is awaited instead
        // of the end of the process.
        asked.into_iter().for_each(|client| _ = client.wait_closed(ENDING));
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < ENDING {
            std::thread::sleep(PAUSE);
        }
        self.kill();
    }

    fn kill(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for OwnDaemon {
    fn drop(&mut self) {
        self.kill();
    }
}

fn command(run_dir: &Path, folders: &[&Path]) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // The program's file may have the name of a drop-in. If argv[0] had this name, the new process would act as the
    // drop-in instead of `netvale`.
    command.arg0("netvale").arg("--run-dir").arg(run_dir).arg("up");
    folders.iter().for_each(|folder| _ = command.arg("--allow-dir").arg(folder));
    command.args(["--log-level", "warn", "--parent"]).arg(std::process::id().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Ok(command)
}
