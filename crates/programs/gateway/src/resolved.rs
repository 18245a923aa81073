//! The addresses that each guest has resolved from names through the name service ([`ResolvedNames`]).
//!
//! An entry belongs to one guest: an answer to one guest permits nothing to another. The entry is kept for the answer's
//! time to live plus [`GRACE`], since guests' programs cache addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::guests::{GuestId, NetworkId};

/// How long an entry is kept after its answer's time to live has expired.
pub const GRACE: Duration = Duration::from_secs(60);
/// Maximum time to live of an entry; a longer time to live is shortened to this.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of guests with entries.
const MAX_GUESTS: usize = 1024;
/// Maximum number of entries of one guest, while there are few guests.
const MOST: usize = 1024;
/// Maximum number of entries of one guest, while there are many guests.
const LEAST: usize = 64;
/// Number of entries that are divided evenly among guests, within the limits [`LEAST`] and [`MOST`].
const SHARED: usize = 64 * MOST;

/// An address in an answer, with its time to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResolvedAddress {
    /// The address.
    pub address: IpAddr,
    /// Time to live in seconds.
    pub ttl: u32,
}

#[derive(Debug)]
struct ResolvedName {
    address: IpAddr,
    name: Arc<str>,
    until: Instant,
}

/// The names that guests have asked for, with the addresses in the answers.
#[derive(Debug, Default)]
pub struct ResolvedNames {
    /// Each guest's entries, in the order of the answers.
    guests: HashMap<GuestId, Vec<ResolvedName>>,
}

impl ResolvedNames {
    /// Records the addresses of an answer to a guest's question for `name`. If the guest has too many entries, the
    /// oldest are removed. All stations behind a private port are one guest.
    pub fn record(&mut self, guest: GuestId, name: &str, addresses: &[ResolvedAddress], now: Instant) {
        let guest = guest.share();
        if addresses.is_empty() {
            return;
        }
        if !self.guests.contains_key(&guest) && self.guests.len() >= MAX_GUESTS {
            self.clean(now);
            if self.guests.len() >= MAX_GUESTS {
                return;
            }
        }
        let name: Arc<str> = name.into();
        let entries = self.guests.entry(guest).or_default();
        for ResolvedAddress { address, ttl } in addresses {
            let until = now + Duration::from_secs((*ttl).into()).min(LONGEST) + GRACE;
            let known = entries.iter().position(|entry| entry.address == *address && entry.name == name);
            let until = known.map(|at| entries.remove(at)).map_or(until, |entry| entry.until.max(until));
            entries.push(ResolvedName { address: *address, name: name.clone(), until });
        }
        let most = (SHARED / self.guests.len()).clamp(LEAST, MOST);
        if let Some(entries) = self.guests.get_mut(&guest).filter(|entries| entries.len() > most) {
            entries.retain(|entry| entry.until > now);
            // More entries than necessary are removed, so that the next answers find room.
            let surplus = if entries.len() > most { entries.len() - most + most / 4 } else { 0 };
            entries.drain(..surplus);
        }
    }

    /// Returns the names that a guest has resolved to an address, the latest first.
    pub fn names(&self, guest: GuestId, address: IpAddr, now: Instant) -> Vec<Arc<str>> {
        let entries = self.guests.get(&guest.share()).into_iter().flatten().rev();
        let valid = entries.filter(|entry| entry.address == address && entry.until > now);
        valid.map(|entry| entry.name.clone()).collect()
    }

    /// Removes the entries of a network's guests.
    pub fn forget(&mut self, network: NetworkId) {
        self.guests.retain(|guest, _| guest.network != network);
    }

    /// Returns the number of entries of all guests.
    pub fn len(&self) -> usize {
        self.guests.values().map(Vec::len).sum()
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.guests.is_empty()
    }

    /// Removes expired entries.
    pub fn clean(&mut self, now: Instant) {
        self.guests.retain(|_, entries| {
            entries.retain(|entry| entry.until > now);
            !entries.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use netvale_wire::MacAddr;

    use super::*;

    const A: GuestId = NetworkId::UNTAGGED.station(MacAddr([2, 0, 0, 0, 0, 1]));
    const B: GuestId = NetworkId::UNTAGGED.station(MacAddr([2, 0, 0, 0, 0, 2]));

    fn at(n: u32, ttl: u32) -> ResolvedAddress {
        ResolvedAddress { address: IpAddr::from(n.to_be_bytes()), ttl }
    }

    fn names(resolved: &ResolvedNames, guest: GuestId, n: u32, now: Instant) -> Vec<String> {
        let names = resolved.names(guest, at(n, 0).address, now);
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_answer_is_for_its_guest_and_its_time() {
        let mut resolved = ResolvedNames::default();
        let now = Instant::now();
        resolved.record(A, "a.test", &[at(1, 10), at(2, 0)], now);
        assert_eq!(names(&resolved, A, 1, now), ["a.test"]);
        assert!(names(&resolved, B, 1, now).is_empty() && names(&resolved, A, 3, now).is_empty());
        let end = now + Duration::from_secs(10) + GRACE;
        assert!(
            names(&resolved, A, 1, end - Duration::from_millis(1)).len() == 1 && names(&resolved, A, 1, end).is_empty()
        );
        assert!(names(&resolved, A, 2, now + GRACE).is_empty());
        resolved.clean(now + GRACE);
        assert_eq!(resolved.len(), 1);
        resolved.clean(end);
        assert!(resolved.is_empty());
    }

    #[test]
    fn the_latest_name_is_the_first_and_no_answer_shortens_another() {
        let mut resolved = ResolvedNames::default();
        let now = Instant::now();
        resolved.record(A, "a.test", &[at(1, 500)], now);
        resolved.record(A, "b.test", &[at(1, 10)], now);
        assert_eq!(names(&resolved, A, 1, now), ["b.test", "a.test"]);
        resolved.record(A, "a.test", &[at(1, 1)], now);
        assert_eq!(names(&resolved, A, 1, now), ["a.test", "b.test"]);
        assert_eq!(names(&resolved, A, 1, now + Duration::from_secs(400)), ["a.test"]);
        let later = now + LONGEST + GRACE;
        resolved.record(A, "c.test", &[at(1, u32::MAX)], now);
        assert!(names(&resolved, A, 1, later).is_empty(), "no time to live is longer than a day");
    }

    #[test]
    fn entries_are_bounded_and_the_oldest_give_way() {
        let mut resolved = ResolvedNames::default();
        let now = Instant::now();
        for n in 0..3 * MOST as u32 {
            resolved.record(A, "a.test", &[at(n, 100)], now);
            assert!(resolved.len() <= MOST);
        }
        assert!(names(&resolved, A, 0, now).is_empty());
        assert_eq!(names(&resolved, A, 3 * MOST as u32 - 1, now).len(), 1);
        for guest in 0..2000u32 {
            let [_, _, c, d] = guest.to_be_bytes();
            let many: Vec<_> = (0..200).map(|n| at(n, 100)).collect();
            resolved.record(NetworkId::UNTAGGED.station(MacAddr([2, 0, 0, 1, c, d])), "a.test", &many, now);
        }
        assert!(resolved.guests.len() <= MAX_GUESTS && resolved.len() <= 2 * SHARED, "{}", resolved.len());
        resolved.record(B, "b.test", &[at(1, 1)], now + LONGEST);
        assert_eq!(resolved.len(), 1, "expired entries make room for new guests");
    }

    #[test]
    fn stations_of_a_private_port_are_one_guest_and_its_entries_end_with_it() {
        let mut resolved = ResolvedNames::default();
        let now = Instant::now();
        let network = NetworkId::of_vlan(7).unwrap();
        for station in 0..2000u32 {
            let [_, a, b, c] = station.to_be_bytes();
            resolved.record(network.station(MacAddr([2, 0, 0, a, b, c])), "a.test", &[at(1, 10)], now);
        }
        resolved.record(A, "b.test", &[at(2, 10)], now);
        assert_eq!((resolved.guests.len(), names(&resolved, A, 2, now).len()), (2, 1));
        resolved.forget(network);
        assert_eq!(names(&resolved, network.station(MacAddr::ZERO), 1, now), Vec::<String>::new());
        assert_eq!(names(&resolved, A, 2, now), ["b.test"]);
    }
}
