//! Merges consecutive TCP segments, or UDP datagrams, into a larger one (GRO): the inverse of [`crate::segment`].
//!
//! Frames are merged only if a [`crate::Segmenter`] would cut the result into the same frames again. Their headers must
//! be equal except for lengths, checksums, sequence number, identification and PSH, their payloads must have the same
//! size except for the last payload, and their checksums must be correct or left to the receiver. As in segmentation,
//! payloads are read but not copied.

use crate::offload::{MAX_HEADERS, SegmentHeaders};
use crate::{Gso, Layers, Offload, Sum, checksum, field, ipv4, ipv6, tcp, udp};

/// Flag: the acknowledgement number is valid.
const ACK: u8 = 0x10;

/// A merged frame that can still grow.
#[derive(Clone, Debug)]
pub struct Merge {
    bytes: [u8; MAX_HEADERS],
    headers: SegmentHeaders,
    gso_size: usize,
    payload: usize,
    count: u16,
    flags: u8,
}

/// The fields of a frame's headers that matter for merging.
#[derive(Clone, Copy, Debug)]
pub struct MergeFields {
    headers: SegmentHeaders,
    payload: usize,
    /// TCP flags; 0 for UDP.
    flags: u8,
    /// TCP sequence number; 0 for UDP.
    seq: u32,
    ident: u16,
}

impl Merge {
    /// Begins a merge with a frame of `len` bytes with a pending `offload`; `None` if the frame must not be merged.
    /// `bytes` is a private copy of the whole frame. If the frame's checksum is pending, a copy of its first
    /// [`MAX_HEADERS`] bytes suffices.
    pub fn begin(bytes: &[u8], len: usize, offload: Offload) -> Option<Merge> {
        let part = MergeFields::checked(bytes, len, offload)?;
        let mut head = [0; MAX_HEADERS];
        head.get_mut(..part.headers.end)?.copy_from_slice(bytes.get(..part.headers.end)?);
        Some(Merge {
            bytes: head,
            headers: part.headers,
            gso_size: part.payload,
            payload: part.payload,
            count: 1,
            flags: part.flags,
        })
    }

    /// Appends another frame, which is described by the same arguments as in [`Merge::begin`]. Returns whether the
    /// frame was merged.
    pub fn append(&mut self, bytes: &[u8], len: usize, offload: Offload) -> bool {
        if self.is_full() {
            return false;
        }
        let Some(part) = MergeFields::checked(bytes, len, offload).filter(|part| self.follows(bytes, part)) else {
            return false;
        };
        self.payload += part.payload;
        self.count += 1;
        self.flags |= part.flags;
        true
    }

    /// Whether no further segment can follow, because the last segment has PSH or a shorter payload than the first.
    fn is_full(&self) -> bool {
        self.flags & tcp::PSH != 0 || self.payload != usize::from(self.count) * self.gso_size
    }

    fn follows(&self, bytes: &[u8], part: &MergeFields) -> bool {
        let SegmentHeaders { l3, l4, .. } = self.headers;
        let fits = u16::try_from(self.gso_size)
            .is_ok_and(|size| self.headers.check_payload(self.payload + part.payload, size).is_ok());
        if !fits || part.payload > self.gso_size || part.headers != self.headers {
            return false;
        }
        let same = |from: usize, to: usize| self.bytes.get(from..to) == bytes.get(from..to);
        let ip = if self.headers.kind.is_v4() {
            let fragment = u16::from_be_bytes(field::get(&self.bytes, l3 + ipv4::at::FRAGMENT));
            let ident = u16::from_be_bytes(field::get(&self.bytes, l3 + ipv4::at::IDENT));
            let counts = part.ident == ident.wrapping_add(self.count);
            (counts || fragment & ipv4::DONT_FRAGMENT != 0)
                && same(l3, l3 + ipv4::at::TOTAL_LEN)
                && same(l3 + ipv4::at::FRAGMENT, l3 + ipv4::at::CHECKSUM)
                && same(l3 + ipv4::at::SRC, l4)
        } else {
            same(l3, l3 + ipv6::at::PAYLOAD_LEN) && same(l3 + ipv6::at::NEXT_HEADER, l4)
        };
        // Both transports begin with the ports.
        let ports = same(0, l3) && same(l4, l4 + tcp::at::SEQ);
        ip && ports && (!self.headers.kind.is_tcp() || self.follows_in_stream(bytes, part))
    }

    /// Whether a TCP segment follows in sequence, with the same acknowledgement, data offset, window, urgent pointer
    /// and options.
    fn follows_in_stream(&self, bytes: &[u8], part: &MergeFields) -> bool {
        let SegmentHeaders { l4, end, .. } = self.headers;
        let seq = u32::from_be_bytes(field::get(&self.bytes, l4 + tcp::at::SEQ));
        let same = |from: usize, to: usize| self.bytes.get(from..to) == bytes.get(from..to);
        part.seq == seq.wrapping_add(self.payload as u32)
            && same(l4 + tcp::at::SEQ + 4, l4 + tcp::at::FLAGS)
            && same(l4 + tcp::at::FLAGS + 1, l4 + tcp::at::CHECKSUM)
            && same(l4 + tcp::at::CHECKSUM + 2, end)
    }

    /// Whether UDP datagrams are merged; otherwise TCP segments are.
    pub fn is_udp(&self) -> bool {
        !self.headers.kind.is_tcp()
    }

    /// Number of frames merged so far.
    pub fn count(&self) -> usize {
        self.count.into()
    }

    /// Length of each frame's headers, bytes.
    pub fn header_len(&self) -> usize {
        self.headers.end
    }

    /// Returns the headers of the merged frame, and the frame's pending offload, which includes the transport's
    /// checksum.
    pub fn finish(&mut self) -> (&[u8], Offload) {
        let SegmentHeaders { kind, l3, l4, end } = self.headers;
        let packet_len = end - l3 + self.payload;
        if kind.is_v4() {
            field::set(&mut self.bytes, l3 + ipv4::at::TOTAL_LEN, (packet_len as u16).to_be_bytes());
            field::set(&mut self.bytes, l3 + ipv4::at::CHECKSUM, [0; 2]);
            let checksum = Sum::of(self.bytes.get(l3..l4).unwrap_or(&[])).checksum();
            field::set(&mut self.bytes, l3 + ipv4::at::CHECKSUM, checksum.to_be_bytes());
        } else {
            let len = (packet_len - ipv6::HEADER_LEN) as u16;
            field::set(&mut self.bytes, l3 + ipv6::at::PAYLOAD_LEN, len.to_be_bytes());
        }
        let transport_len = (end - l4 + self.payload) as u16;
        if kind.is_tcp() {
            field::set(&mut self.bytes, l4 + tcp::at::FLAGS, [self.flags]);
        } else {
            field::set(&mut self.bytes, l4 + udp::at::LEN, transport_len.to_be_bytes());
        }
        let pseudo = pseudo(self.bytes.get(..end).unwrap_or(&[]), transport_len);
        let checksum_at = l4 + usize::from(kind.csum_offset());
        field::set(&mut self.bytes, checksum_at, pseudo.map_or(0, Sum::fold).to_be_bytes());
        let gso = Gso {
            kind,
            gso_size: self.gso_size as u16,
            hdr_len: end as u16,
            csum_start: l4 as u16,
            csum_offset: kind.csum_offset(),
            ecn: false,
        };
        (self.bytes.get(..end).unwrap_or(&[]), Offload::Gso(gso))
    }
}

impl MergeFields {
    /// Returns the fields of a frame of `len` bytes, where `bytes` is the whole frame or its first [`MAX_HEADERS`]
    /// bytes; `None` if the frame must not be merged. The checksum is not verified.
    pub fn of(bytes: &[u8], len: usize) -> Option<MergeFields> {
        let prefix = bytes.get(..len.min(MAX_HEADERS))?;
        let headers = SegmentHeaders::find(prefix).ok()?;
        let SegmentHeaders { kind, l3, l4, end } = headers;
        let payload = len.checked_sub(end).filter(|&n| n > 0)?;
        let mut ident = 0;
        // Frames with IPv4 options or IPv6 extension headers are rare, and are not merged. Bytes that follow the packet
        // are padding, which must not become payload.
        if kind.is_v4() {
            let ip = ipv4::Header::parse(prefix.get(l3..)?).ok()?;
            ident = ip.ident();
            if l4 - l3 != ipv4::HEADER_LEN || l3 + usize::from(ip.total_len()) != len || ip.sum().checksum() != 0 {
                return None;
            }
        } else {
            let ip = ipv6::Header::parse(prefix.get(l3..)?).ok()?;
            if l4 - l3 != ipv6::HEADER_LEN || l4 + usize::from(ip.payload_len()) != len {
                return None;
            }
        }
        let part = MergeFields { headers, payload, flags: 0, seq: 0, ident };
        let transport = prefix.get(l4..)?;
        if kind.is_tcp() { part.with_tcp(transport) } else { part.with_udp(transport) }
    }

    fn with_tcp(self, transport: &[u8]) -> Option<MergeFields> {
        let header = tcp::Header::parse(transport).ok()?;
        let flags = header.flags();
        (flags & !tcp::PSH == ACK).then_some(MergeFields { flags, seq: header.seq(), ..self })
    }

    /// Datagrams without a checksum are not merged, as segmentation would add one.
    fn with_udp(self, transport: &[u8]) -> Option<MergeFields> {
        let header = udp::Header::parse(transport).ok()?;
        let is_whole = usize::from(header.datagram_len()) == udp::HEADER_LEN + self.payload;
        (is_whole && header.checksum() != 0).then_some(self)
    }

    /// Whether the frame is a UDP datagram; otherwise it is a TCP segment.
    pub fn is_udp(&self) -> bool {
        !self.headers.kind.is_tcp()
    }

    /// Like [`MergeFields::of`], for a frame with a pending `offload`; returns `None` as well if the frame's checksum
    /// is wrong.
    fn checked(bytes: &[u8], len: usize, offload: Offload) -> Option<MergeFields> {
        let part = MergeFields::of(bytes, len)?;
        let SegmentHeaders { kind, l4, .. } = part.headers;
        let right = match offload {
            Offload::None => {
                let prefix = bytes.get(..len.min(MAX_HEADERS))?;
                let covered = bytes.get(l4..len)?;
                pseudo(prefix, covered.len() as u16)?.add_bytes(covered).checksum() == 0
            }
            Offload::CsumPartial { start, offset } => usize::from(start) == l4 && offset == kind.csum_offset(),
            Offload::Gso(_) => false,
        };
        right.then_some(part)
    }

    /// Whether `next` may be merged after this frame: true for all frames that [`Merge::append`] accepts, but in rare
    /// cases also true for frames that it refuses.
    pub fn may_precede(&self, next: &MergeFields) -> bool {
        self.headers == next.headers
            && self.flags & tcp::PSH == 0
            && (self.is_udp() || next.seq == self.seq.wrapping_add(self.payload as u32))
            && next.payload <= self.payload
    }
}

/// Returns the sum of the pseudo header of a TCP segment or UDP datagram of `len` bytes; `None` if `headers` contain no
/// IP header.
fn pseudo(headers: &[u8], len: u16) -> Option<Sum> {
    let ip = Layers::parse(headers).ok()?.ip?;
    checksum::pseudo(ip.src, ip.dst, ip.protocol, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Segmenter;
    use std::vec::Vec;

    /// Builds a TCP frame with `payload` bytes of payload. Returns the frame with the offload that cuts the frame into
    /// segments.
    fn large(payload: usize, v6: bool) -> (Vec<u8>, Gso) {
        let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if v6 { builder.ipv6([1; 16], [2; 16], 64) } else { builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64) };
        let tcp = ip.tcp(1, 2, 0xffff_f000, 1000).ack(5).psh();
        let bytes: Vec<u8> = (0..payload).map(|i| (i * 7) as u8).collect();
        let mut frame = Vec::new();
        tcp.write(&mut frame, &bytes).unwrap();
        let l4 = if v6 { 54 } else { 34 };
        let kind = if v6 { crate::GsoKind::Tcp6 } else { crate::GsoKind::Tcp4 };
        let gso =
            Gso { kind, gso_size: 1000, hdr_len: l4 + 20, csum_start: l4, csum_offset: kind.csum_offset(), ecn: false };
        (frame, gso)
    }

    /// As [`large`], for UDP datagrams.
    fn datagrams(payload: usize, v6: bool) -> (Vec<u8>, Gso) {
        let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if v6 { builder.ipv6([1; 16], [2; 16], 64) } else { builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64) };
        let bytes: Vec<u8> = (0..payload).map(|i| (i * 7) as u8).collect();
        let mut frame = Vec::new();
        ip.udp(1, 2).write(&mut frame, &bytes).unwrap();
        let l4 = if v6 { 54 } else { 34 };
        let kind = if v6 { crate::GsoKind::Udp6 } else { crate::GsoKind::Udp4 };
        let gso =
            Gso { kind, gso_size: 1000, hdr_len: l4 + 8, csum_start: l4, csum_offset: kind.csum_offset(), ecn: false };
        (frame, gso)
    }

    fn cut(frame: &[u8], gso: &Gso) -> Vec<Vec<u8>> {
        let (headers, payload) = frame.split_at(gso.hdr_len.into());
        let mut cutter = Segmenter::new(headers, payload.len(), gso).unwrap();
        let mut all = Vec::new();
        while let Some(segment) = cutter.next_segment() {
            let part = &payload[segment.payload()];
            all.push([segment.finish_checksum(Sum::of(part)), part].concat());
        }
        all
    }

    /// Objective: the segments of a frame are merged into a frame that is cut into the same segments.
    #[test]
    fn merging_is_the_inverse_of_segmentation() {
        for (frame, gso) in [large(4321, false), large(4321, true), datagrams(4321, false), datagrams(4321, true)] {
            let parts = cut(&frame, &gso);
            assert_eq!(parts.len(), 5);
            let mut merge = Merge::begin(&parts[0], parts[0].len(), Offload::None).unwrap();
            for (last, part) in parts.iter().zip(&parts[1..]) {
                assert!(merge.append(part, part.len(), Offload::None));
                let [last, next] = [last, part].map(|part| MergeFields::of(part, part.len()).unwrap());
                assert!(last.may_precede(&next));
                assert!(last.is_udp() || !next.may_precede(&last), "TCP has a sequence");
            }
            assert_eq!(merge.count(), 5);
            // The last segment is shorter, and has PSH if it is of TCP: no segment can follow it.
            assert!(!merge.append(&parts[0], parts[0].len(), Offload::None));
            let (headers, offload) = merge.finish();
            assert_eq!(offload, Offload::Gso(gso));
            let whole = [headers, &frame[usize::from(gso.hdr_len)..]].concat();
            assert_eq!(cut(&whole, &gso), parts);
            // The virtio-net header of the result passes the check for untrusted senders.
            assert_eq!(offload.to_header().check(whole.len(), &whole), Ok(offload));
        }
    }

    /// Objective: a changed byte of a segment prevents the merge.
    #[test]
    fn nothing_else_is_merged() {
        let (frame, gso) = large(2000, false);
        let parts = cut(&frame, &gso);
        // Under Miri, checking one byte takes half a second.
        let step = if cfg!(miri) { 211 } else { 1 };
        for at in (0..parts[1].len()).step_by(step) {
            let mut other = parts[1].clone();
            other[at] ^= 0x40;
            let mut merge = Merge::begin(&parts[0], parts[0].len(), Offload::None).unwrap();
            assert!(!merge.append(&other, other.len(), Offload::None), "byte {at}");
        }
        for at in (0..parts[0].len()).step_by(step) {
            let mut other = parts[0].clone();
            other[at] ^= 0x40;
            if let Some(mut merge) = Merge::begin(&other, other.len(), Offload::None) {
                assert!(!merge.append(&parts[1], parts[1].len(), Offload::None), "byte {at}");
            }
        }
        // Padding is not payload, and a segment cannot follow itself.
        let mut merge = Merge::begin(&parts[0], parts[0].len(), Offload::None).unwrap();
        let padded = [&parts[1][..], &[0; 4]].concat();
        assert!(!merge.append(&padded, padded.len(), Offload::None));
        assert!(!merge.append(&parts[0], parts[0].len(), Offload::None));
        assert!(merge.append(&parts[1], parts[1].len(), Offload::None));
    }

    /// Objective: a changed byte of a datagram prevents the merge, and so do a missing checksum, padding and a longer
    /// datagram.
    #[test]
    fn only_equal_datagrams_are_merged() {
        let (frame, gso) = datagrams(3000, false);
        let parts = cut(&frame, &gso);
        let merge = || Merge::begin(&parts[0], parts[0].len(), Offload::None).unwrap();
        let step = if cfg!(miri) { 211 } else { 1 };
        for at in (0..parts[1].len()).step_by(step) {
            let mut other = parts[1].clone();
            other[at] ^= 0x40;
            assert!(!merge().append(&other, other.len(), Offload::None), "byte {at}");
        }
        let mut unsummed = parts[1].clone();
        unsummed[40..42].fill(0);
        let padded = [&parts[1][..], &[0; 4]].concat();
        let (other, _) = datagrams(1001, false);
        for refused in [unsummed, padded, other] {
            assert!(!merge().append(&refused, refused.len(), Offload::None));
        }
        assert!(merge().append(&parts[1], parts[1].len(), Offload::None));
    }

    /// Objective: a checksum that is left to the receiver is not verified.
    #[test]
    fn a_checksum_left_to_the_receiver_is_not_verified() {
        let (frame, gso) = large(2000, false);
        let partial = Offload::CsumPartial { start: 34, offset: 16 };
        let parts = cut(&frame, &gso);
        let prefix = |i: usize| &parts[i][..100];
        assert!(Merge::begin(prefix(0), parts[0].len(), Offload::None).is_none());
        let mut merge = Merge::begin(&parts[0], parts[0].len(), partial).unwrap();
        assert!(merge.append(&parts[1], parts[1].len(), partial));
        let wrong = Offload::CsumPartial { start: 34, offset: 6 };
        assert!(Merge::begin(&parts[0], parts[0].len(), wrong).is_none());
    }

    proptest::proptest! {
        /// Objective: no bytes cause a panic, and a frame that cannot follow the first is not merged.
        #[test]
        fn no_bytes_do_harm(a in proptest::collection::vec(proptest::num::u8::ANY, 0..200), at in 0usize..100, b: u8) {
            let (frame, gso) = large(1500, a.len() % 2 == 0);
            let parts = cut(&frame, &gso);
            let mut changed = parts[0].clone();
            changed[at] = b;
            for bytes in [&a, &changed] {
                if let Some(mut merge) = Merge::begin(bytes, bytes.len(), Offload::None) {
                    let taken = merge.append(&parts[1], parts[1].len(), Offload::None);
                    let looks = [bytes, &parts[1]].map(|part| MergeFields::of(part, part.len()).unwrap());
                    assert!(!taken || looks[0].may_precede(&looks[1]));
                    merge.finish();
                }
                Merge::begin(bytes, bytes.len() + 9, Offload::CsumPartial { start: 34, offset: 16 });
            }
        }
    }
}
