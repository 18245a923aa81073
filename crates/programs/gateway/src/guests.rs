//! Guests: their share of each resource of the gateway, and the stations of their addresses.
//!
//! A guest is a station's address ([`GuestTable`]); one that makes up stations is for the switch to stop (`--guard`).
//! [`GuestAddresses`] holds which station has which IP address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netvale_wire::MacAddr;

/// Guests and addresses that are known together.
const MAX_GUESTS: usize = 1024;
const MAX_NEIGHBOURS: usize = 4096;
/// Addresses of one station.
const MAX_ADDRESSES: usize = 16;
/// How long an address is known without a frame.
const FORGET: Duration = Duration::from_secs(3600);

/// A [`GuestResource`] is what guests have shares of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestResource {
    /// TCP flows.
    Tcp,
    /// TCP flows that are not open yet.
    Connecting,
    /// UDP mappings.
    Udp,
    /// Sockets of echo requests.
    Ping,
    /// Questions under way.
    Question,
}

/// The most of each that a guest may have ([`GuestLimits`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestLimits {
    /// TCP flows.
    pub tcp: u32,
    /// TCP flows that are not open yet.
    pub connecting: u32,
    /// UDP mappings.
    pub udp: u32,
    /// Sockets of echo requests.
    pub pings: u32,
    /// Questions under way.
    pub questions: u32,
    /// Bytes on their way in memory.
    pub bytes: usize,
}

impl Default for GuestLimits {
    fn default() -> Self {
        GuestLimits { tcp: 16_384, connecting: 1024, udp: 1024, pings: 64, questions: 256, bytes: 64 << 20 }
    }
}

#[derive(Debug, Default)]
struct GuestShare {
    used: [u32; 5],
    bytes: usize,
}

/// The guests that use something.
#[derive(Debug, Default)]
pub struct GuestTable {
    guests: HashMap<MacAddr, GuestShare>,
    limits: GuestLimits,
}

impl GuestTable {
    /// Guests with these limits.
    pub fn new(limits: GuestLimits) -> Self {
        GuestTable { guests: HashMap::new(), limits }
    }

    /// The limits.
    pub fn limits(&self) -> &GuestLimits {
        &self.limits
    }

    /// Gives a guest one more of a resource. Returns whether it may have it.
    pub fn take(&mut self, mac: MacAddr, resource: GuestResource) -> bool {
        let limits = &self.limits;
        let most = [limits.tcp, limits.connecting, limits.udp, limits.pings, limits.questions][resource as usize];
        if !self.guests.contains_key(&mac) && self.guests.len() >= MAX_GUESTS {
            return false;
        }
        let share = self.guests.entry(mac).or_default();
        let used = &mut share.used[resource as usize];
        let granted = *used < most;
        *used += u32::from(granted);
        granted
    }

    /// Takes one of a resource back.
    pub fn give_back(&mut self, mac: MacAddr, resource: GuestResource) {
        let Some(share) = self.guests.get_mut(&mac) else { return };
        let used = &mut share.used[resource as usize];
        *used = used.saturating_sub(1);
        if share.used == [0; 5] && share.bytes == 0 {
            self.guests.remove(&mac);
        }
    }

    /// How many of a resource a guest has.
    pub fn used(&self, mac: MacAddr, resource: GuestResource) -> u32 {
        self.guests.get(&mac).map_or(0, |share| share.used[resource as usize])
    }

    /// Bytes that a guest may still have on their way.
    pub fn bytes_left(&self, mac: MacAddr) -> usize {
        let used = self.guests.get(&mac).map_or(0, |share| share.bytes);
        self.limits.bytes.saturating_sub(used)
    }

    /// A flow of a guest has `now` bytes on their way, and had `before`.
    pub fn count_bytes(&mut self, mac: MacAddr, before: usize, now: usize) {
        if let Some(share) = self.guests.get_mut(&mac) {
            share.bytes = (share.bytes + now).saturating_sub(before);
        }
    }
}

#[derive(Debug)]
struct NeighbourEntry {
    mac: MacAddr,
    seen: Instant,
}

/// Which station has which address.
#[derive(Debug, Default)]
pub struct GuestAddresses {
    entries: HashMap<IpAddr, NeighbourEntry>,
    /// How many addresses each station has.
    counts: HashMap<MacAddr, usize>,
}

impl GuestAddresses {
    /// A station has shown that it has an address.
    pub fn learn(&mut self, address: IpAddr, mac: MacAddr, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&address).filter(|entry| entry.mac == mac) {
            entry.seen = now;
            return;
        }
        let is_new = !self.entries.contains_key(&address);
        let count = self.counts.get(&mac).copied().unwrap_or(0);
        if count >= MAX_ADDRESSES || (is_new && self.entries.len() >= MAX_NEIGHBOURS) {
            return;
        }
        self.counts.insert(mac, count + 1);
        if let Some(before) = self.entries.insert(address, NeighbourEntry { mac, seen: now }) {
            self.count_less(before.mac);
        }
    }

    fn count_less(&mut self, mac: MacAddr) {
        if let Some(count) = self.counts.get_mut(&mac) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&mac);
            }
        }
    }

    /// The station that has an address.
    pub fn station(&self, address: IpAddr) -> Option<MacAddr> {
        self.entries.get(&address).map(|entry| entry.mac)
    }

    /// Whether a station has shown an address since that time.
    pub fn is_used_since(&self, address: IpAddr, since: Instant) -> Option<MacAddr> {
        self.entries.get(&address).filter(|entry| entry.seen >= since).map(|entry| entry.mac)
    }

    /// The addresses of a station that are not local to the link.
    pub fn addresses(&self, mac: MacAddr) -> Vec<IpAddr> {
        let local = |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let of_station = self.entries.iter().filter(|(address, entry)| entry.mac == mac && !local(address));
        of_station.map(|(address, _)| *address).collect()
    }

    /// Forgets what has not been seen for long.
    pub fn clean(&mut self, now: Instant) {
        let is_old = |entry: &NeighbourEntry| now.saturating_duration_since(entry.seen) >= FORGET;
        let old = self.entries.extract_if(|_, entry| is_old(entry)).map(|(_, entry)| entry.mac);
        let old: Vec<_> = old.collect();
        old.into_iter().for_each(|mac| self.count_less(mac));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    #[test]
    fn a_guest_has_its_share_and_no_more() {
        let mut guests = GuestTable::new(GuestLimits { udp: 2, ..GuestLimits::default() });
        assert!(guests.take(A, GuestResource::Udp) && guests.take(A, GuestResource::Udp));
        assert!(!guests.take(A, GuestResource::Udp) && guests.take(B, GuestResource::Udp));
        guests.give_back(A, GuestResource::Udp);
        assert_eq!(guests.used(A, GuestResource::Udp), 1);
        assert!(guests.take(A, GuestResource::Udp));
        guests.give_back(B, GuestResource::Udp);
        assert_eq!(guests.guests.len(), 1, "who uses nothing is forgotten");
    }

    #[test]
    fn bytes_on_their_way_are_counted() {
        let mut guests = GuestTable::new(GuestLimits { bytes: 100, ..GuestLimits::default() });
        assert!(guests.take(A, GuestResource::Tcp));
        guests.count_bytes(A, 0, 70);
        assert_eq!((guests.bytes_left(A), guests.bytes_left(B)), (30, 100));
        guests.count_bytes(A, 70, 10);
        assert_eq!(guests.bytes_left(A), 90);
    }

    #[test]
    fn guests_and_addresses_are_bounded() {
        let mut guests = GuestTable::new(GuestLimits::default());
        let mut neighbours = GuestAddresses::default();
        let now = Instant::now();
        for n in 0..20_000u32 {
            let [_, b, c, d] = n.to_be_bytes();
            guests.take(MacAddr([2, 0, 0, b, c, d]), GuestResource::Tcp);
            neighbours.learn(IpAddr::from([10, b, c, d]), MacAddr([2, 0, 0, b, c, 0]), now);
        }
        assert_eq!(guests.guests.len(), MAX_GUESTS);
        assert!(neighbours.entries.len() <= MAX_NEIGHBOURS);
        assert_eq!(neighbours.addresses(MacAddr([2, 0, 0, 0, 0, 0])).len(), MAX_ADDRESSES);
        neighbours.clean(now + FORGET);
        assert!(neighbours.entries.is_empty() && neighbours.counts.is_empty());
    }

    #[test]
    fn an_address_moves_with_who_shows_it() {
        let mut neighbours = GuestAddresses::default();
        let now = Instant::now();
        let address = IpAddr::from([10, 0, 0, 9]);
        neighbours.learn(address, A, now);
        neighbours.learn(address, B, now + Duration::from_secs(1));
        assert_eq!(neighbours.station(address), Some(B));
        assert_eq!(neighbours.is_used_since(address, now + Duration::from_secs(2)), None);
    }
}
