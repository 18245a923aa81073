//! A heap of times at which something must be examined, soonest first.
//!
//! A timer that moves stays where it was: who is looked at too early says when to look again. So a flow has one entry
//! here however often its time changes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use crate::slots::SlotId;

/// What is looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TimedThing {
    /// A TCP flow.
    Tcp(SlotId),
    /// A UDP mapping.
    Udp(SlotId),
    /// The socket of echo requests.
    Ping(SlotId),
    /// A question at a name server.
    Question(SlotId),
    /// A TCP connection to the name service.
    NameClient(SlotId),
    /// Clients of published ports whose guest is looked for.
    Callers,
    /// Router advertisements.
    Routers,
    /// Everything that is only cleared out now and then.
    Housekeeping,
}

/// The times.
#[derive(Debug, Default)]
pub struct TimerHeap {
    heap: BinaryHeap<Reverse<(Instant, TimedThing)>>,
}

impl TimerHeap {
    /// Has a thing looked at.
    pub fn add(&mut self, at: Instant, thing: TimedThing) {
        self.heap.push(Reverse((at, thing)));
    }

    /// The next thing that is due.
    pub fn next_due(&mut self, now: Instant) -> Option<TimedThing> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, thing))| thing)
    }

    /// How long until the first is due, at most `most`.
    pub fn until_first(&self, now: Instant, most: Duration) -> Duration {
        self.heap.peek().map_or(most, |Reverse((at, _))| at.saturating_duration_since(now).min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_come_when_they_are_due_soonest_first() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut timers = TimerHeap::default();
        timers.add(now + 2 * second, TimedThing::Housekeeping);
        timers.add(now + second, TimedThing::Routers);
        assert_eq!(timers.until_first(now, 9 * second), second);
        assert_eq!(timers.next_due(now), None);
        assert_eq!(timers.next_due(now + 5 * second), Some(TimedThing::Routers));
        assert_eq!(timers.next_due(now + 5 * second), Some(TimedThing::Housekeeping));
        assert_eq!(timers.until_first(now, second), second);
    }
}
