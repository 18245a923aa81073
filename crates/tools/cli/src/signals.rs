//! Ctrl-C and SIGTERM, as a flag that loops check, or as a descriptor to wait for.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts;

use crate::CliError;

/// Returns a flag that SIGINT and SIGTERM set.
///
/// # Errors
/// The handlers cannot be installed.
pub fn stop_flag() -> Result<Arc<AtomicBool>, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [consts::SIGINT, consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|e| failed(&e))?;
    }
    Ok(stop)
}

/// Returns a descriptor that SIGINT and SIGTERM make readable.
///
/// # Errors
/// No descriptor is left, or the handlers cannot be installed.
pub fn stop_pipe() -> Result<UnixStream, CliError> {
    pipe(&[consts::SIGINT, consts::SIGTERM]).map_err(|e| failed(&e))
}

fn pipe(signals: &[i32]) -> std::io::Result<UnixStream> {
    let (wake, ends) = UnixStream::pair()?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, ends.try_clone()?)?;
    }
    Ok(wake)
}

/// Returns a flag that SIGINT, SIGTERM and SIGHUP set, and a descriptor that becomes readable after these signals and
/// after the end of a child process.
///
/// # Errors
/// No descriptor is left, or the handlers cannot be installed.
pub fn stop_or_child() -> Result<(Arc<AtomicBool>, UnixStream), CliError> {
    // The flags are registered before the pipe, so that a flag is already set when the pipe wakes the event loop.
    let stop = stop_flag()?;
    signal_hook::flag::register(consts::SIGHUP, Arc::clone(&stop)).map_err(|e| failed(&e))?;
    let wake = pipe(&[consts::SIGINT, consts::SIGTERM, consts::SIGHUP, consts::SIGCHLD]).map_err(|e| failed(&e))?;
    wake.set_nonblocking(true).map_err(|e| failed(&e))?;
    Ok((stop, wake))
}

fn failed(e: &std::io::Error) -> CliError {
    CliError::failed(format!("cannot listen for signals: {e}"), "check `ulimit -a`")
}
