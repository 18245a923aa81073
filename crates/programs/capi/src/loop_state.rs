//! The state of a descriptor's sync kloop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the loop runs, and whether it must stop.
#[derive(Default)]
pub struct LoopState {
    running: AtomicBool,
    stopping: AtomicBool,
}

impl LoopState {
    /// Begins a loop. Returns false if a loop already runs.
    pub fn begin(&self) -> bool {
        !self.running.swap(true, Ordering::AcqRel)
    }

    /// Records the loop's end.
    pub fn end(&self) {
        self.stopping.store(false, Ordering::Release);
        self.running.store(false, Ordering::Release);
    }

    /// Returns whether the loop must stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Requests that the loop stop. If no loop runs, the next loop stops as soon as it begins, as in netmap.
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
