//! Echo and error messages of ICMP and ICMPv6. An error message reports a problem ([`IcmpProblem`]) with a guest's
//! packet.

use std::net::IpAddr;

use netvale_wire::checksum::pseudo;
use netvale_wire::layers::{ICMP, ICMP6};
use netvale_wire::{MacAddr, Sum};

/// ICMP message types.
pub mod kind {
    /// Echo request of ICMP.
    pub const ECHO: u8 = 8;
    /// Echo reply of ICMP.
    pub const ECHO_REPLY: u8 = 0;
    /// Echo request of ICMPv6.
    pub const ECHO6: u8 = 128;
    /// Echo reply of ICMPv6.
    pub const ECHO_REPLY6: u8 = 129;
}

/// Length of a message's header in bytes.
pub const HEADER_LEN: usize = 8;
/// Maximum number of bytes of a packet that an error message quotes. The message then fits into the minimum MTU of
/// either IP version.
const QUOTE: usize = 512;

/// The reason for an ICMP error message: why a packet did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpProblem {
    /// There is no route to the network.
    Network,
    /// The host cannot be reached.
    Host,
    /// No program listens on the port.
    Port,
    /// A policy forbids the packet.
    Prohibited,
    /// The source address is link-local, and the packet would leave its link (IPv6).
    Scope,
    /// The packet is longer than this MTU, in bytes.
    TooBig(u16),
    /// The packet's time to live, or hop limit, was exceeded.
    Expired,
}

impl IcmpProblem {
    /// Returns the message's type, its code, and the four bytes after the checksum.
    fn head(self, v4: bool) -> [u8; 6] {
        let (kind, code) = match (self, v4) {
            (Self::Network, true) => (3, 0),
            (Self::Host, true) => (3, 1),
            (Self::Port, true) => (3, 3),
            (Self::Prohibited | Self::Scope, true) => (3, 13),
            (Self::TooBig(_), true) => (3, 4),
            (Self::Expired, true) => (11, 0),
            (Self::Network, false) => (1, 0),
            (Self::Host, false) => (1, 3),
            (Self::Port, false) => (1, 4),
            (Self::Prohibited, false) => (1, 1),
            (Self::Scope, false) => (1, 2),
            (Self::TooBig(_), false) => (2, 0),
            (Self::Expired, false) => (3, 0),
        };
        let [high, low] = if let Self::TooBig(mtu) = self { mtu.to_be_bytes() } else { [0; 2] };
        [kind, code, 0, 0, high, low]
    }

    /// Returns the problem that an error message from another host reports; `None` for other messages.
    pub fn of_message(kind: u8, code: u8, info: u32, v4: bool) -> Option<Self> {
        Some(match (kind, code, v4) {
            (3, 3, true) | (1, 4, false) => Self::Port,
            (3, 4, true) | (2, _, false) => Self::TooBig(info.min(u16::MAX.into()) as u16),
            (3, 9 | 10 | 13, true) | (1, 1 | 5 | 6, false) => Self::Prohibited,
            (3, 1 | 7 | 12, true) | (1, 3, false) => Self::Host,
            (3, _, true) | (1, _, false) => Self::Network,
            (11, _, true) | (3, _, false) => Self::Expired,
            _ => return None,
        })
    }
}

/// Returns the IP protocol number of ICMP for the version of an address.
pub fn protocol(address: IpAddr) -> u8 {
    if address.is_ipv4() { ICMP } else { ICMP6 }
}

/// Makes an error message about `packet` that is sent from `src` to `dst`, including the message's checksum.
pub fn error(problem: IcmpProblem, packet: &[u8], src: IpAddr, dst: IpAddr) -> Vec<u8> {
    let [kind, code, rest @ ..] = problem.head(src.is_ipv4());
    let quote = &packet[..packet.len().min(QUOTE)];
    let mut message = [&[kind, code, 0, 0][..], &rest, quote].concat();
    set_checksum(&mut message, src, dst);
    message
}

/// Replaces the contents of `out` by an echo message. `rest` is the part of the message that begins with the sequence
/// number.
pub fn echo(out: &mut Vec<u8>, kind: u8, ident: u16, rest: &[u8], src: IpAddr, dst: IpAddr) {
    out.clear();
    out.extend_from_slice(&[kind, 0, 0, 0]);
    out.extend_from_slice(&ident.to_be_bytes());
    out.extend_from_slice(rest);
    set_checksum(out, src, dst);
}

/// Sets the checksum of a message. The checksum of ICMPv6 covers a pseudo-header; the checksum of ICMP does not.
pub fn set_checksum(message: &mut [u8], src: IpAddr, dst: IpAddr) {
    let len = message.len() as u16;
    let sum = if src.is_ipv4() { Some(Sum::ZERO) } else { pseudo(src, dst, ICMP6, len) };
    if let Some(field) = message.get_mut(2..4) {
        field.fill(0);
        let checksum = sum.unwrap_or(Sum::ZERO).add_bytes(message).checksum();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Returns the multicast MAC address of an IPv6 group (RFC 2464 §7).
pub fn group_station(group: std::net::Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_both_versions_have_right_checksums() {
        let v4 = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 9]));
        let message = error(IcmpProblem::Host, &[0x45; 600], v4.0, v4.1);
        assert_eq!((message.len(), message[..2].to_vec()), (8 + QUOTE, vec![3, 1]));
        assert_eq!(Sum::of(&message).fold(), 0xffff);
        let v6: (IpAddr, IpAddr) = ("fd00::1".parse().unwrap(), "fd00::9".parse().unwrap());
        let message = error(IcmpProblem::TooBig(1280), &[0x60; 48], v6.0, v6.1);
        assert_eq!(message[..8], [2, 0, message[2], message[3], 0, 0, 5, 0]);
        let sum = pseudo(v6.0, v6.1, ICMP6, message.len() as u16).unwrap();
        assert_eq!(sum.add_bytes(&message).fold(), 0xffff);
    }

    #[test]
    fn an_error_that_is_passed_on_stays_what_it_is() {
        use IcmpProblem::*;
        for v4 in [true, false] {
            for problem in [Network, Host, Port, Prohibited, TooBig(1400), Expired] {
                let [kind, code, ..] = problem.head(v4);
                assert_eq!(IcmpProblem::of_message(kind, code, 1400, v4), Some(problem));
            }
        }
        assert_eq!(IcmpProblem::of_message(0, 0, 0, true), None);
    }
}
