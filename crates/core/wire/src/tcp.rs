//! The TCP header (RFC 9293 §3.1).

use core::borrow::{Borrow, BorrowMut};

use crate::{MalformedPacket, field};

/// Offsets of the fields, in bytes from the start of the header.
pub(crate) mod at {
    pub const SRC_PORT: usize = 0;
    pub const DST_PORT: usize = 2;
    pub const SEQ: usize = 4;
    pub const ACK: usize = 8;
    pub const DATA_OFFSET: usize = 12;
    pub const FLAGS: usize = 13;
    pub const WINDOW: usize = 14;
    pub const CHECKSUM: usize = 16;
}

/// Length of a header without options, bytes.
pub const HEADER_LEN: usize = 20;
/// Offset of the checksum, in bytes from the start of the header.
pub const CHECKSUM_OFFSET: u16 = at::CHECKSUM as u16;
/// Flag: no more data from the sender.
pub const FIN: u8 = 0x01;
/// Flag: the sequence number is the first one of its sender.
pub const SYN: u8 = 0x02;
/// Flag: reset the connection.
pub const RST: u8 = 0x04;
/// Flag: push the data to the receiving application.
pub const PSH: u8 = 0x08;
/// Flag: the acknowledgement number is valid.
pub const ACK: u8 = 0x10;
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

    /// Initialises the start of `bytes` as a header with `options` bytes of options (a multiple of 4, at most 40),
    /// which the caller writes. All other fields are zero.
    pub fn init(bytes: &'a mut [u8], options: usize) -> Result<Self, MalformedPacket> {
        if !options.is_multiple_of(4) || options > 40 {
            return Err(MalformedPacket::BadField);
        }
        let header: &mut [u8; HEADER_LEN] = bytes.first_chunk_mut().ok_or(MalformedPacket::Truncated)?;
        *header = [0; HEADER_LEN];
        header[at::DATA_OFFSET] = ((HEADER_LEN + options) as u8 / 4) << 4;
        Ok(Self(header))
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
        /// Sequence number that the sender of this header expects next; valid if [`ACK`] is set.
        ack: u32 = at::ACK;
        /// Receive window of the sender of this header, in bytes before window scaling.
        window: u16 = at::WINDOW;
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
        /// Stores the source port.
        set_src_port: u16 = at::SRC_PORT;
        /// Stores the destination port.
        set_dst_port: u16 = at::DST_PORT;
        /// Stores the sequence number.
        set_seq: u32 = at::SEQ;
        /// Stores the acknowledgement number.
        set_ack: u32 = at::ACK;
        /// Stores the window.
        set_window: u16 = at::WINDOW;
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
    fn a_header_written_field_by_field_is_that_of_etherparse() {
        let mut known = etherparse::TcpHeader::new(1, 2, 3, 5);
        known.acknowledgment_number = 4;
        known.ack = true;
        known.syn = true;
        known.set_options_raw(&[1, 1, 1, 1]).unwrap();
        let mut bytes = [0xee; 24];
        bytes[20..].fill(1);
        let mut header = Header::init(&mut bytes, 4).unwrap();
        header.set_src_port(1);
        header.set_dst_port(2);
        header.set_seq(3);
        header.set_ack(4);
        header.set_window(5);
        header.set_flags(SYN | ACK);
        assert_eq!(bytes[..], known.to_bytes()[..]);
        let header = Header::parse(&bytes).unwrap();
        assert_eq!((header.ack(), header.window(), header.flags() & RST), (4, 5, 0));
        assert!(Header::init(&mut bytes, 3).is_err() && Header::init(&mut bytes, 44).is_err());
        assert!(Header::init(&mut bytes[..19], 0).is_err());
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
