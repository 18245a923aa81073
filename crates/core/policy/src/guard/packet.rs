//! Finds the fields for the checks, in bytes that may be cut anywhere and were chosen to mislead.

use std::net::{Ipv4Addr, Ipv6Addr};

use netvale_wire::{MacAddr, ethernet, ipv4, ipv6, layers};

/// EtherTypes start here; smaller values are the length of an 802.3 frame (IEEE 802.3 §3.2.6).
const MIN_ETHERTYPE: u16 = 0x0600;
/// An LLC/SNAP header up to its organisation code (IEEE 802 §9.5): both access points, "unnumbered information".
const SNAP: [u8; 3] = [0xaa, 0xaa, 0x03];
/// Organisation codes after which an EtherType follows: RFC 1042 and the bridge tunnel of IEEE 802.1H.
const SNAP_CODES: [[u8; 3]; 2] = [[0, 0, 0], [0, 0, 0xf8]];

/// Protocol number of ICMPv6.
pub(super) const ICMPV6: u8 = 58;
/// The IPv6 fragment header.
const FRAGMENT: u8 = 44;
/// The authentication header, whose length has its own unit.
const AUTHENTICATION: u8 = 51;
/// Bits of the fragment fields with the payload's offset: IPv4 in units of 8 bytes, IPv6 in bytes.
const V4_FRAGMENT_OFFSET: u16 = 0x1fff;
const V6_FRAGMENT_OFFSET: u16 = 0xfff8;

/// The Ethernet source of a frame.
#[inline]
pub(super) fn source(head: &[u8]) -> Option<MacAddr> {
    ethernet::Header::parse(head).ok().map(|header| header.src())
}

/// The network protocol and the offset of its header, past two tags and an LLC/SNAP header. `None` if something unseen
/// may hide there.
pub(super) fn network(head: &[u8]) -> Option<(u16, usize)> {
    let (ethertype, l3) = ethernet::network(head).ok()?;
    let (ethertype, l3) =
        if ethertype < MIN_ETHERTYPE { past_snap(head.get(l3..)?, ethertype, l3)? } else { (ethertype, l3) };
    (ethertype != ethernet::VLAN && ethertype != ethernet::SERVICE_VLAN).then_some((ethertype, l3))
}

/// The EtherType in a SNAP header at the start of `llc`, or `length` for another header. The lowest bits of the access
/// points do not affect which header it is.
fn past_snap(llc: &[u8], length: u16, l3: usize) -> Option<(u16, usize)> {
    let other = (length, l3);
    let Some(&[dsap, ssap, control, a, b, c, high, low]) = llc.first_chunk() else {
        let may_be = llc.iter().zip(SNAP).all(|(&byte, snap)| byte | 1 == snap | 1);
        return (!may_be).then_some(other);
    };
    let snap = [dsap & 0xfe, ssap & 0xfe, control] == SNAP && SNAP_CODES.contains(&[a, b, c]);
    Some(if snap { (u16::from_be_bytes([high, low]), l3 + 8) } else { other })
}

/// An IP packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upper<'a> {
    /// The start of an upper layer's message.
    Start {
        protocol: u8,
        /// Its known bytes.
        bytes: &'a [u8],
        /// Whether these are all of its bytes in this packet.
        whole: bool,
        /// Whether there is a fragment header (IPv6).
        fragment: bool,
    },
    /// A fragment other than the first. The first decides for its datagram: without that, it is never reassembled.
    Rest,
    /// Unknown.
    Hidden,
}

/// The ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ports {
    /// Source and destination.
    Are(u16, u16),
    /// UDP, or possibly UDP, but its ports are not visible.
    Hidden,
    /// Not UDP, or a later fragment, which the first decided.
    None,
}

impl Upper<'_> {
    /// The ports of UDP.
    pub fn ports(&self) -> Ports {
        match *self {
            Self::Start { protocol: layers::UDP, bytes, .. } => match bytes.first_chunk() {
                Some(&[a, b, c, d]) => Ports::Are(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])),
                None => Ports::Hidden,
            },
            Self::Start { .. } | Self::Rest => Ports::None,
            Self::Hidden => Ports::Hidden,
        }
    }
}

/// An IPv4 packet.
pub(super) struct V4<'a> {
    pub src: Ipv4Addr,
    pub upper: Upper<'a>,
}

impl<'a> V4<'a> {
    /// Reads the packet that `bytes` starts with, unless its header is unreadable.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = ipv4::Header::parse(bytes).ok()?;
        let fragment = u16::from_be_bytes([*bytes.get(6)?, *bytes.get(7)?]);
        let upper = if fragment & V4_FRAGMENT_OFFSET != 0 {
            Upper::Rest
        } else {
            // Bytes behind the packet are padding, which must not pass for the ports of a short fragment.
            let total = usize::from(header.total_len());
            let payload = bytes.get(header.header_len()..total.min(bytes.len())).unwrap_or_default();
            Upper::Start { protocol: header.protocol(), bytes: payload, whole: total <= bytes.len(), fragment: false }
        };
        Some(Self { src: header.src(), upper })
    }
}

/// An IPv6 packet.
pub(super) struct V6<'a> {
    pub src: Ipv6Addr,
    pub upper: Upper<'a>,
}

impl<'a> V6<'a> {
    /// Reads the packet that `bytes` starts with, of which the frame has `len` bytes, unless its header is unreadable.
    pub fn parse(bytes: &'a [u8], len: usize) -> Option<Self> {
        let header = ipv6::Header::parse(bytes).ok()?;
        let end = match usize::from(header.payload_len()) {
            // A jumbogram (RFC 2675 §3), which ends with the frame; a host drops packets that claim so wrongly.
            0 => len,
            payload => ipv6::HEADER_LEN + payload,
        };
        let known = bytes.get(..end).unwrap_or(bytes);
        let upper = walk(known, header.next_header(), end <= bytes.len());
        Some(Self { src: header.src(), upper })
    }
}

/// Walks the extension headers. Unlike [`ipv6::upper`] this stops at a later fragment, which continues with payload.
fn walk(packet: &[u8], mut next: u8, whole: bool) -> Upper<'_> {
    let mut rest = packet.get(ipv6::HEADER_LEN..).unwrap_or_default();
    let mut fragment = false;
    for _ in 0..=ipv6::MAX_EXTENSIONS {
        if !is_extension(next) {
            return Upper::Start { protocol: next, bytes: rest, whole, fragment };
        }
        let Some(&[following, units, high, low, ..]) = rest.first_chunk::<8>() else {
            return Upper::Hidden;
        };
        if next == FRAGMENT {
            if fragment {
                return Upper::Hidden;
            }
            fragment = true;
            if u16::from_be_bytes([high, low]) & V6_FRAGMENT_OFFSET != 0 {
                return Upper::Rest;
            }
        }
        let Some(after) = rest.get(extension_len(next, units)..) else {
            return Upper::Hidden;
        };
        next = following;
        rest = after;
    }
    Upper::Hidden
}

/// Whether an extension header has a next header (RFC 7045 §4 without ESP, which hides the rest from all but its
/// receiver).
fn is_extension(next: u8) -> bool {
    matches!(next, 0 | 43 | FRAGMENT | AUTHENTICATION | 60 | 135 | 139 | 140)
}

/// Length in bytes of an extension header of kind `next`, given as `units` (RFC 8200 §4, RFC 4302 §2.2).
fn extension_len(next: u8, units: u8) -> usize {
    match next {
        FRAGMENT => 8,
        AUTHENTICATION => (usize::from(units) + 2) * 4,
        _ => (usize::from(units) + 1) * 8,
    }
}
