//! The state that all parts of a gateway share: the [`GatewayCore`] has the switch port, the policy and the flow log,
//! and sends packets to guests. A refusal ([`FlowRefusal`]) is the reason why a flow may not begin. A review
//! ([`FlowReview`]) checks the open flows after the rules have changed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_wire::ipv4;
use netvale_wire::layers::UDP;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::flows::{FlowDirection, FlowEnds, FlowLog};
use crate::frame::GuestPacket;
use crate::frame::build::{self, PacketEnds, TTL};
use crate::guests::{GuestAddresses, GuestId, GuestTable, NetworkId, NetworkSet};
use crate::icmp_message::{self, IcmpProblem};
use crate::link::GatewayLink;
use crate::net::GatewayNet;
use crate::policy::{EgressPolicy, EgressRequest, EgressVerdict, held_v4};
use crate::poller::Poller;
use crate::random::RandomPool;
use crate::rates::{GuestRates, RateWay};
use crate::resolved::ResolvedNames;
use crate::served::ServedPort;
use crate::slots::SlotId;
use crate::timers::TimerHeap;

/// Maximum number of ICMP errors sent to guests per second.
const ERRORS: u32 = 1000;

/// The reason why a flow may not begin, which the flow log records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowRefusal {
    /// The egress policy forbids the destination.
    Policy,
    /// The destination is an address of the host, and no rule of the user names exactly this address.
    HostAddress,
    /// The destination is in the guests' own network.
    Inside,
    /// The guest has reached its limit of flows.
    Limit,
    /// The guest has begun too many new flows per second.
    Rate,
}

impl FlowRefusal {
    /// Returns the word for this reason in the flow log.
    pub fn word(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::HostAddress => "host-address",
            Self::Inside => "inside",
            Self::Limit => "limit",
            Self::Rate => "rate",
        }
    }
}

/// A flow that may begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PermittedFlow {
    /// The address to which the host's socket connects: the destination or, if that is the gateway's own address, the
    /// loopback address.
    pub outer: SocketAddr,
    /// A DNS name that the guest has resolved to the destination's address; `None` if there is no such name. Of several
    /// names, this is the one that the deciding rule matches or, if that rule has no name, the one resolved last.
    pub name: Option<Arc<str>>,
}

/// State of a check of open flows against changed rules. It caches which addresses belong to the host, so that the
/// kernel is asked only once about each address.
#[derive(Debug, Default)]
pub struct FlowReview {
    of_host: HashMap<IpAddr, bool>,
}

/// A guest's new TCP connection to the name service.
#[derive(Debug)]
pub struct NewNameClient {
    /// The guest.
    pub who: GuestId,
    /// The guest's address and port.
    pub guest: SocketAddr,
    /// The gateway's address and port, to which the guest has connected.
    pub own: SocketAddr,
    /// The name service's end of a socket pair; the TCP flow has the other end.
    pub stream: UnixStream,
}

/// The state that all parts of a gateway share, with the link through which they send.
pub struct GatewayCore {
    /// The gateway's port on the switch.
    pub link: GatewayLink,
    /// The gateway's addresses, and the network's MTU and domain.
    pub net: GatewayNet,
    /// The epoll set of the gateway's descriptors.
    pub poller: Poller,
    /// Each guest's use of limited resources.
    pub guests: GuestTable,
    /// Limits of guests' rates.
    pub rates: GuestRates,
    /// The MAC addresses of guests' IP addresses.
    pub neighbours: GuestAddresses,
    /// The networks (VLANs) from which frames have arrived, and the untagged network.
    pub networks: NetworkSet,
    /// What guests may reach.
    pub policy: EgressPolicy,
    /// TCP ports of the gateway's own addresses that lead to UNIX sockets.
    pub served: Vec<ServedPort>,
    /// The DNS names that guests have resolved, with their addresses.
    pub resolved: ResolvedNames,
    /// The log of flows that were opened, refused and closed.
    pub flows: FlowLog,
    /// Timers of flows, DNS questions and housekeeping.
    pub timers: TimerHeap,
    /// Random numbers.
    pub random: RandomPool,
    /// The time at which the loop's current round began.
    pub now: Instant,
    /// Guests' TCP connections that the name service has not accepted yet.
    pub name_clients: Vec<NewNameClient>,
    /// TCP connections to the name service whose last question was just answered; the next question of each can begin.
    pub asked_again: Vec<SlotId>,
    errors: ErrorAllowance,
    datagram: Vec<u8>,
}

#[derive(Debug)]
struct ErrorAllowance {
    second: Instant,
    used: u32,
}

impl GatewayCore {
    /// Creates the state with empty tables.
    ///
    /// # Errors
    /// The epoll set cannot be created.
    pub fn new(
        link: GatewayLink,
        net: GatewayNet,
        policy: EgressPolicy,
        guests: GuestTable,
        flows: FlowLog,
    ) -> std::io::Result<Self> {
        let now = Instant::now();
        let mut networks = NetworkSet::default();
        networks.insert(NetworkId::UNTAGGED);
        Ok(GatewayCore {
            link,
            net,
            poller: Poller::new()?,
            guests,
            rates: GuestRates::default(),
            neighbours: GuestAddresses::default(),
            networks,
            policy,
            served: Vec::new(),
            resolved: ResolvedNames::default(),
            flows,
            timers: TimerHeap::default(),
            random: RandomPool::default(),
            now,
            name_clients: Vec::new(),
            asked_again: Vec::new(),
            errors: ErrorAllowance { second: now, used: 0 },
            datagram: Vec::new(),
        })
    }

    /// Decides whether a guest's flow may begin. The gateway's address that stands for the host's loopback counts as
    /// 127.0.0.1 or ::1.
    ///
    /// # Errors
    /// The reason why the flow may not begin.
    pub fn judge(&self, ends: &FlowEnds) -> Result<PermittedFlow, FlowRefusal> {
        self.judge_with(ends, &self.names_of(ends), is_of_host)
    }

    /// Decides whether a guest's flow may begin, as [`GatewayCore::judge`], and counts it as a new flow of the guest.
    ///
    /// # Errors
    /// The reason why the flow may not begin.
    pub fn admit(&mut self, ends: &FlowEnds) -> Result<PermittedFlow, FlowRefusal> {
        let permitted = self.judge(ends)?;
        if self.may_begin(ends.who, ends.direction) { Ok(permitted) } else { Err(FlowRefusal::Rate) }
    }

    /// Returns whether the current rules allow an open flow. Flows that began at the host's side need no rule. `name`
    /// is the DNS name with which the flow began, which counts as a name of the destination as long as the flow is
    /// open.
    pub fn permits(&self, review: &mut FlowReview, ends: &FlowEnds, name: Option<&Arc<str>>) -> bool {
        if ends.direction == FlowDirection::In {
            return true;
        }
        let mut names = self.names_of(ends);
        names.extend(name.cloned());
        let of_host = |address| *review.of_host.entry(address).or_insert_with(|| is_of_host(address));
        self.judge_with(ends, &names, of_host).is_ok()
    }

    fn judge_with(
        &self,
        ends: &FlowEnds,
        names: &[Arc<str>],
        of_host: impl FnOnce(IpAddr) -> bool,
    ) -> Result<PermittedFlow, FlowRefusal> {
        let dst = ends.remote.ip();
        let own = self.net.leads_to_loopback(dst);
        if !own && self.net.is_own(dst) {
            return Err(FlowRefusal::Policy);
        }
        if !own && self.net.is_inside(dst) {
            return Err(FlowRefusal::Inside);
        }
        let outer: IpAddr = match dst {
            IpAddr::V4(_) if own => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) if own => Ipv6Addr::LOCALHOST.into(),
            // Guests can reach the host's loopback only through the gateway's own address.
            _ if dst.is_loopback() || dst.is_unspecified() => return Err(FlowRefusal::Policy),
            _ => dst,
        };
        let port = ends.remote.port();
        let request = EgressRequest { guest: ends.who, transport: ends.transport, dst: outer, port, names };
        match self.policy.decide(&request) {
            EgressVerdict::Refuse => Err(FlowRefusal::Policy),
            EgressVerdict::Allow { by_address: false, .. } if !own && of_host(outer) => Err(FlowRefusal::HostAddress),
            EgressVerdict::Allow { name, .. } => {
                let name = names.get(name.unwrap_or(0)).cloned();
                Ok(PermittedFlow { outer: SocketAddr::new(outer, port), name })
            }
        }
    }

    /// Counts a new flow of a guest. Returns `false` if the guest exceeds its rate of new flows in this direction.
    pub fn may_begin(&mut self, who: GuestId, direction: FlowDirection) -> bool {
        self.rates.may_begin(who, direction, &self.flows.ports, self.now)
    }

    /// Returns whether a guest's rate limit lets a datagram of this [cost](crate::rates::datagram_cost) pass.
    pub fn passes(&mut self, who: GuestId, way: RateWay, cost: usize) -> bool {
        self.rates.passes(who, way, cost, &self.flows.ports, self.now)
    }

    fn names_of(&self, ends: &FlowEnds) -> Vec<Arc<str>> {
        self.resolved.names(ends.who, ends.remote.ip(), self.now)
    }

    /// Records the refusal of a guest's flow in the flow log, with the latest DNS name of the flow's destination.
    pub fn refused(&mut self, ends: &FlowEnds, reason: &'static str) {
        let names = self.names_of(ends);
        self.flows.refused(ends, names.first().map(|name| &**name), reason, self.now);
    }

    /// Returns the address under which guests see the host-side address `outer`: `outer` itself or, for a loopback
    /// address, the gateway's own address. Returns `None` if the gateway has no address of that IP version.
    pub fn seen_by_guest(&self, outer: IpAddr) -> Option<IpAddr> {
        if outer.is_loopback() { self.net.loopback(outer) } else { Some(outer) }
    }

    /// Sends an IP packet to a station: a guest, or a multicast group in a guest's network. `l4` is the transport
    /// header, with its checksum, and the payload.
    pub fn send_packet(&mut self, to: GuestId, src: IpAddr, dst: IpAddr, protocol: u8, l4: &[u8]) {
        self.send_with(to, src, dst, protocol, TTL, l4);
    }

    /// As [`GatewayCore::send_packet`], with a given time to live or hop limit.
    pub fn send_with(&mut self, to: GuestId, src: IpAddr, dst: IpAddr, protocol: u8, ttl: u8, l4: &[u8]) {
        let most = usize::from(u16::MAX) - if src.is_ipv4() { ipv4::HEADER_LEN } else { 0 };
        if src.is_ipv4() != dst.is_ipv4() || l4.len() > most {
            return;
        }
        let ends = PacketEnds { src_mac: self.net.mac, to, src, dst };
        let ident = self.random.u32();
        let link = &mut self.link;
        build::packet(&ends, protocol, ttl, l4, self.net.mtu.into(), ident, |parts| {
            link.send(parts);
        });
    }

    /// Sends a UDP datagram to a station: a guest, or the broadcast address of a guest's network.
    pub fn send_datagram(&mut self, to: GuestId, src: SocketAddr, dst: SocketAddr, payload: &[u8]) {
        let mut l4 = std::mem::take(&mut self.datagram);
        let ends = PacketEnds { src_mac: self.net.mac, to, src: src.ip(), dst: dst.ip() };
        build::datagram(&mut l4, &ends, src.port(), dst.port(), payload);
        self.send_packet(to, src.ip(), dst.ip(), UDP, &l4);
        self.datagram = l4;
    }

    /// Sends a guest an ICMP error about a packet that it has sent. `by` is the source address of the error; `None`
    /// means the gateway's address.
    pub fn send_error(&mut self, packet: &GuestPacket<'_>, problem: IcmpProblem, by: Option<IpAddr>) {
        self.send_error_about(packet.who, packet.src, packet.packet, problem, by);
    }

    /// As [`GatewayCore::send_error`], for a packet of which only the first bytes and the sender's addresses are known.
    pub fn send_error_about(
        &mut self,
        who: GuestId,
        guest: IpAddr,
        packet: &[u8],
        problem: IcmpProblem,
        by: Option<IpAddr>,
    ) {
        let by = by.filter(|by| by.is_ipv4() == guest.is_ipv4() && !by.is_loopback());
        let Some(src) = by.or_else(|| self.net.own(guest)) else { return };
        if !self.may_send_error() || packet.is_empty() {
            return;
        }
        let l4 = icmp_message::error(problem, packet, src, guest);
        self.send_packet(who, src, guest, icmp_message::protocol(src), &l4);
    }

    fn may_send_error(&mut self) -> bool {
        if self.now.saturating_duration_since(self.errors.second) >= Duration::from_secs(1) {
            self.errors = ErrorAllowance { second: self.now, used: 0 };
        }
        self.errors.used += 1;
        self.errors.used <= ERRORS
    }
}

/// Returns whether an address belongs to the host, or embeds an address of the host (as NAT64 addresses do). An address
/// belongs to the host if a socket can be bound to it, or the kernel chooses it as the source of datagrams to it. This
/// check sends nothing.
pub fn is_of_host(address: IpAddr) -> bool {
    is_one_of_host(address) || held_v4(address).is_some_and(|held| is_one_of_host(held.into()))
}

fn is_one_of_host(address: IpAddr) -> bool {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let Ok(socket) = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None) else {
        // No descriptor is left for this check, so a flow would get none either, and the answer is irrelevant.
        return true;
    };
    // `bind` is tried first, because the other check misses some addresses: for datagrams to the host's second address
    // in a network, the kernel chooses the first address as source.
    if rustix::net::bind(&socket, &SocketAddr::new(address, 0)).is_ok() {
        return true;
    }
    if rustix::net::connect(&socket, &SocketAddr::new(address, 9)).is_err() {
        return false;
    }
    let own = rustix::net::getsockname(&socket).ok().and_then(|own| SocketAddr::try_from(own).ok());
    own.is_none_or(|own| own.ip() == address || is_routers_anycast(address, own.ip()))
}

/// Returns whether an address is the subnet-router anycast address of the network of `own` (RFC 4291 §2.6.1): a host
/// that forwards packets receives packets to this address.
fn is_routers_anycast(address: IpAddr, own: IpAddr) -> bool {
    let (IpAddr::V6(address), IpAddr::V6(own)) = (address, own) else { return false };
    address.to_bits() as u64 == 0 && address.to_bits() >> 64 == own.to_bits() >> 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "sockets are not available under Miri")]
    fn the_hosts_own_addresses_are_known() {
        assert!(is_of_host(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_of_host("192.0.2.77".parse().unwrap()));
        assert!(is_of_host("64:ff9b::7f00:1".parse().unwrap()), "an address that embeds the host's");
        let [network, other]: [IpAddr; 2] = ["fd00::".parse().unwrap(), "fd00:1::".parse().unwrap()];
        let own = "fd00::7".parse().unwrap();
        assert!(is_routers_anycast(network, own) && !is_routers_anycast(other, own) && !is_routers_anycast(own, own));
    }
}
