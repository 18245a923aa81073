//! Ctrl-C and SIGTERM, as a flag that loops look at.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::CliError;

/// A flag that SIGINT and SIGTERM set.
///
/// # Errors
/// The handlers cannot be installed.
pub fn stop_flag() -> Result<Arc<AtomicBool>, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|e| CliError::failed(format!("cannot listen for signals: {e}"), "check the system's limits"))?;
    }
    Ok(stop)
}
