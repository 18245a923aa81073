//! Segmentation and checksum completion, checked with etherparse.

use crate::common;

use common::{DST4, DST6, KINDS, SEQ, SRC4, SRC6, config, frame, gso_header};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use netvale_wire::offload::MAX_HEADERS;
use netvale_wire::segment::{Completion, complete_checksum};
use netvale_wire::{BadVnet, Gso, GsoKind, Offload, Segmenter, Sum};
use proptest::prelude::*;

/// A segment as etherparse reads it.
struct Seen {
    ident: Option<u16>,
    tcp: Option<(u32, bool, bool, bool)>,
    payload: Vec<u8>,
}

/// Cuts a frame into whole segments.
fn cut(frame: &[u8], gso: &Gso) -> Vec<Vec<u8>> {
    let (headers, payload) = frame.split_at(gso.hdr_len.into());
    let mut segmenter = Segmenter::new(headers, payload.len(), gso).unwrap();
    let mut segments = Vec::with_capacity(segmenter.remaining());
    let count = segmenter.remaining();
    while let Some(segment) = segmenter.next_segment() {
        let part = &payload[segment.payload()];
        let frame_len = segment.frame_len();
        // The payload is summed in two pieces, as by a caller whose payload is scattered.
        let (one, other) = part.split_at(part.len() / 3);
        let header = segment.finish_checksum(Sum::of(one).add_bytes(other));
        segments.push([header, part].concat());
        assert_eq!(segments.last().unwrap().len(), frame_len);
    }
    assert_eq!((segmenter.remaining(), segments.len()), (0, count));
    segments
}

/// Returns the canonical form of a checksum: 0 and 0xffff are the same number in ones' complement. TCP may send either
/// value, UDP only 0xffff.
fn not_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Reads a segment, and asserts that its lengths and checksums are correct.
fn read(bytes: &[u8]) -> Seen {
    let packet = SlicedPacket::from_ethernet(bytes).unwrap();
    let ident = match packet.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            let ip_start = bytes.len() - usize::from(header.total_len);
            assert!([14, 18].contains(&ip_start), "the IPv4 length is the segment's");
            Some(header.identification)
        }
        NetSlice::Ipv6(ip) => {
            let ip_start = bytes.len() - usize::from(ip.header().payload_length()) - 40;
            assert!([14, 18].contains(&ip_start), "the IPv6 length is the segment's");
            None
        }
        _ => panic!("not IP"),
    };
    let (tcp, payload) = match packet.transport.unwrap() {
        TransportSlice::Tcp(tcp) => {
            let header = tcp.to_header();
            let expected = match ident {
                Some(_) => header.calc_checksum_ipv4_raw(SRC4, DST4, tcp.payload()),
                None => header.calc_checksum_ipv6_raw(SRC6, DST6, tcp.payload()),
            };
            assert_eq!(not_zero(header.checksum), not_zero(expected.unwrap()));
            (Some((header.sequence_number, header.fin, header.psh, header.cwr)), tcp.payload().to_vec())
        }
        TransportSlice::Udp(udp) => {
            let header = udp.to_header();
            let expected = match ident {
                Some(_) => header.calc_checksum_ipv4_raw(SRC4, DST4, udp.payload()),
                None => header.calc_checksum_ipv6_raw(SRC6, DST6, udp.payload()),
            };
            assert_eq!(header.checksum, expected.unwrap());
            assert_eq!(usize::from(header.length), udp.payload().len() + 8);
            (None, udp.payload().to_vec())
        }
        _ => panic!("neither TCP nor UDP"),
    };
    Seen { ident, tcp, payload }
}

/// Returns the checked offload of a valid frame.
fn gso_of(kind: GsoKind, bytes: &[u8], gso_size: u16) -> Gso {
    match gso_header(kind, bytes, gso_size).check(bytes.len(), bytes) {
        Ok(Offload::Gso(gso)) => gso,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(config())]

    /// Objective: the segments of any frame contain its payload; each has correct lengths and checksums; sequence
    /// numbers and identifications are consecutive; only the last segment has FIN and PSH, and only the first has CWR.
    #[test]
    fn segments_reassemble(
        kind in prop::sample::select(KINDS.to_vec()),
        vlan in any::<bool>(),
        gso_size in 1u16..400,
        payload in prop::collection::vec(any::<u8>(), 0..1500),
        ident in any::<u16>(),
        junk in any::<[u8; 2]>(),
    ) {
        let mut bytes = frame(kind, vlan, &payload);
        let l3 = if vlan { 18 } else { 14 };
        if kind.is_v4() {
            bytes[l3 + 4..l3 + 6].copy_from_slice(&ident.to_be_bytes());
            // The segmenter must not use the frame's lengths and checksums, so these are overwritten.
            bytes[l3 + 2..l3 + 4].copy_from_slice(&junk);
            bytes[l3 + 10..l3 + 12].copy_from_slice(&junk);
        }
        let gso = gso_of(kind, &bytes, gso_size);
        let csum_at = usize::from(gso.csum_start + gso.csum_offset);
        bytes[csum_at..csum_at + 2].copy_from_slice(&junk);

        let segments = cut(&bytes, &gso);
        let last = segments.len() - 1;
        let mut reassembled = Vec::new();
        for (n, segment) in segments.iter().enumerate() {
            let seen = read(segment);
            if n < last {
                prop_assert_eq!(seen.payload.len(), usize::from(gso_size));
            }
            if kind.is_v4() {
                prop_assert_eq!(seen.ident, Some(ident.wrapping_add(n as u16)));
            }
            if kind.is_tcp() {
                let seq = SEQ.wrapping_add(reassembled.len() as u32);
                prop_assert_eq!(seen.tcp, Some((seq, n == last, n == last, n == 0)));
            }
            reassembled.extend(seen.payload);
        }
        prop_assert_eq!(reassembled, payload);
    }

    /// Objective: a completed checksum is correct for a frame that is split into any pieces; [`Completion`] and
    /// [`complete_checksum`] agree, and only the checksum changes.
    #[test]
    fn completed_checksums_verify(
        kind in prop::sample::select(KINDS.to_vec()),
        payload in prop::collection::vec(any::<u8>(), 0..300),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let finished = frame(kind, false, &payload);
        let gso = gso_of(kind, &finished, 1000);
        let start = gso.csum_start;
        let offset = gso.csum_offset;
        let at = usize::from(start + offset);
        let mut bytes = finished.clone();
        let partial = pseudo_sum(kind, (bytes.len() - usize::from(start)) as u16);
        bytes[at..at + 2].copy_from_slice(&partial.to_be_bytes());

        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        let mut rest = bytes.as_mut_slice();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts {
            let (piece, tail) = rest.split_at_mut(cut - from);
            pieces.push(piece);
            rest = tail;
            from = cut;
        }
        pieces.push(rest);
        let mut streamed = Completion::new(start, offset);
        pieces.iter().for_each(|piece| streamed.feed(piece));
        complete_checksum(&mut pieces, start, offset).unwrap();
        prop_assert_eq!(streamed.finish(), (at, [bytes[at], bytes[at + 1]]));
        read(&bytes);
        bytes[at..at + 2].copy_from_slice(&finished[at..at + 2]);
        prop_assert_eq!(bytes, finished);
    }

    /// Objective: no arguments make the segmenter panic.
    #[test]
    fn arbitrary_arguments_do_not_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        start in prop::sample::select(KINDS.to_vec()),
        payload_len in prop_oneof![0usize..100_000, Just(usize::MAX)],
        gso_size in any::<u16>(),
        tail in 0usize..300,
    ) {
        let gso = Gso { kind: start, gso_size, hdr_len: 9, csum_start: 7, csum_offset: 5, ecn: false };
        let mut headers = frame(start, false, &[]);
        headers.splice(tail.min(headers.len()).., bytes);
        if let Ok(mut segmenter) = Segmenter::new(&headers, payload_len, &gso) {
            let mut end = 0;
            while let Some(segment) = segmenter.next_segment() {
                end = segment.payload().end;
                segment.finish_checksum(Sum::ZERO);
            }
            prop_assert_eq!(end, payload_len);
        }
    }
}

/// Returns the folded sum of the pseudo header, as a driver stores it in the checksum field.
fn pseudo_sum(kind: GsoKind, len: u16) -> u16 {
    let addrs = if kind.is_v4() { [SRC4, DST4].concat() } else { [SRC6, DST6].concat() };
    let words = addrs.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum = words.sum::<u32>() + u32::from(kind.protocol()) + u32::from(len);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Objective: a UDP checksum of zero is stored as 0xffff, in segments and in completed frames, as zero means that there
/// is no checksum (RFC 768, RFC 8200 §8.1).
#[test]
fn a_zero_udp_checksum_is_stored_as_ones() {
    for kind in [GsoKind::Udp4, GsoKind::Udp6] {
        // With this last word of the payload, the whole sum is 0xffff.
        let zeros = frame(kind, false, &[0, 0]);
        let gso = gso_of(kind, &zeros, 2);
        let at = usize::from(gso.csum_start + gso.csum_offset);
        let checksum = [zeros[at], zeros[at + 1]];
        let mut bytes = frame(kind, false, &checksum);
        assert_eq!(bytes[at..at + 2], [0xff; 2], "etherparse stores ones");
        assert_eq!(cut(&bytes, &gso)[0][at..at + 2], [0xff; 2]);
        let partial = pseudo_sum(kind, 10);
        bytes[at..at + 2].copy_from_slice(&partial.to_be_bytes());
        complete_checksum(&mut [&mut bytes], gso.csum_start, gso.csum_offset).unwrap();
        assert_eq!(bytes[at..at + 2], [0xff; 2]);
    }
}

/// Objective: headers that changed after the check, and headers that are too long, are refused.
#[test]
fn headers_that_do_not_fit_the_offload_are_refused() {
    let bytes = frame(GsoKind::Tcp4, false, &[7; 1000]);
    let gso = gso_of(GsoKind::Tcp4, &bytes, 100);
    let headers = &bytes[..usize::from(gso.hdr_len)];
    let refused = |headers: &[u8], payload_len, gso: &Gso| Segmenter::new(headers, payload_len, gso).unwrap_err();
    assert_eq!(refused(&[0; MAX_HEADERS + 1], 1000, &gso), BadVnet::HeadersLong);
    assert_eq!(refused(&headers[..50], 1000, &gso), BadVnet::HeadersCut);
    assert_eq!(refused(&bytes[..100], 1000, &gso), BadVnet::GsoProtocol);
    assert_eq!(refused(headers, 1000, &Gso { kind: GsoKind::Udp4, ..gso }), BadVnet::GsoProtocol);
    assert_eq!(refused(headers, 1000, &Gso { gso_size: 0, ..gso }), BadVnet::GsoSize);
    assert_eq!(refused(headers, 0x10000, &gso), BadVnet::TooLong);
    let mut longer = headers.to_vec();
    longer[46] = 0xf0;
    assert_eq!(refused(&longer, 1000, &gso), BadVnet::HeadersCut);
}

/// Objective: a checksum outside the pieces is refused, and the pieces stay unchanged.
#[test]
fn a_checksum_outside_the_frame_is_refused() {
    let mut frame = [7; 20];
    assert_eq!(complete_checksum(&mut [&mut frame], 14, 5), Err(BadVnet::CsumOffset));
    assert_eq!(complete_checksum(&mut [], u16::MAX, u16::MAX), Err(BadVnet::CsumOffset));
    assert_eq!(frame, [7; 20]);
}

/// Objective: the segments of the longest frame of each kind contain its whole payload.
#[test]
#[cfg_attr(miri, ignore = "64 KiB of checksums take Miri minutes")]
fn the_longest_frames_reassemble() {
    for kind in KINDS {
        let payload: Vec<u8> = (0..65_000u32).map(|n| (n / 7) as u8).collect();
        let bytes = frame(kind, true, &payload);
        let segments = cut(&bytes, &gso_of(kind, &bytes, 1448));
        assert_eq!(segments.len(), 45);
        let parts: Vec<u8> = segments.iter().flat_map(|segment| read(segment).payload).collect();
        assert_eq!(parts, payload);
    }
}
