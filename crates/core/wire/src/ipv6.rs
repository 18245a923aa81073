//! The IPv6 header and its extension headers (RFC 8200 §3, §4).

use core::borrow::{Borrow, BorrowMut};
use core::net::Ipv6Addr;

use crate::{MalformedPacket, field};

/// Offsets of the fields, in bytes from the start of the header.
pub(crate) mod at {
    pub const VERSION: usize = 0;
    pub const PAYLOAD_LEN: usize = 4;
    pub const NEXT_HEADER: usize = 6;
    pub const HOP_LIMIT: usize = 7;
    pub const SRC: usize = 8;
    pub const DST: usize = 24;
}

/// Length of the header without extension headers, bytes.
pub const HEADER_LEN: usize = 40;
/// Maximum number of extension headers that are skipped. A packet with more extension headers counts as malformed.
pub const MAX_EXTENSIONS: usize = 8;

/// Next-header value of a fragment header.
pub const FRAGMENT: u8 = 44;
/// Bytes of a fragment header.
pub const FRAGMENT_LEN: usize = 8;

/// Next-header values of the extension headers (RFC 8200 §4.1, RFC 4302 §2, RFC 6275 §6.1).
mod next {
    pub const HOP_BY_HOP: u8 = 0;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = super::FRAGMENT;
    pub const AUTHENTICATION: u8 = 51;
    pub const DESTINATION: u8 = 60;
    pub const MOBILITY: u8 = 135;
}

/// The fixed part of an IPv6 header. Extension headers follow it.
#[derive(Clone, Copy, Debug)]
pub struct Header<B>(B);

impl<'a> Header<&'a [u8; HEADER_LEN]> {
    /// Creates a view of the header at the start of `bytes`, which must have version 6. The payload length is not
    /// checked: `bytes` may be the start of a packet.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedPacket> {
        let header: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(MalformedPacket::Truncated)?;
        (header[at::VERSION] >> 4 == 6).then_some(Self(header)).ok_or(MalformedPacket::BadField)
    }
}

impl<'a> Header<&'a mut [u8; HEADER_LEN]> {
    /// Like [`Header::parse`], for writing.
    #[inline]
    pub fn parse_mut(bytes: &'a mut [u8]) -> Result<Self, MalformedPacket> {
        Header::parse(bytes)?;
        bytes.first_chunk_mut().map(Self).ok_or(MalformedPacket::Truncated)
    }

    /// Initialises the start of `bytes` as a header of version 6, with all other fields zero.
    pub fn init(bytes: &'a mut [u8]) -> Result<Self, MalformedPacket> {
        let header: &mut [u8; HEADER_LEN] = bytes.first_chunk_mut().ok_or(MalformedPacket::Truncated)?;
        *header = [0; HEADER_LEN];
        header[at::VERSION] = 0x60;
        Ok(Self(header))
    }
}

impl<B: Borrow<[u8; HEADER_LEN]>> Header<B> {
    field::reads! {
        /// Length in bytes of all that follows this header, including extension headers.
        payload_len: u16 = at::PAYLOAD_LEN;
        /// The next header: an extension header or the payload's protocol.
        next_header: u8 = at::NEXT_HEADER;
        /// Hop limit.
        hop_limit: u8 = at::HOP_LIMIT;
        /// Source address.
        src: Ipv6Addr = at::SRC;
        /// Destination address.
        dst: Ipv6Addr = at::DST;
    }
}

impl<B: BorrowMut<[u8; HEADER_LEN]>> Header<B> {
    field::stores! {
        /// Stores the payload length.
        set_payload_len: u16 = at::PAYLOAD_LEN;
        /// Stores the next header.
        set_next_header: u8 = at::NEXT_HEADER;
        /// Stores the hop limit.
        set_hop_limit: u8 = at::HOP_LIMIT;
        /// Stores the source address.
        set_src: Ipv6Addr = at::SRC;
        /// Stores the destination address.
        set_dst: Ipv6Addr = at::DST;
    }
}

/// The upper layer of a packet, after its extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer {
    /// The protocol, as in [`crate::layers`]. ESP and "no next header", which are not skipped, count as protocols as
    /// well.
    pub protocol: u8,
    /// Offset of the upper layer, in bytes from the start of the IPv6 header. In a fragment other than the first, this
    /// offset is in the middle of the payload.
    pub offset: usize,
    /// Whether there is a fragment header, even one that describes a whole packet.
    pub fragment: bool,
    /// Whether a routing header has segments left. If so, the destination in the header differs from the destination in
    /// the transport's pseudo header (RFC 8200 §8.1).
    pub source_route: bool,
}

/// Walks the extension headers of the packet at the start of `bytes`. Returns the upper layer that follows them.
#[inline]
pub fn upper(bytes: &[u8]) -> Result<UpperLayer, MalformedPacket> {
    let mut upper = UpperLayer {
        protocol: Header::parse(bytes)?.next_header(),
        offset: HEADER_LEN,
        fragment: false,
        source_route: false,
    };
    for _ in 0..=MAX_EXTENSIONS {
        if !is_extension(upper.protocol) {
            return Ok(upper);
        }
        skip(bytes, &mut upper)?;
    }
    Err(MalformedPacket::BadField)
}

/// Whether `next` is an extension header that is skipped.
#[inline]
fn is_extension(next: u8) -> bool {
    matches!(
        next,
        next::HOP_BY_HOP | next::ROUTING | next::FRAGMENT | next::AUTHENTICATION | next::DESTINATION | next::MOBILITY
    )
}

/// Moves `upper` past the current extension header.
fn skip(bytes: &[u8], upper: &mut UpperLayer) -> Result<(), MalformedPacket> {
    // No extension header is shorter than 8 bytes.
    let header: &[u8; 8] = bytes.get(upper.offset..).and_then(<[u8]>::first_chunk).ok_or(MalformedPacket::Truncated)?;
    let units = usize::from(header[1]);
    let len = match upper.protocol {
        next::FRAGMENT => 8,
        // RFC 4302 §2.2: the length is in units of 4 bytes, minus 2.
        next::AUTHENTICATION => (units + 2) * 4,
        _ => (units + 1) * 8,
    };
    if len < 8 {
        return Err(MalformedPacket::BadField);
    }
    upper.fragment |= upper.protocol == next::FRAGMENT;
    upper.source_route |= upper.protocol == next::ROUTING && header[3] != 0;
    upper.protocol = header[0];
    upper.offset += len;
    if upper.offset > bytes.len() {
        return Err(MalformedPacket::Truncated);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Builds a packet with `extensions` (next-header value, and body without its first byte) in front of TCP.
    fn packet(extensions: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = std::vec![0; HEADER_LEN];
        let mut header = Header::init(&mut bytes).unwrap();
        header.set_next_header(extensions.first().map_or(6, |e| e.0));
        for (n, (_, body)) in extensions.iter().enumerate() {
            bytes.push(extensions.get(n + 1).map_or(6, |e| e.0));
            bytes.extend_from_slice(body);
        }
        bytes
    }

    #[test]
    fn fields_read_back_as_written() {
        let mut bytes = [0xee; HEADER_LEN];
        let src = Ipv6Addr::LOCALHOST;
        let dst = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
        let mut header = Header::init(&mut bytes).unwrap();
        header.set_payload_len(0x1234);
        header.set_next_header(17);
        header.set_hop_limit(9);
        header.set_src(src);
        header.set_dst(dst);
        assert_eq!(bytes[..8], [0x60, 0, 0, 0, 0x12, 0x34, 17, 9]);
        let header = Header::parse(&bytes).unwrap();
        assert_eq!((header.payload_len(), header.next_header(), header.hop_limit()), (0x1234, 17, 9));
        assert_eq!((header.src(), header.dst()), (src, dst));
    }

    #[test]
    fn extension_headers_are_skipped() {
        let upper_of = |extensions: &[(u8, &[u8])]| upper(&packet(extensions)).unwrap();
        let plain = UpperLayer { protocol: 6, offset: 40, fragment: false, source_route: false };
        assert_eq!(upper_of(&[]), plain);
        assert_eq!(upper_of(&[(0, &[0; 7])]), UpperLayer { offset: 48, ..plain });
        assert_eq!(upper_of(&[(60, &[0; 7]), (44, &[0; 7])]), UpperLayer { offset: 56, fragment: true, ..plain });
        assert_eq!(upper_of(&[(43, &[0, 0, 1, 0, 0, 0, 0])]), UpperLayer { offset: 48, source_route: true, ..plain });
        let auth = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(upper_of(&[(51, &auth)]), UpperLayer { offset: 52, ..plain });
    }

    #[test]
    fn endless_and_cut_extension_headers_are_refused() {
        let one: (u8, &[u8]) = (60, &[0; 7]);
        assert!(upper(&packet(&[one; MAX_EXTENSIONS])).is_ok());
        assert_eq!(upper(&packet(&[one; MAX_EXTENSIONS + 1])), Err(MalformedPacket::BadField));
        let long = packet(&[(60, &[1, 0, 0, 0, 0, 0, 0])]);
        assert_eq!(upper(&long), Err(MalformedPacket::Truncated));
        assert_eq!(upper(&packet(&[one])[..47]), Err(MalformedPacket::Truncated));
        assert_eq!(upper(&[0x40; 40]), Err(MalformedPacket::BadField));
        assert_eq!(upper(&[0x60; 39]), Err(MalformedPacket::Truncated));
    }
}
