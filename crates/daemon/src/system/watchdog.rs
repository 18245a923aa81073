//! The service manager's watchdog (sd_watchdog_enabled(3)), which restarts a daemon that hangs.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Reports to the service manager periodically that the daemon makes progress.
pub struct Watchdog {
    every: Duration,
    next: Instant,
}

impl Watchdog {
    /// Returns the watchdog; `None` if the service manager has none for this process.
    pub fn find() -> Option<Watchdog> {
        sd_notify::watchdog_enabled().map(Watchdog::new)
    }

    /// Creates a watchdog that reports twice per period.
    fn new(period: Duration) -> Watchdog {
        Watchdog { every: (period / 2).max(Duration::from_millis(1)), next: Instant::now() }
    }

    /// When a report is due, calls `go_on`, which checks that no operation of a worker has lasted longer than the given
    /// time. If it returns true, reports progress. Returns the time until the next call.
    pub fn tick(&mut self, now: Instant, go_on: impl FnOnce(Duration) -> bool) -> Duration {
        if now >= self.next {
            self.next = now + self.every;
            if go_on(self.every) {
                // If the report fails, the service manager restarts the daemon.
                let _ = super::manager::tell(&[NotifyState::Watchdog], None);
            } else {
                tracing::error!("a worker hangs; withheld the watchdog's report to the service manager");
            }
        }
        self.next.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the watchdog checks the workers twice per period, and not in between.
    #[test]
    fn the_watchdog_asks_twice_a_period() {
        let mut watchdog = Watchdog::new(Duration::from_secs(2));
        let start = watchdog.next;
        let mut asked = 0;
        let mut tick = |ms| {
            watchdog.tick(start + Duration::from_millis(ms), |limit| {
                assert_eq!(limit, Duration::from_secs(1));
                asked += 1;
                true
            })
        };
        assert_eq!(tick(0), Duration::from_secs(1));
        assert_eq!(tick(400), Duration::from_millis(600));
        assert_eq!(tick(1100), Duration::from_secs(1));
        assert_eq!(asked, 2);
    }
}
