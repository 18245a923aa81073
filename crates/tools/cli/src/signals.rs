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
    let (stop, ends) = UnixStream::pair().map_err(|e| failed(&e))?;
    for signal in [consts::SIGINT, consts::SIGTERM] {
        let end = ends.try_clone().map_err(|e| failed(&e))?;
        signal_hook::low_level::pipe::register(signal, end).map_err(|e| failed(&e))?;
    }
    Ok(stop)
}

/// Returns a flag that SIGINT, SIGTERM and SIGHUP set, and a descriptor that becomes readable after these signals and
/// after the end of a child process.
///
/// # Errors
/// No descriptor is left, or the handlers cannot be installed.
pub fn stop_or_child() -> Result<(Arc<AtomicBool>, UnixStream), CliError> {
    let stop = stop_flag()?;
    signal_hook::flag::register(consts::SIGHUP, Arc::clone(&stop)).map_err(|e| failed(&e))?;
    let (wake, ends) = UnixStream::pair().map_err(|e| failed(&e))?;
    wake.set_nonblocking(true).map_err(|e| failed(&e))?;
    for signal in [consts::SIGINT, consts::SIGTERM, consts::SIGHUP, consts::SIGCHLD] {
        let end = ends.try_clone().map_err(|e| failed(&e))?;
        signal_hook::low_level::pipe::register(signal, end).map_err(|e| failed(&e))?;
    }
    Ok((stop, wake))
}

fn failed(e: &std::io::Error) -> CliError {
    CliError::failed(format!("cannot listen for signals: {e}"), "check `ulimit -a`")
}
