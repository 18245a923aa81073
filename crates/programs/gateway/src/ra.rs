//! Router advertisements (RFC 4861 §6.2): a prefix from which guests make their addresses, the route out, the MTU, and
//! the name service (RFC 8106). [`RouterAdverts`] says when.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use netvale_wire::MacAddr;
use netvale_wire::layers::ICMP6;

use crate::arp_nd::{HOP_LIMIT, ROUTER_ADVERTISEMENT, ROUTER_SOLICITATION, SOURCE_STATION, options};
use crate::core::GatewayCore;
use crate::frame::GuestPacket;
use crate::icmp_message::{group_station, set_checksum};
use crate::net::{ALL_NODES, GatewayNet};
use crate::timers::TimedThing;

/// Time between advertisements that nobody has asked for, and between any two for all.
const INTERVAL: Duration = Duration::from_secs(200);
const PAUSE: Duration = Duration::from_secs(3);
/// Seconds for which guests use the router and the name service without a further advertisement.
const ROUTER_LIFETIME: u16 = 1800;
/// Seconds for which addresses of the prefix are valid and preferred.
const VALID: u32 = 86_400;
const PREFERRED: u32 = 14_400;
/// Bytes of a solicitation without options.
const SOLICITATION_LEN: usize = 8;

/// When advertisements are sent.
#[derive(Debug, Default)]
pub struct RouterAdverts {
    /// The last one for all guests.
    last: Option<Instant>,
    due: Option<Instant>,
}

impl RouterAdverts {
    /// Begins to advertise, if the gateway has an address of IPv6.
    pub fn begin(&mut self, core: &mut GatewayCore) {
        if core.net.addresses.v6.is_some() {
            let now = core.now;
            self.plan(core, now);
        }
    }

    fn plan(&mut self, core: &mut GatewayCore, at: Instant) {
        if self.due.is_none_or(|due| at < due) {
            self.due = Some(at);
            core.timers.add(at, TimedThing::Routers);
        }
    }

    /// Takes a guest's question for routers.
    pub fn take(&mut self, core: &mut GatewayCore, packet: &GuestPacket<'_>) {
        let is_question = packet.l4.first() == Some(&ROUTER_SOLICITATION) && packet.l4.get(1) == Some(&0);
        let well_formed = packet.l4.get(SOLICITATION_LEN..).and_then(options).is_some();
        if !is_question || !well_formed || packet.ttl != HOP_LIMIT || core.net.addresses.v6.is_none() {
            return;
        }
        if core.net.is_guests(packet.src) {
            core.neighbours.learn(packet.src, packet.mac, core.now);
            send(core, packet.mac, packet.src, ROUTER_LIFETIME);
        } else if matches!(packet.src, IpAddr::V6(src) if src.is_unspecified()) {
            let next = self.last.map_or(core.now, |last| (last + PAUSE).max(core.now));
            self.plan(core, next);
        }
    }

    /// Advertises, if it is time to.
    pub fn timer(&mut self, core: &mut GatewayCore) {
        if self.due.is_none_or(|due| due > core.now) {
            return;
        }
        self.due = None;
        self.last = Some(core.now);
        send(core, group_station(ALL_NODES), ALL_NODES.into(), ROUTER_LIFETIME);
        let next = core.now + INTERVAL;
        self.plan(core, next);
    }

    /// Tells guests that there is no way out any more.
    pub fn end(&mut self, core: &mut GatewayCore) {
        if core.net.addresses.v6.is_some() {
            send(core, group_station(ALL_NODES), ALL_NODES.into(), 0);
        }
    }
}

fn send(core: &mut GatewayCore, mac: MacAddr, to: IpAddr, lifetime: u16) {
    let src = core.net.link_local().into();
    let Some(mut message) = message(&core.net, lifetime) else { return };
    set_checksum(&mut message, src, to);
    core.send_with(mac, src, to, ICMP6, HOP_LIMIT, &message);
}

/// The advertisement without its checksum.
fn message(net: &GatewayNet, lifetime: u16) -> Option<Vec<u8>> {
    let own = net.addresses.v6?;
    let prefix = (own.address.to_bits() >> 64 << 64).to_be_bytes();
    let service_lifetime = u32::from(lifetime).to_be_bytes();
    let mut message = vec![ROUTER_ADVERTISEMENT, 0, 0, 0, 64, 0];
    message.extend_from_slice(&lifetime.to_be_bytes());
    message.extend_from_slice(&[0; 8]);
    // The prefix: on this link, and for addresses that guests make themselves.
    message.extend_from_slice(&[3, 4, own.prefix, 0xc0]);
    message.extend_from_slice(&VALID.to_be_bytes());
    message.extend_from_slice(&PREFERRED.to_be_bytes());
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(&prefix);
    message.extend_from_slice(&[5, 1, 0, 0]);
    message.extend_from_slice(&u32::from(net.mtu).to_be_bytes());
    message.extend_from_slice(&[SOURCE_STATION, 1]);
    message.extend_from_slice(&net.mac.0);
    // The name service, and the domain that guests search.
    message.extend_from_slice(&[25, 3, 0, 0]);
    message.extend_from_slice(&service_lifetime);
    message.extend_from_slice(&own.address.octets());
    let domain = search_list(&net.domain);
    message.extend_from_slice(&[31, (1 + domain.len() / 8) as u8, 0, 0]);
    message.extend_from_slice(&service_lifetime);
    message.extend_from_slice(&domain);
    Some(message)
}

/// A domain in the form of DNS, padded to units of 8 bytes.
fn search_list(domain: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in domain.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::example;

    /// Objective: an advertisement is a list of options with lengths, with the prefix, the MTU and the name service.
    #[test]
    fn an_advertisement_is_what_guests_read() {
        let message = message(&example(), ROUTER_LIFETIME).unwrap();
        assert_eq!(options(&message[16..]), Some(vec![3, 5, 1, 25, 31]));
        assert_eq!(message[6..8], ROUTER_LIFETIME.to_be_bytes());
        assert_eq!(message[16..20], [3, 4, 64, 0xc0]);
        assert_eq!(message[32..40], [0xfd, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(search_list("lan"), [3, b'l', b'a', b'n', 0, 0, 0, 0]);
    }

    #[test]
    fn options_without_lengths_are_refused() {
        assert_eq!(options(&[]), Some(vec![]));
        for bad in [&[1][..], &[1, 0], &[1, 1, 0], &[1, 2, 0, 0, 0, 0, 0, 0], &[1, 1, 0, 0, 0, 0, 0, 0, 5]] {
            assert_eq!(options(bad), None, "{bad:?}");
        }
    }
}
