//! The reply to the sender of a packet that does not fit: ICMP "fragmentation needed" (RFC 1191), ICMPv6 "packet too
//! big" (RFC 4443 §3.2), on behalf of the packet's destination. This module also has the queue of all replies, of this
//! and other kinds, that a tunnel sends back to its switch.

use std::net::IpAddr;

use netvale_wire::checksum::{Sum, pseudo_v6};
use netvale_wire::{Layers, ethernet};

/// Maximum number of waiting replies.
const WAITING: usize = 16;
/// Maximum size of a reply in bytes: ICMPv6 quotes as much as fits the minimum MTU of IPv6.
pub const LONGEST: usize = ETHERNET + TAGS + 1280;
/// Size of the quoted packet in ICMP, in bytes: the maximum of RFC 1812 §4.3.2.3 for a reply, without headers.
const QUOTED_V4: usize = 548;
/// Size of the quoted packet in ICMPv6, in bytes: a reply has the minimum MTU of IPv6.
const QUOTED_V6: usize = 1280 - 48;
/// Size of an Ethernet header in bytes.
const ETHERNET: usize = 14;
/// Size of two VLAN tags in bytes.
const TAGS: usize = 8;
/// IP protocol number of ICMP.
const ICMP: u8 = 1;
/// Next-header value of ICMPv6.
const ICMPV6: u8 = 58;
/// Time to live, or hop limit, of a reply.
const HOPS: u8 = 64;

/// Number of bytes at the start of a frame that may be needed to quote the frame.
pub const HEAD: usize = ETHERNET + QUOTED_V6;

/// A frame that replies to another frame.
pub struct TooLongReply {
    bytes: [u8; LONGEST],
    len: usize,
}

/// A queue of replies to the tunnel's switch. Replies that find no room are lost.
pub struct Replies(Vec<TooLongReply>);

impl Default for Replies {
    fn default() -> Self {
        Replies(Vec::with_capacity(WAITING))
    }
}

impl Replies {
    /// Adds a reply if there is room.
    pub fn push(&mut self, reply: TooLongReply) {
        if self.0.len() < WAITING {
            self.0.push(reply);
        }
    }

    /// Moves all replies to `to`, which is empty.
    pub fn take(&mut self, to: &mut Vec<TooLongReply>) {
        std::mem::swap(&mut self.0, to);
    }
}

impl TooLongReply {
    /// Creates a reply with these bytes, cut to [`LONGEST`].
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> TooLongReply {
        let mut reply = TooLongReply { bytes: [0; LONGEST], len: 0 };
        for part in parts {
            let n = part.len().min(LONGEST - reply.len);
            reply.bytes[reply.len..reply.len + n].copy_from_slice(&part[..n]);
            reply.len += n;
        }
        reply
    }

    /// Returns the bytes of the reply.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the reply to a frame that is too long, as only packets of up to `mtu` bytes fit. `head` has the frame's
/// first [`HEAD`] bytes, or all if there are fewer. Returns `None` if no reply is allowed: the frame has no IP packet,
/// goes to a group, or is itself an error message.
#[must_use]
pub fn answer(head: &[u8], mtu: usize) -> Option<TooLongReply> {
    let layers = Layers::parse(head).ok()?;
    let ip = layers.ip?;
    let ethernet = head.get(..layers.l3)?;
    if ethernet.first()? & 1 != 0 || ip.dst.is_multicast() || is_error(head, ip.protocol, ip.l4) {
        return None;
    }
    let mut back = [0; 22];
    let back = back.get_mut(..layers.l3)?;
    back.copy_from_slice(ethernet);
    back[..6].copy_from_slice(&ethernet[6..12]);
    back[6..12].copy_from_slice(&ethernet[..6]);
    let packet = head.get(layers.l3..)?;
    match (ip.src, ip.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let quoted = &packet[..packet.len().min(QUOTED_V4)];
            let mut icmp = [3, 4, 0, 0, 0, 0, (mtu >> 8) as u8, mtu as u8];
            let sum = Sum::of(&icmp).add_bytes(quoted).checksum();
            icmp[2..4].copy_from_slice(&sum.to_be_bytes());
            let len = (20 + icmp.len() + quoted.len()) as u16;
            let mut header =
                [0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, HOPS, ICMP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            header[12..16].copy_from_slice(&dst.octets());
            header[16..20].copy_from_slice(&src.octets());
            let sum = Sum::of(&header).checksum();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            Some(TooLongReply::of(&[back, &header, &icmp, quoted]))
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let quoted = &packet[..packet.len().min(QUOTED_V6)];
            let [a, b, c, d] = (mtu as u32).to_be_bytes();
            let mut icmp = [2, 0, 0, 0, a, b, c, d];
            let len = icmp.len() + quoted.len();
            let sum = pseudo_v6(dst, src, ICMPV6, len as u32).add_bytes(&icmp).add_bytes(quoted).checksum();
            icmp[2..4].copy_from_slice(&sum.to_be_bytes());
            let mut header = [0; 40];
            header[..8].copy_from_slice(&[0x60, 0, 0, 0, (len >> 8) as u8, len as u8, ICMPV6, HOPS]);
            header[8..24].copy_from_slice(&dst.octets());
            header[24..40].copy_from_slice(&src.octets());
            Some(TooLongReply::of(&[back, &header, &icmp, quoted]))
        }
        _ => None,
    }
}

/// Returns whether a packet is an error, which must not be answered by an error (RFC 1122 §3.2.2, RFC 4443 §2.4).
fn is_error(head: &[u8], protocol: u8, at: usize) -> bool {
    let kind = head.get(at).copied();
    match protocol {
        ICMP => !matches!(kind, Some(0 | 8 | 13 | 14)),
        ICMPV6 => kind.is_none_or(|kind| kind < 128),
        _ => false,
    }
}

const _: () = assert!(ETHERNET == ethernet::HEADER_LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn packet(v6: bool, protocol: u8) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 5, 0x54, protocol, 64]);
            frame.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets());
            frame.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).octets());
        } else {
            frame.extend([8, 0, 0x45, 0, 5, 0x78, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        frame.resize(1414, 7);
        frame
    }

    /// Objective: the sender of an IPv4 or IPv6 packet gets a reply that it accepts: the reply comes from the packet's
    /// destination, and has valid checksums, the MTU, and the start of the packet.
    #[test]
    fn the_sender_gets_a_reply_that_it_accepts() {
        let frame = packet(false, 17);
        let reply = answer(&frame, 1350).unwrap();
        let bytes = reply.bytes();
        assert_eq!(bytes[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        let header = &bytes[14..34];
        let icmp = &bytes[34..];
        assert_eq!((Sum::of(header).fold(), Sum::of(icmp).fold()), (0xffff, 0xffff));
        assert_eq!((&header[12..16], &header[16..20]), (&[10, 0, 0, 2][..], &[10, 0, 0, 1][..]));
        assert_eq!((&icmp[..2], &icmp[6..8]), (&[3, 4][..], &[5, 0x46][..]));
        assert_eq!(&icmp[8..], &frame[14..14 + QUOTED_V4]);
        assert_eq!(u16::from_be_bytes([header[2], header[3]]) as usize, bytes.len() - 14);

        let frame = packet(true, 6);
        let reply = answer(&frame, 1330).unwrap();
        let header = &reply.bytes()[14..54];
        let icmp = &reply.bytes()[54..];
        let [src, dst] = [8, 24].map(|at| Ipv6Addr::from(<[u8; 16]>::try_from(&header[at..at + 16]).unwrap()));
        assert_eq!((src, dst), ("fd00::2".parse().unwrap(), "fd00::1".parse().unwrap()));
        assert_eq!(pseudo_v6(src, dst, ICMPV6, icmp.len() as u32).add_bytes(icmp).fold(), 0xffff);
        assert_eq!((icmp[0], &icmp[4..8]), (2, &[0, 0, 5, 0x32][..]));
        assert_eq!(reply.bytes().len(), LONGEST - TAGS);
    }

    /// Objective: senders of other frames, of group packets, and of errors get no reply; the reply to a tagged frame is
    /// tagged, too.
    #[test]
    fn senders_of_other_frames_get_no_reply() {
        assert!(answer(&packet(false, ICMP), 1350).is_none(), "an error (type 7)");
        let mut group = packet(false, 17);
        group[0] = 1;
        assert!(answer(&group, 1350).is_none());
        let mut group = packet(false, 17);
        group[30..34].copy_from_slice(&Ipv4Addr::new(224, 0, 0, 9).octets());
        assert!(answer(&group, 1350).is_none());
        let mut other = packet(false, 17);
        other[12] = 0x99;
        assert!(answer(&other, 1350).is_none());
        assert!(answer(&other[..10], 1350).is_none());
        let mut tagged = packet(false, 17);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        let reply = answer(&tagged, 1350).unwrap();
        assert_eq!((&reply.bytes()[12..18], reply.bytes()[18]), (&[0x81, 0, 0, 5, 8, 0][..], 0x45));
    }
}
