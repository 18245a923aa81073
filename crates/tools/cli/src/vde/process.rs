//! The daemon's process: it begins and ends with the console.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use netvale_control::client::Client;

use super::VdeFailure;
use super::place::SwitchPlace;

/// How long it may take until it answers, and until it has ended.
const LIMIT: Duration = Duration::from_secs(20);
const ENDING: Duration = Duration::from_secs(10);
/// How long one that was killed may keep its place.
const LEAVING: Duration = Duration::from_secs(2);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// A daemon's process.
#[derive(Debug)]
pub(super) struct SwitchProcess {
    child: Child,
    run_dir: PathBuf,
}

impl SwitchProcess {
    /// Starts a daemon, and waits until it answers.
    pub(super) fn start(place: &SwitchPlace) -> Result<SwitchProcess, VdeFailure> {
        let begun = Instant::now();
        loop {
            let child = command(place).and_then(|mut command| command.spawn());
            let child = child.map_err(VdeFailure::step("the switch cannot be started"))?;
            let mut process = SwitchProcess { child, run_dir: place.run_dir.clone() };
            match process.answers() {
                Ok(()) => return Ok(process),
                // A switch that was killed is about to go, after its console.
                Err(_) if begun.elapsed() < LEAVING && place.has_daemon() => std::thread::sleep(10 * PAUSE),
                Err(why) => return Err(why),
            }
        }
    }

    /// Waits until it answers.
    fn answers(&mut self) -> Result<(), VdeFailure> {
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(VdeFailure(self.last_words()));
            }
            // Another user who may write there could answer in its place.
            let found = Client::connect(&self.run_dir).ok().and_then(|mut client| client.daemon_pid());
            if found == Some(self.child.id()) {
                self.pass_on_what_it_says();
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err(VdeFailure(format!("the switch does not answer within {} s", LIMIT.as_secs())))
    }

    /// What it says on standard error is this process's from here on.
    fn pass_on_what_it_says(&mut self) {
        let Some(mut from) = self.child.stderr.take() else { return };
        // It ends with the daemon. Where nobody listens, nobody is told.
        std::thread::spawn(move || _ = std::io::copy(&mut from, &mut std::io::stderr()));
    }

    /// Why it has ended.
    fn last_words(&mut self) -> String {
        let mut said = String::new();
        self.child.stderr.take().into_iter().for_each(|mut from| _ = from.read_to_string(&mut said));
        let said = said.trim().strip_prefix("netvale: ").unwrap_or(said.trim());
        if said.is_empty() { "the switch has ended".to_owned() } else { said.to_owned() }
    }

    /// Whether it has ended, and no successor answers.
    pub(super) fn is_over(&mut self) -> bool {
        let has_ended = !matches!(self.child.try_wait(), Ok(None));
        has_ended && Client::connect(&self.run_dir).and_then(|mut client| client.version()).is_err()
    }

    /// Ends it, and waits for that.
    pub(super) fn end(mut self) {
        let asked = Client::connect(&self.run_dir).and_then(|mut client| client.shutdown().map(|()| client));
        // A successor is no child.
        asked.into_iter().for_each(|client| _ = client.wait_closed(ENDING));
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < ENDING {
            std::thread::sleep(PAUSE);
        }
        self.kill();
    }

    fn kill(&mut self) {
        // Both fail only for one that has ended.
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
    // By the name of the file, a copy of it would be a console again.
    command.arg0("netvale").arg("--run-dir").arg(&place.run_dir).arg("up");
    command.arg("--allow-dir").arg(&place.folder);
    command.args(["--log-level", "warn", "--parent"]).arg(std::process::id().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Ok(command)
}
