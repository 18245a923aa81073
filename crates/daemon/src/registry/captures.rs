//! Capture files that are being written, even after their ports are gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_pcapport::CaptureStatus;

/// Upper bound on waiting at the daemon's end for captures to reach their files.
const CLOSING: Duration = Duration::from_secs(5);
/// The same bound while the daemon serves: other clients wait, too.
const DETACHING: Duration = Duration::from_millis(500);

/// Captures that may still be written.
#[derive(Default)]
pub struct Captures(Vec<Arc<CaptureStatus>>);

impl Captures {
    /// Adds a capture that has begun.
    pub fn add(&mut self, capture: &Arc<CaptureStatus>) {
        self.0.push(Arc::clone(capture));
    }

    /// Ends the capture of a port that is gone: the file is complete when this returns, unless the disk is very slow.
    pub fn close(&mut self, capture: &CaptureStatus) {
        if !capture.wait_closed(DETACHING) {
            tracing::warn!("a capture is still being written");
        }
        self.0.retain(|one| !one.wait_closed(Duration::ZERO));
    }

    /// Waits for captures whose ports are gone to reach their files.
    pub fn wait(&mut self) {
        let end = Instant::now() + CLOSING;
        self.0.retain(|one| !one.wait_closed(end.saturating_duration_since(Instant::now())));
    }
}
