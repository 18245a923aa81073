//! A heap of timers, soonest first ([`TimerHeap`]). Each timer names its owner ([`TimedThing`]), whose handler is
//! called.
//!
//! A timer cannot be moved or cancelled. If it fires too early, the handler adds another timer. Thus the heap has few
//! entries per flow, even if the flow's deadline often moves to a later time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use crate::slots::SlotId;

/// The owner of a timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TimedThing {
    /// A TCP flow.
    Tcp(SlotId),
    /// A guest's UDP socket.
    Udp(SlotId),
    /// A socket for ICMP echo requests.
    Ping(SlotId),
    /// A question that was forwarded to a name server.
    Question(SlotId),
    /// A TCP connection to the name service.
    NameClient(SlotId),
    /// Connections that wait for a guest's rate limit.
    Rate(SlotId),
    /// TCP clients of published ports that wait for their guest's MAC address.
    Callers,
    /// The sending of router advertisements.
    Routers,
    /// The periodic removal of expired entries.
    Housekeeping,
}

/// The timers of a gateway.
#[derive(Debug, Default)]
pub struct TimerHeap {
    heap: BinaryHeap<Reverse<(Instant, TimedThing)>>,
}

impl TimerHeap {
    /// Adds a timer that is due at `at`.
    pub fn add(&mut self, at: Instant, thing: TimedThing) {
        self.heap.push(Reverse((at, thing)));
    }

    /// Removes and returns the next thing whose timer is due; `None` if there is none.
    pub fn next_due(&mut self, now: Instant) -> Option<TimedThing> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, thing))| thing)
    }

    /// Returns the time until the first timer is due, at most `most`.
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
