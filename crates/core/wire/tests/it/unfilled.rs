//! Missing checksums of frames that a device marks as verified.

use crate::common;

use common::{KINDS, frame};
use netvale_wire::unfilled::unfilled;
use netvale_wire::{Layers, Offload, Sum};

/// Returns the offsets of a frame's checksum and of its transport header.
fn places(bytes: &[u8], is_tcp: bool) -> (usize, usize) {
    let l4 = Layers::parse(bytes).unwrap().ip.unwrap().l4;
    (l4 + if is_tcp { 16 } else { 6 }, l4)
}

/// Objective: the offload for a frame with a zero checksum yields the correct checksum, even after VLAN tags and before
/// padding; no checksum is missing in a frame that has a checksum or needs none.
#[test]
fn a_zero_checksum_gets_the_right_offload() {
    for kind in KINDS {
        for (vlan, payload, padding) in [(false, 100, 0), (true, 99, 0), (false, 1, 6)] {
            let mut bytes = frame(kind, vlan, &vec![7; payload]);
            let len = bytes.len();
            bytes.resize(len + padding, 0);
            assert_eq!(unfilled(bytes.len(), &bytes), None, "the frame has a checksum");
            let (at, l4) = places(&bytes, kind.is_tcp());
            let right = [bytes[at], bytes[at + 1]];
            bytes[at..at + 2].fill(0);
            let found = unfilled(bytes.len(), &bytes);
            if !kind.is_tcp() && kind.is_v4() {
                assert_eq!(found, None, "the frame needs no checksum");
                continue;
            }
            let found = found.unwrap();
            assert_eq!(found.at, at);
            let Offload::CsumPartial { start, offset } = found.offload else { panic!("{found:?}") };
            assert_eq!((usize::from(start), usize::from(start + offset)), (l4, at));
            bytes[at..at + 2].copy_from_slice(&found.sum);
            assert_eq!(Sum::of(&bytes[l4..]).checksum().to_be_bytes(), right, "{kind:?} {vlan}");
        }
    }
}

/// Objective: nothing is filled in for truncated frames, fragments, and lengths that do not fit.
#[test]
fn frames_that_do_not_fit_are_left_alone() {
    let mut bytes = frame(common::KINDS[0], false, &[7; 50]);
    let (at, _) = places(&bytes, true);
    bytes[at..at + 2].fill(0);
    assert!(unfilled(bytes.len(), &bytes).is_some());
    (0..at + 2).for_each(|len| assert_eq!(unfilled(bytes.len(), &bytes[..len]), None));
    assert_eq!(unfilled(bytes.len() - 1, &bytes), None, "longer than its frame");
    let mut longer = bytes.clone();
    longer.push(1);
    assert_eq!(unfilled(longer.len(), &longer), None, "bytes follow the packet");
    bytes[20] |= 0x20;
    assert_eq!(unfilled(bytes.len(), &bytes), None, "a fragment");
}
