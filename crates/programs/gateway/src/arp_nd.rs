//! Resolution of IP addresses to MAC addresses: the gateway answers and sends requests of ARP (RFC 826) and of
//! Neighbour Discovery (RFC 4861).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netvale_wire::layers::ICMP6;
use netvale_wire::{MacAddr, arp, ethernet};

use crate::core::GatewayCore;
use crate::frame::GuestPacket;
use crate::frame::build::ethernet_headers;
use crate::guests::{GuestId, NetworkId};
use crate::icmp_message::{group_station, set_checksum};
use crate::net::ALL_NODES;

/// ICMPv6 type of a router solicitation.
pub const ROUTER_SOLICITATION: u8 = 133;
/// ICMPv6 type of a router advertisement.
pub const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// Type of the option "source link-layer address".
pub const SOURCE_STATION: u8 = 1;
/// Type of the option "target link-layer address".
const TARGET_STATION: u8 = 2;
/// Hop limit of Neighbour Discovery's messages. A message that a router has forwarded has a lower hop limit.
pub const HOP_LIMIT: u8 = 255;
/// Length of a neighbour solicitation or advertisement without its options, in bytes.
const NEIGHBOUR_LEN: usize = 24;

/// Processes an ARP packet from a frame that the guest `who` has sent.
pub fn take_arp(core: &mut GatewayCore, who: GuestId, packet: &[u8]) {
    let Ok(packet) = arp::Packet::parse(packet) else { return };
    let (sender, address) = packet.sender();
    let (_, target) = packet.target();
    // The sender in the packet must be the frame's sender: only a proxy sends ARP for another station, and this network
    // has no proxy.
    if sender != who.mac {
        return;
    }
    if core.net.is_guests(address.into()) {
        core.neighbours.learn(address.into(), who, core.now);
    }
    let is_own = core.net.is_own(target.into());
    // A probe has the sender address 0.0.0.0 (RFC 5227 §1.1).
    if packet.operation() == arp::REQUEST && is_own && (address.is_unspecified() || core.net.is_guests(address.into()))
    {
        send_arp(core, arp::REPLY, target, &ArpTarget { who, address });
    }
}

/// The station to which an ARP packet is sent.
struct ArpTarget {
    who: GuestId,
    address: Ipv4Addr,
}

fn send_arp(core: &mut GatewayCore, operation: u16, own: Ipv4Addr, to: &ArpTarget) {
    let mut bytes = [0; arp::LEN];
    let Ok(mut packet) = arp::Packet::init(&mut bytes) else { return };
    packet.set_operation(operation);
    packet.set_sender(core.net.mac, own);
    let asks = operation == arp::REQUEST;
    packet.set_target(if asks { MacAddr::ZERO } else { to.who.mac }, to.address);
    core.link.send(&[ethernet_headers(core.net.mac, to.who, ethernet::ARP).bytes(), &bytes]);
}

/// Sends a request, by ARP or a neighbour solicitation, for the MAC address of a guest's IP address in a network.
pub fn ask(core: &mut GatewayCore, network: NetworkId, address: IpAddr) {
    match (address, core.net.own(address)) {
        (IpAddr::V4(address), Some(IpAddr::V4(own))) => {
            let who = network.station(MacAddr::BROADCAST);
            send_arp(core, arp::REQUEST, own, &ArpTarget { who, address });
        }
        (IpAddr::V6(address), Some(own)) => {
            let bits = address.to_bits() as u32 & 0xff_ffff;
            let group = Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | u128::from(bits));
            let mut message = vec![NEIGHBOUR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
            message.extend_from_slice(&address.octets());
            message.extend_from_slice(&[SOURCE_STATION, 1]);
            message.extend_from_slice(&core.net.mac.0);
            set_checksum(&mut message, own, group.into());
            core.send_with(network.station(group_station(group)), own, group.into(), ICMP6, HOP_LIMIT, &message);
        }
        _ => {}
    }
}

/// Returns whether a packet is an ICMPv6 message of Neighbour Discovery (types 133 to 137).
pub fn is_discovery(packet: &GuestPacket<'_>) -> bool {
    packet.protocol == ICMP6 && packet.l4.first().is_some_and(|kind| (133..=137).contains(kind))
}

/// Processes a neighbour solicitation or advertisement.
pub fn take_nd(core: &mut GatewayCore, packet: &GuestPacket<'_>) {
    let Some((kind, target)) = neighbour_message(packet) else { return };
    let IpAddr::V6(src) = packet.src else { return };
    if kind == NEIGHBOUR_ADVERTISEMENT {
        if core.net.is_guests(target.into()) {
            core.neighbours.learn(target.into(), packet.who, core.now);
        }
        return;
    }
    if core.net.is_guests(src.into()) {
        core.neighbours.learn(src.into(), packet.who, core.now);
    } else if !src.is_unspecified() {
        return;
    }
    if core.net.is_own(target.into()) {
        advertise(core, packet.who, src, target);
    }
}

/// Returns the type and the target of a neighbour solicitation or advertisement; `None` if it fails the checks of RFC
/// 4861 §7.1.
fn neighbour_message(packet: &GuestPacket<'_>) -> Option<(u8, Ipv6Addr)> {
    let l4 = packet.l4;
    let kind = *l4.first()?;
    let known = kind == NEIGHBOUR_SOLICITATION || kind == NEIGHBOUR_ADVERTISEMENT;
    let right = known && packet.ttl == HOP_LIMIT && l4.get(1) == Some(&0);
    let target = Ipv6Addr::from(*l4.get(8..)?.first_chunk::<16>()?);
    let options = options(l4.get(NEIGHBOUR_LEN..)?)?;
    // During duplicate address detection, the source is unspecified and no source link-layer address is allowed.
    let unsure = packet.src == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && options.contains(&SOURCE_STATION);
    (right && !target.is_multicast() && !unsure).then_some((kind, target))
}

/// Returns the types of a message's options; `None` if an option has the length 0 or runs past the message (RFC 4861
/// §4.6).
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

fn advertise(core: &mut GatewayCore, who: GuestId, asked_by: Ipv6Addr, target: Ipv6Addr) {
    // The flags are R and O, and also S (solicited) if the solicitation has a source address to which the answer can
    // go.
    let unsure = asked_by.is_unspecified();
    let flags = 0xa0 | if unsure { 0 } else { 0x40 };
    let mut message = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
    message.extend_from_slice(&target.octets());
    message.extend_from_slice(&[TARGET_STATION, 1]);
    message.extend_from_slice(&core.net.mac.0);
    let to = if unsure { ALL_NODES } else { asked_by };
    let station = if unsure { who.network.station(group_station(ALL_NODES)) } else { who };
    set_checksum(&mut message, target.into(), to.into());
    core.send_with(station, target.into(), to.into(), ICMP6, HOP_LIMIT, &message);
}
