//! DHCP leases: which client has which address, and until which time of the monotonic clock.
//!
//! A [`LeaseTable`] has a bounded number of clients. A [`StaticLease`] is an address that the user has configured for a
//! MAC address.

use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use netvale_wire::MacAddr;

use super::book::{BoundLease, ClientLease, LeaseBook, LeaseState, OFFER};
use crate::net::{InterfaceAddress, MAX_LABEL};

/// Maximum number of clients in the table of a network that guests share.
pub const MAX_CLIENTS: usize = 4096;
/// Maximum number of clients in the table of a private network.
pub const MAX_PRIVATE_CLIENTS: usize = 64;
/// Names under which guests look for services of the network itself. No guest may take one of these names.
const RESERVED_NAMES: [&str; 5] = ["gateway", "localhost", "wpad", "isatap", "local"];

/// An address configured for a MAC address, with an optional host name. As text: `MAC=IP[,NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticLease {
    /// The client's MAC address.
    pub mac: MacAddr,
    /// The address that the client always gets.
    pub address: Ipv4Addr,
    /// The client's host name; `None` if no name is configured.
    pub name: Option<String>,
}

/// The error for text that is not a static lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid lease {0:?}: expected MAC=IP or MAC=IP,NAME, e.g. 02:00:00:00:00:09=10.0.0.9,vm9")]
pub struct BadStaticLease(String);

impl FromStr for StaticLease {
    type Err = BadStaticLease;

    fn from_str(text: &str) -> Result<Self, BadStaticLease> {
        let bad = || BadStaticLease(text.to_owned());
        let (mac, rest) = text.split_once('=').ok_or_else(bad)?;
        let (address, name) = rest.split_once(',').map_or((rest, None), |(address, name)| (address, Some(name)));
        let name = name.map(|name| label(name.as_bytes()).ok_or_else(bad)).transpose()?;
        Ok(StaticLease { mac: mac.parse().map_err(|_| bad())?, address: address.parse().map_err(|_| bad())?, name })
    }
}

/// Returns the first label of a name, in lower case; `None` if it is not a valid host name (RFC 1123 §2.1) or is
/// reserved.
pub fn label(name: &[u8]) -> Option<String> {
    let first = name.split(|byte| *byte == b'.' || *byte == 0).next()?;
    let fits = !first.is_empty() && first.len() <= MAX_LABEL;
    let plain = first.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
    let edges = first.first() != Some(&b'-') && first.last() != Some(&b'-');
    let text = String::from_utf8(first.to_ascii_lowercase()).ok()?;
    (fits && plain && edges && !RESERVED_NAMES.contains(&text.as_str())).then_some(text)
}

/// The leases of one network, including static leases.
#[derive(Debug)]
pub struct LeaseTable {
    net: InterfaceAddress<Ipv4Addr>,
    fixed: Arc<[StaticLease]>,
    book: LeaseBook<Vec<u8>, Ipv4Addr>,
    /// The address after which the search for a free address begins.
    next: u32,
}

impl LeaseTable {
    /// Returns an empty table for a network, with its static leases.
    pub fn new(net: InterfaceAddress<Ipv4Addr>, fixed: Vec<StaticLease>) -> Self {
        Self::with_most(net, fixed.into(), MAX_CLIENTS)
    }

    /// As [`LeaseTable::new`], for at most `most` clients.
    pub fn with_most(net: InterfaceAddress<Ipv4Addr>, fixed: Arc<[StaticLease]>, most: usize) -> Self {
        let next = u32::from(net.address);
        LeaseTable { net, fixed, book: LeaseBook::new(most), next }
    }

    fn fixed_address(&self, mac: MacAddr) -> Option<Ipv4Addr> {
        self.fixed.iter().find(|lease| lease.mac == mac).map(|lease| lease.address)
    }

    /// Returns whether an address is a host address of the network other than the gateway's.
    pub fn is_possible(&self, address: Ipv4Addr) -> bool {
        self.net.is_host(address) && address != self.net.address
    }

    /// Returns whether an address can be leased to a client: the address is not offered to, leased to or configured for
    /// another client, and was not declined.
    fn is_free(&self, address: Ipv4Addr, client: &[u8], mac: MacAddr, now: Instant) -> bool {
        let fixed = self.fixed.iter().find(|lease| lease.address == address);
        let for_client = fixed.is_none_or(|lease| lease.mac == mac);
        self.is_possible(address) && for_client && !self.book.is_refused(address, client, now)
    }

    /// Returns the address that a client was offered or leased last, even if the lease has ended.
    pub fn address(&self, client: &[u8]) -> Option<Ipv4Addr> {
        self.book.address(client)
    }

    /// Returns whether a client has a lease that has not expired.
    pub fn is_bound(&self, client: &[u8], now: Instant) -> bool {
        self.book.clients.get(client).is_some_and(|lease| lease.is_bound(now))
    }

    /// Returns the address to offer a client (RFC 2131 §4.3.1): the static address of the client's MAC address, the
    /// address that the client has or had, the address that it requests, or a free address, in this order; `None` if no
    /// address is free. `in_use` returns whether another MAC address was seen to use an address.
    pub fn choose(
        &self,
        client: &[u8],
        mac: MacAddr,
        wanted: Option<Ipv4Addr>,
        now: Instant,
        in_use: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<Ipv4Addr> {
        if let Some(fixed) = self.fixed_address(mac) {
            return Some(fixed);
        }
        let free = |address: &Ipv4Addr| self.is_free(*address, client, mac, now) && !in_use(*address);
        self.address(client).filter(free).or_else(|| wanted.filter(free)).or_else(|| self.search(free))
    }

    /// Searches for a free address, in at most 2 × [`MAX_CLIENTS`] steps.
    fn search(&self, free: impl Fn(&Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        let first = u32::from(self.net.address) & u32::from(self.net.mask());
        let count = !u32::from(self.net.mask());
        let begin = self.next.wrapping_sub(first);
        let steps = count.min(2 * MAX_CLIENTS as u32);
        (1..=steps).map(|step| Ipv4Addr::from(first + (begin.wrapping_add(step) & count))).find(free)
    }

    /// Reserves an address for a client for the time of an offer, unless the client already has a lease on the address.
    pub fn offer(&mut self, client: &[u8], mac: MacAddr, address: Ipv4Addr, now: Instant) {
        if self.is_bound(client, now) && self.address(client) == Some(address) {
            return;
        }
        self.next = address.into();
        self.set(client, mac, address, LeaseState::Offered, now + OFFER);
    }

    /// Leases an address to a client until `until`. Returns `false` if the address is not free for the client or the
    /// table is full.
    pub fn bind(&mut self, client: &[u8], mac: MacAddr, address: Ipv4Addr, until: Instant, now: Instant) -> bool {
        let right = self.fixed_address(mac).is_none_or(|fixed| fixed == address);
        if !right || !self.is_free(address, client, mac, now) {
            return false;
        }
        self.set(client, mac, address, LeaseState::Bound, until)
    }

    /// Sets a client's address. Returns `false` if the table is full.
    fn set(&mut self, client: &[u8], mac: MacAddr, address: Ipv4Addr, state: LeaseState, until: Instant) -> bool {
        let known = self.book.clients.get(client);
        if known.is_none() && self.book.clients.len() >= self.book.most {
            return false;
        }
        let name = known.and_then(|lease| lease.name.clone());
        self.book.set(client.to_vec(), ClientLease { address, mac, state, until, name });
        true
    }

    /// Ends a client's lease on an address at the client's request (DHCPRELEASE).
    pub fn release(&mut self, client: &[u8], address: Ipv4Addr) {
        self.book.release(client, address);
    }

    /// Ends the offer to a client that has accepted another server's offer.
    pub fn withdraw(&mut self, client: &[u8]) {
        if let Some(lease) = self.book.clients.get_mut(client).filter(|lease| lease.state == LeaseState::Offered) {
            lease.state = LeaseState::Free;
        }
    }

    /// Blocks an address that a client has found in use (DHCPDECLINE). Returns `false` if the address was not offered
    /// or leased to this client.
    pub fn decline(&mut self, client: &[u8], address: Ipv4Addr, now: Instant) -> bool {
        self.book.decline(client, address, now)
    }

    /// Sets a client's name: the static name of the client's MAC address if there is one, otherwise `name` if it is
    /// valid and no other client has that name.
    pub fn set_name(&mut self, client: &[u8], mac: MacAddr, name: Option<&[u8]>) {
        let fixed = self.fixed.iter().find(|lease| lease.mac == mac).and_then(|lease| lease.name.clone());
        let name = fixed.or_else(|| name.and_then(label).filter(|name| !self.is_taken(client, name)));
        if let Some(lease) = self.book.clients.get_mut(client) {
            lease.name = name.or(lease.name.take());
        }
    }

    fn is_taken(&self, client: &[u8], name: &str) -> bool {
        let fixed = self.fixed.iter().any(|lease| lease.name.as_deref() == Some(name));
        let others = self.book.clients.iter().filter(|(other, _)| other.as_slice() != client);
        fixed || others.map(|(_, lease)| lease).any(|lease| lease.name.as_deref() == Some(name))
    }

    /// Returns the name of a client; `None` if the client has no name.
    pub fn name(&self, client: &[u8]) -> Option<&str> {
        self.book.clients.get(client)?.name.as_deref()
    }

    /// Returns the MAC address and the IP address of the client with this host name; `None` if there is no such client.
    pub fn by_name(&self, name: &str) -> Option<(MacAddr, Ipv4Addr)> {
        let fixed = self.fixed.iter().find(|lease| lease.name.as_deref() == Some(name));
        let fixed = fixed.map(|lease| (lease.mac, lease.address));
        let is_named =
            |lease: &&ClientLease<_>| lease.state == LeaseState::Bound && lease.name.as_deref() == Some(name);
        let bound = || self.book.clients.values().find(is_named);
        fixed.or_else(|| bound().map(|lease| (lease.mac, lease.address)))
    }

    /// Returns the host name that belongs to an address; `None` if there is no such name.
    pub fn by_address(&self, address: Ipv4Addr) -> Option<&str> {
        let fixed = self.fixed.iter().find(|lease| lease.address == address).and_then(|lease| lease.name.as_deref());
        let bound = || self.book.of_address(address)?.name.as_deref();
        fixed.or_else(bound)
    }

    /// Returns the MAC address to which an address is or was leased; `None` if the table has no such lease.
    pub fn station(&self, address: Ipv4Addr) -> Option<MacAddr> {
        let fixed = self.fixed.iter().find(|lease| lease.address == address).map(|lease| lease.mac);
        fixed.or_else(|| Some(self.book.of_address(address)?.mac))
    }

    /// Returns the leases that have not expired.
    pub fn bound(&self, now: Instant) -> impl Iterator<Item = BoundLease<'_, Ipv4Addr>> {
        self.book.bound(now)
    }

    /// Returns the address of the only static lease; `None` if there are no or several static leases.
    pub fn only_fixed(&self) -> Option<Ipv4Addr> {
        match &self.fixed[..] {
            [only] => Some(only.address),
            _ => None,
        }
    }

    /// Removes expired declines and, if the table is at least half full, all clients without a valid offer or lease.
    pub fn clean(&mut self, now: Instant) {
        self.book.clean(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
    const HOUR: Duration = Duration::from_secs(3600);

    fn table(prefix: u8, fixed: &[&str]) -> LeaseTable {
        let net = InterfaceAddress { address: [10, 0, 0, 1].into(), prefix };
        LeaseTable::new(net, fixed.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn ip(last: u8) -> Ipv4Addr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn a_client_keeps_its_address_and_nobody_else_gets_it() {
        let mut leases = table(24, &[]);
        let now = Instant::now();
        let nobody = |_: Ipv4Addr| false;
        let first = leases.choose(b"a", A, None, now, nobody).unwrap();
        assert_eq!(first, ip(2));
        leases.offer(b"a", A, first, now);
        assert_eq!(leases.choose(b"b", B, Some(first), now, nobody), Some(ip(3)));
        assert!(leases.bind(b"a", A, first, now + HOUR, now));
        assert!(!leases.bind(b"b", B, first, now + HOUR, now));
        let bound: Vec<_> = leases.bound(now).collect();
        assert_eq!(bound, [BoundLease { address: first, mac: A, name: None, left: HOUR }]);
        leases.release(b"a", first);
        assert_eq!(leases.bound(now).count(), 0);
        assert_eq!(leases.choose(b"a", A, None, now, nobody), Some(first), "its own again");
        assert_eq!(leases.choose(b"b", B, Some(first), now, nobody), Some(first), "or who asks for it");
        assert_ne!(leases.choose(b"b", B, Some(first), now, |address| address == first), Some(first), "unless in use");
    }

    #[test]
    fn a_network_runs_out_and_recovers() {
        let mut leases = table(29, &[]);
        let now = Instant::now();
        let nobody = |_: Ipv4Addr| false;
        for n in 0..5u8 {
            let address = leases.choose(&[n], A, None, now, nobody).unwrap();
            leases.offer(&[n], A, address, now);
            assert!(leases.bind(&[n], A, address, now + HOUR, now));
        }
        assert_eq!(leases.choose(b"x", B, None, now, nobody), None);
        assert!(leases.choose(b"x", B, None, now + HOUR, nobody).is_some());
        assert!(leases.decline(&[0], leases.address(&[0]).unwrap(), now));
        assert_eq!(leases.choose(b"x", B, None, now, nobody), None, "a declined address is left alone");
    }

    #[test]
    fn written_leases_go_to_their_stations_alone() {
        let mut leases = table(24, &["02:00:00:00:00:01=10.0.0.50,web"]);
        let now = Instant::now();
        let nobody = |_: Ipv4Addr| false;
        assert_eq!(leases.choose(b"a", A, Some(ip(9)), now, nobody), Some(ip(50)));
        assert_ne!(leases.choose(b"b", B, Some(ip(50)), now, nobody), Some(ip(50)));
        assert!(!leases.bind(b"b", B, ip(50), now + HOUR, now) && !leases.bind(b"a", A, ip(9), now + HOUR, now));
        assert!(leases.bind(b"a", A, ip(50), now + HOUR, now));
        assert_eq!(leases.by_name("web"), Some((A, ip(50))));
    }

    #[test]
    fn names_are_hosts_names_and_one_clients() {
        let mut leases = table(24, &[]);
        let now = Instant::now();
        assert!(leases.bind(b"a", A, ip(2), now + HOUR, now) && leases.bind(b"b", B, ip(3), now + HOUR, now));
        leases.set_name(b"a", A, Some(b"VM-1.example"));
        leases.set_name(b"b", B, Some(b"vm-1"));
        assert_eq!((leases.name(b"a"), leases.name(b"b")), (Some("vm-1"), None));
        assert_eq!(leases.by_address(ip(2)), Some("vm-1"));
        for bad in [&b""[..], b"-a", b"a-", b"a b", b"wpad", b"\xff", &[b'a'; 64]] {
            assert_eq!(label(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn clients_beyond_the_limit_get_nothing_and_take_nothing() {
        let net = InterfaceAddress { address: [10, 0, 0, 1].into(), prefix: 8 };
        let mut leases = LeaseTable::new(net, Vec::new());
        let now = Instant::now();
        for n in 0..MAX_CLIENTS as u32 + 10 {
            let client = n.to_be_bytes();
            if let Some(address) = leases.choose(&client, A, None, now, |_| false) {
                leases.offer(&client, A, address, now);
            }
        }
        assert_eq!((leases.book.clients.len(), leases.book.by_address.len()), (MAX_CLIENTS, MAX_CLIENTS));
        leases.clean(now + OFFER);
        assert_eq!((leases.book.clients.len(), leases.book.by_address.len()), (0, 0));
    }

    #[test]
    fn text_that_is_no_lease_is_refused() {
        for bad in ["", "x", "02:00:00:00:00:01", "02:00:00:00:00:01=", "02:00:00:00:00:01=10.0.0.9,-", "=10.0.0.1"] {
            assert!(bad.parse::<StaticLease>().is_err(), "{bad}");
        }
    }
}
