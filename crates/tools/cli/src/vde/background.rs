//! `--daemon`: the program starts itself again as a process in a new session, and exits once that process is ready.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use super::{CANNOT_START, PROGRAM, VdeFailure};

/// The environment variable that marks the process in the background.
const VARIABLE: &str = "NETVALE_VDE_BACKGROUND";
/// When it is ready, the process in the background writes this to its standard output, which is a pipe to the process
/// that started it.
const READY: &[u8] = b"ready";

/// Returns whether this process is the one in the background.
pub(super) fn is_inside() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Starts the process in the background with the same arguments, and waits until it is ready or has failed. Returns the
/// exit code for this process.
pub(super) fn start(words: &[OsString]) -> Result<ExitCode, VdeFailure> {
    let failed = |what: &str| VdeFailure::step(format!("cannot start the switch in the background: {what}"));
    let program = std::env::current_exe().map_err(failed("finding this program"))?;
    let mut command = Command::new(program);
    command.arg0(PROGRAM).args(words).env(VARIABLE, "1").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed("starting the process"))?;
    let mut said = Vec::new();
    child.stdout.take().into_iter().for_each(|mut from| _ = from.read_to_end(&mut said));
    if said == READY {
        return Ok(ExitCode::SUCCESS);
    }
    // The process in the background has failed, and has printed the reason on standard error.
    let status = child.wait().map_err(failed("waiting for the process"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::from(CANNOT_START), ExitCode::from))
}

/// Moves the process in the background to a new session. Must be called before the process starts the daemon.
pub(super) fn enter() {
    // The call fails only if this process already leads a process group.
    let _ = rustix::process::setsid();
}

/// Reports to the process that started this one that the switch is ready. Redirects standard input, output and error to
/// `/dev/null`, and changes to `/`.
pub(super) fn ready() -> Result<(), VdeFailure> {
    let failed = |what: &str| VdeFailure::step(format!("cannot continue in the background: {what}"));
    let mut out = std::io::stdout();
    out.write_all(READY).and_then(|()| out.flush()).map_err(failed("reporting to the starting process"))?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").map_err(failed("/dev/null"))?;
    let done = rustix::stdio::dup2_stdin(&null)
        .and_then(|()| rustix::stdio::dup2_stdout(&null))
        .and_then(|()| rustix::stdio::dup2_stderr(&null));
    done.map_err(|why| failed("redirecting standard input and output")(why.into()))?;
    std::env::set_current_dir("/").map_err(failed("changing to /"))
}
