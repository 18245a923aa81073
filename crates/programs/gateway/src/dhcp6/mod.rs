//! The DHCPv6 server (RFC 8415): a [`Dhcp6Server`] with its settings ([`Dhcp6Settings`]) for each of the gateway's
//! networks ([`Dhcp6Servers`]). A server gives addresses and settings, or only settings ([`Dhcp6Mode`]).
//!
//! The server has no socket. From a message and the time, it makes the bytes of a reply, which the caller sends to the
//! client.

pub mod leases;
pub mod message;

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use netvale_wire::MacAddr;

use self::leases::{Dhcp6Client, LeaseTable6, MAX_LEASES, MAX_PRIVATE_LEASES};
use self::message::{
    AskedIdentity, Dhcp6Kind, Dhcp6Message, Dhcp6Reply, Dhcp6ReplyKind, Dhcp6Status, GivenIdentity, LeasedAddress,
    option,
};
use crate::dhcp::book::BoundLease;
use crate::guests::{GuestId, NetworkId};
use crate::net::{InterfaceAddress, encoded_names};

/// UDP port of servers.
pub const SERVER_PORT: u16 = 547;
/// UDP port of clients.
pub const CLIENT_PORT: u16 = 546;
/// The group of all servers.
pub const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// The highest preference: a client that receives it does not wait for offers of other servers.
const PREFERENCE: u8 = 255;

/// What the server gives to clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dhcp6Mode {
    /// Nothing: there is no server.
    Off,
    /// The name server and the domains; guests generate their own addresses.
    Settings,
    /// The name server, the domains and addresses.
    Addresses,
}

impl FromStr for Dhcp6Mode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            "settings" => Ok(Self::Settings),
            "addresses" => Ok(Self::Addresses),
            _ => Err("expected off, settings or addresses"),
        }
    }
}

/// The server's settings.
#[derive(Clone, Debug)]
pub struct Dhcp6Settings {
    /// What the server gives to clients.
    pub mode: Dhcp6Mode,
    /// The server's address, which is also the address of the name server.
    pub own: InterfaceAddress<Ipv6Addr>,
    /// The server's MAC address, from which its DUID is formed.
    pub mac: MacAddr,
    /// Duration of a lease.
    pub lease: Duration,
    /// The domains in which clients look for short names.
    pub domains: Vec<String>,
}

/// A DHCPv6 server.
#[derive(Debug)]
pub struct Dhcp6Server {
    settings: Dhcp6Settings,
    /// The leases that were offered and given out.
    pub leases: LeaseTable6,
}

impl Dhcp6Server {
    /// Creates a server over a table of leases.
    pub fn new(settings: Dhcp6Settings, leases: LeaseTable6) -> Self {
        Dhcp6Server { settings, leases }
    }

    /// Processes the payload of a datagram that the station `mac` has sent to the group of all servers (if `to_group`)
    /// or to the gateway's own address. Returns the reply; `None` if the message gets no reply. `in_use` returns
    /// whether another station was seen to use an address.
    pub fn take(
        &mut self,
        mac: MacAddr,
        bytes: &[u8],
        to_group: bool,
        now: Instant,
        in_use: impl Fn(Ipv6Addr) -> bool,
    ) -> Option<Vec<u8>> {
        let message = Dhcp6Message::parse(bytes)?;
        if !self.is_valid(&message) {
            return None;
        }
        let reply = if to_group { self.answer(&message, mac, now, &in_use) } else { self.answer_unicast(&message) };
        reply.map(|reply| reply.bytes(&message))
    }

    /// Returns whether a message has all options that its type requires and none that its type forbids (RFC 8415 §16),
    /// and is meant for this server.
    fn is_valid(&self, message: &Dhcp6Message) -> bool {
        let is_ours = message.server.as_ref().map(|server| *server == self.duid());
        let has_client = message.client.is_some();
        match message.kind {
            Dhcp6Kind::Solicit | Dhcp6Kind::Confirm | Dhcp6Kind::Rebind => has_client && is_ours.is_none(),
            Dhcp6Kind::Request | Dhcp6Kind::Renew | Dhcp6Kind::Release | Dhcp6Kind::Decline => {
                has_client && is_ours == Some(true)
            }
            Dhcp6Kind::InformationRequest => !message.has_identity && is_ours != Some(false),
        }
    }

    /// Returns the server's DUID, which is formed from its MAC address (DUID-LL, RFC 8415 §11.4).
    fn duid(&self) -> Vec<u8> {
        [&[0, 3, 0, 1][..], &self.settings.mac.0].concat()
    }

    /// Answers a message that was not sent to the multicast group (RFC 8415 §16, §18.4). Returns `None` if a unicast
    /// message of this type must be ignored.
    fn answer_unicast(&self, message: &Dhcp6Message) -> Option<Dhcp6Reply> {
        let gets_status =
            matches!(message.kind, Dhcp6Kind::Request | Dhcp6Kind::Renew | Dhcp6Kind::Release | Dhcp6Kind::Decline);
        gets_status.then(|| self.bare(message, Dhcp6ReplyKind::Reply).status(Dhcp6Status::UseMulticast))
    }

    fn answer(
        &mut self,
        message: &Dhcp6Message,
        mac: MacAddr,
        now: Instant,
        in_use: &impl Fn(Ipv6Addr) -> bool,
    ) -> Option<Dhcp6Reply> {
        if message.kind == Dhcp6Kind::InformationRequest {
            return Some(self.reply(message, Dhcp6ReplyKind::Reply, Vec::new()));
        }
        if self.settings.mode != Dhcp6Mode::Addresses {
            return None;
        }
        match message.kind {
            Dhcp6Kind::Solicit => Some(self.solicit(message, mac, now, in_use)),
            Dhcp6Kind::Confirm => self.confirm(message, mac, now, in_use),
            Dhcp6Kind::Request => {
                let given = self.each(message, mac, |server, client, asked| server.give(client, asked, now, in_use));
                Some(self.reply(message, Dhcp6ReplyKind::Reply, given))
            }
            Dhcp6Kind::Renew | Dhcp6Kind::Rebind => {
                let given = self.each(message, mac, |server, client, asked| server.extend(client, asked, now, in_use));
                Some(self.reply(message, Dhcp6ReplyKind::Reply, given))
            }
            Dhcp6Kind::Release | Dhcp6Kind::Decline => Some(self.end(message, mac, now)),
            Dhcp6Kind::InformationRequest => None,
        }
    }

    /// Calls `handle` for each identity association in a message. Returns the identity associations for the reply.
    fn each(
        &mut self,
        message: &Dhcp6Message,
        mac: MacAddr,
        mut handle: impl FnMut(&mut Self, &Dhcp6Client, &AskedIdentity) -> Option<GivenIdentity>,
    ) -> Vec<GivenIdentity> {
        let duid = message.client.clone().unwrap_or_default();
        let mut client = Dhcp6Client { mac, duid, identity: 0 };
        let mut given = Vec::new();
        for asked in &message.identities {
            client.identity = asked.id;
            given.extend(handle(self, &client, asked));
        }
        given
    }

    /// Offers addresses or, if the client requests rapid commit, leases them immediately (RFC 8415 §18.3.1).
    fn solicit(
        &mut self,
        message: &Dhcp6Message,
        mac: MacAddr,
        now: Instant,
        in_use: &impl Fn(Ipv6Addr) -> bool,
    ) -> Dhcp6Reply {
        if message.rapid {
            let given = self.each(message, mac, |server, client, asked| {
                // In a SOLICIT, addresses are only hints; addresses of other networks are ignored.
                let hints = asked.addresses.iter().copied().filter(|address| server.leases.is_inside(*address));
                Some(server.lease(client, asked.id, &hints.collect::<Vec<_>>(), now, in_use))
            });
            let mut reply = self.reply(message, Dhcp6ReplyKind::Reply, given);
            reply.options.push((option::RAPID_COMMIT, Vec::new()));
            return reply;
        }
        let given = self.each(message, mac, |server, client, asked| {
            let Some(address) = server.leases.choose(client, &asked.addresses, now, in_use) else {
                return Some(none_left(client));
            };
            server.leases.offer(client, address, now);
            Some(server.given(asked.id, address))
        });
        let mut reply = self.reply(message, Dhcp6ReplyKind::Advertise, given);
        reply.options.push((option::PREFERENCE, vec![PREFERENCE]));
        reply
    }

    /// Makes a reply that says whether a client's addresses belong to this network (RFC 8415 §18.3.3); returns `None`
    /// if the message has no address. Leases the first address of each association if it is free, since this server may
    /// have lost the lease in a restart.
    fn confirm(
        &mut self,
        message: &Dhcp6Message,
        mac: MacAddr,
        now: Instant,
        in_use: &impl Fn(Ipv6Addr) -> bool,
    ) -> Option<Dhcp6Reply> {
        let mut asked_for = 0;
        let mut inside = 0;
        self.each(message, mac, |server, client, asked| {
            asked_for += asked.addresses.len();
            inside += asked.addresses.iter().filter(|address| server.leases.is_inside(**address)).count();
            let has_lease = server.leases.address(client).is_some();
            let first = asked.addresses.first().filter(|address| !has_lease && !in_use(**address));
            first.map(|address| server.bind(client, *address, now));
            None
        });
        let status = if inside == asked_for { Dhcp6Status::Success } else { Dhcp6Status::NotOnLink };
        (asked_for > 0).then(|| self.bare(message, Dhcp6ReplyKind::Reply).status(status))
    }

    /// Leases the address that was offered or, if that is not free any more, another address.
    fn give(
        &mut self,
        client: &Dhcp6Client,
        asked: &AskedIdentity,
        now: Instant,
        in_use: &impl Fn(Ipv6Addr) -> bool,
    ) -> Option<GivenIdentity> {
        if asked.addresses.iter().any(|address| !self.leases.is_inside(*address)) {
            return Some(GivenIdentity { status: Some(Dhcp6Status::NotOnLink), ..none_left(client) });
        }
        Some(self.lease(client, asked.id, &asked.addresses, now, in_use))
    }

    /// Leases the address that the client has or had, an address that it wants, or a free address, in this order.
    fn lease(
        &mut self,
        client: &Dhcp6Client,
        id: u32,
        wanted: &[Ipv6Addr],
        now: Instant,
        in_use: &impl Fn(Ipv6Addr) -> bool,
    ) -> GivenIdentity {
        let chosen = self.leases.choose(client, wanted, now, in_use);
        let bound = chosen.filter(|address| self.bind(client, *address, now));
        bound.map_or_else(|| none_left(client), |address| self.given(id, address))
    }

    fn bind(&mut self, client: &Dhcp6Client, address: Ipv6Addr, now: Instant) -> bool {
        let bound = self.leases.bind(client, address, now + self.settings.lease, now);
        if bound {
            tracing::info!("{}: leased {address}", client.mac);
        }
        bound
    }

    /// Extends a lease (RFC 8415 §18.3.4, §18.3.5). A client keeps the address that it uses, even if this server lost
    /// the lease in a restart, unless another station uses the address. Other addresses in the association get the
    /// lifetime 0.
    fn extend(
        &mut self,
        client: &Dhcp6Client,
        asked: &AskedIdentity,
        now: Instant,
        in_use: &impl Fn(Ipv6Addr) -> bool,
    ) -> Option<GivenIdentity> {
        let known = self.leases.address(client);
        let own = known.or_else(|| asked.addresses.iter().copied().find(|address| self.leases.is_inside(*address)));
        let bound = own.filter(|address| !in_use(*address) && self.bind(client, *address, now));
        let lifetime = |address: &Ipv6Addr| if Some(*address) == bound { self.seconds() } else { 0 };
        let mut given: Vec<_> = asked
            .addresses
            .iter()
            .map(|address| LeasedAddress { address: *address, seconds: lifetime(address) })
            .collect();
        if let Some(address) = bound.filter(|address| !asked.addresses.contains(address)) {
            given.push(LeasedAddress { address, seconds: self.seconds() });
        }
        let is_known = bound.is_some() || given.iter().any(|given| !self.leases.is_inside(given.address));
        let status = (!is_known).then_some(Dhcp6Status::NoBinding);
        let addresses = if is_known { given } else { Vec::new() };
        Some(GivenIdentity { id: asked.id, addresses, status })
    }

    /// Ends leases and, if the message is a DECLINE, blocks their addresses (RFC 8415 §18.3.7, §18.3.8).
    fn end(&mut self, message: &Dhcp6Message, mac: MacAddr, now: Instant) -> Dhcp6Reply {
        let declines = message.kind == Dhcp6Kind::Decline;
        let given = self.each(message, mac, |server, client, asked| {
            let mut end = |address: &Ipv6Addr| {
                if declines {
                    server.leases.decline(client, *address, now)
                } else {
                    server.leases.release(client, *address)
                }
            };
            let ended = asked.addresses.iter().filter(|address| end(address)).count();
            if declines && ended > 0 {
                tracing::warn!("{mac}: declined an address, which another station uses");
            }
            let none = GivenIdentity { status: Some(Dhcp6Status::NoBinding), ..none_left(client) };
            (ended == 0).then_some(none)
        });
        let mut reply = self.bare(message, Dhcp6ReplyKind::Reply).status(Dhcp6Status::Success);
        reply.identities = given;
        reply
    }

    fn given(&self, id: u32, address: Ipv6Addr) -> GivenIdentity {
        let address = LeasedAddress { address, seconds: self.seconds() };
        GivenIdentity { id, addresses: vec![address], status: None }
    }

    fn seconds(&self) -> u32 {
        u32::try_from(self.settings.lease.as_secs()).unwrap_or(u32::MAX)
    }

    /// Makes a reply with only the DUIDs of server and client.
    fn bare(&self, message: &Dhcp6Message, kind: Dhcp6ReplyKind) -> Dhcp6Reply {
        let mut options = vec![(option::SERVER_ID, self.duid())];
        options.extend(message.client.clone().map(|client| (option::CLIENT_ID, client)));
        Dhcp6Reply { kind, options, identities: Vec::new() }
    }

    /// Makes a reply with identity associations, and the settings that the client wants.
    fn reply(&self, message: &Dhcp6Message, kind: Dhcp6ReplyKind, identities: Vec<GivenIdentity>) -> Dhcp6Reply {
        let mut reply = Dhcp6Reply { identities, ..self.bare(message, kind) };
        let of_network = [
            (option::DNS, self.settings.own.address.octets().to_vec()),
            // With 512 bytes, the reply fits into one packet.
            (option::DOMAINS, encoded_names(&self.settings.domains, 512)),
        ];
        reply.options.extend(of_network.into_iter().filter(|(code, data)| !data.is_empty() && message.wants(*code)));
        if message.kind == Dhcp6Kind::InformationRequest && message.wants(option::REFRESH_TIME) {
            // The refresh time must be at least ten minutes (RFC 8415 §21.23).
            reply.options.push((option::REFRESH_TIME, self.seconds().max(600).to_be_bytes().to_vec()));
        }
        reply
    }
}

fn none_left(client: &Dhcp6Client) -> GivenIdentity {
    GivenIdentity { id: client.identity, addresses: Vec::new(), status: Some(Dhcp6Status::NoAddress) }
}

/// The DHCPv6 servers of all networks. Each server has its own leases; all servers have the same settings.
#[derive(Debug)]
pub struct Dhcp6Servers {
    servers: HashMap<NetworkId, Dhcp6Server>,
    settings: Dhcp6Settings,
}

impl Dhcp6Servers {
    /// Creates the set of servers, without leases.
    pub fn new(settings: Dhcp6Settings) -> Self {
        Dhcp6Servers { servers: HashMap::new(), settings }
    }

    /// As [`Dhcp6Server::take`], for the server of the guest's network.
    pub fn take(
        &mut self,
        who: GuestId,
        bytes: &[u8],
        to_group: bool,
        now: Instant,
        in_use: impl Fn(Ipv6Addr) -> bool,
    ) -> Option<Vec<u8>> {
        let server = self.servers.entry(who.network).or_insert_with(|| {
            let is_shared = who.network == NetworkId::UNTAGGED;
            let most = if is_shared { MAX_LEASES } else { MAX_PRIVATE_LEASES };
            Dhcp6Server::new(self.settings.clone(), LeaseTable6::new(self.settings.own, most))
        });
        server.take(who.mac, bytes, to_group, now, in_use)
    }

    /// Returns the leases of all networks that have not expired.
    pub fn bound(&self, now: Instant) -> impl Iterator<Item = BoundLease<'_, Ipv6Addr>> {
        self.servers.values().flat_map(move |server| server.leases.bound(now))
    }

    /// As [`LeaseTable6::clean`], for all networks.
    pub fn clean(&mut self, now: Instant) {
        self.servers.values_mut().for_each(|server| server.leases.clean(now));
    }

    /// Forgets the leases of a network.
    pub fn forget(&mut self, network: NetworkId) {
        self.servers.remove(&network);
    }
}

#[cfg(test)]
mod tests;
