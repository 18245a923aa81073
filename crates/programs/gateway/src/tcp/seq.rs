//! TCP sequence numbers (RFC 9293 §3.4), modulo 2^32 ([`TcpSeq`]), and the first sequence number of a connection
//! ([`SequenceClock`]).

use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use crate::flows::FlowEnds;

/// A TCP sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSeq(pub u32);

impl TcpSeq {
    /// Returns the number `count` bytes later.
    #[must_use]
    pub fn plus(self, count: u32) -> Self {
        TcpSeq(self.0.wrapping_add(count))
    }

    /// Returns by how many bytes this number is later than `earlier`.
    pub fn since(self, earlier: TcpSeq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns whether this number is before `other`; the two numbers must be less than 2^31 bytes apart.
    pub fn is_before(self, other: TcpSeq) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() < 0
    }

    /// Returns whether this number is after `other`; the two numbers must be less than 2^31 bytes apart.
    pub fn is_after(self, other: TcpSeq) -> bool {
        other.is_before(self)
    }

    /// Returns the later of the two numbers.
    #[must_use]
    pub fn later(self, other: TcpSeq) -> Self {
        if self.is_before(other) { other } else { self }
    }
}

/// Chooses the first sequence number of each connection (RFC 6528). Between the same two endpoints, the number grows
/// with time, so that a guest whose previous connection is in TIME-WAIT accepts the next one. The numbers of some
/// connections do not help to guess the number of another.
pub struct SequenceClock {
    secret: RandomState,
    start: Instant,
}

impl Default for SequenceClock {
    fn default() -> Self {
        SequenceClock { secret: RandomState::new(), start: Instant::now() }
    }
}

impl SequenceClock {
    /// Returns the first sequence number of a connection that begins now.
    pub fn first(&self, ends: &FlowEnds, now: Instant) -> TcpSeq {
        let place = self.secret.hash_one((ends.who, ends.guest, ends.remote)) as u32;
        // The clock of sequence numbers advances every 4 µs (RFC 9293 §3.4.1).
        let time = (now.saturating_duration_since(self.start).as_micros() / 4) as u32;
        TcpSeq(place).plus(time)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use netvale_wire::MacAddr;

    use super::*;
    use crate::flows::FlowDirection;
    use crate::guests::NetworkId;
    use crate::policy::FlowTransport;

    #[test]
    fn numbers_are_compared_across_their_end() {
        let last = TcpSeq(u32::MAX);
        let next = last.plus(2);
        assert_eq!((next, next.since(last)), (TcpSeq(1), 2));
        assert!(last.is_before(next) && next.is_after(last) && !last.is_before(last));
        assert_eq!((last.later(next), next.later(last)), (next, next));
    }

    /// Objective: between the same endpoints, a later connection starts at a later sequence number; between other
    /// endpoints, it starts elsewhere.
    #[test]
    fn the_next_connection_of_the_same_ends_begins_later() {
        let clock = SequenceClock::default();
        let now = Instant::now();
        let ends = |port: u16| FlowEnds {
            transport: FlowTransport::Tcp,
            direction: FlowDirection::In,
            who: NetworkId::UNTAGGED.station(MacAddr::ZERO),
            guest: "10.0.0.2:80".parse().unwrap(),
            remote: ([192, 0, 2, 1], port).into(),
        };
        let first = |port, after| clock.first(&ends(port), now + Duration::from_micros(after));
        assert_eq!(first(4000, 4000).since(first(4000, 3600)), 100);
        let places: Vec<_> = (4000..4010).map(|port| first(port, 0).0).collect();
        assert!(places.windows(2).any(|pair| pair[0].abs_diff(pair[1]) > 1 << 16), "{places:?}");
    }
}
