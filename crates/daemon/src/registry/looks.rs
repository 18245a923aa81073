//! Last polled state of switches and threads; the state of ports is in their records. If the next poll finds a
//! difference, it becomes an event.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Polling interval while there are subscriptions.
const EVERY: Duration = Duration::from_millis(250);
/// Shortest polling interval, used after a notification of a possible change. The interval bounds the cost of peers
/// that repeatedly connect and leave.
const SHORTEST: Duration = Duration::from_millis(10);

/// State of a port at the last poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortLook {
    /// Whether the port has been polled.
    pub is_known: bool,
    /// Whether a peer is connected.
    pub connected: bool,
    /// Number of connections so far.
    pub connections: u64,
    /// Whether the port's link is up.
    pub linked: bool,
    /// Number of times that the loop guard has blocked the port.
    pub loops: u64,
    /// Whether the loop guard was blocking the port at the last poll.
    pub blocked: bool,
}

/// State of the daemon at the last poll.
#[derive(Default)]
pub struct Looks {
    /// For each switch, the number of frames whose source address could not be learned.
    pub refused: BTreeMap<String, u64>,
    /// Number of stalls of each thread: the main thread, then the workers.
    pub stalls: Vec<u64>,
    /// Whether the kernel has reported a change of an interface since the last poll.
    pub are_interfaces_due: bool,
    last: Option<Instant>,
    /// Whether something may have changed since the last poll.
    is_due: bool,
}

impl Looks {
    /// Returns true if polling is off because there are no subscriptions.
    pub fn are_off(&self) -> bool {
        self.last.is_none()
    }

    /// Forgets all state, and turns polling off.
    pub fn end(&mut self) {
        *self = Looks::default();
    }

    /// Returns the time until the next poll.
    pub fn left(&self, now: Instant) -> Duration {
        let pause = if self.is_due { SHORTEST } else { EVERY };
        self.last.map_or(Duration::MAX, |last| (last + pause).saturating_duration_since(now))
    }

    /// Records that a poll was done at `now`.
    pub fn done(&mut self, now: Instant) {
        self.last = Some(now);
        self.is_due = false;
        self.are_interfaces_due = false;
    }

    /// Makes the next poll earlier, because something may have changed.
    pub fn hasten(&mut self) {
        self.is_due = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a possible change is polled immediately, but repeated changes are polled only at intervals; without
    /// subscriptions, nothing is polled.
    #[test]
    fn repeated_polls_have_a_pause() {
        let mut looks = Looks::default();
        let now = Instant::now();
        looks.hasten();
        assert_eq!(looks.left(now), Duration::MAX);
        looks.done(now);
        assert_eq!(looks.left(now), EVERY);
        looks.hasten();
        assert_eq!((looks.left(now), looks.left(now + EVERY / 2)), (SHORTEST, Duration::ZERO));
        looks.done(now + EVERY / 2);
        assert_eq!(looks.left(now + EVERY / 2), EVERY);
    }
}
