//! Finds the fields that checks read, in bytes that may be truncated anywhere and forged by an attacker.

use std::net::{Ipv4Addr, Ipv6Addr};

use netvale_wire::{MacAddr, ethernet, ipv4, ipv6, layers};

/// The smallest EtherType; smaller values are the length of an 802.3 frame (IEEE 802.3 §3.2.6).
const MIN_ETHERTYPE: u16 = 0x0600;
/// The start of an LLC/SNAP header, before the organisation code (IEEE 802 §9.5): both service access points, and the
/// control field "unnumbered information".
const SNAP: [u8; 3] = [0xaa, 0xaa, 0x03];
/// Organisation codes that are followed by an EtherType: the codes of RFC 1042 and of the bridge tunnel of IEEE 802.1H.
const SNAP_CODES: [[u8; 3]; 2] = [[0, 0, 0], [0, 0, 0xf8]];

/// Protocol number of ICMPv6.
pub(super) const ICMPV6: u8 = 58;
/// Protocol number of the IPv6 fragment header.
const FRAGMENT: u8 = 44;
/// Protocol number of the authentication header, whose length field counts in units of 4 bytes, not 8.
const AUTHENTICATION: u8 = 51;
/// Bits of IPv4's fragment field that hold the payload's offset, in units of 8 bytes.
const V4_FRAGMENT_OFFSET: u16 = 0x1fff;
/// Bits of IPv6's fragment field that hold the payload's offset, in bytes.
const V6_FRAGMENT_OFFSET: u16 = 0xfff8;

/// Returns the Ethernet source address of a frame; `None` if the header is truncated.
#[inline]
pub(super) fn source(head: &[u8]) -> Option<MacAddr> {
    ethernet::Header::parse(head).ok().map(|header| header.src())
}

/// Returns the network protocol and the offset of that protocol's header, which up to two tags and an LLC/SNAP header
/// may precede. `None` if the protocol or the offset cannot be determined.
pub(super) fn network(head: &[u8]) -> Option<(u16, usize)> {
    let (ethertype, l3) = ethernet::network(head).ok()?;
    let (ethertype, l3) =
        if ethertype < MIN_ETHERTYPE { past_snap(head.get(l3..)?, ethertype, l3)? } else { (ethertype, l3) };
    (ethertype != ethernet::VLAN && ethertype != ethernet::SERVICE_VLAN).then_some((ethertype, l3))
}

/// Returns the EtherType in a SNAP header at the start of `llc` and the offset after that header, or `length` and `l3`
/// for another header. Ignores the lowest bits of the service access points, which do not identify the header. `None`
/// if a SNAP header may be truncated.
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
pub(super) enum UpperPayload<'a> {
    /// The start of an upper layer's message.
    Start {
        protocol: u8,
        /// The known bytes of the message.
        bytes: &'a [u8],
        /// Whether `bytes` contains all bytes of the message that are in this packet.
        whole: bool,
        /// Whether the packet has a fragment header (IPv6).
        fragment: bool,
    },
    /// A fragment other than the first. Only the first fragment is checked: no host reassembles the datagram without
    /// the first fragment.
    Rest,
    /// The payload cannot be found: an extension header is truncated or invalid, or there are too many extension
    /// headers.
    Hidden,
}

/// The UDP ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketPorts {
    /// Source port and destination port.
    Are(u16, u16),
    /// UDP or possibly UDP, with unreadable ports.
    Hidden,
    /// Not UDP, or a fragment other than the first.
    None,
}

impl UpperPayload<'_> {
    /// Returns the UDP ports.
    pub fn ports(&self) -> PacketPorts {
        match *self {
            Self::Start { protocol: layers::UDP, bytes, .. } => match bytes.first_chunk() {
                Some(&[a, b, c, d]) => PacketPorts::Are(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])),
                None => PacketPorts::Hidden,
            },
            Self::Start { .. } | Self::Rest => PacketPorts::None,
            Self::Hidden => PacketPorts::Hidden,
        }
    }
}

/// An IPv4 packet.
pub(super) struct Ipv4Packet<'a> {
    pub src: Ipv4Addr,
    pub upper: UpperPayload<'a>,
}

impl<'a> Ipv4Packet<'a> {
    /// Reads the packet at the start of `bytes`; `None` if its header is unreadable.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = ipv4::Header::parse(bytes).ok()?;
        let fragment = u16::from_be_bytes([*bytes.get(6)?, *bytes.get(7)?]);
        let upper = if fragment & V4_FRAGMENT_OFFSET != 0 {
            UpperPayload::Rest
        } else {
            // Bytes after the packet are padding, which must not be taken for the ports of a short fragment.
            let total = usize::from(header.total_len());
            let payload = bytes.get(header.header_len()..total.min(bytes.len())).unwrap_or_default();
            UpperPayload::Start {
                protocol: header.protocol(),
                bytes: payload,
                whole: total <= bytes.len(),
                fragment: false,
            }
        };
        Some(Self { src: header.src(), upper })
    }
}

/// An IPv6 packet.
pub(super) struct Ipv6Packet<'a> {
    pub src: Ipv6Addr,
    pub upper: UpperPayload<'a>,
}

impl<'a> Ipv6Packet<'a> {
    /// Reads the packet at the start of `bytes`, of which the frame contains `len` bytes; `None` if its header is
    /// unreadable.
    pub fn parse(bytes: &'a [u8], len: usize) -> Option<Self> {
        let header = ipv6::Header::parse(bytes).ok()?;
        let end = match usize::from(header.payload_len()) {
            // A jumbogram (RFC 2675 §3), which ends with the frame; a host drops other packets with this length.
            0 => len,
            payload => ipv6::HEADER_LEN + payload,
        };
        let known = bytes.get(..end).unwrap_or(bytes);
        let upper = walk(known, header.next_header(), end <= bytes.len());
        Some(Self { src: header.src(), upper })
    }
}

/// Follows the extension headers to the payload. Unlike [`ipv6::upper`], stops at a fragment other than the first, in
/// which payload follows instead of a header.
fn walk(packet: &[u8], mut next: u8, whole: bool) -> UpperPayload<'_> {
    let mut rest = packet.get(ipv6::HEADER_LEN..).unwrap_or_default();
    let mut fragment = false;
    for _ in 0..=ipv6::MAX_EXTENSIONS {
        if !is_extension(next) {
            return UpperPayload::Start { protocol: next, bytes: rest, whole, fragment };
        }
        let Some(&[following, units, high, low, ..]) = rest.first_chunk::<8>() else {
            return UpperPayload::Hidden;
        };
        if next == FRAGMENT {
            if fragment {
                return UpperPayload::Hidden;
            }
            fragment = true;
            if u16::from_be_bytes([high, low]) & V6_FRAGMENT_OFFSET != 0 {
                return UpperPayload::Rest;
            }
        }
        let Some(after) = rest.get(extension_len(next, units)..) else {
            return UpperPayload::Hidden;
        };
        next = following;
        rest = after;
    }
    UpperPayload::Hidden
}

/// Whether `next` is an extension header with a readable next header (RFC 7045 §4 without ESP, which encrypts that
/// field).
fn is_extension(next: u8) -> bool {
    matches!(next, 0 | 43 | FRAGMENT | AUTHENTICATION | 60 | 135 | 139 | 140)
}

/// Returns the length in bytes of an extension header of kind `next` with the length field `units` (RFC 8200 §4, RFC
/// 4302 §2.2).
fn extension_len(next: u8, units: u8) -> usize {
    match next {
        FRAGMENT => 8,
        AUTHENTICATION => (usize::from(units) + 2) * 4,
        _ => (usize::from(units) + 1) * 8,
    }
}
