//! Finds the layers of a frame.

use core::net::IpAddr;

use crate::{MalformedPacket, ethernet, ipv4, ipv6};

/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of ICMPv6.
pub const ICMP6: u8 = 58;
/// IP protocol number of SCTP.
pub const SCTP: u8 = 132;

/// The network layer of a frame, and the position of the transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// EtherType of the network layer, found after any VLAN tags.
    pub ethertype: u16,
    /// Offset of the network header, in bytes from the start of the frame.
    pub l3: usize,
    /// The IP layer; `None` for other network protocols.
    pub ip: Option<IpLayer>,
}

/// The IP layer of a frame, of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpLayer {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, as in the header.
    pub dst: IpAddr,
    /// Protocol of the transport, such as [`TCP`].
    pub protocol: u8,
    /// Offset of the transport header, in bytes from the start of the frame.
    pub l4: usize,
    /// Whether the packet is a fragment, or (IPv6) has a fragment header. A fragment has no transport header at `l4`,
    /// or an incomplete payload.
    pub fragment: bool,
    /// Whether the packet has a source route, or (IPv4) unreadable options. With a source route, `dst` is not the
    /// destination that the transport's checksum covers.
    pub source_route: bool,
}

impl Layers {
    /// Finds the layers of a frame in bounded time. `frame` is the whole frame, or at least its bytes up to the
    /// transport header.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, MalformedPacket> {
        let (ethertype, l3) = ethernet::network(frame)?;
        let packet = frame.get(l3..).ok_or(MalformedPacket::Truncated)?;
        let ip = match ethertype {
            ethernet::IPV4 => Some(parse_v4(packet, l3)?),
            ethernet::IPV6 => Some(parse_v6(packet, l3)?),
            _ => None,
        };
        Ok(Self { ethertype, l3, ip })
    }
}

#[inline]
fn parse_v4(packet: &[u8], l3: usize) -> Result<IpLayer, MalformedPacket> {
    let header = ipv4::Header::parse(packet)?;
    let options = packet.get(ipv4::HEADER_LEN..header.header_len()).unwrap_or_default();
    Ok(IpLayer {
        src: IpAddr::V4(header.src()),
        dst: IpAddr::V4(header.dst()),
        protocol: header.protocol(),
        l4: l3 + header.header_len(),
        fragment: header.is_fragment(),
        source_route: ipv4::has_source_route(options),
    })
}

#[inline]
fn parse_v6(packet: &[u8], l3: usize) -> Result<IpLayer, MalformedPacket> {
    let header = ipv6::Header::parse(packet)?;
    let upper = ipv6::upper(packet)?;
    Ok(IpLayer {
        src: IpAddr::V6(header.src()),
        dst: IpAddr::V6(header.dst()),
        protocol: upper.protocol,
        l4: l3 + upper.offset,
        fragment: upper.fragment,
        source_route: upper.source_route,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use std::vec::Vec;

    #[test]
    fn layers_of_known_frames() {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([1; 6], [2; 6])
            .single_vlan(7.try_into().unwrap())
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(1, 2)
            .write(&mut frame, b"payload")
            .unwrap();
        let layers = Layers::parse(&frame).unwrap();
        let ip = layers.ip.unwrap();
        assert_eq!((layers.ethertype, layers.l3), (ethernet::IPV4, 18));
        assert_eq!((ip.protocol, ip.l4, ip.fragment, ip.source_route), (UDP, 38, false, false));
        assert_eq!(ip.src, IpAddr::from([10, 0, 0, 1]));

        frame.clear();
        PacketBuilder::ethernet2([1; 6], [2; 6])
            .ipv6([1; 16], [2; 16], 64)
            .tcp(1, 2, 3, 4)
            .write(&mut frame, b"payload")
            .unwrap();
        let ip = Layers::parse(&frame).unwrap().ip.unwrap();
        assert_eq!((ip.protocol, ip.l4, ip.dst), (TCP, 54, IpAddr::from([2; 16])));
    }

    #[test]
    fn a_frame_of_another_protocol_has_no_ip_layer() {
        let mut frame = [0; 14];
        ethernet::Header::parse_mut(&mut frame).unwrap().set_ethertype(ethernet::ARP);
        assert_eq!(Layers::parse(&frame), Ok(Layers { ethertype: ethernet::ARP, l3: 14, ip: None }));
        ethernet::Header::parse_mut(&mut frame).unwrap().set_ethertype(ethernet::IPV4);
        assert_eq!(Layers::parse(&frame), Err(MalformedPacket::Truncated));
    }
}
