//! The UDP header (RFC 768).

use core::borrow::{Borrow, BorrowMut};

use crate::{MalformedPacket, field};

/// Offsets of the fields, in bytes from the start of the header.
pub(crate) mod at {
    pub const SRC_PORT: usize = 0;
    pub const DST_PORT: usize = 2;
    pub const LEN: usize = 4;
    pub const CHECKSUM: usize = 6;
}

/// Length of the header, bytes.
pub const HEADER_LEN: usize = 8;
/// Offset of the checksum, in bytes from the start of the header.
pub const CHECKSUM_OFFSET: u16 = at::CHECKSUM as u16;

/// A UDP header.
#[derive(Clone, Copy, Debug)]
pub struct Header<B>(B);

impl<'a> Header<&'a [u8; HEADER_LEN]> {
    /// Creates a view of the header at the start of `bytes`.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedPacket> {
        bytes.first_chunk().map(Self).ok_or(MalformedPacket::Truncated)
    }
}

impl<'a> Header<&'a mut [u8; HEADER_LEN]> {
    /// Creates a writable view of the header at the start of `bytes`.
    #[inline]
    pub fn parse_mut(bytes: &'a mut [u8]) -> Result<Self, MalformedPacket> {
        bytes.first_chunk_mut().map(Self).ok_or(MalformedPacket::Truncated)
    }
}

impl<B: Borrow<[u8; HEADER_LEN]>> Header<B> {
    field::reads! {
        /// Source port.
        src_port: u16 = at::SRC_PORT;
        /// Destination port.
        dst_port: u16 = at::DST_PORT;
        /// Length of header and payload, bytes.
        datagram_len: u16 = at::LEN;
        /// Checksum; zero means no checksum.
        checksum: u16 = at::CHECKSUM;
    }
}

impl<B: BorrowMut<[u8; HEADER_LEN]>> Header<B> {
    field::stores! {
        /// Stores the source port.
        set_src_port: u16 = at::SRC_PORT;
        /// Stores the destination port.
        set_dst_port: u16 = at::DST_PORT;
        /// Stores the length of header and payload.
        set_datagram_len: u16 = at::LEN;
        /// Stores the checksum. See [`crate::Sum::nonzero_checksum`].
        set_checksum: u16 = at::CHECKSUM;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_read_back_as_written() {
        let mut bytes = [0; HEADER_LEN];
        let mut header = Header::parse_mut(&mut bytes).unwrap();
        header.set_src_port(0x0102);
        header.set_dst_port(0x0304);
        header.set_datagram_len(0x0506);
        header.set_checksum(0x0708);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
        let header = Header::parse(&bytes).unwrap();
        assert_eq!((header.src_port(), header.dst_port()), (0x0102, 0x0304));
        assert_eq!((header.datagram_len(), header.checksum()), (0x0506, 0x0708));
        assert_eq!(Header::parse(&bytes[..7]).unwrap_err(), MalformedPacket::Truncated);
    }
}
