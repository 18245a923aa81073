//! Checks of virtio-net headers against their frames: accepted headers, and each reason to refuse a header.

use crate::common;

use common::{KINDS, config, frame, gso_header};
use netvale_wire::offload::MAX_SEGMENTS;
use netvale_wire::vnet::{self, VnetForm, VnetHdr};
use netvale_wire::{BadVnet, Gso, GsoKind, Offload, Segmenter};
use proptest::prelude::*;

/// Checks a header against a TCP/IPv4 frame of 1054 bytes, after `edit` has changed the header or the frame.
fn check_edited(edit: impl FnOnce(&mut VnetHdr, &mut Vec<u8>)) -> Result<Offload, BadVnet> {
    let mut frame = frame(GsoKind::Tcp4, false, &[7; 988]);
    assert_eq!(frame.len(), 1054);
    let mut header = gso_header(GsoKind::Tcp4, &frame, 100);
    edit(&mut header, &mut frame);
    header.check(frame.len(), &frame)
}

#[test]
fn a_header_that_asks_for_nothing_needs_no_frame() {
    assert_eq!(VnetHdr::default().check(0, &[]), Ok(Offload::None));
    let hints = VnetHdr {
        flags: vnet::F_DATA_VALID | vnet::F_RSC_INFO | 0xf0,
        hdr_len: 9999,
        gso_size: 9999,
        csum_start: 9999,
        csum_offset: 9999,
        num_buffers: 9999,
        ..VnetHdr::default()
    };
    assert_eq!(hints.check(60, &[0; 60]), Ok(Offload::None), "§5.1.6.2.2: ignored");
}

/// Objective: a checksum may end at the frame's end, but not a byte later (§5.1.6.2).
#[test]
fn a_checksum_lies_within_the_frame() {
    let check = |csum_start, csum_offset| {
        VnetHdr { flags: vnet::F_NEEDS_CSUM, csum_start, csum_offset, ..VnetHdr::default() }.check(60, &[])
    };
    assert_eq!(check(34, 24), Ok(Offload::CsumPartial { start: 34, offset: 24 }));
    assert_eq!(check(34, 25), Err(BadVnet::CsumOffset));
    assert_eq!(check(34, u16::MAX), Err(BadVnet::CsumOffset));
    assert_eq!(check(59, 0), Err(BadVnet::CsumOffset));
    assert_eq!(check(60, 0), Err(BadVnet::CsumStart));
    assert_eq!(check(13, 6), Err(BadVnet::CsumStart));
    assert_eq!(check(14, 0), Ok(Offload::CsumPartial { start: 14, offset: 0 }));
}

/// Objective: valid headers of each kind are accepted, and their lengths are recomputed.
#[test]
fn segmentation_of_each_kind_is_accepted() {
    for (kind, hdr_len) in KINDS.into_iter().zip([66, 86, 42, 62]) {
        let frame = frame(kind, false, &[7; 3000]);
        let header = VnetHdr { hdr_len: 1, ..gso_header(kind, &frame, 1000) };
        let expected = Gso {
            kind,
            gso_size: 1000,
            hdr_len,
            csum_start: header.csum_start,
            csum_offset: header.csum_offset,
            ecn: false,
        };
        let offload = header.check(frame.len(), &frame[..hdr_len.into()]).unwrap();
        assert_eq!(offload, Offload::Gso(expected));
        assert_eq!(offload.to_header(), VnetHdr { hdr_len, ..header });
    }
}

#[test]
fn ecn_goes_with_tcp() {
    let offload = check_edited(|header, _| header.gso_type |= vnet::GSO_ECN).unwrap();
    assert!(matches!(offload, Offload::Gso(Gso { ecn: true, .. })));
    assert_eq!(offload.to_header().gso_type, vnet::GSO_TCPV4 | vnet::GSO_ECN);
    let udp = frame(GsoKind::Udp4, false, &[7; 1000]);
    let mut header = gso_header(GsoKind::Udp4, &udp, 100);
    header.gso_type |= vnet::GSO_ECN;
    assert_eq!(header.check(udp.len(), &udp), Err(BadVnet::GsoType));
}

/// Objective: each faulty header is refused with the reason that names its fault.
#[test]
fn each_reason_to_refuse() {
    let refused = [
        (VnetHdr::parse(&[0; 9], VnetForm::Plain).map(|_| Offload::None), BadVnet::HeaderShort),
        (check_edited(|header, _| header.csum_start += 1), BadVnet::CsumStart),
        (check_edited(|header, _| header.csum_offset += 1), BadVnet::CsumOffset),
        (check_edited(|header, _| header.gso_type = vnet::GSO_UDP), BadVnet::GsoType),
        (check_edited(|header, _| header.gso_type = 2), BadVnet::GsoType),
        (check_edited(|header, _| header.gso_type = vnet::GSO_ECN), BadVnet::GsoType),
        (check_edited(|header, _| header.gso_size = 0), BadVnet::GsoSize),
        (check_edited(|header, _| header.flags = 0), BadVnet::GsoWithoutCsum),
        (check_edited(|header, _| header.gso_type = vnet::GSO_TCPV6), BadVnet::GsoProtocol),
        (check_edited(|header, _| header.gso_type = vnet::GSO_UDP_L4), BadVnet::GsoProtocol),
        (check_edited(|_, frame| frame[13] = 6), BadVnet::GsoProtocol),
        (check_edited(|_, frame| frame[14] = 0x55), BadVnet::GsoProtocol),
        (check_edited(|_, frame| frame[23] = 1), BadVnet::GsoProtocol),
        (check_edited(|_, frame| frame.truncate(65)), BadVnet::HeadersCut),
        (check_edited(|_, frame| frame.truncate(10)), BadVnet::HeadersCut),
        (check_edited(|_, frame| frame[20] |= 0x20), BadVnet::Fragment),
        (check_edited(|_, frame| frame.resize(14 + 0x10000, 0)), BadVnet::TooLong),
        (check_edited(|header, frame| (header.gso_size = 10, frame.resize(60_000, 0)).1), BadVnet::TooManySegments),
        (long_headers(), BadVnet::HeadersLong),
        (source_route(), BadVnet::SourceRoute),
    ];
    for (n, (result, expected)) in refused.iter().enumerate() {
        assert_eq!(*result, Err(*expected), "case {n}");
    }
    for bad in BadVnet::ALL {
        assert!(refused.iter().any(|(_, expected)| *expected == bad), "{bad:?} was not reached");
    }
}

/// Checks a TCP/IPv6 frame whose destination-options header makes its headers longer than 256 bytes.
fn long_headers() -> Result<Offload, BadVnet> {
    check_with_extension(60, &[24, 0, 0, 0, 0, 0, 0], 200)
}

/// Checks a TCP/IPv6 frame with a routing header that has one segment left.
fn source_route() -> Result<Offload, BadVnet> {
    check_with_extension(43, &[0, 0, 1, 0, 0, 0, 0], 8)
}

/// Puts an extension header of `len` bytes before the TCP header of a TCP/IPv6 frame.
fn check_with_extension(next: u8, body: &[u8], len: usize) -> Result<Offload, BadVnet> {
    let mut frame = frame(GsoKind::Tcp6, false, &[7; 1000]);
    let mut extension = vec![frame[20]];
    extension.extend(body);
    extension.resize(len, 0);
    frame[20] = next;
    frame.splice(54..54, extension);
    let header = gso_header(GsoKind::Tcp6, &frame, 100);
    header.check(frame.len(), &frame)
}

/// Objective: bytes after the frame's end (the rest of a buffer) do not count as headers.
#[test]
fn a_prefix_longer_than_the_frame_counts_up_to_the_frame() {
    let frame = frame(GsoKind::Tcp4, false, &[7; 1000]);
    let header = gso_header(GsoKind::Tcp4, &frame, 100);
    assert_eq!(header.check(65, &frame), Err(BadVnet::HeadersCut));
    assert!(header.check(66, &frame).is_ok());
}

#[test]
fn the_longest_packets_are_accepted() {
    let longest = check_edited(|header, frame| {
        header.gso_size = 1448;
        frame.resize(14 + 0xffff, 0);
    });
    assert!(longest.is_ok());
    let most = check_edited(|header, frame| {
        header.gso_size = 8;
        frame.resize(66 + 8 * MAX_SEGMENTS, 0);
    });
    assert!(most.is_ok());
    let mut v6 = frame(GsoKind::Tcp6, false, &[7; 1000]);
    let header = gso_header(GsoKind::Tcp6, &v6, 1000);
    v6.resize(14 + 40 + 0xffff, 0);
    assert!(header.check(v6.len(), &v6).is_ok());
    v6.push(0);
    assert_eq!(header.check(v6.len(), &v6), Err(BadVnet::TooLong));
}

/// Objective: indices fit an array of counters, and names are distinct.
#[test]
fn names_and_indices_are_distinct() {
    let mut names: Vec<_> = BadVnet::ALL.iter().map(|bad| bad.name()).collect();
    assert!(BadVnet::ALL.iter().enumerate().all(|(n, bad)| bad.index() == n));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), BadVnet::ALL.len());
}

proptest! {
    #![proptest_config(config())]

    /// Objective: for any header and frame, the check ends without a panic; an accepted offload is within the frame,
    /// and the frame can be segmented.
    #[test]
    fn what_is_accepted_lies_within_the_frame(
        flags in 0u8..4,
        gso_type in prop_oneof![0u8..6, any::<u8>()],
        words in any::<[u16; 4]>(),
        kind in prop::sample::select(KINDS.to_vec()),
        edits in prop::collection::vec((0usize..120, any::<u8>()), 0..4),
        right in any::<bool>(),
        len in 0usize..300,
    ) {
        let mut bytes = frame(kind, words[0] & 1 == 1, &[7; 150]);
        let right_header = gso_header(kind, &bytes, words[1]);
        for (at, value) in edits {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(len);
        let [hdr_len, gso_size, csum_start, csum_offset] = words;
        let wild = VnetHdr { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset, num_buffers: 0 };
        let header = if right { right_header } else { wild };
        match header.check(bytes.len(), &bytes) {
            Ok(Offload::CsumPartial { start, offset }) => {
                prop_assert!(usize::from(start) + usize::from(offset) + 2 <= bytes.len());
            }
            Ok(Offload::Gso(gso)) => {
                let (headers, payload) = bytes.split_at(gso.hdr_len.into());
                let mut segmenter = Segmenter::new(headers, payload.len(), &gso).unwrap();
                prop_assert_eq!(segmenter.header_len(), headers.len());
                let mut end = 0;
                while let Some(segment) = segmenter.next_segment() {
                    prop_assert_eq!(segment.payload().start, end);
                    end = segment.payload().end;
                }
                prop_assert_eq!(end, payload.len());
            }
            Ok(Offload::None) | Err(_) => {}
        }
    }

    /// Objective: if the header of a checked offload is checked again, it requests the same offload.
    #[test]
    fn headers_survive_forwarding(
        kind in prop::sample::select(KINDS.to_vec()),
        gso_size in 1u16..2000,
        vlan in any::<bool>(),
    ) {
        let bytes = frame(kind, vlan, &[7; 1000]);
        let offload = gso_header(kind, &bytes, gso_size).check(bytes.len(), &bytes).unwrap();
        prop_assert_eq!(offload.to_header().check(bytes.len(), &bytes), Ok(offload));
    }
}
