//! Builds frames to guests. A packet's source and destination, as MAC and IP addresses, are its [`PacketEnds`].

use std::net::IpAddr;

use netvale_wire::checksum::pseudo;
use netvale_wire::layers::UDP;
use netvale_wire::{MacAddr, Sum, VnetHdr, ethernet, ipv4, ipv6, udp};

use super::VNET_LEN;
use crate::guests::GuestId;

/// Time to live, or hop limit, of the gateway's packets.
pub const TTL: u8 = 64;
/// Maximum number of bytes before the transport header: virtio-net, Ethernet with a VLAN tag, IPv6 and fragment header.
pub const MAX_HEADERS: usize =
    VNET_LEN + ethernet::HEADER_LEN + ethernet::VLAN_TAG_LEN + ipv6::HEADER_LEN + ipv6::FRAGMENT_LEN;

/// Source and destination addresses of a packet to a guest.
#[derive(Clone, Copy, Debug)]
pub struct PacketEnds {
    /// The gateway's MAC address.
    pub src_mac: MacAddr,
    /// The destination station: a guest, or a multicast group in a guest's network.
    pub to: GuestId,
    /// IP source.
    pub src: IpAddr,
    /// IP destination, of the same version.
    pub dst: IpAddr,
}

/// The fields of a fragment's header.
#[derive(Clone, Copy, Debug)]
struct FragmentPlace {
    ident: u32,
    offset: usize,
    more: bool,
}

/// The headers of a frame, from the virtio-net header on.
#[derive(Clone, Copy, Debug)]
pub struct FrameHeaders {
    bytes: [u8; MAX_HEADERS],
    len: usize,
}

impl FrameHeaders {
    /// Returns the headers as bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// Makes the headers of an unfragmented IP packet with `len` bytes of transport header and payload.
pub fn headers(ends: &PacketEnds, protocol: u8, ttl: u8, len: usize, vnet: &VnetHdr) -> FrameHeaders {
    with_place(ends, protocol, ttl, len, vnet, None)
}

/// Makes the headers up to and including the Ethernet header, with the VLAN tag of the guest's network, for a frame
/// with the given EtherType; the virtio-net header is zero.
pub fn ethernet_headers(src: MacAddr, to: GuestId, ethertype: u16) -> FrameHeaders {
    let mut out = FrameHeaders { bytes: [0; MAX_HEADERS], len: VNET_LEN };
    out.push(&to.mac.0);
    out.push(&src.0);
    if let Some(vlan) = to.network.vlan() {
        out.push(&ethernet::VLAN.to_be_bytes());
        out.push(&vlan.to_be_bytes());
    }
    out.push(&ethertype.to_be_bytes());
    out
}

fn with_place(
    ends: &PacketEnds,
    protocol: u8,
    ttl: u8,
    len: usize,
    vnet: &VnetHdr,
    place: Option<FragmentPlace>,
) -> FrameHeaders {
    let v4 = ends.src.is_ipv4();
    let ethertype = if v4 { ethernet::IPV4 } else { ethernet::IPV6 };
    let mut out = ethernet_headers(ends.src_mac, ends.to, ethertype);
    out.bytes[..VNET_LEN].copy_from_slice(&vnet.to_bytes_mrg());
    match (ends.src, ends.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => out.push(&v4_header(src, dst, protocol, ttl, len, place)),
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let extension = place.map(|place| fragment_header(protocol, place));
            let next = if extension.is_some() { ipv6::FRAGMENT } else { protocol };
            let len = len + extension.map_or(0, |bytes| bytes.len());
            out.push(&v6_header(src, dst, next, ttl, len));
            out.push(extension.as_ref().map_or(&[][..], |bytes| &bytes[..]));
        }
        // Callers exclude that source and destination have different IP versions. Otherwise, guests would drop the
        // frame.
        _ => {}
    }
    out
}

fn v4_header(
    src: std::net::Ipv4Addr,
    dst: std::net::Ipv4Addr,
    protocol: u8,
    ttl: u8,
    len: usize,
    place: Option<FragmentPlace>,
) -> [u8; ipv4::HEADER_LEN] {
    let mut bytes = [0; ipv4::HEADER_LEN];
    let Ok(mut header) = ipv4::Header::init(&mut bytes) else { return bytes };
    header.set_total_len((ipv4::HEADER_LEN + len) as u16);
    header.set_ttl(ttl);
    header.set_protocol(protocol);
    header.set_src(src);
    header.set_dst(dst);
    match place {
        None => header.set_fragment(ipv4::DONT_FRAGMENT),
        Some(place) => {
            let more = if place.more { ipv4::MORE_FRAGMENTS } else { 0 };
            header.set_ident(place.ident as u16);
            header.set_fragment((place.offset / 8) as u16 | more);
        }
    }
    header.set_checksum(header.sum().checksum());
    bytes
}

fn v6_header(
    src: std::net::Ipv6Addr,
    dst: std::net::Ipv6Addr,
    next: u8,
    ttl: u8,
    len: usize,
) -> [u8; ipv6::HEADER_LEN] {
    let mut bytes = [0; ipv6::HEADER_LEN];
    let Ok(mut header) = ipv6::Header::init(&mut bytes) else { return bytes };
    header.set_payload_len(len as u16);
    header.set_next_header(next);
    header.set_hop_limit(ttl);
    header.set_src(src);
    header.set_dst(dst);
    bytes
}

fn fragment_header(protocol: u8, place: FragmentPlace) -> [u8; ipv6::FRAGMENT_LEN] {
    let [high, low] = (place.offset as u16 | u16::from(place.more)).to_be_bytes();
    let [a, b, c, d] = place.ident.to_be_bytes();
    [protocol, 0, high, low, a, b, c, d]
}

/// Makes the frame of an IP packet or, if it exceeds the MTU, the frames of its fragments, and passes the parts of each
/// frame to `send`. `l4` is the transport header, with its checksum, and the payload.
pub fn packet(
    ends: &PacketEnds,
    protocol: u8,
    ttl: u8,
    l4: &[u8],
    mtu: usize,
    ident: u32,
    mut send: impl FnMut(&[&[u8]]),
) {
    let ip = if ends.src.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    let none = VnetHdr::default();
    if ip + l4.len() <= mtu {
        send(&[headers(ends, protocol, ttl, l4.len(), &none).bytes(), l4]);
        return;
    }
    let overhead = if ends.src.is_ipv4() { ip } else { ip + ipv6::FRAGMENT_LEN };
    let room = (mtu.saturating_sub(overhead) / 8 * 8).max(8);
    let last = l4.len().div_ceil(room) - 1;
    for (index, piece) in l4.chunks(room).enumerate() {
        let place = FragmentPlace { ident, offset: index * room, more: index < last };
        send(&[with_place(ends, protocol, ttl, piece.len(), &none, Some(place)).bytes(), piece]);
    }
}

/// Makes an IP packet without link-layer headers, for the quote in an ICMP error.
pub fn bare_packet(src: IpAddr, dst: IpAddr, protocol: u8, l4: &[u8]) -> Vec<u8> {
    let mut packet = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => v4_header(src, dst, protocol, TTL, l4.len(), None).to_vec(),
        (IpAddr::V6(src), IpAddr::V6(dst)) => v6_header(src, dst, protocol, TTL, l4.len()).to_vec(),
        _ => Vec::new(),
    };
    packet.extend_from_slice(l4);
    packet
}

/// Replaces the contents of `out` by a UDP header, including its checksum, and the payload.
pub fn datagram(out: &mut Vec<u8>, ends: &PacketEnds, src_port: u16, dst_port: u16, payload: &[u8]) {
    out.clear();
    out.extend_from_slice(&[0; udp::HEADER_LEN]);
    out.extend_from_slice(payload);
    let len = out.len() as u16;
    let Ok(mut header) = udp::Header::parse_mut(out) else { return };
    header.set_src_port(src_port);
    header.set_dst_port(dst_port);
    header.set_datagram_len(len);
    let sum = pseudo(ends.src, ends.dst, UDP, len).unwrap_or(Sum::ZERO).add_bytes(out);
    if let Ok(mut header) = udp::Header::parse_mut(out) {
        header.set_checksum(sum.nonzero_checksum());
    }
}

#[cfg(test)]
mod tests {
    use super::super::reassembly::Reassembly;
    use super::super::{GuestFrame, parse};
    use super::*;
    use crate::guests::NetworkId;
    use std::time::Instant;

    fn ends(src: IpAddr, dst: IpAddr) -> PacketEnds {
        let to = NetworkId::UNTAGGED.station(MacAddr([2, 0, 0, 0, 0, 9]));
        PacketEnds { src_mac: MacAddr([2, 0, 0, 0, 0, 1]), to, src, dst }
    }

    fn all() -> [PacketEnds; 4] {
        let v6 = |last| IpAddr::V6([0xfd00, 0, 0, 0, 0, 0, 0, last].into());
        let tagged = |ends: PacketEnds| {
            let network = NetworkId::of_vlan(4094).unwrap();
            PacketEnds { to: network.station(ends.to.mac), ..ends }
        };
        let both = [ends([192, 0, 2, 1].into(), [10, 0, 0, 9].into()), ends(v6(1), v6(9))];
        [both[0], both[1], tagged(both[0]), tagged(both[1])]
    }

    /// Objective: a datagram of any length is sent in frames that do not exceed the MTU and have the tag of the guest's
    /// VLAN; the frames reassemble to the same datagram.
    #[test]
    fn datagrams_of_any_length_arrive() {
        for ends in all() {
            let tag = if ends.to.network.vlan().is_some() { ethernet::VLAN_TAG_LEN } else { 0 };
            for len in [0, 1, 1000, 1472, 1473, 9000, 65_000] {
                let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
                let mut l4 = Vec::new();
                datagram(&mut l4, &ends, 53, 1000, &payload);
                let mut frames = Vec::new();
                packet(&ends, UDP, TTL, &l4, 1500, 7, |parts| frames.push(parts.concat()));
                assert!(frames.iter().all(|frame| frame.len() <= VNET_LEN + 14 + tag + 1500));
                assert!(frames.iter().all(|frame| parse(frame).unwrap().who().network == ends.to.network));
                assert_eq!(arrived(&frames).as_deref(), Some(&l4[..]), "{len}");
            }
        }
    }

    fn arrived(frames: &[Vec<u8>]) -> Option<Vec<u8>> {
        let mut reassembly = Reassembly::default();
        let now = Instant::now();
        frames.iter().find_map(|frame| match parse(frame)? {
            GuestFrame::Packet(packet) => Some(packet.l4.to_vec()),
            GuestFrame::Fragment(piece) => Some(reassembly.add(&piece, now)?.packet()?.l4.to_vec()),
            GuestFrame::Arp(..) => None,
        })
    }
}
