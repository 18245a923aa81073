//! Guests: how much of the gateway's resources each guest uses, and the MAC addresses of guests' IP addresses.
//!
//! A guest's id ([`GuestId`]) is its network ([`NetworkId`]) and its MAC address. The [`GuestTable`] counts each
//! guest's use of resources, and [`GuestAddresses`] maps IP addresses to MAC addresses.
//!
//! A private network, which is behind one port, has the limits of one guest, so that a guest gains nothing by inventing
//! MAC addresses. In the network without tags, the switch must stop guests that invent addresses (`--guard`). A
//! [`NetworkSet`] is a set of networks.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netvale_wire::MacAddr;

/// Maximum number of guests in the network without tags that use resources at the same time.
const MAX_GUESTS: usize = 1024;
/// Maximum number of IP addresses in [`GuestAddresses`] for the network without tags.
const MAX_NEIGHBOURS: usize = 4096;
/// Maximum number of IP addresses per MAC address in the network without tags.
const MAX_ADDRESSES: usize = 16;
/// Maximum number of IP addresses per private network. A machine with containers has many addresses.
const MAX_PRIVATE_ADDRESSES: usize = 64;
/// Time for which an IP address is remembered after the last frame from it.
const FORGET: Duration = Duration::from_secs(3600);

/// A network of guests: the network of frames without a VLAN tag or, behind a private port, the network of one VLAN.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NetworkId(u16);

impl NetworkId {
    /// The network of the frames without a tag.
    pub const UNTAGGED: NetworkId = NetworkId(0);

    /// Returns the network of a VLAN; `None` if `vlan` is not from 1 to 4094.
    pub fn of_vlan(vlan: u16) -> Option<Self> {
        (1..=4094).contains(&vlan).then_some(NetworkId(vlan))
    }

    /// Returns the VLAN of the network's frames; `None` if they have no tag.
    pub fn vlan(self) -> Option<u16> {
        (self.0 != 0).then_some(self.0)
    }

    /// Returns the station with a MAC address in this network. The address may also be a group address.
    pub const fn station(self, mac: MacAddr) -> GuestId {
        GuestId { network: self, mac }
    }
}

/// A guest's identity: guests of different networks may have the same MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GuestId {
    /// The guest's network.
    pub network: NetworkId,
    /// The guest's MAC address.
    pub mac: MacAddr,
}

impl GuestId {
    /// Returns the id under which the guest's use of resources is counted: in a private network, all MAC addresses have
    /// the same id.
    pub fn share(self) -> GuestId {
        if self.network == NetworkId::UNTAGGED { self } else { self.network.station(MacAddr::ZERO) }
    }
}

/// A set of networks.
#[derive(Clone, PartialEq, Eq)]
pub struct NetworkSet([u64; 64]);

impl Default for NetworkSet {
    fn default() -> Self {
        NetworkSet([0; 64])
    }
}

impl NetworkSet {
    /// Adds a network.
    pub fn insert(&mut self, network: NetworkId) {
        self.0[usize::from(network.0 >> 6) & 63] |= 1 << (network.0 & 63);
    }

    /// Removes a network.
    pub fn remove(&mut self, network: NetworkId) {
        self.0[usize::from(network.0 >> 6) & 63] &= !(1 << (network.0 & 63));
    }

    /// Returns the networks, in order.
    pub fn iter(&self) -> impl Iterator<Item = NetworkId> + '_ {
        (0..4096).filter(|n| self.0[usize::from(n >> 6) & 63] >> (n & 63) & 1 != 0).map(NetworkId)
    }
}

impl fmt::Display for GuestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network.vlan() {
            Some(vlan) => write!(f, "{} in VLAN {vlan}", self.mac),
            None => self.mac.fmt(f),
        }
    }
}

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

/// The maximum of each resource that one guest may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestLimits {
    /// Maximum number of TCP flows.
    pub tcp: u32,
    /// Maximum number of TCP flows whose handshake is not complete.
    pub connecting: u32,
    /// Maximum number of UDP sockets. Each address and port of the guest has one socket.
    pub udp: u32,
    /// Maximum number of ICMP sockets for echo requests.
    pub pings: u32,
    /// Maximum number of unanswered questions to name servers.
    pub questions: u32,
    /// Maximum number of bytes of TCP payload in the gateway's buffers.
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

/// The guests that use resources, and how much of each resource they use.
#[derive(Debug, Default)]
pub struct GuestTable {
    guests: HashMap<GuestId, GuestShare>,
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

    /// Counts one more unit of a resource for a guest. Returns `false`, and counts nothing, if the guest has reached
    /// its limit or there are too many guests.
    pub fn take(&mut self, who: GuestId, resource: GuestResource) -> bool {
        let limits = &self.limits;
        let most = [limits.tcp, limits.connecting, limits.udp, limits.pings, limits.questions][resource as usize];
        let who = who.share();
        let is_new = !self.guests.contains_key(&who);
        // The limit does not apply to private networks, whose number is limited by the number of VLANs.
        if is_new && who.network == NetworkId::UNTAGGED && self.guests.len() >= MAX_GUESTS {
            return false;
        }
        let share = self.guests.entry(who).or_default();
        let used = &mut share.used[resource as usize];
        let granted = *used < most;
        *used += u32::from(granted);
        granted
    }

    /// Records that a guest uses one unit less of a resource.
    pub fn give_back(&mut self, who: GuestId, resource: GuestResource) {
        let who = who.share();
        let Some(share) = self.guests.get_mut(&who) else { return };
        let used = &mut share.used[resource as usize];
        *used = used.saturating_sub(1);
        if share.used == [0; 5] && share.bytes == 0 {
            self.guests.remove(&who);
        }
    }

    /// Returns how many units of a resource a guest uses.
    pub fn used(&self, who: GuestId, resource: GuestResource) -> u32 {
        self.guests.get(&who.share()).map_or(0, |share| share.used[resource as usize])
    }

    /// Returns how many units of a resource all guests together use.
    pub fn total(&self, resource: GuestResource) -> u64 {
        self.guests.values().map(|share| u64::from(share.used[resource as usize])).sum()
    }

    /// Returns the number of bytes that a guest's flows may still buffer.
    pub fn bytes_left(&self, who: GuestId) -> usize {
        let used = self.guests.get(&who.share()).map_or(0, |share| share.bytes);
        self.limits.bytes.saturating_sub(used)
    }

    /// Changes the guest's count of buffered bytes: the buffers of one of the guest's flows had `before` bytes, and
    /// have `now` bytes now.
    pub fn count_bytes(&mut self, who: GuestId, before: usize, now: usize) {
        if let Some(share) = self.guests.get_mut(&who.share()) {
            share.bytes = (share.bytes + now).saturating_sub(before);
        }
    }
}

/// An IP address in one of the networks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct NetworkAddress {
    network: NetworkId,
    address: IpAddr,
}

#[derive(Debug)]
struct NeighbourEntry {
    mac: MacAddr,
    seen: Instant,
}

/// The MAC addresses of guests' IP addresses, in each network.
#[derive(Debug, Default)]
pub struct GuestAddresses {
    entries: HashMap<NetworkAddress, NeighbourEntry>,
    /// Number of IP addresses of each guest, or of each private network.
    counts: HashMap<GuestId, usize>,
}

impl GuestAddresses {
    /// Records that a guest uses an IP address, as a frame or message from the guest shows.
    pub fn learn(&mut self, address: IpAddr, who: GuestId, now: Instant) {
        let key = NetworkAddress { network: who.network, address };
        if let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.mac == who.mac) {
            entry.seen = now;
            return;
        }
        let is_new = !self.entries.contains_key(&key);
        let is_private = who.network != NetworkId::UNTAGGED;
        let most = if is_private { MAX_PRIVATE_ADDRESSES } else { MAX_ADDRESSES };
        let count = self.counts.get(&who.share()).copied().unwrap_or(0);
        if (count >= most && (is_new || !is_private)) || (is_new && !is_private && self.entries.len() >= MAX_NEIGHBOURS)
        {
            return;
        }
        self.counts.insert(who.share(), count + 1);
        if let Some(before) = self.entries.insert(key, NeighbourEntry { mac: who.mac, seen: now }) {
            self.count_less(who.network.station(before.mac));
        }
    }

    fn count_less(&mut self, who: GuestId) {
        let who = who.share();
        if let Some(count) = self.counts.get_mut(&who) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&who);
            }
        }
    }

    /// Returns the guest that has an IP address; `None` if it is unknown.
    pub fn station(&self, network: NetworkId, address: IpAddr) -> Option<GuestId> {
        self.entries.get(&NetworkAddress { network, address }).map(|entry| network.station(entry.mac))
    }

    /// Returns the guest that has used an IP address at or after the time `since`; `None` if no guest has.
    pub fn is_used_since(&self, network: NetworkId, address: IpAddr, since: Instant) -> Option<GuestId> {
        let entry = self.entries.get(&NetworkAddress { network, address }).filter(|entry| entry.seen >= since);
        entry.map(|entry| network.station(entry.mac))
    }

    /// Returns the IP addresses of a guest, without link-local addresses.
    pub fn addresses(&self, who: GuestId) -> Vec<IpAddr> {
        let local = |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let is_of = |key: &NetworkAddress, entry: &NeighbourEntry| key.network == who.network && entry.mac == who.mac;
        let of_guest = self.entries.iter().filter(|(key, entry)| is_of(key, entry) && !local(&key.address));
        of_guest.map(|(key, _)| key.address).collect()
    }

    /// Returns the most recently used IPv4 address in a network or, if none is known, the most recently used IPv6
    /// address that is not link-local.
    pub fn latest(&self, network: NetworkId) -> Option<IpAddr> {
        let local = |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let of_network = self.entries.iter().filter(|(key, _)| key.network == network && !local(&key.address));
        let latest = of_network.max_by_key(|(key, entry)| (key.address.is_ipv4(), entry.seen));
        latest.map(|(key, _)| key.address)
    }

    /// Removes the addresses of a network.
    pub fn forget(&mut self, network: NetworkId) {
        self.entries.retain(|key, _| key.network != network);
        self.counts.retain(|who, _| who.network != network);
    }

    /// Removes addresses from which no frame has come for an hour.
    pub fn clean(&mut self, now: Instant) {
        let is_old = |entry: &NeighbourEntry| now.saturating_duration_since(entry.seen) >= FORGET;
        let old = self.entries.extract_if(|_, entry| is_old(entry));
        let old: Vec<_> = old.map(|(key, entry)| key.network.station(entry.mac)).collect();
        old.into_iter().for_each(|who| self.count_less(who));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: GuestId = guest([2, 0, 0, 0, 0, 1]);
    const B: GuestId = guest([2, 0, 0, 0, 0, 2]);

    const fn guest(mac: [u8; 6]) -> GuestId {
        GuestId { network: NetworkId::UNTAGGED, mac: MacAddr(mac) }
    }

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
            guests.take(guest([2, 0, 0, b, c, d]), GuestResource::Tcp);
            neighbours.learn(IpAddr::from([10, b, c, d]), guest([2, 0, 0, b, c, 0]), now);
        }
        assert_eq!(guests.guests.len(), MAX_GUESTS);
        assert!(neighbours.entries.len() <= MAX_NEIGHBOURS);
        assert_eq!(neighbours.addresses(guest([2, 0, 0, 0, 0, 0])).len(), MAX_ADDRESSES);
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
        assert_eq!(neighbours.station(NetworkId::UNTAGGED, address), Some(B));
        assert_eq!(neighbours.is_used_since(NetworkId::UNTAGGED, address, now + Duration::from_secs(2)), None);
    }

    /// Objective: guests in two networks are distinct even if they have the same addresses: each guest has separate
    /// limits and entries.
    #[test]
    fn equal_addresses_of_two_networks_are_two_guests() {
        let other = NetworkId::of_vlan(7).unwrap().station(A.mac);
        let mut guests = GuestTable::new(GuestLimits { udp: 1, ..GuestLimits::default() });
        assert!(guests.take(A, GuestResource::Udp) && guests.take(other, GuestResource::Udp));
        let mut neighbours = GuestAddresses::default();
        let now = Instant::now();
        let address = IpAddr::from([10, 0, 0, 9]);
        neighbours.learn(address, other, now);
        assert_eq!(neighbours.station(NetworkId::UNTAGGED, address), None);
        assert_eq!(neighbours.station(other.network, address), Some(other));
        assert_eq!((neighbours.addresses(A), neighbours.addresses(other)), (vec![], vec![address]));
    }

    /// Objective: a guest behind a private port that invents MAC addresses and IP addresses has the limits of one
    /// guest, and takes nothing away from other guests.
    #[test]
    fn a_private_network_has_the_limits_of_one_guest() {
        let network = NetworkId::of_vlan(7).unwrap();
        let mut guests = GuestTable::new(GuestLimits { udp: 2, ..GuestLimits::default() });
        let mut neighbours = GuestAddresses::default();
        let now = Instant::now();
        let granted =
            (0..9u8).filter(|n| guests.take(network.station(MacAddr([2, 0, 0, 0, 1, *n])), GuestResource::Udp));
        assert_eq!(granted.count(), 2);
        for n in 0..200u8 {
            neighbours.learn([10, 0, 0, n].into(), network.station(MacAddr([2, 0, 0, 0, 1, n])), now);
        }
        assert_eq!(neighbours.entries.len(), MAX_PRIVATE_ADDRESSES);
        neighbours.learn([10, 0, 0, 3].into(), network.station(A.mac), now + Duration::from_secs(1));
        assert_eq!(
            neighbours.station(network, [10, 0, 0, 3].into()).map(|who| who.mac),
            Some(A.mac),
            "an address moves"
        );
        assert_eq!(neighbours.latest(network), Some([10, 0, 0, 3].into()));
        neighbours.forget(network);
        assert!(neighbours.entries.is_empty() && neighbours.counts.is_empty());
        assert_eq!(neighbours.latest(network), None);
    }

    #[test]
    fn networks_are_added_and_removed() {
        let mut networks = NetworkSet::default();
        let all = [0, 1, 63, 64, 4094].map(NetworkId);
        all.iter().for_each(|network| networks.insert(*network));
        assert!(networks.iter().eq(all));
        networks.remove(NetworkId(63));
        assert_eq!(networks.iter().count(), 4);
    }

    #[test]
    fn vlans_are_from_1_to_4094() {
        assert_eq!([0, 1, 4094, 4095].map(|vlan| NetworkId::of_vlan(vlan).is_some()), [false, true, true, false]);
        assert_eq!(NetworkId::of_vlan(7).unwrap().station(A.mac).to_string(), "02:00:00:00:00:01 in VLAN 7");
    }
}
