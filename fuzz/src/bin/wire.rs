//! Checks arbitrary virtio-net headers of arbitrary frames, and then performs the offload that the header requests.
//!
//! Input: the 12 bytes of the header, and the frame. The header's `num_buffers`, which senders do not use, selects
//! where the frame is cut into two pieces.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::net::IpAddr;

use netvale_fuzz::fuzz_target;
use netvale_wire::checksum::{pseudo_v4, pseudo_v6};
use netvale_wire::{FlowKey, Gso, Layers, Merge, Offload, Segmenter, Sum, VnetHdr, segment, vnet};

fuzz_target!(|data: &[u8]| {
    let Ok(header) = VnetHdr::parse(data, vnet::VnetForm::Mergeable) else { return };
    let frame = &data[vnet::LEN_MRG..];
    let cut = usize::from(header.num_buffers).min(frame.len());
    FlowKey::new([1, 2]).hash(frame);
    // A prefix of the frame may fail the check although the whole frame passes, but never yields another offload.
    let whole = header.check(frame.len(), frame);
    if let Ok(offload) = header.check(frame.len(), &frame[..cut]) {
        assert_eq!(Ok(offload), whole);
    }
    merge(frame, cut);
    match whole {
        Ok(Offload::CsumPartial { start, offset }) => complete(frame, cut, start, offset),
        Ok(Offload::Gso(gso)) => cut_into_segments(frame, &gso),
        Ok(Offload::None) | Err(_) => {}
    }
});

/// Checks that if two frames can be merged, the header of the merged frame passes the check unchanged.
fn merge(frame: &[u8], cut: usize) {
    let (first, second) = frame.split_at(cut);
    let Some(mut merge) = Merge::begin(first, first.len(), Offload::None) else { return };
    if merge.append(second, second.len(), Offload::None) {
        let len = merge.header_len();
        let (headers, offload) = merge.finish();
        let whole = [headers, &first[len..], &second[len..]].concat();
        assert_eq!(offload.to_header().check(whole.len(), &whole), Ok(offload));
    }
}

/// Checks that a completed checksum does not depend on how the frame is cut, and that completing it never fails after
/// the header has passed the check.
fn complete(frame: &[u8], cut: usize, start: u16, offset: u16) {
    let mut one = frame.to_vec();
    let mut two = frame.to_vec();
    segment::complete_checksum(&mut [&mut one], start, offset).expect("checked header");
    let (first, second) = two.split_at_mut(cut);
    segment::complete_checksum(&mut [first, second], start, offset).expect("checked header");
    assert_eq!(one, two);
}

/// Checks that segments contain the payload once and in order, that no segment is too long, and that the segments'
/// checksums are valid.
fn cut_into_segments(frame: &[u8], gso: &Gso) {
    let (headers, payload) = frame.split_at(gso.hdr_len.into());
    let mut segmenter = Segmenter::new(headers, payload.len(), gso).expect("checked header");
    let mut sent = Vec::new();
    let mut expected = segmenter.remaining();
    while let Some(segment) = segmenter.next_segment() {
        let part = &payload[segment.payload()];
        assert!(part.len() <= gso.gso_size.into());
        let mut bytes = segment.finish_checksum(Sum::of(part)).to_vec();
        bytes.extend_from_slice(part);
        assert_checksum(&bytes, gso);
        sent.extend_from_slice(part);
        expected -= 1;
    }
    assert_eq!(expected, 0);
    assert_eq!(sent, payload);
}

/// Checks that the sum over a segment's pseudo header, transport header and payload is all ones.
fn assert_checksum(segment: &[u8], gso: &Gso) {
    let l4 = &segment[usize::from(gso.csum_start)..];
    let protocol = gso.kind.protocol();
    let ip = Layers::parse(segment).expect("headers").ip.expect("IP");
    let pseudo = match (ip.src, ip.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => pseudo_v4(src, dst, protocol, l4.len() as u16),
        (IpAddr::V6(src), IpAddr::V6(dst)) => pseudo_v6(src, dst, protocol, l4.len() as u32),
        _ => panic!("two versions of IP in one packet"),
    };
    assert_eq!(pseudo.append(Sum::of(l4)).fold(), 0xffff);
}
