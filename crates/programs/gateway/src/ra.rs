//! Router advertisements (RFC 4861 §6.2): the prefix from which guests generate their addresses, the default router,
//! the MTU, and the name service (RFC 8106). [`RouterAdverts`] sends them periodically and when solicited.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netvale_wire::layers::ICMP6;

use crate::arp_nd::{HOP_LIMIT, ROUTER_ADVERTISEMENT, ROUTER_SOLICITATION, SOURCE_STATION, options};
use crate::core::GatewayCore;
use crate::dhcp6::Dhcp6Mode;
use crate::frame::GuestPacket;
use crate::guests::{GuestId, NetworkId};
use crate::icmp_message::{group_station, set_checksum};
use crate::net::{ALL_NODES, GatewayNet, encoded_name};
use crate::timers::TimedThing;

/// Time between unsolicited advertisements.
const INTERVAL: Duration = Duration::from_secs(200);
/// Minimum time between two multicast advertisements.
const PAUSE: Duration = Duration::from_secs(3);
/// Lifetime of the router and of the name service, in seconds.
const ROUTER_LIFETIME: u16 = 1800;
/// Valid lifetime of the prefix, in seconds.
const VALID: u32 = 86_400;
/// Preferred lifetime of the prefix, in seconds.
const PREFERRED: u32 = 14_400;
/// Length of a router solicitation without its options, in bytes.
const SOLICITATION_LEN: usize = 8;

/// The times of multicast advertisements in one network.
#[derive(Debug, Default)]
struct AdvertTimes {
    /// Time at which the last advertisement was sent; `None` if none was sent yet.
    last: Option<Instant>,
    /// Time at which an advertisement must be sent because a guest has solicited it; `None` if none must be sent.
    due: Option<Instant>,
}

/// The router advertisements of all networks. Periodic advertisements are sent in all networks together, so that the
/// gateway wakes up only once for them.
#[derive(Debug)]
pub struct RouterAdverts {
    mode: Dhcp6Mode,
    networks: BTreeMap<NetworkId, AdvertTimes>,
    /// Time at which the next periodic advertisements are due; `None` if the gateway sends no advertisements.
    round: Option<Instant>,
}

impl RouterAdverts {
    /// Returns the state before the first advertisement. `mode` determines the flags that point guests to DHCPv6.
    pub fn new(mode: Dhcp6Mode) -> Self {
        RouterAdverts { mode, networks: BTreeMap::new(), round: None }
    }

    /// Plans the first advertisements, if the gateway has an IPv6 address.
    pub fn begin(&mut self, core: &mut GatewayCore) {
        if core.net.addresses.v6.is_some() {
            self.round = Some(core.now);
            core.timers.add(core.now, TimedThing::Routers);
        }
    }

    /// Processes a guest's router solicitation.
    pub fn take(&mut self, core: &mut GatewayCore, packet: &GuestPacket<'_>) {
        let is_question = packet.l4.first() == Some(&ROUTER_SOLICITATION) && packet.l4.get(1) == Some(&0);
        let well_formed = packet.l4.get(SOLICITATION_LEN..).and_then(options).is_some();
        if !is_question || !well_formed || packet.ttl != HOP_LIMIT || core.net.addresses.v6.is_none() {
            return;
        }
        if core.net.is_guests(packet.src) {
            core.neighbours.learn(packet.src, packet.who, core.now);
            send(core, packet.who, packet.src, self.mode, ROUTER_LIFETIME);
        } else if matches!(packet.src, IpAddr::V6(src) if src.is_unspecified()) {
            let times = self.networks.entry(packet.who.network).or_default();
            let at = times.last.map_or(core.now, |last| (last + PAUSE).max(core.now));
            if times.due.is_none_or(|due| at < due) {
                times.due = Some(at);
                core.timers.add(at, TimedThing::Routers);
            }
        }
    }

    /// Sends the multicast advertisements that are due, and plans the next round.
    pub fn timer(&mut self, core: &mut GatewayCore) {
        let now = core.now;
        let is_round = self.round.is_some_and(|round| round <= now);
        if is_round {
            self.round = Some(now + INTERVAL);
            core.timers.add(now + INTERVAL, TimedThing::Routers);
            for network in core.networks.iter() {
                self.networks.entry(network).or_default();
            }
        }
        for (network, times) in &mut self.networks {
            if is_round || times.due.is_some_and(|due| due <= now) {
                *times = AdvertTimes { last: Some(now), due: None };
                send(core, all_nodes(*network), ALL_NODES.into(), self.mode, ROUTER_LIFETIME);
            }
        }
    }

    /// Stops advertising in a network until a guest in this network sends a frame again.
    pub fn forget(&mut self, network: NetworkId) {
        self.networks.remove(&network);
    }

    /// Advertises a router lifetime of 0, upon which guests stop using this router.
    pub fn end(&mut self, core: &mut GatewayCore) {
        if core.net.addresses.v6.is_some() {
            for network in self.networks.keys() {
                send(core, all_nodes(*network), ALL_NODES.into(), self.mode, 0);
            }
        }
    }
}

fn all_nodes(network: NetworkId) -> GuestId {
    network.station(group_station(ALL_NODES))
}

fn send(core: &mut GatewayCore, who: GuestId, to: IpAddr, mode: Dhcp6Mode, lifetime: u16) {
    let src = core.net.link_local().into();
    let Some(mut message) = message(&core.net, mode, lifetime) else { return };
    set_checksum(&mut message, src, to);
    core.send_with(who, src, to, ICMP6, HOP_LIMIT, &message);
}

/// The flags of an advertisement (RFC 4861 §4.2, §4.6.2).
struct AdvertFlags {
    /// The router's flags M (addresses by DHCPv6) and O (settings by DHCPv6).
    router: u8,
    /// The prefix's flags L (on-link) and A (guests generate their addresses).
    prefix: u8,
}

impl AdvertFlags {
    fn of(mode: Dhcp6Mode) -> Self {
        match mode {
            Dhcp6Mode::Off => AdvertFlags { router: 0, prefix: 0xc0 },
            Dhcp6Mode::Settings => AdvertFlags { router: 0x40, prefix: 0xc0 },
            Dhcp6Mode::Addresses => AdvertFlags { router: 0xc0, prefix: 0x80 },
        }
    }
}

/// Makes the advertisement, without its checksum. Returns `None` if the gateway has no IPv6 address.
fn message(net: &GatewayNet, mode: Dhcp6Mode, lifetime: u16) -> Option<Vec<u8>> {
    let own = net.addresses.v6?;
    let prefix = (own.address.to_bits() >> 64 << 64).to_be_bytes();
    let service_lifetime = u32::from(lifetime).to_be_bytes();
    let AdvertFlags { router, prefix: prefix_flags } = AdvertFlags::of(mode);
    let mut message = vec![ROUTER_ADVERTISEMENT, 0, 0, 0, 64, router];
    message.extend_from_slice(&lifetime.to_be_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&[3, 4, own.prefix, prefix_flags]);
    message.extend_from_slice(&VALID.to_be_bytes());
    message.extend_from_slice(&PREFERRED.to_be_bytes());
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(&prefix);
    message.extend_from_slice(&[5, 1, 0, 0]);
    message.extend_from_slice(&u32::from(net.mtu).to_be_bytes());
    message.extend_from_slice(&[SOURCE_STATION, 1]);
    message.extend_from_slice(&net.mac.0);
    // The name service (RDNSS), and the search domain (DNSSL).
    message.extend_from_slice(&[25, 3, 0, 0]);
    message.extend_from_slice(&service_lifetime);
    message.extend_from_slice(&own.address.octets());
    let domain = search_list(&net.domain);
    message.extend_from_slice(&[31, (1 + domain.len() / 8) as u8, 0, 0]);
    message.extend_from_slice(&service_lifetime);
    message.extend_from_slice(&domain);
    Some(message)
}

/// Encodes a domain in DNS wire format, padded to a multiple of 8 bytes.
fn search_list(domain: &str) -> Vec<u8> {
    let mut bytes = encoded_name(domain);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::example;

    /// Objective: an advertisement has well-formed options with the prefix, the MTU and the name service.
    #[test]
    fn an_advertisement_is_what_guests_read() {
        let message = message(&example(), Dhcp6Mode::Off, ROUTER_LIFETIME).unwrap();
        assert_eq!(options(&message[16..]), Some(vec![3, 5, 1, 25, 31]));
        assert_eq!(message[6..8], ROUTER_LIFETIME.to_be_bytes());
        assert_eq!(message[16..20], [3, 4, 64, 0xc0]);
        assert_eq!(message[32..40], [0xfd, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(search_list("lan"), [3, b'l', b'a', b'n', 0, 0, 0, 0]);
    }

    /// Objective: the flags M and O announce what DHCPv6 provides; the flag A is cleared if DHCPv6 provides addresses.
    #[test]
    fn flags_say_what_dhcpv6_gives() {
        let flags = [Dhcp6Mode::Off, Dhcp6Mode::Settings, Dhcp6Mode::Addresses].map(|mode| {
            let message = message(&example(), mode, ROUTER_LIFETIME).unwrap();
            (message[5], message[19])
        });
        assert_eq!(flags, [(0, 0xc0), (0x40, 0xc0), (0xc0, 0x80)]);
    }

    #[test]
    fn options_without_lengths_are_refused() {
        assert_eq!(options(&[]), Some(vec![]));
        for bad in [&[1][..], &[1, 0], &[1, 1, 0], &[1, 2, 0, 0, 0, 0, 0, 0], &[1, 1, 0, 0, 0, 0, 0, 0, 5]] {
            assert_eq!(options(bad), None, "{bad:?}");
        }
    }
}
