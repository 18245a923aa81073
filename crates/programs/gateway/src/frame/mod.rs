//! Frames from guests, parsed from private copies, and frames to guests ([`build`]).
//!
//! A [`GuestFrame`] is the parsed contents of a frame: an ARP packet, a whole IP packet ([`GuestPacket`]) or a fragment
//! of an IP packet ([`IpFragment`]). Lengths and checksums have been checked; for a frame that is malformed or has
//! another protocol, the parser returns `None`, and the frame is dropped.

use std::net::IpAddr;

use netvale_wire::checksum::pseudo;
use netvale_wire::layers::{ICMP, ICMP6, TCP, UDP};
use netvale_wire::vnet::{self, VnetForm};
use netvale_wire::{MacAddr, Sum, VnetHdr, ethernet, ipv4, ipv6, udp};

use crate::guests::{GuestId, NetworkId};

pub mod build;
pub mod reassembly;

/// Length in bytes of the virtio-net header before each frame of the gateway's port.
pub const VNET_LEN: usize = vnet::LEN_MRG;

/// A parsed frame of a guest.
#[derive(Clone, Copy, Debug)]
pub enum GuestFrame<'a> {
    /// The guest that has sent the frame, and its ARP packet.
    Arp(GuestId, &'a [u8]),
    /// A whole IP packet.
    Packet(GuestPacket<'a>),
    /// A fragment of an IP packet.
    Fragment(IpFragment<'a>),
}

/// A whole IP packet of a guest.
#[derive(Clone, Copy, Debug)]
pub struct GuestPacket<'a> {
    /// The guest that has sent the frame.
    pub who: GuestId,
    /// Destination MAC address of the frame.
    pub to: MacAddr,
    /// IP source.
    pub src: IpAddr,
    /// IP destination.
    pub dst: IpAddr,
    /// Protocol of `l4`.
    pub protocol: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Transport header and payload.
    pub l4: &'a [u8],
    /// The packet from its IP header on, which an ICMP error about the packet quotes.
    pub packet: &'a [u8],
    /// Whether the packet must not be fragmented: it did not arrive in fragments, and it is an IPv6 packet or has DF
    /// set.
    pub dont_fragment: bool,
    /// If `l4` contains the payload of several UDP datagrams after one header (UDP segmentation offload), the payload
    /// length in bytes of each datagram; otherwise 0.
    pub segment: usize,
}

/// A fragment of an IP packet.
#[derive(Clone, Copy, Debug)]
pub struct IpFragment<'a> {
    /// The fragment as a packet, whose `l4` is the fragment's payload.
    pub part: GuestPacket<'a>,
    /// Identification: the same for all fragments of a packet.
    pub ident: u32,
    /// Offset of this fragment's payload in the payload of the whole packet, in bytes.
    pub offset: usize,
    /// Whether more fragments follow.
    pub more: bool,
}

/// Parses a frame with the virtio-net header before it. Returns `None` if the frame must be dropped.
pub fn parse(bytes: &[u8]) -> Option<GuestFrame<'_>> {
    let header = VnetHdr::parse(bytes, VnetForm::Mergeable).ok()?;
    let frame = bytes.get(VNET_LEN..)?;
    let stations = ethernet::Header::parse(frame).ok()?;
    if stations.src().is_multicast() || stations.src().is_zero() {
        return None;
    }
    let tag = read_tag(stations.ethertype(), frame.get(ethernet::HEADER_LEN..)?)?;
    let packet = frame.get(ethernet::HEADER_LEN + tag.len..)?;
    let who = tag.network.station(stations.src());
    let to = stations.dst();
    match tag.ethertype {
        ethernet::ARP => Some(GuestFrame::Arp(who, packet)),
        ethernet::IPV4 => parse_v4(packet, &header, who, to),
        ethernet::IPV6 => parse_v6(packet, &header, who, to),
        _ => None,
    }
}

/// The contents of a frame's VLAN tag: the frame's network, and the protocol of the payload.
struct FrameTag {
    network: NetworkId,
    /// Length of the tag in bytes; 0 if the frame has no tag.
    len: usize,
    /// EtherType of the payload after the tag.
    ethertype: u16,
}

/// Reads the tag before a frame's payload. Returns `None` if the tag is cut short or has the reserved VLAN 4095. A
/// second tag is not read: its EtherType counts as that of an unknown protocol.
fn read_tag(ethertype: u16, payload: &[u8]) -> Option<FrameTag> {
    if ethertype != ethernet::VLAN {
        return Some(FrameTag { network: NetworkId::UNTAGGED, len: 0, ethertype });
    }
    let [a, b, c, d] = *payload.first_chunk::<{ ethernet::VLAN_TAG_LEN }>()?;
    // The upper four bits are priority and drop eligibility. VLAN 0 means that the frame belongs to no VLAN (IEEE
    // 802.1Q §9.6).
    let network = match u16::from_be_bytes([a, b]) & 0xfff {
        0 => NetworkId::UNTAGGED,
        vlan => NetworkId::of_vlan(vlan)?,
    };
    Some(FrameTag { network, len: ethernet::VLAN_TAG_LEN, ethertype: u16::from_be_bytes([c, d]) })
}

fn parse_v4<'a>(bytes: &'a [u8], vnet: &VnetHdr, who: GuestId, to: MacAddr) -> Option<GuestFrame<'a>> {
    let header = ipv4::Header::parse(bytes).ok()?;
    let head = header.header_len();
    let packet = bytes.get(..header.total_len().into())?;
    let l4 = packet.get(head..)?;
    if Sum::of(&packet[..head]).fold() != 0xffff || ipv4::has_source_route(&packet[ipv4::HEADER_LEN..head]) {
        return None;
    }
    let field = header.fragment();
    let part = GuestPacket {
        who,
        to,
        src: IpAddr::V4(header.src()),
        dst: IpAddr::V4(header.dst()),
        protocol: header.protocol(),
        ttl: header.ttl(),
        l4,
        packet,
        dont_fragment: field & ipv4::DONT_FRAGMENT != 0,
        segment: 0,
    };
    if !header.is_fragment() {
        return whole(part, vnet);
    }
    let more = field & ipv4::MORE_FRAGMENTS != 0;
    let offset = usize::from(field & 0x1fff) * 8;
    Some(GuestFrame::Fragment(IpFragment { part, ident: header.ident().into(), offset, more }))
}

fn parse_v6<'a>(bytes: &'a [u8], vnet: &VnetHdr, who: GuestId, to: MacAddr) -> Option<GuestFrame<'a>> {
    let header = ipv6::Header::parse(bytes).ok()?;
    let packet = bytes.get(..ipv6::HEADER_LEN + usize::from(header.payload_len()))?;
    let with = |protocol, l4| GuestPacket {
        who,
        to,
        src: IpAddr::V6(header.src()),
        dst: IpAddr::V6(header.dst()),
        protocol,
        ttl: header.hop_limit(),
        l4,
        packet,
        dont_fragment: true,
        segment: 0,
    };
    if header.next_header() == ipv6::FRAGMENT {
        let (fragment, payload) = packet[ipv6::HEADER_LEN..].split_first_chunk::<{ ipv6::FRAGMENT_LEN }>()?;
        let [protocol, _, high, low, ident @ ..] = *fragment;
        let field = u16::from_be_bytes([high, low]);
        return Some(GuestFrame::Fragment(IpFragment {
            part: with(protocol, payload),
            ident: u32::from_be_bytes(ident),
            offset: usize::from(field & 0xfff8),
            more: field & 1 != 0,
        }));
    }
    let upper = ipv6::upper(packet).ok().filter(|upper| !upper.fragment && !upper.source_route)?;
    whole(with(upper.protocol, packet.get(upper.offset..)?), vnet)
}

/// Returns the packet if its transport checksum is correct or left to the receiver (checksum offload); otherwise
/// `None`.
fn whole<'a>(packet: GuestPacket<'a>, vnet: &VnetHdr) -> Option<GuestFrame<'a>> {
    let segment = if vnet.gso_type == vnet::GSO_UDP_L4 { vnet.gso_size.into() } else { 0 };
    let left = vnet.flags & vnet::F_NEEDS_CSUM != 0;
    (left || packet.is_intact()).then_some(GuestFrame::Packet(GuestPacket { segment, ..packet }))
}

impl GuestFrame<'_> {
    /// Returns the guest that has sent the frame.
    pub fn who(&self) -> GuestId {
        match self {
            Self::Arp(who, _) => *who,
            Self::Packet(packet) => packet.who,
            Self::Fragment(piece) => piece.part.who,
        }
    }
}

impl GuestPacket<'_> {
    /// Returns whether the transport checksum is correct. Packets of unknown transports are not checked.
    pub fn is_intact(&self) -> bool {
        let sums = |covered: &[u8]| {
            let len = u16::try_from(covered.len()).ok();
            let sum = len.and_then(|len| pseudo(self.src, self.dst, self.protocol, len));
            sum.is_some_and(|sum| sum.add_bytes(covered).fold() == 0xffff)
        };
        match (self.protocol, self.src) {
            (TCP, _) | (ICMP6, IpAddr::V6(_)) => sums(self.l4),
            (ICMP, IpAddr::V4(_)) => Sum::of(self.l4).fold() == 0xffff,
            (UDP, src) => udp::Header::parse(self.l4).is_ok_and(|header| {
                let covered = self.l4.get(..header.datagram_len().into());
                (header.checksum() == 0 && src.is_ipv4()) || covered.is_some_and(sums)
            }),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn with_header(frame: &[u8]) -> Vec<u8> {
        [&[0; VNET_LEN][..], frame].concat()
    }

    fn udp_frame() -> Vec<u8> {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 1])
            .ipv4([10, 0, 0, 9], [192, 0, 2, 1], 64)
            .udp(1000, 53)
            .write(&mut frame, b"question")
            .unwrap();
        with_header(&frame)
    }

    fn packet(bytes: &[u8]) -> Option<GuestPacket<'_>> {
        match parse(bytes) {
            Some(GuestFrame::Packet(packet)) => Some(packet),
            _ => None,
        }
    }

    #[test]
    fn a_known_packet_is_taken_apart() {
        let bytes = [udp_frame(), vec![0; 20]].concat();
        let packet = packet(&bytes).expect("a packet with padding behind it");
        assert_eq!((packet.who.mac, packet.to), (MacAddr([2, 0, 0, 0, 0, 9]), MacAddr([2, 0, 0, 0, 0, 1])));
        assert_eq!((packet.protocol, packet.ttl, packet.l4.len()), (UDP, 64, 16));
    }

    /// Objective: a packet is dropped if any bit that a checksum covers is flipped, or if the packet is cut short at
    /// any byte.
    #[test]
    fn damaged_and_cut_packets_are_ignored() {
        let bytes = udp_frame();
        for at in VNET_LEN + 14..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(packet(&damaged).is_none(), "byte {at}");
        }
        for len in 0..bytes.len() {
            assert!(parse(&bytes[..len]).is_none(), "{len} bytes");
        }
    }

    #[test]
    fn a_checksum_that_is_left_to_the_receiver_is_not_looked_at() {
        let mut bytes = udp_frame();
        bytes[0] = vnet::F_NEEDS_CSUM;
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert!(packet(&bytes).is_some());
    }

    #[test]
    fn frames_of_groups_are_ignored() {
        let mut bytes = udp_frame();
        bytes[VNET_LEN + 6] |= 1;
        assert!(parse(&bytes).is_none(), "a group as source");
    }

    /// Objective: the VLAN in a tag determines the guest's network, whatever priority the tag has; frames with several
    /// tags, with a service tag or with a reserved VLAN are dropped.
    #[test]
    fn a_tag_is_the_guests_network() {
        let with_tags = |tags: &[u8]| {
            let mut bytes = udp_frame();
            bytes.splice(VNET_LEN + 12..VNET_LEN + 12, tags.iter().copied());
            let sender = packet(&bytes).map(|packet| packet.who.network.vlan());
            assert_eq!(sender, parse(&bytes).map(|frame| frame.who().network.vlan()));
            sender
        };
        assert_eq!(with_tags(&[]), Some(None));
        assert_eq!(with_tags(&[0x81, 0, 0, 7]), Some(Some(7)));
        assert_eq!(with_tags(&[0x81, 0, 0xef, 0xfe]), Some(Some(4094)), "with a priority");
        assert_eq!(with_tags(&[0x81, 0, 0xe0, 0]), Some(None), "a priority only");
        assert_eq!(with_tags(&[0x81, 0, 0x0f, 0xff]), None);
        assert_eq!(with_tags(&[0x88, 0xa8, 0, 7]), None);
        assert_eq!(with_tags(&[0x81, 0, 0, 7, 0x81, 0, 0, 7]), None);
        let mut cut = udp_frame();
        cut.truncate(VNET_LEN + 12);
        cut.extend_from_slice(&[0x81, 0, 0]);
        assert!(parse(&cut).is_none(), "a tag that is cut");
    }

    #[test]
    fn fragments_of_both_versions_are_told_apart_from_packets() {
        let mut v4 = udp_frame();
        let ip = VNET_LEN + 14;
        v4[ip + 6] = 0x20;
        v4[ip + 10..ip + 12].fill(0);
        let sum = Sum::of(&v4[ip..ip + 20]).checksum();
        v4[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        let Some(GuestFrame::Fragment(first)) = parse(&v4) else { panic!("a fragment") };
        assert_eq!((first.offset, first.more, first.part.l4.len()), (0, true, 16));
        let mut v6 = vec![0; VNET_LEN + 14 + 40 + 8 + 8];
        v6[VNET_LEN..VNET_LEN + 14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x86, 0xdd]);
        let header = &mut v6[VNET_LEN + 14..];
        header[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 16, ipv6::FRAGMENT, 64]);
        header[40..48].copy_from_slice(&[UDP, 0, 0, 0x10, 0, 0, 0, 7]);
        let Some(GuestFrame::Fragment(last)) = parse(&v6) else { panic!("a fragment") };
        assert_eq!((last.offset, last.more, last.ident, last.part.l4.len()), (16, false, 7, 8));
    }
}
