//! The UDP header (RFC 768).

use core::borrow::{Borrow, BorrowMut};

use crate::{Malformed, field};

/// Offsets of the fields, in bytes from the start of the header.
pub(crate) mod at {
    pub const SRC_PORT: usize = 0;
    pub const DST_PORT: usize = 2;
    pub const LEN: usize = 4;
    pub const CHECKSUM: usize = 6;
}

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// Where the checksum is, in bytes from the start of the header.
pub const CHECKSUM_OFFSET: u16 = at::CHECKSUM as u16;

/// A UDP header.
#[derive(Clone, Copy, Debug)]
pub struct Header<B>(B);

impl<'a> Header<&'a [u8; HEADER_LEN]> {
    /// Views the header at the start of `bytes`.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        bytes.first_chunk().map(Self).ok_or(Malformed::Truncated)
    }
}

impl<'a> Header<&'a mut [u8; HEADER_LEN]> {
    /// Views the header at the start of `bytes` for writing.
    #[inline]
    pub fn parse_mut(bytes: &'a mut [u8]) -> Result<Self, Malformed> {
        bytes.first_chunk_mut().map(Self).ok_or(Malformed::Truncated)
    }
}

impl<B: Borrow<[u8; HEADER_LEN]>> Header<B> {
    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        field::get16(self.0.borrow(), at::SRC_PORT)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        field::get16(self.0.borrow(), at::DST_PORT)
    }

    /// Bytes of header and payload, as the header says.
    #[inline]
    pub fn datagram_len(&self) -> u16 {
        field::get16(self.0.borrow(), at::LEN)
    }

    /// Checksum; zero means there is none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        field::get16(self.0.borrow(), at::CHECKSUM)
    }
}

impl<B: BorrowMut<[u8; HEADER_LEN]>> Header<B> {
    /// Stores the source port.
    #[inline]
    pub fn set_src_port(&mut self, port: u16) {
        field::set(self.0.borrow_mut(), at::SRC_PORT, port.to_be_bytes());
    }

    /// Stores the destination port.
    #[inline]
    pub fn set_dst_port(&mut self, port: u16) {
        field::set(self.0.borrow_mut(), at::DST_PORT, port.to_be_bytes());
    }

    /// Stores the length of header and payload.
    #[inline]
    pub fn set_datagram_len(&mut self, len: u16) {
        field::set(self.0.borrow_mut(), at::LEN, len.to_be_bytes());
    }

    /// Stores the checksum. See [`crate::Sum::nonzero_checksum`].
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        field::set(self.0.borrow_mut(), at::CHECKSUM, checksum.to_be_bytes());
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
        assert_eq!(Header::parse(&bytes[..7]).unwrap_err(), Malformed::Truncated);
    }
}
