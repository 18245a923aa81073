//! Builds whole frames for packet generators: UDP in IP in Ethernet, with correct checksums.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::{pseudo, pseudo_v4, pseudo_v6};
use crate::{Layers, MacAddr, MalformedPacket, Sum, ethernet, ipv4, ipv6, layers, udp};

/// Offset of the payload in a frame that [`udp4`] builds, in bytes.
pub const UDP4_PAYLOAD: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;
/// Offset of the payload in a frame that [`udp6`] builds, in bytes.
pub const UDP6_PAYLOAD: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + udp::HEADER_LEN;
/// Maximum length of a frame that [`udp4`] builds, in bytes.
pub const UDP4_MAX: usize = ethernet::HEADER_LEN + 0xffff;
/// Maximum length of a frame that [`udp6`] builds, in bytes.
pub const UDP6_MAX: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + 0xffff;

/// Fields of a frame's headers, and the pattern of its payload. `A` is the address type of the IP version.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a, A> {
    /// Ethernet source.
    pub src_mac: MacAddr,
    /// Ethernet destination.
    pub dst_mac: MacAddr,
    /// IP source.
    pub src: A,
    /// IP destination.
    pub dst: A,
    /// UDP source port.
    pub src_port: u16,
    /// UDP destination port.
    pub dst_port: u16,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// The pattern that is repeated to fill the payload. If the pattern is empty, the payload is all zeros.
    pub payload: &'a [u8],
}

/// The error for a frame length that is too small for the headers, or too large for their length fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid length of a UDP frame, {len} bytes: expected {min} to {max}")]
pub struct BadFrameLen {
    /// Requested length in bytes.
    pub len: usize,
    /// Minimum length in bytes: the headers.
    pub min: usize,
    /// Maximum length in bytes.
    pub max: usize,
}

/// Fills all of `frame` with UDP over IPv4. The packet has the flag "don't fragment".
pub fn udp4(frame: &mut [u8], params: &Udp<'_, Ipv4Addr>) -> Result<(), BadFrameLen> {
    checked(frame, UDP4_PAYLOAD, UDP4_MAX, |frame| {
        let packet = fill_ethernet(frame, params, ethernet::IPV4)?;
        let packet_len = packet.len() as u16;
        let mut ip = ipv4::Header::init(packet)?;
        ip.set_total_len(packet_len);
        ip.set_fragment(ipv4::DONT_FRAGMENT);
        ip.set_ttl(params.ttl);
        ip.set_protocol(layers::UDP);
        ip.set_src(params.src);
        ip.set_dst(params.dst);
        ip.set_checksum(ip.sum().checksum());
        let datagram = packet.get_mut(ipv4::HEADER_LEN..).ok_or(MalformedPacket::Truncated)?;
        let pseudo = pseudo_v4(params.src, params.dst, layers::UDP, datagram.len() as u16);
        fill_datagram(datagram, params, pseudo)
    })
}

/// Fills all of `frame` with UDP over IPv6.
pub fn udp6(frame: &mut [u8], params: &Udp<'_, Ipv6Addr>) -> Result<(), BadFrameLen> {
    checked(frame, UDP6_PAYLOAD, UDP6_MAX, |frame| {
        let packet = fill_ethernet(frame, params, ethernet::IPV6)?;
        let payload_len = packet.len().saturating_sub(ipv6::HEADER_LEN) as u16;
        let mut ip = ipv6::Header::init(packet)?;
        ip.set_payload_len(payload_len);
        ip.set_next_header(layers::UDP);
        ip.set_hop_limit(params.ttl);
        ip.set_src(params.src);
        ip.set_dst(params.dst);
        let datagram = packet.get_mut(ipv6::HEADER_LEN..).ok_or(MalformedPacket::Truncated)?;
        let pseudo = pseudo_v6(params.src, params.dst, layers::UDP, payload_len.into());
        fill_datagram(datagram, params, pseudo)
    })
}

/// Recomputes the UDP checksum of a whole frame after a change of its payload. The frame may have VLAN tags, IP options
/// or extension headers, but must not be a fragment.
pub fn refresh_udp_checksum(frame: &mut [u8]) -> Result<(), MalformedPacket> {
    let ip = Layers::parse(frame)?.ip.ok_or(MalformedPacket::BadField)?;
    if ip.protocol != layers::UDP || ip.fragment || ip.source_route {
        return Err(MalformedPacket::BadField);
    }
    let rest = frame.get_mut(ip.l4..).ok_or(MalformedPacket::Truncated)?;
    let len = udp::Header::parse(rest)?.datagram_len();
    // The frame may be padded after the datagram.
    let datagram = rest.get_mut(..len.into()).ok_or(MalformedPacket::Truncated)?;
    store_checksum(datagram, pseudo(ip.src, ip.dst, layers::UDP, len).ok_or(MalformedPacket::BadField)?)
}

/// Runs `fill` if the frame's length is within bounds.
fn checked<'f>(
    frame: &'f mut [u8],
    min: usize,
    max: usize,
    fill: impl FnOnce(&'f mut [u8]) -> Result<(), MalformedPacket>,
) -> Result<(), BadFrameLen> {
    let bad = BadFrameLen { len: frame.len(), min, max };
    if !(min..=max).contains(&frame.len()) {
        return Err(bad);
    }
    fill(frame).map_err(|_| bad)
}

/// Fills the Ethernet header. Returns the bytes of the frame that follow the header.
fn fill_ethernet<'f, A>(
    frame: &'f mut [u8],
    params: &Udp<'_, A>,
    ethertype: u16,
) -> Result<&'f mut [u8], MalformedPacket> {
    let mut header = ethernet::Header::parse_mut(frame)?;
    header.set_dst(params.dst_mac);
    header.set_src(params.src_mac);
    header.set_ethertype(ethertype);
    frame.get_mut(ethernet::HEADER_LEN..).ok_or(MalformedPacket::Truncated)
}

/// Fills all of `datagram`, whose length must fit into 16 bits.
fn fill_datagram<A>(datagram: &mut [u8], params: &Udp<'_, A>, pseudo: Sum) -> Result<(), MalformedPacket> {
    let len = datagram.len() as u16;
    let mut header = udp::Header::parse_mut(datagram)?;
    header.set_src_port(params.src_port);
    header.set_dst_port(params.dst_port);
    header.set_datagram_len(len);
    let payload = datagram.get_mut(udp::HEADER_LEN..).unwrap_or_default();
    let pattern = if params.payload.is_empty() { &[0] } else { params.payload };
    for (place, byte) in payload.iter_mut().zip(pattern.iter().cycle()) {
        *place = *byte;
    }
    store_checksum(datagram, pseudo)
}

/// Stores the checksum of a datagram, given the sum of its pseudo header.
fn store_checksum(datagram: &mut [u8], pseudo: Sum) -> Result<(), MalformedPacket> {
    udp::Header::parse_mut(datagram)?.set_checksum(0);
    let checksum = pseudo.add_bytes(datagram).nonzero_checksum();
    udp::Header::parse_mut(datagram)?.set_checksum(checksum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
    use std::vec::Vec;

    const PARAMS: Udp<'_, Ipv4Addr> = Udp {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 1, 0, 1),
        src_port: 1234,
        dst_port: 5678,
        ttl: 64,
        payload: b"netvale ",
    };
    const PARAMS6: Udp<'_, Ipv6Addr> = Udp {
        src_mac: PARAMS.src_mac,
        dst_mac: PARAMS.dst_mac,
        src: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
        dst: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
        src_port: 1234,
        dst_port: 5678,
        ttl: 64,
        payload: &[],
    };

    /// Objective: frames of every length equal the frames that etherparse builds, byte for byte.
    #[test]
    fn frames_are_those_of_etherparse() {
        let step = if cfg!(miri) { 97 } else { 1 };
        for len in (UDP4_PAYLOAD..200).step_by(step).chain([1514, 9014]) {
            let mut frame = std::vec![0xee; len];
            udp4(&mut frame, &PARAMS).unwrap();
            let payload: Vec<u8> = PARAMS.payload.iter().copied().cycle().take(len - UDP4_PAYLOAD).collect();
            let mut expected = Vec::new();
            PacketBuilder::ethernet2(PARAMS.src_mac.0, PARAMS.dst_mac.0)
                .ipv4(PARAMS.src.octets(), PARAMS.dst.octets(), 64)
                .udp(1234, 5678)
                .write(&mut expected, &payload)
                .unwrap();
            assert_eq!(frame, expected, "{len}");
        }
        for len in (UDP6_PAYLOAD..200).step_by(step).chain([1514, 9014]) {
            let mut frame = std::vec![0xee; len];
            udp6(&mut frame, &PARAMS6).unwrap();
            let mut expected = Vec::new();
            PacketBuilder::ethernet2(PARAMS6.src_mac.0, PARAMS6.dst_mac.0)
                .ipv6(PARAMS6.src.octets(), PARAMS6.dst.octets(), 64)
                .udp(1234, 5678)
                .write(&mut expected, &std::vec![0; len - UDP6_PAYLOAD])
                .unwrap();
            assert_eq!(frame, expected, "{len}");
        }
    }

    #[test]
    fn lengths_out_of_bounds_are_refused() {
        for len in [0, 13, UDP4_PAYLOAD - 1, UDP4_MAX + 1] {
            let bad = BadFrameLen { len, min: UDP4_PAYLOAD, max: UDP4_MAX };
            assert_eq!(udp4(&mut std::vec![0; len], &PARAMS), Err(bad));
        }
        for len in [60, UDP6_PAYLOAD - 1, UDP6_MAX + 1] {
            let bad = BadFrameLen { len, min: UDP6_PAYLOAD, max: UDP6_MAX };
            assert_eq!(udp6(&mut std::vec![0; len], &PARAMS6), Err(bad));
        }
        if !cfg!(miri) {
            assert_eq!(udp4(&mut std::vec![0; UDP4_MAX], &PARAMS), Ok(()));
            assert_eq!(udp6(&mut std::vec![0; UDP6_MAX], &PARAMS6), Ok(()));
        }
    }

    /// Objective: a frame whose payload was changed in place gets the correct checksum, even if padding follows the
    /// payload.
    #[test]
    fn a_changed_payload_gets_its_checksum() {
        let mut frame = [0; 100];
        udp4(&mut frame[..90], &PARAMS).unwrap();
        frame[UDP4_PAYLOAD..UDP4_PAYLOAD + 4].copy_from_slice(b"ping");
        refresh_udp_checksum(&mut frame).unwrap();
        let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(TransportSlice::Udp(datagram)) = sliced.transport else { panic!("not UDP") };
        let expected = datagram
            .to_header()
            .calc_checksum_ipv4_raw(PARAMS.src.octets(), PARAMS.dst.octets(), datagram.payload())
            .unwrap();
        assert_eq!(datagram.checksum(), expected);
    }

    #[test]
    fn what_is_no_whole_udp_datagram_has_no_checksum_to_refresh() {
        let mut frame = [0; 90];
        assert_eq!(refresh_udp_checksum(&mut frame), Err(MalformedPacket::BadField));
        udp4(&mut frame, &PARAMS).unwrap();
        assert_eq!(refresh_udp_checksum(&mut frame[..89]), Err(MalformedPacket::Truncated));
        ipv4::Header::parse_mut(&mut frame[14..]).unwrap().set_fragment(0x2000);
        assert_eq!(refresh_udp_checksum(&mut frame), Err(MalformedPacket::BadField));
    }
}
