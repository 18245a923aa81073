//! Guests: how much each uses of the gateway's resources, and the MAC addresses of their IP addresses.
//!
//! The [`GuestTable`] identifies a guest by its MAC address; the switch must stop guests that invent others
//! (`--guard`). [`GuestAddresses`] maps IP addresses to MAC addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netvale_wire::MacAddr;

/// Maximum number of guests that use resources at the same time.
const MAX_GUESTS: usize = 1024;
/// Maximum number of IP addresses in [`GuestAddresses`].
const MAX_NEIGHBOURS: usize = 4096;
/// Maximum number of IP addresses of one MAC address.
const MAX_ADDRESSES: usize = 16;
/// How long an IP address is remembered after the last frame from it.
const FORGET: Duration = Duration::from_secs(3600);

/// A resource of which each guest may use a limited number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestResource {
    /// TCP flows.
    Tcp,
    /// TCP flows whose handshake is not complete.
    Connecting,
    /// UDP sockets: one for each address and port of the guest.
    Udp,
    /// ICMP sockets for echo requests.
    Ping,
    /// Unanswered questions to name servers.
    Question,
}

/// How much of each resource one guest may use ([`GuestLimits`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestLimits {
    /// TCP flows.
    pub tcp: u32,
    /// TCP flows whose handshake is not complete.
    pub connecting: u32,
    /// UDP sockets: one for each address and port of the guest.
    pub udp: u32,
    /// ICMP sockets for echo requests.
    pub pings: u32,
    /// Unanswered questions to name servers.
    pub questions: u32,
    /// Bytes of TCP payload in the gateway's buffers.
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

/// The guests that use resources, with their use of each.
#[derive(Debug, Default)]
pub struct GuestTable {
    guests: HashMap<MacAddr, GuestShare>,
    limits: GuestLimits,
}

impl GuestTable {
    /// Creates an empty table.
    pub fn new(limits: GuestLimits) -> Self {
        GuestTable { guests: HashMap::new(), limits }
    }

    /// Returns the limits that apply to each guest.
    pub fn limits(&self) -> &GuestLimits {
        &self.limits
    }

    /// Counts one more of a resource for a guest. Returns `false` at the guest's limit, or if there are too many
    /// guests.
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

    /// Counts one less of a resource for a guest.
    pub fn give_back(&mut self, mac: MacAddr, resource: GuestResource) {
        let Some(share) = self.guests.get_mut(&mac) else { return };
        let used = &mut share.used[resource as usize];
        *used = used.saturating_sub(1);
        if share.used == [0; 5] && share.bytes == 0 {
            self.guests.remove(&mac);
        }
    }

    /// Returns how many of a resource a guest uses.
    pub fn used(&self, mac: MacAddr, resource: GuestResource) -> u32 {
        self.guests.get(&mac).map_or(0, |share| share.used[resource as usize])
    }

    /// Returns how many of a resource all guests use.
    pub fn total(&self, resource: GuestResource) -> u64 {
        self.guests.values().map(|share| u64::from(share.used[resource as usize])).sum()
    }

    /// Returns the number of bytes that a guest's flows may still buffer.
    pub fn bytes_left(&self, mac: MacAddr) -> usize {
        let used = self.guests.get(&mac).map_or(0, |share| share.bytes);
        self.limits.bytes.saturating_sub(used)
    }

    /// Replaces `before` bytes of a flow's buffers by `now` in its guest's count.
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

/// The MAC addresses of guests' IP addresses.
#[derive(Debug, Default)]
pub struct GuestAddresses {
    entries: HashMap<IpAddr, NeighbourEntry>,
    /// Number of IP addresses of each MAC address.
    counts: HashMap<MacAddr, usize>,
}

impl GuestAddresses {
    /// Records that a frame or a message has shown the MAC address of an IP address.
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

    /// Returns the MAC address of an IP address, if known.
    pub fn station(&self, address: IpAddr) -> Option<MacAddr> {
        self.entries.get(&address).map(|entry| entry.mac)
    }

    /// Returns the MAC address that has used an IP address since a time; `None` if none has.
    pub fn is_used_since(&self, address: IpAddr, since: Instant) -> Option<MacAddr> {
        self.entries.get(&address).filter(|entry| entry.seen >= since).map(|entry| entry.mac)
    }

    /// Returns the IP addresses of a MAC address, without link-local ones.
    pub fn addresses(&self, mac: MacAddr) -> Vec<IpAddr> {
        let local = |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let of_station = self.entries.iter().filter(|(address, entry)| entry.mac == mac && !local(address));
        of_station.map(|(address, _)| *address).collect()
    }

    /// Removes addresses from which no frame has come for an hour.
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
