//! Builds frames, layer by layer.

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::PacketBuilder;

/// MAC address of the guarded port.
pub const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// MAC address of another port.
pub const ALIEN: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// The addresses that the guarded port may use.
pub const GUARDED: &str = "02:00:00:00:00:01, 10.0.0.5, 10.1.0.0/24, 2001:db8::5, fe80::/10";

pub const V4: u16 = 0x0800;
pub const ARP: u16 = 0x0806;
pub const RARP: u16 = 0x8035;
pub const V6: u16 = 0x86dd;
pub const TAG: u16 = 0x8100;
pub const SERVICE_TAG: u16 = 0x88a8;

pub fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

pub fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

pub fn ethernet(src: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&[0xff; 6], &src, &ethertype.to_be_bytes()[..], payload].concat()
}

/// Returns `frame` with tags of the given types, the outermost first.
pub fn tagged(frame: &[u8], tags: &[u16]) -> Vec<u8> {
    let tags: Vec<u8> = tags.iter().flat_map(|tag| [(tag >> 8) as u8, *tag as u8, 0, 7]).collect();
    [&frame[..12], &tags, &frame[12..]].concat()
}

/// Returns `frame` as an 802.3 frame with an LLC/SNAP header. `code` is the organisation code (OUI) of SNAP.
pub fn snapped(frame: &[u8], code: [u8; 3]) -> Vec<u8> {
    let len = (frame.len() - 14 + 8) as u16;
    [&frame[..12], &len.to_be_bytes(), &[0xaa, 0xaa, 3], &code, &frame[12..]].concat()
}

/// Returns an ARP packet with the given sender addresses.
pub fn arp(operation: u8, mac: [u8; 6], ip: &str) -> Vec<u8> {
    let fixed = [0, 1, 8, 0, 6, 4, 0, operation];
    [&fixed[..], &mac, &v4(ip).octets(), &[0; 6], &[10, 0, 0, 1]].concat()
}

pub fn udp4(src: &str, from: u16, to: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(OWN, [0xff; 6]).ipv4(v4(src).octets(), [10, 0, 0, 1], 64);
    builder.udp(from, to).write(&mut frame, b"payload").unwrap();
    frame
}

pub fn udp6(src: &str, from: u16, to: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(OWN, [0xff; 6]).ipv6(v6(src).octets(), v6("ff02::1").octets(), 64);
    builder.udp(from, to).write(&mut frame, b"payload").unwrap();
    frame
}

/// An IPv4 frame from the guarded port, with these IP options and this fragment field.
pub fn ipv4(src: &str, options: &[u8], fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let total = ((header_len + payload.len()) as u16).to_be_bytes();
    let [high, low] = fragment.to_be_bytes();
    let fixed = [0x40 | (header_len / 4) as u8, 0, total[0], total[1], 0, 1, high, low, 64, protocol, 0, 0];
    ethernet(OWN, V4, &[&fixed[..], &v4(src).octets(), &[10, 0, 0, 1], options, payload].concat())
}

/// An IPv6 frame from the guarded port, whose next header is `next`.
pub fn ipv6(src: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u16).to_be_bytes();
    let fixed = [0x60, 0, 0, 0, len[0], len[1], next, 255];
    ethernet(OWN, V6, &[&fixed[..], &v6(src).octets(), &v6("ff02::1").octets(), payload].concat())
}

/// An ICMPv6 message of type `kind`, with code and checksum 0. `body` starts at the fifth byte.
pub fn icmp6(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 0, 0, 0], body].concat()
}

/// A neighbour solicitation or advertisement.
pub fn neighbor(kind: u8, target: &str, options: &[u8]) -> Vec<u8> {
    icmp6(kind, &[&[0; 4], &v6(target).octets()[..], options].concat())
}

/// A neighbour discovery option with a MAC address.
pub fn link_layer(kind: u8, mac: [u8; 6]) -> Vec<u8> {
    [&[kind, 1], &mac[..]].concat()
}

/// A UDP header.
pub fn udp(from: u16, to: u16) -> Vec<u8> {
    [from.to_be_bytes(), to.to_be_bytes(), [0, 8], [0, 0]].concat()
}
