//! The queries that a switch sends (RFC 2236 §2, RFC 3376 §4.1, RFC 2710 §3, RFC 3810 §5.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netvale_wire::{MalformedPacket, Sum, checksum, ethernet, ipv4, ipv6};

use super::address::{self, GroupFamily};
use super::message::{ICMPV6, IGMP};
use super::settings::{IgmpVersion, MldVersion, SnoopSettings};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;

/// Length of the longest query in bytes: MLDv2 after a hop-by-hop header.
const MAX_LEN: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + HOP_BY_HOP.len() + 28;
/// The router alert option of IPv4 (RFC 2113).
const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];
/// A hop-by-hop header in front of ICMPv6, with the router alert option of IPv6 (RFC 2711) and padding.
const HOP_BY_HOP: [u8; 8] = [ICMPV6, 0, 5, 2, 0, 0, 1, 0];
// Message types of queries.
const IGMP_QUERY: u8 = 0x11;
const MLD_QUERY: u8 = 130;
/// The "robustness variable", as in Linux: number of consecutive losses that are tolerated (RFC 3376 §8.1).
const ROBUSTNESS: u8 = 2;
/// Type of service "internetwork control", as RFC 3376 §4 requires.
const TOS: u8 = 0xc0;

/// A query to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The VLAN in which to send the query. The frame has no tag.
    pub vlan: u16,
    /// The port to which to send the query; `None` for all ports.
    pub port: Option<u16>,
    bytes: [u8; MAX_LEN],
    len: usize,
}

/// The contents of a query.
struct QueryContents {
    group: Option<IpAddr>,
    response_ns: u64,
}

impl Query {
    /// The frame, without its check sequence.
    pub fn frame(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Creates a query for all groups.
    pub(super) fn general(settings: &SnoopSettings, vlan: u16, family: GroupFamily) -> Self {
        let asked = QueryContents { group: None, response_ns: settings.query_response_interval_ns };
        Self::build(settings, vlan, None, family, &asked)
    }

    /// Creates a query to the hosts behind `port` for `group`.
    pub(super) fn specific(settings: &SnoopSettings, vlan: u16, port: u16, group: IpAddr) -> Self {
        let asked = QueryContents { group: Some(group), response_ns: settings.last_member_interval_ns };
        Self::build(settings, vlan, Some(port), GroupFamily::of(group), &asked)
    }

    fn build(
        settings: &SnoopSettings,
        vlan: u16,
        port: Option<u16>,
        family: GroupFamily,
        asked: &QueryContents,
    ) -> Self {
        let mut query = Self { vlan, port, bytes: [0; MAX_LEN], len: 0 };
        let built = match family {
            GroupFamily::V4 => build_v4(&mut query.bytes, settings, asked),
            GroupFamily::V6 => build_v6(&mut query.bytes, settings, asked),
        };
        // The array is long enough for every kind of query; a test builds all of them.
        query.len = built.unwrap_or_default().max(ethernet::MIN_FRAME_LEN);
        query
    }
}

fn build_v4(
    frame: &mut [u8; MAX_LEN],
    settings: &SnoopSettings,
    asked: &QueryContents,
) -> Result<usize, MalformedPacket> {
    const HEADER_LEN: usize = ipv4::HEADER_LEN + ROUTER_ALERT.len();
    let (dst, group) = match asked.group {
        Some(IpAddr::V4(group)) => (group, group),
        _ => (Ipv4Addr::new(224, 0, 0, 1), Ipv4Addr::UNSPECIFIED),
    };
    fill_ethernet(frame, settings, dst.into(), ethernet::IPV4)?;
    let (message, len) = igmp(settings, asked, group);
    let message = message.get(..len).unwrap_or_default();
    let packet = frame.get_mut(ethernet::HEADER_LEN..).ok_or(MalformedPacket::Truncated)?;
    let mut ip = ipv4::Header::init(packet)?;
    ip.set_total_len((HEADER_LEN + len) as u16);
    ip.set_fragment(ipv4::DONT_FRAGMENT);
    ip.set_ttl(1);
    ip.set_protocol(IGMP);
    ip.set_src(Ipv4Addr::UNSPECIFIED);
    ip.set_dst(dst);
    store(packet, 0, &[0x40 | (HEADER_LEN / 4) as u8, TOS])?;
    store(packet, ipv4::HEADER_LEN, &ROUTER_ALERT)?;
    store(packet, HEADER_LEN, message)?;
    let sum = Sum::of(packet.get(..HEADER_LEN).ok_or(MalformedPacket::Truncated)?);
    store(packet, 10, &sum.checksum().to_be_bytes())?;
    Ok(ethernet::HEADER_LEN + HEADER_LEN + len)
}

/// Returns an IGMP message and its length in bytes.
fn igmp(settings: &SnoopSettings, asked: &QueryContents, group: Ipv4Addr) -> ([u8; 12], usize) {
    let tenths = asked.response_ns / (100 * MILLISECOND);
    let [a, b, c, d] = group.octets();
    let (code, len) = match settings.igmp {
        IgmpVersion::V2 => (tenths.clamp(1, 255) as u8, 8),
        IgmpVersion::V3 => (code8(tenths.max(1)), 12),
    };
    let interval = code8(settings.query_interval_ns / SECOND);
    let mut message = [IGMP_QUERY, code, 0, 0, a, b, c, d, ROBUSTNESS, interval, 0, 0];
    let sum = Sum::of(message.get(..len).unwrap_or_default()).checksum().to_be_bytes();
    [message[2], message[3]] = sum;
    (message, len)
}

fn build_v6(
    frame: &mut [u8; MAX_LEN],
    settings: &SnoopSettings,
    asked: &QueryContents,
) -> Result<usize, MalformedPacket> {
    let (dst, group) = match asked.group {
        Some(IpAddr::V6(group)) => (group, group),
        _ => (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::UNSPECIFIED),
    };
    let src = address::link_local(settings.mac);
    fill_ethernet(frame, settings, dst.into(), ethernet::IPV6)?;
    let (mut message, len) = mld(settings, asked, group);
    let message = message.get_mut(..len).unwrap_or_default();
    let sum = checksum::pseudo_v6(src, dst, ICMPV6, len as u32).add_bytes(message).checksum();
    store(message, 2, &sum.to_be_bytes())?;
    let packet = frame.get_mut(ethernet::HEADER_LEN..).ok_or(MalformedPacket::Truncated)?;
    let mut ip = ipv6::Header::init(packet)?;
    ip.set_payload_len((HOP_BY_HOP.len() + len) as u16);
    ip.set_next_header(0);
    ip.set_hop_limit(1);
    ip.set_src(src);
    ip.set_dst(dst);
    store(packet, ipv6::HEADER_LEN, &HOP_BY_HOP)?;
    store(packet, ipv6::HEADER_LEN + HOP_BY_HOP.len(), message)?;
    Ok(ethernet::HEADER_LEN + ipv6::HEADER_LEN + HOP_BY_HOP.len() + len)
}

/// Returns an MLD message without its checksum, and its length in bytes.
fn mld(settings: &SnoopSettings, asked: &QueryContents, group: Ipv6Addr) -> ([u8; 28], usize) {
    let milliseconds = asked.response_ns / MILLISECOND;
    let (code, len) = match settings.mld {
        MldVersion::V1 => (milliseconds.clamp(1, 0xffff) as u16, 24),
        MldVersion::V2 => (code16(milliseconds.max(1)), 28),
    };
    let [high, low] = code.to_be_bytes();
    let mut message = [0; 28];
    message[0] = MLD_QUERY;
    [message[4], message[5]] = [high, low];
    message[8..24].copy_from_slice(&group.octets());
    message[24..26].copy_from_slice(&[ROBUSTNESS, code8(settings.query_interval_ns / SECOND)]);
    (message, len)
}

fn fill_ethernet(
    frame: &mut [u8],
    settings: &SnoopSettings,
    dst: IpAddr,
    ethertype: u16,
) -> Result<(), MalformedPacket> {
    let mut header = ethernet::Header::parse_mut(frame)?;
    header.set_dst(address::mac_of(dst));
    header.set_src(settings.mac);
    header.set_ethertype(ethertype);
    Ok(())
}

fn store(bytes: &mut [u8], at: usize, part: &[u8]) -> Result<(), MalformedPacket> {
    let place = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..part.len())).ok_or(MalformedPacket::Truncated)?;
    place.copy_from_slice(part);
    Ok(())
}

/// Encodes a number as a byte: unchanged below 128, otherwise as a floating-point number, rounded down (RFC 3376
/// §4.1.1).
fn code8(value: u64) -> u8 {
    match value {
        0..128 => value as u8,
        _ => {
            let value = value.min(0x1f << 10);
            let exponent = value.ilog2() - 7;
            0x80 | (exponent as u8) << 4 | (value >> (exponent + 3)) as u8 & 0xf
        }
    }
}

/// Encodes a number as 16 bits: unchanged below 32768, otherwise as a floating-point number, rounded down (RFC 3810
/// §5.1.3).
fn code16(value: u64) -> u16 {
    match value {
        0..32768 => value as u16,
        _ => {
            let value = value.min(0x1fff << 10);
            let exponent = value.ilog2() - 15;
            0x8000 | (exponent as u16) << 12 | (value >> (exponent + 3)) as u16 & 0xfff
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{decode8, decode16};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Objective: a number is decoded with the precision of its encoding, and never as a larger number.
        #[test]
        fn numbers_are_encoded(value in 0u64..1 << 26) {
            let read = u64::from(decode8(code8(value)));
            let limited = value.min(0x1f << 10);
            prop_assert!(read <= limited && limited - read <= limited / 16);
            let read = u64::from(decode16(code16(value)));
            let limited = value.min(0x1fff << 10);
            prop_assert!(read <= limited && limited - read <= limited / 4096);
        }
    }

    /// Objective: numbers at the limits of the encodings have the right codes.
    #[test]
    fn the_edges_of_the_encodings_are_exact() {
        assert_eq!([0, 127, 128, 135, 136, 31744, u64::MAX].map(code8), [0, 127, 0x80, 0x80, 0x81, 0xff, 0xff]);
        assert_eq!([32767, 32768, 8387584, u64::MAX].map(code16), [0x7fff, 0x8000, 0xffff, 0xffff]);
    }
}
