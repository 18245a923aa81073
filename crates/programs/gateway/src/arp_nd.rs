//! Whose station an address is: answers to ARP (RFC 826) and Neighbour Discovery (RFC 4861), and questions of our own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netvale_wire::layers::ICMP6;
use netvale_wire::{MacAddr, arp, ethernet};

use crate::core::GatewayCore;
use crate::frame::GuestPacket;
use crate::frame::build::ethernet_headers;
use crate::icmp_message::{group_station, set_checksum};
use crate::net::ALL_NODES;

/// Types of Neighbour Discovery's messages.
pub const ROUTER_SOLICITATION: u8 = 133;
/// A router's advertisement.
pub const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// Options: the sender's station, the target's.
pub const SOURCE_STATION: u8 = 1;
const TARGET_STATION: u8 = 2;
/// Hop limit of all of these messages: a router would have lowered it.
pub const HOP_LIMIT: u8 = 255;
/// Bytes of a solicitation or advertisement of a neighbour without options.
const NEIGHBOUR_LEN: usize = 24;

/// Takes an ARP packet that came from station `mac`.
pub fn take_arp(core: &mut GatewayCore, mac: MacAddr, packet: &[u8]) {
    let Ok(packet) = arp::Packet::parse(packet) else { return };
    let (sender, address) = packet.sender();
    let (_, target) = packet.target();
    // A packet for another station's address would be passed on by a proxy only, of which there is none.
    if sender != mac {
        return;
    }
    if core.net.is_guests(address.into()) {
        core.neighbours.learn(address.into(), mac, core.now);
    }
    let is_own = core.net.is_own(target.into());
    // A probe has no sender's address yet (RFC 5227 §1.1).
    if packet.operation() == arp::REQUEST && is_own && (address.is_unspecified() || core.net.is_guests(address.into()))
    {
        send_arp(core, arp::REPLY, target, &ArpTarget { mac, address });
    }
}

/// The other end of an ARP packet.
struct ArpTarget {
    mac: MacAddr,
    address: Ipv4Addr,
}

fn send_arp(core: &mut GatewayCore, operation: u16, own: Ipv4Addr, to: &ArpTarget) {
    let mut bytes = [0; arp::LEN];
    let Ok(mut packet) = arp::Packet::init(&mut bytes) else { return };
    packet.set_operation(operation);
    packet.set_sender(core.net.mac, own);
    let asks = operation == arp::REQUEST;
    packet.set_target(if asks { MacAddr::ZERO } else { to.mac }, to.address);
    core.link.send(&[ethernet_headers(core.net.mac, to.mac, ethernet::ARP).bytes(), &bytes]);
}

/// Asks for the station that has an address.
pub fn ask(core: &mut GatewayCore, address: IpAddr) {
    match (address, core.net.own(address)) {
        (IpAddr::V4(address), Some(IpAddr::V4(own))) => {
            send_arp(core, arp::REQUEST, own, &ArpTarget { mac: MacAddr::BROADCAST, address });
        }
        (IpAddr::V6(address), Some(own)) => {
            let bits = address.to_bits() as u32 & 0xff_ffff;
            let group = Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | u128::from(bits));
            let mut message = vec![NEIGHBOUR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
            message.extend_from_slice(&address.octets());
            message.extend_from_slice(&[SOURCE_STATION, 1]);
            message.extend_from_slice(&core.net.mac.0);
            set_checksum(&mut message, own, group.into());
            core.send_with(group_station(group), own, group.into(), ICMP6, HOP_LIMIT, &message);
        }
        _ => {}
    }
}

/// Whether an ICMPv6 message belongs to Neighbour Discovery.
pub fn is_discovery(packet: &GuestPacket<'_>) -> bool {
    packet.protocol == ICMP6 && packet.l4.first().is_some_and(|kind| (133..=137).contains(kind))
}

/// Takes a message of Neighbour Discovery about a neighbour.
pub fn take_nd(core: &mut GatewayCore, packet: &GuestPacket<'_>) {
    let Some((kind, target)) = neighbour_message(packet) else { return };
    let IpAddr::V6(src) = packet.src else { return };
    if kind == NEIGHBOUR_ADVERTISEMENT {
        if core.net.is_guests(target.into()) {
            core.neighbours.learn(target.into(), packet.mac, core.now);
        }
        return;
    }
    if core.net.is_guests(src.into()) {
        core.neighbours.learn(src.into(), packet.mac, core.now);
    } else if !src.is_unspecified() {
        return;
    }
    if core.net.is_own(target.into()) {
        advertise(core, packet.mac, src, target);
    }
}

/// The type and the target of a message that a neighbour on this link has sent (RFC 4861 §7.1).
fn neighbour_message(packet: &GuestPacket<'_>) -> Option<(u8, Ipv6Addr)> {
    let l4 = packet.l4;
    let kind = *l4.first()?;
    let known = kind == NEIGHBOUR_SOLICITATION || kind == NEIGHBOUR_ADVERTISEMENT;
    let right = known && packet.ttl == HOP_LIMIT && l4.get(1) == Some(&0);
    let target = Ipv6Addr::from(*l4.get(8..)?.first_chunk::<16>()?);
    let options = options(l4.get(NEIGHBOUR_LEN..)?)?;
    // An address that is not sure yet is asked for without a station.
    let unsure = packet.src == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && options.contains(&SOURCE_STATION);
    (right && !target.is_multicast() && !unsure).then_some((kind, target))
}

/// The types of a message's options; none if one has no length (RFC 4861 §4.6).
pub fn options(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut types = Vec::new();
    while !bytes.is_empty() {
        let [kind, units, ..] = bytes else { return None };
        let len = usize::from(*units) * 8;
        types.push(*kind);
        bytes = bytes.get(len..).filter(|_| len > 0)?;
    }
    Some(types)
}

fn advertise(core: &mut GatewayCore, mac: MacAddr, asked_by: Ipv6Addr, target: Ipv6Addr) {
    // Router, override; and "solicited" if there is an address to answer to.
    let unsure = asked_by.is_unspecified();
    let flags = 0xa0 | if unsure { 0 } else { 0x40 };
    let mut message = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
    message.extend_from_slice(&target.octets());
    message.extend_from_slice(&[TARGET_STATION, 1]);
    message.extend_from_slice(&core.net.mac.0);
    let to = if unsure { ALL_NODES } else { asked_by };
    let station = if unsure { group_station(ALL_NODES) } else { mac };
    set_checksum(&mut message, target.into(), to.into());
    core.send_with(station, target.into(), to.into(), ICMP6, HOP_LIMIT, &message);
}
