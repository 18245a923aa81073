//! `netvale upgrade`: a process with this program's version takes over from the running daemon.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use netvale_control::client::Client;

use crate::progress::ProgressLine;
use crate::{CliContext, CliError, out};

mod options;
mod unit;

use unit::SystemdUnit;

/// Replace the running daemon with this version, without losing a frame.
///
/// Starts this program with the running daemon's options. The new daemon takes over its ports and connections, and the
/// old one ends. Attached programs and virtual machines continue. If the new daemon cannot take over, the old one
/// continues. Needs to run as root or as the daemon's own user. If systemd runs the daemon, systemd restarts it, with
/// all its ports.
#[derive(Debug, clap::Args)]
pub struct UpgradeArgs {
    /// Program to start instead of this one.
    #[arg(long, value_name = "FILE")]
    pub exec: Option<PathBuf>,

    /// Seconds to wait until the new daemon takes over.
    #[arg(long, value_name = "S", default_value = "30", value_parser = crate::values::seconds)]
    pub timeout: f64,
}

/// Variables that the successor needs from its predecessor's environment.
const VARIABLES: [&str; 2] = ["NOTIFY_SOCKET", "WATCHDOG_USEC"];
/// Maximum number of bytes of the new daemon's output that an error message quotes.
const MOST_SAID: usize = 8 << 10;
/// Interval at which this command checks whether the new daemon has taken over.
const PAUSE: Duration = Duration::from_millis(5);

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, the daemon's options cannot be read, or the successor does not take over.
pub fn run(args: &UpgradeArgs, ctx: &CliContext) -> Result<(), CliError> {
    let hidden = || CliError::failed("the daemon's process is not visible from here", "run this on the daemon's host");
    let pid = ctx.daemon()?.pid().ok_or_else(hidden)?;
    match SystemdUnit::of(pid) {
        Some(unit) => by_systemd(args, ctx, &unit, pid),
        None => by_itself(args, ctx, pid),
    }
}

/// Makes systemd start the successor.
fn by_systemd(args: &UpgradeArgs, ctx: &CliContext, unit: &SystemdUnit, pid: u32) -> Result<(), CliError> {
    let program =
        program(args).map_err(|e| CliError::failed(format!("cannot determine this program's path: {e}"), ""))?;
    unit.restart(pid, &program)?;
    let unseen = || CliError::failed("the new daemon's process is not visible from here", "");
    let new = ctx.daemon()?.pid().ok_or_else(unseen)?;
    out::text(format!("process {new} continues in place of process {pid}: systemd has restarted {}\n", unit.name))
}

/// Starts the successor directly.
fn by_itself(args: &UpgradeArgs, ctx: &CliContext, pid: u32) -> Result<(), CliError> {
    let mut command = successor(args, ctx, pid).map_err(|e| {
        let what = format!("cannot read the options of the daemon, process {pid}: {e}");
        CliError::failed(what, "run this as root, or as the daemon's user")
    })?;
    let started = command.spawn();
    let child = started.map_err(|e| CliError::failed(format!("cannot start {:?}: {e}", command.get_program()), ""))?;
    let progress = ProgressLine::spinner();
    progress.say("waiting for the new daemon to take over");
    let new = wait_for(child, ctx, Duration::from_secs_f64(args.timeout))?;
    drop(progress);
    out::text(format!("process {new} continues in place of process {pid}\n"))
}

/// Returns the command that starts a successor of the daemon in process `pid`.
fn successor(args: &UpgradeArgs, ctx: &CliContext, pid: u32) -> io::Result<Command> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let mut command = Command::new(program(args)?);
    command.args(options::of(&proc, &ctx.dir())?);
    command.current_dir(proc.join("cwd")).stdin(Stdio::null()).process_group(0);
    // Output that the successor writes before it takes over appears only in error messages. After that, the successor
    // writes to its predecessor's log.
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    // Only root may read the environment of a daemon that has changed its user. If this user may not read it, the
    // variables are omitted.
    let environment = std::fs::read(proc.join("environ")).unwrap_or_default();
    for variable in environment.split(|&b| b == 0) {
        for name in VARIABLES {
            if let Some(value) = variable.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) {
                command.env(name, OsStr::from_bytes(value));
            }
        }
    }
    // The run directory comes from this command, not from the daemon's environment, which may belong to another user.
    command.env("NETVALE_RUN_DIR", std::path::absolute(ctx.dir())?);
    Ok(command)
}

/// Returns the successor's program.
fn program(args: &UpgradeArgs) -> io::Result<PathBuf> {
    args.exec.clone().map_or_else(std::env::current_exe, Ok)
}

/// Waits until the child process answers as the daemon. Returns the child's process id.
fn wait_for(mut child: Child, ctx: &CliContext, limit: Duration) -> Result<u32, CliError> {
    let until = Instant::now() + limit;
    let pid = child.id();
    let said = child.stderr.take().map(|from| std::thread::spawn(|| last_words(from)));
    let goes_on = || Client::connect(&ctx.dir()).ok().and_then(|mut client| client.daemon_pid()) == Some(pid);
    while !goes_on() {
        if let Ok(Some(ended)) = child.try_wait() {
            let said = said.and_then(|reader| reader.join().ok()).unwrap_or_default();
            let what =
                format!("the new daemon ended ({ended}); the running one continues. Its output:\n{}", said.trim_end());
            return Err(CliError::failed(what, "see the log of the running daemon"));
        }
        if Instant::now() >= until {
            let _ = child.kill();
            let what = format!("the new daemon has not taken over after {} s", limit.as_secs_f64());
            return Err(CliError::failed(what, "see the daemon's log, or use a longer --timeout"));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(pid)
}

/// Reads the new daemon's output until it ends, because a full pipe would block the new daemon and all its ports.
/// Returns the last part of the output, at most [`MOST_SAID`] bytes.
fn last_words(mut from: impl Read) -> String {
    let mut said = Vec::new();
    let mut some = [0; 4096];
    while let Ok(got @ 1..) = from.read(&mut some) {
        said.extend_from_slice(some.get(..got).unwrap_or_default());
        said.drain(..said.len().saturating_sub(MOST_SAID));
    }
    String::from_utf8_lossy(&said).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the last part of a successor's output is kept, both of long and of short output.
    #[test]
    fn last_words_of_many() {
        let many: String = (0..10_000).map(|line| format!("port {line} is attached\n")).collect();
        assert_eq!(last_words(many.as_bytes()), many[many.len() - MOST_SAID..]);
        assert_eq!(last_words(&b"few\n"[..]), "few\n");
    }
}
