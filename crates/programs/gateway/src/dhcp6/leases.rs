//! Leases of IPv6 addresses: which client has which address, and until which time of the monotonic clock.
//!
//! A client ([`Dhcp6Client`]) is a station with a DUID and the number of an identity association. A [`LeaseTable6`] has
//! a bounded number of leases in total and per station.

use std::net::Ipv6Addr;
use std::time::Instant;

use netvale_wire::MacAddr;

use crate::dhcp::book::{BoundLease, ClientLease, LeaseBook, LeaseState, OFFER};
use crate::net::InterfaceAddress;

/// Maximum number of leases of a network that guests share.
pub const MAX_LEASES: usize = 4096;
/// Maximum number of leases of a private network.
pub const MAX_PRIVATE_LEASES: usize = 64;
/// Maximum number of leases of one station.
const MAX_OF_STATION: usize = 16;
/// The interface identifiers of leased addresses. Users usually configure lower identifiers, and guests generate higher
/// ones (SLAAC).
const IDENTIFIERS: std::ops::RangeInclusive<u64> = 0x1000..=0xffff_ffff;

/// A client's identity association. It includes the station's MAC address: a guest that sends another station's DUID
/// does not get that station's leases.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Dhcp6Client {
    /// MAC address of the station.
    pub mac: MacAddr,
    /// The client's DUID.
    pub duid: Vec<u8>,
    /// The number of the identity association.
    pub identity: u32,
}

/// The leases of one network.
#[derive(Debug)]
pub struct LeaseTable6 {
    net: InterfaceAddress<Ipv6Addr>,
    book: LeaseBook<Dhcp6Client, Ipv6Addr>,
    /// The interface identifier after which the search for a free identifier begins.
    next: u64,
}

impl LeaseTable6 {
    /// Returns an empty table for at most `most` leases in a network.
    pub fn new(net: InterfaceAddress<Ipv6Addr>, most: usize) -> Self {
        let next = *IDENTIFIERS.end();
        LeaseTable6 { net, book: LeaseBook::new(most), next }
    }

    /// Returns whether an address belongs to the network.
    pub fn is_inside(&self, address: Ipv6Addr) -> bool {
        self.net.contains(address)
    }

    /// Returns whether the server may lease an address if the address is not in use.
    fn is_possible(&self, address: Ipv6Addr) -> bool {
        let identifier = address.to_bits() as u64;
        self.net.contains(address) && IDENTIFIERS.contains(&identifier) && address != self.net.address
    }

    fn is_free(&self, address: Ipv6Addr, client: &Dhcp6Client, now: Instant) -> bool {
        self.is_possible(address) && !self.book.is_refused(address, client, now)
    }

    /// Returns whether the limits permit a client to get or keep a lease. Leases that have ended do not count.
    fn has_room(&self, client: &Dhcp6Client, now: Instant) -> bool {
        if self.book.clients.get(client).is_some_and(|lease| lease.is_held(now)) {
            return true;
        }
        let held = || self.book.clients.iter().filter(|(_, lease)| lease.is_held(now));
        held().count() < self.book.most && held().filter(|(known, _)| known.mac == client.mac).count() < MAX_OF_STATION
    }

    /// Makes room for a client's entry: if the station or the table is full, removes the station's or the table's
    /// oldest lease that has ended.
    fn make_room(&mut self, client: &Dhcp6Client, now: Instant) {
        if self.book.clients.contains_key(client) {
            return;
        }
        if self.book.clients.keys().filter(|known| known.mac == client.mac).count() >= MAX_OF_STATION {
            self.forget_oldest(now, |known| known.mac == client.mac);
        }
        if self.book.clients.len() >= self.book.most {
            self.forget_oldest(now, |_| true);
        }
    }

    fn forget_oldest(&mut self, now: Instant, of: impl Fn(&Dhcp6Client) -> bool) {
        let ended = self.book.clients.iter().filter(|(known, lease)| of(known) && !lease.is_held(now));
        let Some(oldest) = ended.min_by_key(|(_, lease)| lease.until).map(|(known, _)| known.clone()) else { return };
        if let Some(lease) = self.book.clients.remove(&oldest) {
            self.book.by_address.remove(&lease.address);
        }
    }

    /// Returns the address that a client was offered or leased last, even if the lease has ended.
    pub fn address(&self, client: &Dhcp6Client) -> Option<Ipv6Addr> {
        self.book.address(client)
    }

    /// Returns an address for a client: the address that the client has or had, an address that it wants, or a free
    /// address, in this order; `None` if no address is free, or the limits do not permit the lease. `in_use` returns
    /// whether another station was seen to use an address.
    pub fn choose(
        &self,
        client: &Dhcp6Client,
        wanted: &[Ipv6Addr],
        now: Instant,
        in_use: impl Fn(Ipv6Addr) -> bool,
    ) -> Option<Ipv6Addr> {
        if !self.has_room(client, now) {
            return None;
        }
        let free = |address: &Ipv6Addr| self.is_free(*address, client, now) && !in_use(*address);
        let own = self.address(client).filter(free);
        own.or_else(|| wanted.iter().copied().find(free)).or_else(|| self.search(free))
    }

    /// Searches for a free address, in at most 2 × [`MAX_LEASES`] steps.
    fn search(&self, free: impl Fn(&Ipv6Addr) -> bool) -> Option<Ipv6Addr> {
        let prefix = self.net.address.to_bits() >> 64 << 64;
        let count = IDENTIFIERS.end() - IDENTIFIERS.start() + 1;
        let begin = self.next - IDENTIFIERS.start();
        let identifiers = (1..=2 * MAX_LEASES as u64).map(|step| IDENTIFIERS.start() + (begin + step) % count);
        identifiers.map(|identifier| Ipv6Addr::from_bits(prefix | u128::from(identifier))).find(free)
    }

    /// Reserves an address for a client for the time of an offer, unless the client has a lease on the address.
    pub fn offer(&mut self, client: &Dhcp6Client, address: Ipv6Addr, now: Instant) {
        if !self.book.clients.get(client).is_some_and(|lease| lease.is_bound(now) && lease.address == address) {
            self.set(client, address, LeaseState::Offered, now + OFFER, now);
        }
    }

    /// Leases an address to a client. Returns `false` if the address is not free for the client, or the limits do not
    /// permit the lease.
    pub fn bind(&mut self, client: &Dhcp6Client, address: Ipv6Addr, until: Instant, now: Instant) -> bool {
        let can = self.has_room(client, now) && self.is_free(address, client, now);
        if can {
            self.set(client, address, LeaseState::Bound, until, now);
        }
        can
    }

    fn set(&mut self, client: &Dhcp6Client, address: Ipv6Addr, state: LeaseState, until: Instant, now: Instant) {
        self.make_room(client, now);
        self.next = address.to_bits() as u64;
        self.book.set(client.clone(), ClientLease { address, mac: client.mac, state, until, name: None });
    }

    /// Ends a client's lease on an address. Returns `false` if the client has no lease on the address.
    pub fn release(&mut self, client: &Dhcp6Client, address: Ipv6Addr) -> bool {
        self.book.release(client, address)
    }

    /// Blocks an address that a client has found in use. Returns `false` if the address was not offered or leased to
    /// this client.
    pub fn decline(&mut self, client: &Dhcp6Client, address: Ipv6Addr, now: Instant) -> bool {
        self.book.decline(client, address, now)
    }

    /// Returns the leases that have not expired.
    pub fn bound(&self, now: Instant) -> impl Iterator<Item = BoundLease<'_, Ipv6Addr>> {
        self.book.bound(now)
    }

    /// Removes expired declines and, if the table is at least half full, all leases that are not held.
    pub fn clean(&mut self, now: Instant) {
        self.book.clean(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::dhcp::book::DECLINED;

    const HOUR: Duration = Duration::from_secs(3600);

    fn table() -> LeaseTable6 {
        LeaseTable6::new(InterfaceAddress { address: "fd00::1".parse().unwrap(), prefix: 64 }, MAX_LEASES)
    }

    fn client(mac: u8, identity: u32) -> Dhcp6Client {
        Dhcp6Client { mac: MacAddr([2, 0, 0, 0, 0, mac]), duid: vec![0, 3, 1], identity }
    }

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_keeps_its_address_and_nobody_else_gets_it() {
        let mut leases = table();
        let now = Instant::now();
        let nobody = |_: Ipv6Addr| false;
        let [a, b] = [client(1, 7), client(2, 7)];
        let first = leases.choose(&a, &[], now, nobody).unwrap();
        assert_eq!(first, ip("fd00::1000"));
        leases.offer(&a, first, now);
        assert_eq!(leases.choose(&b, &[first], now, nobody), Some(ip("fd00::1001")), "equal DUIDs of two stations");
        assert!(leases.bind(&a, first, now + HOUR, now) && !leases.bind(&b, first, now + HOUR, now));
        assert_eq!(
            leases.bound(now).collect::<Vec<_>>(),
            [BoundLease { address: first, mac: a.mac, name: None, left: HOUR }]
        );
        assert!(!leases.release(&b, first) && leases.release(&a, first));
        assert_eq!(leases.choose(&a, &[], now, nobody), Some(first), "its own again");
        assert_ne!(leases.choose(&a, &[], now, |address| address == first), Some(first), "unless in use");
        assert!(leases.bind(&b, first, now + HOUR, now), "or another's who wants it");
        assert!(leases.decline(&b, first, now) && !leases.decline(&b, first, now));
        assert_ne!(leases.choose(&a, &[first], now, nobody), Some(first), "a declined address is left alone");
        leases.clean(now + DECLINED);
        assert_eq!(leases.choose(&a, &[first], now, nobody), Some(first));
    }

    #[test]
    fn addresses_that_people_and_guests_choose_are_not_leased() {
        let mut leases = table();
        let now = Instant::now();
        for bad in ["fd00::1", "fd00::2", "fd00::fff", "fd00::1:0:0", "fd01::1000", "fe80::1000", "::"] {
            assert!(!leases.bind(&client(1, 7), ip(bad), now + HOUR, now), "{bad}");
        }
        assert!(leases.bind(&client(1, 7), ip("fd00::ffff:ffff"), now + HOUR, now));
        assert_eq!(leases.choose(&client(2, 7), &[], now, |_| false), Some(ip("fd00::1000")));
    }

    #[test]
    fn leases_are_bounded_for_each_station_and_for_all() {
        let mut leases = table();
        let now = Instant::now();
        for n in 0..MAX_LEASES as u32 + 100 {
            let [_, _, high, low] = n.to_be_bytes();
            let client = Dhcp6Client { mac: MacAddr([2, 0, 0, 0, high, low]), ..client(0, 0) };
            if let Some(address) = leases.choose(&client, &[], now, |_| false) {
                leases.offer(&client, address, now);
            }
        }
        assert_eq!((leases.book.clients.len(), leases.book.by_address.len()), (MAX_LEASES, MAX_LEASES));
        leases.clean(now + OFFER);
        assert_eq!((leases.book.clients.len(), leases.book.by_address.len()), (0, 0));
        let bound = (0..100).filter(|n| {
            let address = leases.choose(&client(1, *n), &[], now, |_| false);
            address.is_some_and(|address| leases.bind(&client(1, *n), address, now + HOUR, now))
        });
        assert_eq!(bound.count(), MAX_OF_STATION);
    }

    /// Objective: leases that have ended or were released count neither towards the limit per station nor towards the
    /// limit of the table.
    #[test]
    fn what_has_ended_makes_room() {
        let mut leases = LeaseTable6::new(table().net, 20);
        let mut now = Instant::now();
        let lease = |leases: &mut LeaseTable6, client: &Dhcp6Client, now: Instant| {
            let address = leases.choose(client, &[], now, |_| false)?;
            leases.bind(client, address, now + HOUR, now).then_some(address)
        };
        for n in 0..100 {
            let address = lease(&mut leases, &client(1, n), now).unwrap();
            assert!(leases.release(&client(1, n), address), "{n}");
        }
        assert_eq!((leases.book.clients.len(), leases.book.by_address.len()), (MAX_OF_STATION, MAX_OF_STATION));
        for n in 100..100 + MAX_OF_STATION as u32 {
            assert!(lease(&mut leases, &client(1, n), now).is_some(), "{n}");
        }
        assert_eq!(lease(&mut leases, &client(1, 200), now), None);
        assert_eq!((0..5).filter_map(|n| lease(&mut leases, &client(2, n), now)).count(), 4);
        now += HOUR;
        assert!((0..20).all(|n| lease(&mut leases, &client(3 + (n % 2) as u8, n), now).is_some()));
        assert_eq!((leases.book.clients.len(), leases.book.by_address.len()), (20, 20));
    }
}
