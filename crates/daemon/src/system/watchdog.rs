//! The service manager's watchdog (sd_watchdog_enabled(3)): a daemon that hangs is started again.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Tells the service manager from time to time that the daemon goes on.
pub struct Watchdog {
    every: Duration,
    next: Instant,
}

impl Watchdog {
    /// `None` if the service manager has none for this process: nothing is done then, and nobody is woken.
    pub fn find() -> Option<Watchdog> {
        sd_notify::watchdog_enabled().map(Watchdog::new)
    }

    /// Twice in the time after which it acts.
    fn new(period: Duration) -> Watchdog {
        Watchdog { every: (period / 2).max(Duration::from_millis(1)), next: Instant::now() }
    }

    /// Called by the main thread. When it is time, asks whether the others go on, each within the time that is given,
    /// and passes that on. Returns the time until the next call.
    pub fn tick(&mut self, now: Instant, go_on: impl FnOnce(Duration) -> bool) -> Duration {
        if now >= self.next {
            self.next = now + self.every;
            if go_on(self.every) {
                // A manager that does not hear it acts, which is what it is for.
                let _ = super::manager::tell(&[NotifyState::Watchdog], None);
            } else {
                tracing::error!("a worker hangs: the service manager is not told that all is well");
            }
        }
        self.next.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: it asks twice a period, and not in between.
    #[test]
    fn twice_a_period() {
        let mut watchdog = Watchdog::new(Duration::from_secs(2));
        let (start, mut asked) = (watchdog.next, 0);
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
