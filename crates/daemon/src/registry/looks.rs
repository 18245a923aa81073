//! What was last found of that which workers and threads of ports change by themselves: what is different now is an
//! event.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time between two looks while somebody wants to be told.
const EVERY: Duration = Duration::from_millis(250);
/// The same when something is known to have changed: peers that come and go all the time have all ports looked at this
/// often.
const SHORTEST: Duration = Duration::from_millis(10);

/// What is known of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortLook {
    /// Whether a peer is connected.
    pub connected: bool,
    /// How many peers there were.
    pub connections: u64,
    /// Whether its link is up.
    pub linked: bool,
    /// How often its loop guard blocked it.
    pub loops: u64,
    /// Whether it is blocked.
    pub blocked: bool,
}

/// What is known.
#[derive(Default)]
pub struct Looks {
    /// Of ports, by full name.
    pub ports: BTreeMap<String, PortLook>,
    /// How many frames' sources each switch did not learn.
    pub refused: BTreeMap<String, u64>,
    /// How often each thread was held up: the main one, then the workers.
    pub stalls: Vec<u64>,
    last: Option<Instant>,
    /// Whether something has changed since.
    is_due: bool,
}

impl Looks {
    /// Whether nothing is known, as nobody wanted to be told.
    pub fn are_off(&self) -> bool {
        self.last.is_none()
    }

    /// Forgets all.
    pub fn end(&mut self) {
        *self = Looks::default();
    }

    /// A port is there that was not, or another one of that name: nothing is known of it.
    pub fn forget(&mut self, full: &str) {
        self.ports.remove(full);
    }

    /// Time until the next look.
    pub fn left(&self, now: Instant) -> Duration {
        let pause = if self.is_due { SHORTEST } else { EVERY };
        self.last.map_or(Duration::MAX, |last| (last + pause).saturating_duration_since(now))
    }

    /// Everything was looked at.
    pub fn done(&mut self, now: Instant) {
        (self.last, self.is_due) = (Some(now), false);
    }

    /// Something may have changed: the next look is soon.
    pub fn hasten(&mut self) {
        self.is_due = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: what may have changed is looked at immediately, but not again and again without a pause; nothing is
    /// looked at while nobody wants to be told.
    #[test]
    fn pauses() {
        let (mut looks, now) = (Looks::default(), Instant::now());
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
