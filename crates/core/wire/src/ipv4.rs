//! The IPv4 header (RFC 791 §3.1).

use core::borrow::{Borrow, BorrowMut};
use core::net::Ipv4Addr;

use crate::{MalformedPacket, Sum, field};

/// Offsets of the fields, in bytes from the start of the header.
pub(crate) mod at {
    pub const VERSION_IHL: usize = 0;
    pub const TOTAL_LEN: usize = 2;
    pub const IDENT: usize = 4;
    pub const FRAGMENT: usize = 6;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const CHECKSUM: usize = 10;
    pub const SRC: usize = 12;
    pub const DST: usize = 16;
}

/// Length of a header without options, bytes.
pub const HEADER_LEN: usize = 20;
/// Flag "don't fragment" of the fragment field.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// Flag "more fragments" of the fragment field.
pub const MORE_FRAGMENTS: u16 = 0x2000;

/// Mask in the fragment field: flag "more fragments" and fragment offset.
const FRAGMENT_MASK: u16 = 0x3fff;
/// Option that ends the list of options (RFC 791 §3.1).
const OPTION_END: u8 = 0;
/// Option that pads the list of options (RFC 791 §3.1).
const OPTION_NOP: u8 = 1;
/// Options of loose and strict source routes (RFC 791 §3.1).
const OPTION_SOURCE_ROUTES: [u8; 2] = [131, 137];

/// The fixed part of an IPv4 header. Options follow it.
#[derive(Clone, Copy, Debug)]
pub struct Header<B>(B);

impl<'a> Header<&'a [u8; HEADER_LEN]> {
    /// Creates a view of the header at the start of `bytes`, which must have version 4 and end, including its options,
    /// within `bytes`. The total length is not checked: `bytes` may be the start of a packet.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedPacket> {
        let header = Self(bytes.first_chunk().ok_or(MalformedPacket::Truncated)?);
        if header.0[at::VERSION_IHL] >> 4 != 4 || header.header_len() < HEADER_LEN {
            return Err(MalformedPacket::BadField);
        }
        if bytes.len() < header.header_len() {
            return Err(MalformedPacket::Truncated);
        }
        Ok(header)
    }
}

impl<'a> Header<&'a mut [u8; HEADER_LEN]> {
    /// Like [`Header::parse`], for writing.
    #[inline]
    pub fn parse_mut(bytes: &'a mut [u8]) -> Result<Self, MalformedPacket> {
        Header::parse(bytes)?;
        bytes.first_chunk_mut().map(Self).ok_or(MalformedPacket::Truncated)
    }

    /// Initialises the start of `bytes` as a header of version 4 without options, with all other fields zero.
    pub fn init(bytes: &'a mut [u8]) -> Result<Self, MalformedPacket> {
        let header: &mut [u8; HEADER_LEN] = bytes.first_chunk_mut().ok_or(MalformedPacket::Truncated)?;
        *header = [0; HEADER_LEN];
        header[at::VERSION_IHL] = 0x45;
        Ok(Self(header))
    }
}

impl<B: Borrow<[u8; HEADER_LEN]>> Header<B> {
    field::reads! {
        /// Total length of the packet from this header on, bytes.
        total_len: u16 = at::TOTAL_LEN;
        /// Identification, the same in all fragments of a packet.
        ident: u16 = at::IDENT;
        /// The fragment field: [`DONT_FRAGMENT`], [`MORE_FRAGMENTS`], and the fragment's offset in units of 8 bytes.
        fragment: u16 = at::FRAGMENT;
        /// Time to live.
        ttl: u8 = at::TTL;
        /// Protocol of the payload, as in [`crate::layers`].
        protocol: u8 = at::PROTOCOL;
        /// The header's checksum.
        checksum: u16 = at::CHECKSUM;
        /// Source address.
        src: Ipv4Addr = at::SRC;
        /// Destination address.
        dst: Ipv4Addr = at::DST;
    }

    /// Length of the header with its options, bytes: 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.borrow()[at::VERSION_IHL] & 0xf) * 4
    }

    /// Whether the packet is a fragment; true also for the first and the last fragment of a packet.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        field::get16(self.0.borrow(), at::FRAGMENT) & FRAGMENT_MASK != 0
    }

    /// The sum of the fixed part: `0xffff` for a header without options whose checksum is correct.
    #[inline]
    pub fn sum(&self) -> Sum {
        Sum::of(self.0.borrow())
    }
}

impl<B: BorrowMut<[u8; HEADER_LEN]>> Header<B> {
    field::stores! {
        /// Stores the total length.
        set_total_len: u16 = at::TOTAL_LEN;
        /// Stores the identification.
        set_ident: u16 = at::IDENT;
        /// Stores the fragment field, e.g. [`DONT_FRAGMENT`] or zero for a whole packet.
        set_fragment: u16 = at::FRAGMENT;
        /// Stores the time to live.
        set_ttl: u8 = at::TTL;
        /// Stores the protocol.
        set_protocol: u8 = at::PROTOCOL;
        /// Stores the checksum.
        set_checksum: u16 = at::CHECKSUM;
        /// Stores the source address.
        set_src: Ipv4Addr = at::SRC;
        /// Stores the destination address.
        set_dst: Ipv4Addr = at::DST;
    }
}

/// Whether the options of a header request a source route. With a source route, the destination in the header differs
/// from the destination in the transport's pseudo header. `options` are the bytes that follow the fixed part of the
/// header. A malformed list of options counts as a request.
pub fn has_source_route(mut options: &[u8]) -> bool {
    while let Some((&kind, rest)) = options.split_first() {
        match kind {
            OPTION_END => return false,
            OPTION_NOP => options = rest,
            _ if OPTION_SOURCE_ROUTES.contains(&kind) => return true,
            _ => match rest.first().and_then(|&len| options.get(usize::from(len).max(2)..)) {
                Some(after) => options = after,
                None => return true,
            },
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of the example at en.wikipedia.org/wiki/Internet_checksum.
    const KNOWN: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8,
        0x00, 0xc7,
    ];

    #[test]
    fn a_known_header_is_read() {
        let header = Header::parse(&KNOWN).unwrap();
        assert_eq!((header.header_len(), header.total_len(), header.ident()), (20, 0x73, 0));
        assert_eq!((header.ttl(), header.protocol(), header.checksum()), (64, 17, 0xb861));
        assert_eq!(header.src(), Ipv4Addr::new(192, 168, 0, 1));
        assert_eq!(header.dst(), Ipv4Addr::new(192, 168, 0, 199));
        assert!(!header.is_fragment());
        assert_eq!(header.sum().fold(), 0xffff);
    }

    #[test]
    fn a_header_written_field_by_field_is_the_known_one() {
        let mut bytes = [0xee; 20];
        let mut header = Header::init(&mut bytes).unwrap();
        header.set_total_len(0x73);
        header.set_ident(0);
        header.set_fragment(DONT_FRAGMENT);
        header.set_ttl(64);
        header.set_protocol(17);
        header.set_src(Ipv4Addr::new(192, 168, 0, 1));
        header.set_dst(Ipv4Addr::new(192, 168, 0, 199));
        header.set_checksum(header.sum().checksum());
        assert_eq!(bytes, KNOWN);
    }

    #[test]
    fn wrong_version_and_lengths_are_refused() {
        let with_first = |first: u8| {
            let mut bytes = KNOWN;
            bytes[0] = first;
            Header::parse(&bytes).map(|_| ()).unwrap_err()
        };
        assert_eq!(with_first(0x65), MalformedPacket::BadField);
        assert_eq!(with_first(0x44), MalformedPacket::BadField);
        assert_eq!(with_first(0x46), MalformedPacket::Truncated);
        assert_eq!(Header::parse(&KNOWN[..19]).unwrap_err(), MalformedPacket::Truncated);
    }

    #[test]
    fn first_middle_and_last_fragments_are_fragments() {
        for (fragment, expected) in [(0x2000, true), (0x2001, true), (1, true), (0x4000, false)] {
            let mut bytes = KNOWN;
            let mut header = Header::parse_mut(&mut bytes).unwrap();
            header.set_fragment(fragment);
            assert_eq!(header.is_fragment(), expected, "{fragment:#x}");
        }
    }

    #[test]
    fn source_routes_are_found_among_options() {
        assert!(!has_source_route(&[]));
        assert!(!has_source_route(&[1, 1, 0, 131]));
        assert!(!has_source_route(&[7, 3, 4, 1]));
        assert!(has_source_route(&[1, 131, 3, 4]));
        assert!(has_source_route(&[7, 3, 4, 137]));
        assert!(has_source_route(&[7, 9, 4, 1]), "an option that runs past the list");
        assert!(has_source_route(&[7]), "an option without a length");
    }
}
