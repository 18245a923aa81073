//! The DHCP server (RFC 2131 §4.3): a [`DhcpServer`] with its settings ([`DhcpSettings`]) for each of the gateway's
//! networks ([`DhcpServers`]).
//!
//! The server has no socket. From a message and the time, it makes a [`DhcpAnswer`], i.e. a reply with its destination,
//! which the caller sends.

pub mod book;
pub mod leases;
pub mod message;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_wire::MacAddr;

use self::book::BoundLease;
use self::leases::{LeaseTable, MAX_PRIVATE_CLIENTS, StaticLease};
use self::message::{DhcpKind, DhcpMessage, DhcpReply, option};
use crate::guests::{GuestId, NetworkId};
use crate::net::{InterfaceAddress, encoded_names};

/// UDP port of DHCP servers.
pub const SERVER_PORT: u16 = 67;
/// UDP port of DHCP clients.
pub const CLIENT_PORT: u16 = 68;

/// The server's settings, most of which its replies give to clients.
#[derive(Clone, Debug)]
pub struct DhcpSettings {
    /// The server's address, which clients also use as their router and name server.
    pub own: InterfaceAddress<Ipv4Addr>,
    /// Duration of a lease.
    pub lease: Duration,
    /// The network's MTU in bytes.
    pub mtu: u16,
    /// The network's domain name.
    pub domain: String,
    /// Further domains in which clients look for short names.
    pub search: Vec<String>,
}

/// A reply and its destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DhcpAnswer {
    /// The destination MAC address; the broadcast address if the reply goes to all stations.
    pub mac: MacAddr,
    /// The destination IP address; 255.255.255.255 if the reply goes to all stations.
    pub to: Ipv4Addr,
    /// The encoded reply.
    pub bytes: Vec<u8>,
}

/// A DHCP server.
#[derive(Debug)]
pub struct DhcpServer {
    settings: DhcpSettings,
    /// The leases that were offered, given out or configured.
    pub leases: LeaseTable,
}

impl DhcpServer {
    /// Creates a server over a table of leases.
    pub fn new(settings: DhcpSettings, leases: LeaseTable) -> Self {
        DhcpServer { settings, leases }
    }

    /// Processes the payload of a datagram from MAC address `mac`. Returns the reply; `None` if the message gets no
    /// reply. `in_use` returns whether another MAC address was seen to use an address.
    pub fn take(
        &mut self,
        mac: MacAddr,
        bytes: &[u8],
        now: Instant,
        in_use: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<DhcpAnswer> {
        // Without this check, a guest could take or end another guest's lease by a message with that guest's MAC
        // address.
        let message = DhcpMessage::parse(bytes).filter(|message| message.chaddr == mac)?;
        let client = message.client();
        match message.kind {
            DhcpKind::Discover => self.discover(&message, &client, now, in_use),
            DhcpKind::Request => self.request(&message, &client, now, in_use),
            DhcpKind::Decline => {
                self.decline(&message, &client, now);
                None
            }
            DhcpKind::Release => {
                self.leases.release(&client, message.ciaddr);
                None
            }
            DhcpKind::Inform => Some(self.inform(&message)),
            DhcpKind::Offer | DhcpKind::Ack | DhcpKind::Nak => None,
        }
    }

    fn discover(
        &mut self,
        message: &DhcpMessage,
        client: &[u8],
        now: Instant,
        in_use: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<DhcpAnswer> {
        let Some(address) = self.leases.choose(client, message.chaddr, message.requested, now, in_use) else {
            tracing::warn!("no address to offer to {}: all are leased or in use", message.chaddr);
            return None;
        };
        self.leases.offer(client, message.chaddr, address, now);
        // If the table of leases is full, the address is not reserved, and is not offered.
        (self.leases.address(client) == Some(address)).then(|| self.grant(DhcpKind::Offer, message, client, address))
    }

    fn request(
        &mut self,
        message: &DhcpMessage,
        client: &[u8],
        now: Instant,
        in_use: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<DhcpAnswer> {
        if message.server.is_some_and(|server| server != self.settings.own.address) {
            self.leases.withdraw(client);
            return None;
        }
        let known = self.leases.address(client);
        // The fields show the client's state (RFC 2131 §4.3.2, table 4).
        let granted = match (message.server, message.requested, message.ciaddr.is_unspecified()) {
            // SELECTING.
            (Some(_), Some(address), true) => Some(address).filter(|_| known == Some(address)),
            // INIT-REBOOT. A client that has no lease here may have a lease from another server, so the message gets no
            // reply, as RFC 2131 §4.3.2 requires.
            (None, Some(address), true) if known.is_none() && self.leases.is_possible(address) => return None,
            (None, Some(address), true) => Some(address).filter(|_| known == Some(address)),
            // RENEWING or REBINDING. A client keeps the address that it uses, even if this server lost the lease in a
            // restart, unless another station uses the address.
            (None, None, false) => {
                let address = message.ciaddr;
                Some(address).filter(|_| known.is_none_or(|known| known == address) && !in_use(address))
            }
            _ => return None,
        };
        let bound = granted.and_then(|address| self.bind(message, client, address, now));
        bound.or_else(|| Some(self.nak(message)))
    }

    fn bind(&mut self, message: &DhcpMessage, client: &[u8], address: Ipv4Addr, now: Instant) -> Option<DhcpAnswer> {
        let bound = self.leases.bind(client, message.chaddr, address, now + self.settings.lease, now);
        bound.then(|| {
            self.leases.set_name(client, message.chaddr, message.name.as_deref());
            let name = self.leases.name(client).unwrap_or_default();
            tracing::info!("{}: leased {address} {name}", message.chaddr);
            self.grant(DhcpKind::Ack, message, client, address)
        })
    }

    fn decline(&mut self, message: &DhcpMessage, client: &[u8], now: Instant) {
        if let Some(address) = message.requested
            && self.leases.decline(client, address, now)
        {
            tracing::warn!("{}: declined {address}, which another station uses", message.chaddr);
        }
    }

    fn inform(&self, message: &DhcpMessage) -> DhcpAnswer {
        let reply = self.reply(DhcpKind::Ack, message, Ipv4Addr::UNSPECIFIED, Vec::new());
        self.address_reply(message, &reply, message.ciaddr)
    }

    /// Makes an OFFER or an ACK (`kind`) for `address`.
    fn grant(&self, kind: DhcpKind, message: &DhcpMessage, client: &[u8], address: Ipv4Addr) -> DhcpAnswer {
        let seconds = u32::try_from(self.settings.lease.as_secs()).unwrap_or(u32::MAX);
        let time = |code: u8, seconds: u32| (code, seconds.to_be_bytes().to_vec());
        let mut options = vec![
            time(option::LEASE_TIME, seconds),
            time(option::RENEWAL, seconds / 2),
            time(option::REBINDING, (u64::from(seconds) * 7 / 8) as u32),
        ];
        if let Some(name) = self.leases.name(client) {
            options.push((option::HOST_NAME, name.as_bytes().to_vec()));
        }
        let reply = self.reply(kind, message, address, options);
        self.address_reply(message, &reply, address)
    }

    fn nak(&self, message: &DhcpMessage) -> DhcpAnswer {
        let options = vec![
            (option::SERVER, self.settings.own.address.octets().to_vec()),
            (option::MESSAGE, b"requested address not available".to_vec()),
        ];
        let reply = DhcpReply { kind: DhcpKind::Nak, yiaddr: Ipv4Addr::UNSPECIFIED, options };
        self.to_all(message, &reply)
    }

    /// Makes a reply with the server's identifier, the options `first`, and the options about the network that the
    /// client requests.
    fn reply(&self, kind: DhcpKind, message: &DhcpMessage, yiaddr: Ipv4Addr, first: Vec<(u8, Vec<u8>)>) -> DhcpReply {
        let own = &self.settings.own;
        let address = own.address.octets().to_vec();
        let mut options = vec![(option::SERVER, address.clone())];
        options.extend(first);
        let of_network = [
            (option::MASK, own.mask().octets().to_vec()),
            (option::ROUTER, address.clone()),
            (option::DNS, address),
            (option::DOMAIN, self.settings.domain.as_bytes().to_vec()),
            (option::BROADCAST, own.broadcast().octets().to_vec()),
            (option::MTU, self.settings.mtu.to_be_bytes().to_vec()),
            // One option has at most 255 bytes.
            (option::SEARCH, encoded_names(&self.settings.search, 255)),
        ];
        options.extend(of_network.into_iter().filter(|(code, data)| !data.is_empty() && message.wants(*code)));
        // RFC 6842: a server returns the client identifier.
        options.extend(message.client_id.clone().map(|id| (option::CLIENT_ID, id)));
        DhcpReply { kind, yiaddr, options }
    }

    /// Addresses a reply (RFC 2131 §4.1): to the client's current address if it has one; otherwise by broadcast if the
    /// client requests a broadcast; otherwise to `address` at the client's MAC address, since the client cannot answer
    /// ARP for `address` yet.
    fn address_reply(&self, message: &DhcpMessage, reply: &DhcpReply, address: Ipv4Addr) -> DhcpAnswer {
        if message.ciaddr.is_unspecified() && (message.broadcast || address.is_unspecified()) {
            return self.to_all(message, reply);
        }
        let to = if message.ciaddr.is_unspecified() { address } else { message.ciaddr };
        DhcpAnswer { mac: message.chaddr, to, bytes: reply.bytes(message) }
    }

    fn to_all(&self, message: &DhcpMessage, reply: &DhcpReply) -> DhcpAnswer {
        DhcpAnswer { mac: MacAddr::BROADCAST, to: Ipv4Addr::BROADCAST, bytes: reply.bytes(message) }
    }
}

/// The DHCP servers of all networks. Each server has its own leases; all servers have the same settings and static
/// leases.
#[derive(Debug)]
pub struct DhcpServers {
    servers: HashMap<NetworkId, DhcpServer>,
    /// A server with only the static leases, which stands for the servers of all networks from which no message has
    /// come yet.
    unused: DhcpServer,
    fixed: Arc<[StaticLease]>,
}

impl DhcpServers {
    /// Creates the set of servers, with only the static leases.
    pub fn new(settings: DhcpSettings, fixed: Vec<StaticLease>) -> Self {
        let fixed: Arc<[StaticLease]> = fixed.into();
        let leases = LeaseTable::with_most(settings.own, Arc::clone(&fixed), 0);
        let unused = DhcpServer::new(settings, leases);
        DhcpServers { servers: HashMap::new(), unused, fixed }
    }

    /// As [`DhcpServer::take`], for the server of the guest's network.
    pub fn take(
        &mut self,
        who: GuestId,
        bytes: &[u8],
        now: Instant,
        in_use: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<DhcpAnswer> {
        let server = self.servers.entry(who.network).or_insert_with(|| {
            let settings = self.unused.settings.clone();
            let is_shared = who.network == NetworkId::UNTAGGED;
            let most = if is_shared { leases::MAX_CLIENTS } else { MAX_PRIVATE_CLIENTS };
            let leases = LeaseTable::with_most(settings.own, Arc::clone(&self.fixed), most);
            DhcpServer::new(settings, leases)
        });
        server.take(who.mac, bytes, now, in_use)
    }

    /// Returns the leases of a network.
    pub fn leases(&self, network: NetworkId) -> &LeaseTable {
        &self.servers.get(&network).unwrap_or(&self.unused).leases
    }

    /// Returns the leases of all networks that have not expired.
    pub fn bound(&self, now: Instant) -> impl Iterator<Item = BoundLease<'_, Ipv4Addr>> {
        self.servers.values().flat_map(move |server| server.leases.bound(now))
    }

    /// As [`LeaseTable::clean`], for all networks.
    pub fn clean(&mut self, now: Instant) {
        self.servers.values_mut().for_each(|server| server.leases.clean(now));
    }

    /// Forgets the leases of a network, except static leases.
    pub fn forget(&mut self, network: NetworkId) {
        self.servers.remove(&network);
    }
}
#[cfg(test)]
mod tests;
