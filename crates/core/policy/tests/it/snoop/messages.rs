//! Builds frames of IGMP, MLD and PIM with correct checksums, independently of the snooping code.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{Ipv4Header, Ipv6Header};

pub const HOST: [u8; 6] = [2, 0, 0, 0, 0, 7];
// Types of records in reports of IGMPv3 and MLDv2.
pub const IS_INCLUDE: u8 = 1;
pub const IS_EXCLUDE: u8 = 2;
pub const TO_INCLUDE: u8 = 3;
pub const TO_EXCLUDE: u8 = 4;
pub const ALLOW: u8 = 5;
pub const BLOCK: u8 = 6;

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns the Internet checksum of `bytes`, computed word by word (RFC 1071 §4.1).
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

pub fn group_mac(group: IpAddr) -> [u8; 6] {
    match group {
        IpAddr::V4(group) => [1, 0, 0x5e, group.octets()[1] & 0x7f, group.octets()[2], group.octets()[3]],
        IpAddr::V6(group) => {
            [0x33, 0x33, group.octets()[12], group.octets()[13], group.octets()[14], group.octets()[15]]
        }
    }
}

fn ethernet(dst: IpAddr, packet: &[u8]) -> Vec<u8> {
    let ethertype = if dst.is_ipv4() { [8, 0] } else { [0x86, 0xdd] };
    [&group_mac(dst), &HOST, &ethertype[..], packet].concat()
}

/// Returns an IPv4 frame with `message`, and fills in the message's checksum, which IGMP and PIM have at the same
/// offset.
pub fn over_v4(src: &str, dst: &str, protocol: u8, mut message: Vec<u8>) -> Vec<u8> {
    let src: Ipv4Addr = src.parse().unwrap();
    let dst: Ipv4Addr = dst.parse().unwrap();
    let sum = internet_checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let mut header = Ipv4Header::new(message.len() as u16 + 4, 1, protocol.into(), src.octets(), dst.octets()).unwrap();
    header.options = [0x94, 4, 0, 0].into();
    header.total_len = (header.header_len() + message.len()) as u16;
    header.header_checksum = header.calc_header_checksum();
    ethernet(dst.into(), &[&header.to_bytes()[..], &message].concat())
}

/// Returns an IPv6 frame with `message` of `protocol` after a router alert, and fills in the message's checksum.
pub fn over_v6(src: &str, dst: &str, protocol: u8, mut message: Vec<u8>) -> Vec<u8> {
    let src: Ipv6Addr = src.parse().unwrap();
    let dst: Ipv6Addr = dst.parse().unwrap();
    let len = (message.len() as u32).to_be_bytes();
    let pseudo = [&src.octets()[..], &dst.octets(), &len, &[0, 0, 0, protocol]].concat();
    let sum = internet_checksum(&[pseudo, message.clone()].concat()).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let alert = [protocol, 0, 5, 2, 0, 0, 1, 0];
    let header = Ipv6Header {
        payload_length: (alert.len() + message.len()) as u16,
        next_header: 0.into(),
        hop_limit: 1,
        source: src.octets(),
        destination: dst.octets(),
        ..Ipv6Header::default()
    };
    ethernet(dst.into(), &[&header.to_bytes()[..], &alert, &message].concat())
}

fn octets(group: IpAddr) -> Vec<u8> {
    match group {
        IpAddr::V4(group) => group.octets().to_vec(),
        IpAddr::V6(group) => group.octets().to_vec(),
    }
}

/// A message about one group: of IGMPv1 or 2, or of MLDv1.
fn simple(kind: u8, code: u16, group: IpAddr, dst: &str, src: &str) -> Vec<u8> {
    let [high, low] = code.to_be_bytes();
    match group {
        IpAddr::V4(_) => over_v4(src, dst, 2, [&[kind, low, 0, 0], &octets(group)[..]].concat()),
        IpAddr::V6(_) => over_v6(src, dst, 58, [&[kind, 0, 0, 0, high, low, 0, 0], &octets(group)[..]].concat()),
    }
}

/// The message of a joining host: IGMPv2 or MLDv1.
pub fn join(group: &str) -> Vec<u8> {
    match ip(group) {
        IpAddr::V4(_) => simple(0x16, 0, ip(group), group, "10.0.0.7"),
        IpAddr::V6(_) => simple(131, 0, ip(group), group, "fe80::7"),
    }
}

/// The message of a leaving host: IGMPv2 or MLDv1.
pub fn leave(group: &str) -> Vec<u8> {
    match ip(group) {
        IpAddr::V4(_) => simple(0x17, 0, ip(group), "224.0.0.2", "10.0.0.7"),
        IpAddr::V6(_) => simple(132, 0, ip(group), "ff02::2", "fe80::7"),
    }
}

/// A query of IGMPv2 or MLDv1 from `src`, with a maximum response time of `tenths` tenths of a second; for all groups
/// if `group` is unspecified.
pub fn query(src: &str, group: &str, tenths: u16) -> Vec<u8> {
    let all = ip(group).is_unspecified();
    match ip(group) {
        IpAddr::V4(_) => simple(0x11, tenths, ip(group), if all { "224.0.0.1" } else { group }, src),
        IpAddr::V6(_) => simple(130, tenths * 100, ip(group), if all { "ff02::1" } else { group }, src),
    }
}

/// A report of IGMPv3 or MLDv2: type, group and number of sources of each record.
pub fn report(records: &[(u8, &str, u16)]) -> Vec<u8> {
    let v4 = ip(records[0].1).is_ipv4();
    let mut message = vec![if v4 { 0x22 } else { 143 }, 0, 0, 0, 0, 0, 0, records.len() as u8];
    for &(kind, group, sources) in records {
        let group = octets(ip(group));
        message.extend([kind, 0, (sources >> 8) as u8, sources as u8]);
        message.extend(&group);
        message.extend(vec![9; usize::from(sources) * group.len()]);
    }
    if v4 { over_v4("10.0.0.7", "224.0.0.22", 2, message) } else { over_v6("fe80::7", "ff02::16", 58, message) }
}
