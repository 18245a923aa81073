//! The TCP header (RFC 9293 §3.1).

use core::borrow::{Borrow, BorrowMut};

use crate::{MalformedPacket, field};

/// Offsets of the fields, in bytes from the start of the header.
pub(crate) mod at {
    pub const SRC_PORT: usize = 0;
    pub const DST_PORT: usize = 2;
    pub const SEQ: usize = 4;
    pub const DATA_OFFSET: usize = 12;
    pub const FLAGS: usize = 13;
    pub const CHECKSUM: usize = 16;
}

/// Length of a header without options, bytes.
pub const HEADER_LEN: usize = 20;
/// Offset of the checksum, in bytes from the start of the header.
pub const CHECKSUM_OFFSET: u16 = at::CHECKSUM as u16;
/// Flag: no more data from the sender.
pub const FIN: u8 = 0x01;
/// Flag: push the data to the receiving application.
pub const PSH: u8 = 0x08;
/// Flag: congestion window reduced (RFC 3168 §6.1.2).
pub const CWR: u8 = 0x80;

/// The fixed part of a TCP header. Options follow it.
#[derive(Clone, Copy, Debug)]
pub struct Header<B>(B);

impl<'a> Header<&'a [u8; HEADER_LEN]> {
    /// Creates a view of the header at the start of `bytes`, which must contain the whole header with its options.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedPacket> {
        let header = Self(bytes.first_chunk().ok_or(MalformedPacket::Truncated)?);
        if header.header_len() < HEADER_LEN {
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
}

impl<B: Borrow<[u8; HEADER_LEN]>> Header<B> {
    field::reads! {
        /// Source port.
        src_port: u16 = at::SRC_PORT;
        /// Destination port.
        dst_port: u16 = at::DST_PORT;
        /// Sequence number of the first byte of payload.
        seq: u32 = at::SEQ;
        /// The eight flags: [`FIN`] is the lowest bit, [`CWR`] the highest.
        flags: u8 = at::FLAGS;
        /// Checksum.
        checksum: u16 = at::CHECKSUM;
    }

    /// Length of the header with its options, bytes: 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.borrow()[at::DATA_OFFSET] >> 4) * 4
    }
}

impl<B: BorrowMut<[u8; HEADER_LEN]>> Header<B> {
    field::stores! {
        /// Stores the sequence number.
        set_seq: u32 = at::SEQ;
        /// Stores the flags.
        set_flags: u8 = at::FLAGS;
        /// Stores the checksum.
        set_checksum: u16 = at::CHECKSUM;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_etherparse_puts_them() {
        let mut known = etherparse::TcpHeader::new(0x1234, 0x5678, 0x9abc_def0, 7);
        known.fin = true;
        known.psh = true;
        known.cwr = true;
        known.checksum = 0xbeef;
        known.set_options_raw(&[1, 1, 1, 1]).unwrap();
        let mut bytes = known.to_bytes();
        let header = Header::parse(&bytes).unwrap();
        assert_eq!((header.src_port(), header.dst_port()), (0x1234, 0x5678));
        assert_eq!((header.seq(), header.header_len()), (0x9abc_def0, 24));
        assert_eq!((header.flags(), header.checksum()), (FIN | PSH | CWR, 0xbeef));
        let mut header = Header::parse_mut(&mut bytes).unwrap();
        header.set_seq(1);
        header.set_flags(FIN);
        header.set_checksum(2);
        let (read, _) = etherparse::TcpHeader::from_slice(&bytes).unwrap();
        assert_eq!((read.sequence_number, read.checksum), (1, 2));
        assert_eq!((read.fin, read.psh, read.cwr), (true, false, false));
    }

    #[test]
    fn wrong_data_offsets_are_refused() {
        let mut bytes = [0; 24];
        for (offset, expected) in
            [(4, Err(MalformedPacket::BadField)), (5, Ok(20)), (6, Ok(24)), (7, Err(MalformedPacket::Truncated))]
        {
            bytes[at::DATA_OFFSET] = offset << 4;
            assert_eq!(Header::parse(&bytes).map(|h| h.header_len()), expected);
        }
        assert_eq!(Header::parse(&bytes[..19]).unwrap_err(), MalformedPacket::Truncated);
    }
}
