//! Frames of many protocols, alone and behind tags and labels.

use etherparse::{
    ArpHardwareId, ArpOperation, ArpPacket, EtherType, IpDscp, IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions,
    Ipv4Header, Ipv6Extensions, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, PacketBuilder, PacketBuilderStep,
};

const V4: u16 = 0x0800;
const V6: u16 = 0x86dd;
const PAYLOAD: &[u8] = b"abcdefgh";

/// A packet without its link layer: the EtherType, and the bytes.
type Packet = (u16, Vec<u8>);

/// Returns a few hundred frames.
pub fn frames() -> Vec<Vec<u8>> {
    let packets = [ipv4(), ipv6(), others()].concat();
    let tags: [fn(Packet) -> Packet; 9] = [
        |packet| packet,
        |packet| tag(0x8100, 7, packet),
        |packet| tag(0x88a8, 5, tag(0x8100, 7, packet)),
        |packet| tag(0x9100, 8, tag(0x8100, 5, tag(0x8100, 0xe007, packet))),
        |packet| label(&[100], packet),
        |packet| label(&[100, 200], packet),
        |packet| tag(0x8100, 7, label(&[100], packet)),
        pppoe_session,
        |packet| tag(0x8100, 7, pppoe_session(packet)),
    ];
    let tagged = tags.iter().flat_map(|tag| packets.iter().cloned().map(tag).map(ethernet));
    let inner = packets.iter().flat_map(|packet| [packet.clone(), tag(0x8100, 7, packet.clone())]);
    tagged.chain(inner.map(tunnelled)).chain(special()).chain(llc()).collect()
}

fn ethernet((kind, bytes): Packet) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], &kind.to_be_bytes()[..], &bytes].concat()
}

/// Puts a VLAN tag in front of a packet.
fn tag(tpid: u16, tci: u16, (kind, bytes): Packet) -> Packet {
    (tpid, [&tci.to_be_bytes()[..], &kind.to_be_bytes(), &bytes].concat())
}

/// Puts MPLS labels in front of a packet. The last label has the bottom-of-stack bit.
fn label(labels: &[u32], (_, bytes): Packet) -> Packet {
    let entry = |(at, label): (usize, &u32)| (label << 12 | u32::from(at + 1 == labels.len()) << 8 | 64).to_be_bytes();
    let stack: Vec<u8> = labels.iter().enumerate().flat_map(entry).collect();
    (0x8847, [stack, bytes].concat())
}

/// Puts a packet into a frame of a PPPoE session.
fn pppoe_session((kind, bytes): Packet) -> Packet {
    let protocol: u16 = if kind == V6 { 0x57 } else { 0x21 };
    let len = bytes.len() as u16 + 2;
    (0x8864, [&[0x11, 0, 0, 17], &len.to_be_bytes()[..], &protocol.to_be_bytes(), &bytes].concat())
}

/// Puts a packet into a Geneve tunnel, with eight bytes of options.
fn tunnelled(packet: Packet) -> Vec<u8> {
    let geneve = [&[2, 0, 0x65, 0x58, 0, 0, 77, 0][..], &[0; 8], &ethernet(packet)].concat();
    ethernet((V4, built(PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1000, 6081), &geneve)))
}

fn built(step: PacketBuilderStep<etherparse::UdpHeader>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    step.write(&mut bytes, payload).unwrap();
    bytes
}

/// Returns an IP packet of `protocol` with the given headers.
fn raw(headers: IpHeaders, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ip(headers).write(&mut bytes, IpNumber(protocol), payload).unwrap();
    bytes
}

/// Returns bytes that serve as the header of TCP, UDP or SCTP and as payload, for the programs to read.
fn transport(src: u16, dst: u16, flags: u8) -> Vec<u8> {
    let ports = [src.to_be_bytes(), dst.to_be_bytes()].concat();
    [&ports[..], &[0x80, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0], b"GET / HTTP/1.1"].concat()
}

fn ipv4() -> Vec<Packet> {
    let header = |src, dst, options: usize| {
        let mut header = Ipv4Header::new(0, 64, IpNumber(0), src, dst).unwrap();
        header.options = vec![1; options].as_slice().try_into().unwrap();
        header
    };
    let raw_v4 =
        |header, protocol, payload: &[u8]| raw(IpHeaders::Ipv4(header, Ipv4Extensions::default()), protocol, payload);
    let here = [10, 0, 0, 1];
    let there = [10, 0, 0, 2];
    let plain = |protocol, payload: &[u8]| raw_v4(header(here, there, 0), protocol, payload);
    let mut fragment = header(here, there, 0);
    fragment.fragment_offset = IpFragOffset::try_new(100).unwrap();
    let mut first_fragment = header(here, there, 0);
    first_fragment.more_fragments = true;
    let mut urgent = header(here, there, 0);
    urgent.dscp = IpDscp::try_new(1).unwrap();
    let mut packets: Vec<_> = [2, 9, 47, 50, 51, 88, 103, 112, 132].map(|n| plain(n, &transport(1000, 80, 0))).into();
    packets.extend([
        built(PacketBuilder::ipv4(here, there, 64).udp(1000, 53), PAYLOAD),
        built(PacketBuilder::ipv4([10, 0, 0, 5], [10, 0, 0, 255], 1).udp(68, 67), &[0; 300]),
        built(PacketBuilder::ipv4([192, 168, 1, 1], [239, 1, 2, 3], 64).udp(53, 53), PAYLOAD),
        plain(6, &transport(1000, 80, 2)),
        plain(6, &transport(80, 1000, 0x10)),
        raw_v4(header(there, here, 4), 6, &transport(21, 22, 0x11)),
        raw_v4(header(here, there, 40), 17, &transport(50, 60, 0)),
        raw_v4(header([127, 0, 0, 1], [127, 0, 0, 1], 0), 6, &transport(0, 65535, 1)),
        raw_v4(urgent, 132, &transport(1000, 80, 0)),
        raw_v4(fragment, 17, PAYLOAD),
        raw_v4(first_fragment, 17, &transport(1000, 53, 0)),
        plain(1, &[8, 0, 0, 0, 0, 1, 0, 1]),
        plain(1, &[3, 1, 0, 0, 0, 0, 0, 0]),
    ]);
    packets.into_iter().map(|packet| (V4, packet)).collect()
}

fn ipv6() -> Vec<Packet> {
    let address = |last| [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let here = address(1);
    let there = address(2);
    let header = Ipv6Header { hop_limit: 64, source: here, destination: there, ..Default::default() };
    let with = |extensions| IpHeaders::Ipv6(header.clone(), extensions);
    let plain = |protocol, payload: &[u8]| raw(with(Ipv6Extensions::default()), protocol, payload);
    let options = Ipv6RawExtHeader::new_raw(IpNumber(0), &[1, 4, 0, 0, 0, 0]).unwrap();
    let hops = Ipv6Extensions { hop_by_hop_options: Some(options.clone()), ..Default::default() };
    let fragment = Some(Ipv6FragmentHeader::new(IpNumber(0), IpFragOffset::ZERO, true, 1));
    let first_fragment = Ipv6Extensions { fragment: fragment.clone(), ..Default::default() };
    let both = Ipv6Extensions {
        hop_by_hop_options: Some(options.clone()),
        destination_options: Some(options),
        fragment,
        ..Default::default()
    };
    let mut packets: Vec<_> = [47, 50, 51, 59, 89, 103, 132].map(|n| plain(n, &transport(1000, 80, 0))).into();
    packets.extend([
        built(PacketBuilder::ipv6(here, there, 64).udp(1000, 53), PAYLOAD),
        built(PacketBuilder::ipv6(there, [0xff; 16], 64).udp(546, 547), PAYLOAD),
        plain(6, &transport(1000, 80, 2)),
        plain(58, &[128, 0, 0, 0, 0, 1, 0, 1]),
        plain(58, &[135, 0, 0, 0, 0, 0, 0, 0]),
        raw(with(hops), 17, &transport(1000, 53, 0)),
        raw(with(first_fragment), 17, &transport(1000, 53, 0)),
        raw(with(both), 6, &transport(1000, 80, 2)),
    ]);
    packets.into_iter().map(|packet| (V6, packet)).collect()
}

/// Returns packets of protocols other than IP.
fn others() -> Vec<Packet> {
    let arp = |operation, src: [u8; 4], dst: [u8; 4]| {
        let request = [2, 0, 0, 0, 0, 1];
        let reply = [0; 6];
        let kind = EtherType::IPV4;
        let packet = ArpPacket::new(ArpHardwareId::ETHERNET, kind, operation, &request, &src, &reply, &dst).unwrap();
        packet.to_bytes().to_vec()
    };
    let mut packets = vec![
        (0x0806, arp(ArpOperation::REQUEST, [10, 0, 0, 1], [10, 0, 0, 2])),
        (0x0806, arp(ArpOperation::REPLY, [192, 168, 0, 1], [10, 0, 0, 1])),
        (0x8035, arp(ArpOperation(3), [10, 0, 0, 2], [10, 0, 0, 2])),
    ];
    for kind in [0x0600, 0x6001, 0x6002, 0x6003, 0x6004, 0x80f3, 0x809b, 0x8137, 0x8863, 0x88cc, 0x0bad] {
        packets.push((kind, vec![0x11, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]));
    }
    packets
}

/// Returns broadcast and multicast frames, frames without payload, and frames of zeros or ones only.
fn special() -> Vec<Vec<u8>> {
    let arp = ethernet((0x0806, vec![0; 28]));
    let to = |address: [u8; 6]| [&address[..], &arp[6..]].concat();
    let groups = [[0xff; 6], [1, 0, 0x5e, 1, 2, 3], [1, 0x80, 0xc2, 0, 0, 0], [0x33, 0x33, 0, 0, 0, 1]];
    let long = ethernet((V4, built(PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2), &[0; 1000])));
    [groups.map(to).to_vec(), vec![vec![0; 64], vec![0xff; 80], vec![], long]].concat()
}

/// Returns IEEE 802.3 frames: a length, then an LLC header of the protocols that libpcap supports.
fn llc() -> Vec<Vec<u8>> {
    let headers: [&[u8]; 15] = [
        &[0x42, 0x42, 3],
        &[0xe0, 0xe0, 3],
        &[0xff, 0xff, 0],
        &[0xf0, 0xf0, 3],
        &[0xf0, 0xf1, 0x01, 0x01],
        &[0x06, 0x06, 0xbf],
        &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0, 0x45],
        &[0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b],
        &[0xaa, 0xaa, 3, 0, 0, 0, 0x80, 0xf3],
        &[0xfe, 0xfe, 3, 0x81, 0, 0, 0],
        &[0xfe, 0xfe, 3, 0x82, 0, 0, 0],
        &[0xfe, 0xfe, 3, 0x83, 27, 1, 0, 15, 1, 0, 0],
        &[0xfe, 0xfe, 3, 0x83, 27, 1, 0, 18, 1, 0, 0],
        &[0xfe, 0xfe, 3, 0x83, 27, 1, 0, 24, 1, 0, 0],
        &[0xfe, 0xfe, 3, 0x83, 27, 1, 0, 26, 1, 0, 0],
    ];
    headers.map(|header| ethernet((46, [header, &[0x11; 38]].concat()))).into()
}
