//! Turns SIGINT and SIGTERM into an error, so that all set-ups are dropped in the same way as after any error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::{BenchError, Result};

/// A flag that a signal sets. The whole process has only one flag.
static RAISED: std::sync::LazyLock<Arc<AtomicBool>> = std::sync::LazyLock::new(Arc::default);

/// A guard. As long as it exists, SIGINT and SIGTERM set a flag instead of ending the process.
#[derive(Debug)]
pub struct Guard(Vec<SigId>);

impl Guard {
    /// Installs the handlers of both signals.
    pub fn install() -> Result<Self> {
        let catch = |signal| signal_hook::flag::register(signal, Arc::clone(&RAISED));
        let ids = [SIGINT, SIGTERM].map(catch);
        let ids = ids.into_iter().collect::<std::io::Result<_>>().map_err(BenchError::io("catching SIGINT"))?;
        Ok(Self(ids))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Fails if a signal has arrived.
pub fn check() -> Result<()> {
    if RAISED.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
}

/// Sleeps for `time`, the length of a measurement; if a signal arrives, the sleep ends early with an error.
pub fn sleep(time: Duration) -> Result<()> {
    // Each wake-up of this thread takes a measured CPU for a moment, so the thread sleeps in long slices.
    const SLICE: Duration = Duration::from_millis(500);
    let end = Instant::now() + time;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(SLICE));
    }
}

/// Polls `ready` until it returns a value, for at most `limit`. Returns `None` at the limit. Only for conditions for
/// which there is no other way to wait.
pub fn poll_until<T>(limit: Duration, mut ready: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let end = Instant::now() + limit;
    loop {
        check()?;
        if let Some(found) = ready()? {
            return Ok(Some(found));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
