//! Last polled state of ports, switches and threads; a difference becomes an event.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Polling interval while there are subscriptions.
const EVERY: Duration = Duration::from_millis(250);
/// Polling interval after a known change: a bound, as peers may come and go all the time.
const SHORTEST: Duration = Duration::from_millis(10);

/// Last polled state of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortLook {
    /// Whether a peer is connected.
    pub connected: bool,
    /// Number of connections so far.
    pub connections: u64,
    /// Whether its link is up.
    pub linked: bool,
    /// How often its loop guard has blocked it.
    pub loops: u64,
    /// Whether it is blocked.
    pub blocked: bool,
}

/// Last polled state.
#[derive(Default)]
pub struct Looks {
    /// Ports by full name.
    pub ports: BTreeMap<String, PortLook>,
    /// Number of frames of each switch whose source address was not learned.
    pub refused: BTreeMap<String, u64>,
    /// Number of stalls of each thread: the main one, then the workers.
    pub stalls: Vec<u64>,
    last: Option<Instant>,
    /// Whether something may have changed since the last poll.
    is_due: bool,
}

impl Looks {
    /// Whether polling is off, as there are no subscriptions.
    pub fn are_off(&self) -> bool {
        self.last.is_none()
    }

    /// Forgets all state.
    pub fn end(&mut self) {
        *self = Looks::default();
    }

    /// Forgets a port's state: the port of that name is new.
    pub fn forget(&mut self, full: &str) {
        self.ports.remove(full);
    }

    /// Time until the next poll.
    pub fn left(&self, now: Instant) -> Duration {
        let pause = if self.is_due { SHORTEST } else { EVERY };
        self.last.map_or(Duration::MAX, |last| (last + pause).saturating_duration_since(now))
    }

    /// Marks a poll as done.
    pub fn done(&mut self, now: Instant) {
        self.last = Some(now);
        self.is_due = false;
    }

    /// Brings the next poll forward: something may have changed.
    pub fn hasten(&mut self) {
        self.is_due = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a possible change is polled immediately, but not repeatedly without a pause; without subscriptions
    /// nothing is polled.
    #[test]
    fn pauses() {
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
