//! The process of the daemon, which the console starts and ends.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use netvale_control::client::Client;

use super::VdeFailure;
use super::place::SwitchPlace;

/// Limit until a new daemon answers. [`ENDING`] is the limit until a daemon has ended.
const LIMIT: Duration = Duration::from_secs(20);
const ENDING: Duration = Duration::from_secs(10);
/// How long to retry while an earlier daemon, whose console was killed, still holds the run directory.
const LEAVING: Duration = Duration::from_secs(2);
/// Polling interval.
const PAUSE: Duration = Duration::from_millis(2);

/// The process of the daemon. Killed when this is dropped.
#[derive(Debug)]
pub(super) struct SwitchProcess {
    child: Child,
    run_dir: PathBuf,
}

impl SwitchProcess {
    /// Starts the daemon, and waits until it answers.
    pub(super) fn start(place: &SwitchPlace) -> Result<SwitchProcess, VdeFailure> {
        let begun = Instant::now();
        loop {
            let child = command(place).and_then(|mut command| command.spawn());
            let child = child.map_err(VdeFailure::step("cannot start the switch's daemon"))?;
            let mut process = SwitchProcess { child, run_dir: place.run_dir.clone() };
            match process.answers() {
                Ok(()) => return Ok(process),
                // An earlier daemon whose console was killed is about to exit.
                Err(_) if begun.elapsed() < LEAVING && place.has_daemon() => std::thread::sleep(10 * PAUSE),
                Err(why) => return Err(why),
            }
        }
    }

    /// Waits until the daemon answers. If it exits instead, returns its last message as the error.
    fn answers(&mut self) -> Result<(), VdeFailure> {
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(VdeFailure(self.last_words()));
            }
            // Another user with write access to the folder could answer in the daemon's place.
            let found = Client::connect(&self.run_dir).ok().and_then(|mut client| client.daemon_pid());
            if found == Some(self.child.id()) {
                self.pass_on_what_it_says();
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err(VdeFailure(format!("the switch's daemon did not answer within {} s", LIMIT.as_secs())))
    }

    /// Copies the daemon's standard error to this process's from now on.
    fn pass_on_what_it_says(&mut self) {
        let Some(mut from) = self.child.stderr.take() else { return };
        // The thread ends with the daemon. If standard error is closed, the messages are lost.
        std::thread::spawn(move || _ = std::io::copy(&mut from, &mut std::io::stderr()));
    }

    /// Returns the message with which the daemon exited.
    fn last_words(&mut self) -> String {
        let mut said = String::new();
        self.child.stderr.take().into_iter().for_each(|mut from| _ = from.read_to_string(&mut said));
        let said = said.trim().strip_prefix("netvale: ").unwrap_or(said.trim());
        if said.is_empty() { "the switch's daemon ended without a message".to_owned() } else { said.to_owned() }
    }

    /// Whether the daemon has ended, and no successor (after an upgrade) answers in its place.
    pub(super) fn is_over(&mut self) -> bool {
        let has_ended = !matches!(self.child.try_wait(), Ok(None));
        has_ended && Client::connect(&self.run_dir).and_then(|mut client| client.version()).is_err()
    }

    /// Requests the daemon's shutdown, waits for its end, and kills it if it takes too long.
    pub(super) fn end(mut self) {
        let asked = Client::connect(&self.run_dir).and_then(|mut client| client.shutdown().map(|()| client));
        // After an upgrade, the daemon is not a child of this process: wait for the end of its connection.
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

impl Drop for SwitchProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn command(place: &SwitchPlace) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // The program's file may be called vde_switch: with that name in argv[0], it would be a console again.
    command.arg0("netvale").arg("--run-dir").arg(&place.run_dir).arg("up");
    command.arg("--allow-dir").arg(&place.folder);
    command.args(["--log-level", "warn", "--parent"]).arg(std::process::id().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Ok(command)
}
