//! Performs the offloads of a frame's virtio-net header in software.
//!
//! No payload is copied here. [`Segmenter`] returns which bytes of the payload go into each segment, and completes the
//! segment's headers from the [`Sum`] of these bytes. [`Completion`] sums the pieces of a frame. The caller copies each
//! byte of payload once, directly to its destination, and sums the bytes as it copies them.

use core::ops::Range;

use crate::checksum::pseudo;
use crate::offload::{MAX_HEADERS, SegmentHeaders};
use crate::{BadVnet, Gso, GsoKind, Layers, Sum, field, ipv4, ipv6, tcp, udp};

/// The bytes of a segment's headers, with room for the longest headers.
type HeaderBytes = [u8; MAX_HEADERS];

/// A segmenter, which cuts a frame into segments (TSO, USO). It has its own copy of the frame's headers.
///
/// ```
/// # use netvale_wire::{BadVnet, Gso, Segmenter, Sum};
/// # fn example(frame: &[u8], gso: &Gso, mut emit: impl FnMut(&[u8], &[u8])) -> Result<(), BadVnet> {
/// let (headers, payload) = frame.split_at(gso.hdr_len.into());
/// let mut segmenter = Segmenter::new(headers, payload.len(), gso)?;
/// while let Some(segment) = segmenter.next_segment() {
///     let part = &payload[segment.payload()];
///     let header = segment.finish_checksum(Sum::of(part));
///     emit(header, part);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Segmenter {
    bytes: HeaderBytes,
    headers: SegmentHeaders,
    gso_size: usize,
    payload_len: usize,
    /// Offset of the first byte of payload that is not part of a segment yet.
    offset: usize,
    /// Number of segments of the frame.
    count: usize,
    /// Number of segments returned so far.
    given: usize,
    original: SegmentTemplate,
}

/// The values from which each segment's headers are computed.
#[derive(Clone, Copy, Debug)]
struct SegmentTemplate {
    ident: u16,
    seq: u32,
    flags: u8,
    /// Sum of the IPv4 header without its length, identification and checksum.
    ip_sum: Sum,
    /// Sum of the pseudo header and the transport header without the fields that differ between segments.
    l4_sum: Sum,
}

impl Segmenter {
    /// Creates a segmenter for a frame with `payload_len` bytes of payload.
    ///
    /// `headers` are the `gso.hdr_len` bytes before the payload. The headers are copied and checked again, as they may
    /// have changed since the check of `gso`: if the protocol or the length of the headers has changed, that is an
    /// error. The lengths and checksums in the headers are not used.
    pub fn new(headers: &[u8], payload_len: usize, gso: &Gso) -> Result<Self, BadVnet> {
        let mut bytes = [0; MAX_HEADERS];
        bytes.get_mut(..headers.len()).ok_or(BadVnet::HeadersLong)?.copy_from_slice(headers);
        let found = SegmentHeaders::find(&bytes[..headers.len()])?;
        if found.kind != gso.kind || found.end != headers.len() {
            return Err(BadVnet::GsoProtocol);
        }
        found.check_payload(payload_len, gso.gso_size)?;
        let original = SegmentTemplate::take(&mut bytes, &found)?;
        let gso_size = usize::from(gso.gso_size);
        let count = payload_len.div_ceil(gso_size).max(1);
        Ok(Self { bytes, headers: found, gso_size, payload_len, offset: 0, count, given: 0, original })
    }

    /// Number of segments that are not yet returned. A frame without payload has one segment.
    pub fn remaining(&self) -> usize {
        self.count - self.given
    }

    /// Length of each segment's headers, bytes.
    pub fn header_len(&self) -> usize {
        self.headers.end
    }

    /// Returns the next segment, whose headers are complete except for the transport's checksum; `None` after the last
    /// segment.
    #[inline]
    pub fn next_segment(&mut self) -> Option<Segment<'_>> {
        if self.remaining() == 0 {
            return None;
        }
        let payload_len = self.gso_size.min(self.payload_len - self.offset);
        let start = self.offset;
        self.write_ip(payload_len);
        let sum = self.write_l4(payload_len);
        self.offset += payload_len;
        self.given += 1;
        Some(Segment {
            payload: start..self.offset,
            header: &mut self.bytes[..self.headers.end],
            csum_at: self.headers.l4 + usize::from(self.headers.kind.csum_offset()),
            sum,
            kind: self.headers.kind,
        })
    }

    /// Sets the length in the IP header, and for IPv4 the identification and checksum.
    #[inline]
    fn write_ip(&mut self, payload_len: usize) {
        let SegmentHeaders { kind, l3, end, .. } = self.headers;
        let packet_len = end - l3 + payload_len;
        if kind.is_v4() {
            // Each segment is a separate packet with its own identification (RFC 6864 §4.3).
            let ident = self.original.ident.wrapping_add(self.given as u16);
            let len = packet_len as u16;
            let checksum = self.original.ip_sum.add_u16(len).add_u16(ident).checksum();
            field::set(&mut self.bytes, l3 + ipv4::at::TOTAL_LEN, len.to_be_bytes());
            field::set(&mut self.bytes, l3 + ipv4::at::IDENT, ident.to_be_bytes());
            field::set(&mut self.bytes, l3 + ipv4::at::CHECKSUM, checksum.to_be_bytes());
        } else {
            let len = (packet_len - ipv6::HEADER_LEN) as u16;
            field::set(&mut self.bytes, l3 + ipv6::at::PAYLOAD_LEN, len.to_be_bytes());
        }
    }

    /// Sets the fields of the transport header. Returns the sum of that header and the pseudo header.
    #[inline]
    fn write_l4(&mut self, payload_len: usize) -> Sum {
        let SegmentHeaders { kind, l4, end, .. } = self.headers;
        let len = (end - l4 + payload_len) as u16;
        let sum = self.original.l4_sum.add_u16(len);
        if !kind.is_tcp() {
            field::set(&mut self.bytes, l4 + udp::at::LEN, len.to_be_bytes());
            return sum.add_u16(len);
        }
        let seq = self.original.seq.wrapping_add(self.offset as u32);
        let flags = self.tcp_flags();
        field::set(&mut self.bytes, l4 + tcp::at::SEQ, seq.to_be_bytes());
        field::set(&mut self.bytes, l4 + tcp::at::FLAGS, [flags]);
        sum.add_u32(seq).add_u16(flags.into())
    }

    /// Returns the TCP flags of the next segment: FIN and PSH only for the last segment, CWR only for the first segment
    /// (RFC 3168 §6.1.2).
    #[inline]
    fn tcp_flags(&self) -> u8 {
        let mut flags = self.original.flags;
        if self.given > 0 {
            flags &= !tcp::CWR;
        }
        if self.remaining() > 1 {
            flags &= !(tcp::FIN | tcp::PSH);
        }
        flags
    }
}

impl SegmentTemplate {
    /// Reads the values from which the segments are computed, and clears the fields that differ between segments.
    fn take(bytes: &mut HeaderBytes, found: &SegmentHeaders) -> Result<Self, BadVnet> {
        let SegmentHeaders { kind, l3, l4, end } = *found;
        let mut original = Self { ident: 0, seq: 0, flags: 0, ip_sum: Sum::ZERO, l4_sum: Sum::ZERO };
        if kind.is_v4() {
            original.ident = u16::from_be_bytes(take(bytes, l3 + ipv4::at::IDENT));
            take::<2>(bytes, l3 + ipv4::at::TOTAL_LEN);
            take::<2>(bytes, l3 + ipv4::at::CHECKSUM);
            original.ip_sum = Sum::of(&bytes[l3..l4]);
        }
        if kind.is_tcp() {
            original.seq = u32::from_be_bytes(take(bytes, l4 + tcp::at::SEQ));
            [original.flags] = take(bytes, l4 + tcp::at::FLAGS);
        } else {
            take::<2>(bytes, l4 + udp::at::LEN);
        }
        take::<2>(bytes, l4 + usize::from(kind.csum_offset()));
        original.l4_sum = pseudo_header(&bytes[..end], kind)?.add_bytes(&bytes[l4..end]);
        Ok(original)
    }
}

/// Returns the sum of the pseudo header with a length of zero.
fn pseudo_header(headers: &[u8], kind: GsoKind) -> Result<Sum, BadVnet> {
    let ip = Layers::parse(headers).ok().and_then(|layers| layers.ip).ok_or(BadVnet::GsoProtocol)?;
    pseudo(ip.src, ip.dst, kind.protocol(), 0).ok_or(BadVnet::GsoProtocol)
}

/// Reads and clears the `N` bytes at `at`, which [`SegmentHeaders::find`] has found in the headers.
#[inline]
fn take<const N: usize>(bytes: &mut HeaderBytes, at: usize) -> [u8; N] {
    let value = field::get(bytes, at);
    field::set(bytes, at, [0; N]);
    value
}

/// One segment: its part of the payload, and its headers.
#[derive(Debug)]
pub struct Segment<'a> {
    payload: Range<usize>,
    header: &'a mut [u8],
    /// Offset of the transport's checksum, in bytes from the start of the headers.
    csum_at: usize,
    /// Sum of the pseudo header and the transport header.
    sum: Sum,
    kind: GsoKind,
}

impl<'a> Segment<'a> {
    /// This segment's part of the payload, in bytes from the payload's start.
    #[inline]
    pub fn payload(&self) -> Range<usize> {
        self.payload.clone()
    }

    /// Length of the whole segment including its headers, bytes.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// Completes the transport's checksum. Returns the complete headers. `payload` is the sum of this segment's part of
    /// the payload.
    #[inline]
    pub fn finish_checksum(self, payload: Sum) -> &'a [u8] {
        let sum = self.sum.append(payload);
        let checksum = if self.kind.is_tcp() { sum.checksum() } else { sum.nonzero_checksum() };
        let at = self.csum_at;
        self.header[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        self.header
    }
}

/// The completion of a checksum ([`crate::Offload::CsumPartial`]), computed from the pieces of the frame.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Number of bytes, from the next piece on, that precede the bytes that the checksum covers.
    skip: usize,
    /// Offset of the checksum, in bytes from the start of the frame.
    at: usize,
    sum: Sum,
}

impl Completion {
    /// Creates the completion of a frame with the offload `CsumPartial { start, offset }`.
    #[inline]
    pub fn new(start: u16, offset: u16) -> Self {
        Self { skip: start.into(), at: usize::from(start) + usize::from(offset), sum: Sum::ZERO }
    }

    /// Sums the next piece of the frame. Pieces must come in order, from the Ethernet header on.
    #[inline]
    pub fn feed(&mut self, piece: &[u8]) {
        let skipped = self.skip.min(piece.len());
        self.skip -= skipped;
        if let Some(covered) = piece.get(skipped..) {
            self.sum = self.sum.add_bytes(covered);
        }
    }

    /// Returns the offset of the checksum, in bytes from the start of the frame, and the two bytes to store there. The
    /// sum includes the previous value of the field, in which the driver stored the sum of the pseudo header (virtio
    /// 1.3 §5.1.6.2). A checksum of zero is returned as `0xffff`, as UDP requires; for other protocols, zero and
    /// `0xffff` are the same number.
    #[inline]
    pub fn finish(self) -> (usize, [u8; 2]) {
        (self.at, self.sum.nonzero_checksum().to_be_bytes())
    }
}

/// Completes the checksum of a frame whose pieces are `pieces`, in order, from the Ethernet header on. If the checksum
/// would be outside the frame, returns an error and changes nothing.
pub fn complete_checksum(pieces: &mut [&mut [u8]], start: u16, offset: u16) -> Result<(), BadVnet> {
    let mut completion = Completion::new(start, offset);
    pieces.iter().for_each(|piece| completion.feed(piece));
    let (at, bytes) = completion.finish();
    let frame_len: usize = pieces.iter().map(|piece| piece.len()).sum();
    if at + bytes.len() > frame_len {
        return Err(BadVnet::CsumOffset);
    }
    let places = pieces.iter_mut().flat_map(|piece| piece.iter_mut()).skip(at);
    for (place, byte) in places.zip(bytes) {
        *place = byte;
    }
    Ok(())
}
