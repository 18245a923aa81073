//! Partial checksums and large segments that a sender's kernel left to the network card.

use netvale_wire::checksum::pseudo;
use netvale_wire::half_summed::left_to_do;
use netvale_wire::vnet;

fn segment(payload: usize, checksum: Option<u16>) -> Vec<u8> {
    let len = 20 + 20 + payload;
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, (len >> 8) as u8, len as u8];
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    let half = pseudo([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6, (20 + payload) as u16).unwrap().fold();
    frame[50..52].copy_from_slice(&checksum.unwrap_or(half).to_be_bytes());
    frame.resize(14 + len, 3);
    frame
}

/// Objective: a partial checksum is found, a long frame with a partial checksum must be cut into segments, and a
/// complete frame needs no offload, whatever its length.
#[test]
fn halves() {
    let left = left_to_do(&segment(100, None), 1464, 0).unwrap();
    assert_eq!((left.flags, left.csum_start, left.csum_offset, left.gso_type), (vnet::F_NEEDS_CSUM, 34, 16, 0));
    let left = left_to_do(&segment(60_000, None), 1464, 0).unwrap();
    assert_eq!((left.gso_type, left.hdr_len, left.gso_size), (vnet::GSO_TCPV4, 54, 1410));
    assert!(left.check(60_054, &segment(60_000, None)[..256]).is_ok());
    assert_eq!(left_to_do(&segment(100, Some(0x1234)), 1464, 0), None);
    assert_eq!(left_to_do(&segment(60_000, Some(0x1234)), 1464, 0), None);
    let mut fragment = segment(100, None);
    fragment[20] = 0x20;
    assert_eq!(left_to_do(&fragment, 1464, 0), None);
    assert_eq!(left_to_do(&segment(60_000, None), 1464, 1000).unwrap().gso_size, 1000);
    for len in 0..segment(0, None).len() {
        let _ = left_to_do(&segment(0, None)[..len], 1464, 0);
    }
}
