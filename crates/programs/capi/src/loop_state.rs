//! Whether a descriptor's sync kloop runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether a loop runs, and whether it is to stop.
#[derive(Default)]
pub struct LoopState {
    running: AtomicBool,
    stopping: AtomicBool,
}

impl LoopState {
    /// A loop begins; false when one runs already.
    pub fn begin(&self) -> bool {
        !self.running.swap(true, Ordering::AcqRel)
    }

    /// The loop has ended.
    pub fn end(&self) {
        self.stopping.store(false, Ordering::Release);
        self.running.store(false, Ordering::Release);
    }

    /// Whether it is to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Asks the loop to stop; one that has not begun yet stops immediately, as in netmap.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Stops the loop and waits until it has ended.
    pub fn stop_and_wait(&self) {
        self.stop();
        while self.running.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
