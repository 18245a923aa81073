//! Waiting for another thread to leave a lent queue, up to a limit: first by polling, then by yielding the CPU or
//! sleeping.

#[cfg(not(loom))]
use std::time::Instant;

use std::time::Duration;

/// Number of polls before the thread yields the CPU.
#[cfg(not(loom))]
const SPINS: u32 = 64;
/// Number of polls before a control thread sleeps instead of yielding the CPU.
#[cfg(not(loom))]
const YIELDS: u32 = 128;
/// Time for which a control thread sleeps between polls.
#[cfg(not(loom))]
const NAP: Duration = Duration::from_micros(50);

/// A wait in progress, with its limit.
pub(super) struct WaitLimit {
    looks: u32,
    #[cfg(not(loom))]
    sleeps: bool,
    #[cfg(not(loom))]
    until: Instant,
}

#[cfg(not(loom))]
impl WaitLimit {
    /// Starts a worker's wait, which never sleeps.
    pub(super) fn of_worker(limit: Duration) -> Self {
        WaitLimit { looks: 0, sleeps: false, until: Instant::now() + limit }
    }

    /// Starts a control thread's wait.
    pub(super) fn of_control(limit: Duration) -> Self {
        WaitLimit { sleeps: true, ..Self::of_worker(limit) }
    }

    /// Restarts the limit: `limit` from now on.
    pub(super) fn renew(&mut self, limit: Duration) {
        self.until = Instant::now() + limit;
    }

    /// Pauses briefly. Returns false once the limit is reached.
    pub(super) fn pause(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        match self.looks {
            ..SPINS => std::hint::spin_loop(),
            YIELDS.. if self.sleeps => std::thread::sleep(NAP),
            // The thread inside may need this CPU.
            _ => std::thread::yield_now(),
        }
        Instant::now() < self.until
    }
}

/// The limit as a number of polls, as loom's models have no clock.
#[cfg(loom)]
impl WaitLimit {
    pub(super) fn of_worker(_limit: Duration) -> Self {
        WaitLimit { looks: 0 }
    }

    pub(super) fn of_control(limit: Duration) -> Self {
        Self::of_worker(limit)
    }

    pub(super) fn renew(&mut self, _limit: Duration) {}

    pub(super) fn pause(&mut self) -> bool {
        self.looks += 1;
        // When a thread yields, loom first runs all other threads that can run: with a yield at each poll, no limit
        // would ever be reached.
        if self.looks > 2 {
            loom::thread::yield_now();
        }
        self.looks < 2
    }
}
