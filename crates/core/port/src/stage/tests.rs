//! Tests of variants against a simple model: bytes, pending offloads, memory, limits.

use netvale_wire::offload::GsoKind;
use proptest::prelude::*;

use super::*;
use crate::tests::bytes;

const TAGS: [[u8; TAG]; 2] = [[0x81, 0, 0x60, 10], [0x88, 0xa8, 0, 77]];
const RETAGS: [Retag; 4] = [
    Retag::NONE,
    Retag { strip: false, push: Some(TAGS[0]) },
    Retag { strip: true, push: None },
    Retag { strip: true, push: Some(TAGS[1]) },
];

/// The bytes that a frame must have after `retag`.
fn retagged(frame: &[u8], retag: Retag) -> Vec<u8> {
    let rest = if retag.strip { &frame[ADDRESSES + TAG..] } else { &frame[ADDRESSES..] };
    [&frame[..ADDRESSES], retag.push.as_ref().map_or(&[][..], |tag| tag), rest].concat()
}

fn frame(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ seed ^ (i >> 8) as u8).collect()
}

/// A batch of frames, each cut into two pieces at offset `cut` if it is longer.
fn batch(frames: &[Vec<u8>], cut: usize) -> Batch {
    let mut batch = Batch::new();
    for frame in frames {
        let (first, rest) = frame.split_at(cut.min(frame.len()));
        let pieces = [(first.as_ptr(), first.len() as u32), (rest.as_ptr(), rest.len() as u32)];
        // SAFETY: the tests keep the frames for as long as the batch.
        assert!(unsafe { batch.push_frags(if rest.is_empty() { &pieces[..1] } else { &pieces }) });
    }
    batch
}

/// Creates a variant of each frame; all must succeed.
fn variants(frames: &Batch, retag: Retag, want: usize) -> Vec<Vec<u8>> {
    let mut stage = Stage::new();
    // SAFETY: the stage ends here, before the frames.
    let mut staging = unsafe { Staging::new(frames, &mut stage) };
    for i in 0..frames.len() {
        staging.head(i, want);
        assert_eq!(staging.variant(i, retag), Ok(i as u16));
    }
    bytes(stage.variants())
}

/// Objective: each variant has exactly the expected bytes and begins with its head, for frames of any length, cut into
/// any pieces, and with any number of bytes copied.
#[test]
fn each_variant_has_exactly_the_expected_bytes() {
    for len in [16, 17, 20, 59, 60, 64, 65, 128, HEAD - 1, HEAD, HEAD + 1, HEAD + TAG, 300, 1514, 9000] {
        for (cut, want) in [(usize::MAX, 64), (usize::MAX, HEAD), (14, 64), (100, 20), (64, 64)] {
            let frames = [frame(1, len), frame(2, len)];
            for retag in RETAGS {
                let expected = frames.each_ref().map(|frame| retagged(frame, retag));
                assert_eq!(variants(&batch(&frames, cut), retag, want), expected, "{len} {cut} {want} {retag:?}");
            }
        }
    }
}

/// Objective: a sender that changes a frame later changes neither the decision nor the copied bytes that are delivered:
/// all bytes of short frames and of frames copied whole, the head of other frames.
#[test]
fn copies_are_private() {
    for (len, want, deep, private) in
        [(60, 64, false, 60), (HEAD, 64, false, HEAD), (500, 64, false, 64), (5000, 64, true, 5000)]
    {
        let first = frame(3, len);
        let mut memory = frame(3, len);
        let at = memory.as_mut_ptr();
        let mut frames = Batch::new();
        let mut stage = Stage::new();
        // SAFETY: `memory` outlives the batch, and is only changed through the same pointer.
        assert!(unsafe { frames.push(at, len as u32) });
        // SAFETY: the stage is not used any more once the batch ends.
        let mut staging = unsafe { Staging::new(&frames, &mut stage) };
        staging.head(0, want);
        // SAFETY: as above; no reference to these bytes exists.
        unsafe { at.add(7).write(!first[7]) };
        if deep {
            assert_eq!(staging.whole().map(<[u8]>::len), Some(len));
        }
        // SAFETY: as above.
        unsafe { std::ptr::write_bytes(at, 0xff, len) };
        let all: Vec<u16> = RETAGS.iter().map(|retag| staging.variant(0, *retag).unwrap()).collect();
        for (variant, retag) in all.into_iter().zip(RETAGS) {
            let expected = retagged(&[&first[..private], &vec![0xff; len - private]].concat(), retag);
            assert_eq!(bytes(stage.variants())[usize::from(variant)], expected, "{len} {retag:?}");
            assert!(expected.starts_with(stage.head_of(variant)));
        }
    }
}

/// Objective: the offsets of a pending offload move with the headers; a frame whose checksum would begin in the removed
/// tag has no variant.
#[test]
fn offloads_move_with_the_headers() {
    let gso = |by: i32| {
        let at = |at: i32| (at + by) as u16;
        let hdr_len = at(58);
        let csum_start = at(38);
        Offload::Gso(Gso { kind: GsoKind::Tcp4, gso_size: 1000, hdr_len, csum_start, csum_offset: 16, ecn: false })
    };
    let sum = |by: i32| Offload::CsumPartial { start: (38 + by) as u16, offset: 6 };
    let frames = [frame(4, 1200)];
    for (retag, by) in RETAGS.into_iter().zip([0, 4, -4, 0]) {
        for offload in [gso, sum] {
            let mut frames = batch(&frames, usize::MAX);
            let mut stage = Stage::new();
            frames.set_offload(offload(0));
            // SAFETY: the stage ends before the frames.
            let mut staging = unsafe { Staging::new(&frames, &mut stage) };
            staging.head(0, 64);
            assert_eq!(staging.variant(0, retag), Ok(0));
            assert_eq!(stage.variants().get(0).unwrap().offload(), offload(by), "{retag:?}");
        }
    }
    let mut frames = batch(&frames, usize::MAX);
    let mut stage = Stage::new();
    frames.set_offload(Offload::CsumPartial { start: 16, offset: 0 });
    // SAFETY: the stage ends before the frames.
    let mut staging = unsafe { Staging::new(&frames, &mut stage) };
    staging.head(0, 64);
    assert_eq!(staging.variant(0, RETAGS[2]), Err(DropReason::BadVnetHeader));
    assert_eq!(staging.variant(0, RETAGS[1]), Ok(0));
}

/// Objective: there is room for every variant of a batch of head-sized frames; a frame that is copied whole may have to
/// wait for the delivery of other frames, but a single frame always has room; frames that a tag makes too long, or that
/// have too many pieces or no tag to remove, are refused with a reason.
#[test]
fn every_variant_of_a_batch_has_room() {
    let frames: Vec<_> = (0..BATCH).map(|i| frame(i as u8, HEAD)).collect();
    let all = batch(&frames, usize::MAX);
    let mut stage = Stage::new();
    // SAFETY: the stage is not read once the batch has gone.
    let mut staging = unsafe { Staging::new(&all, &mut stage) };
    for i in 0..BATCH {
        staging.head(i, HEAD);
        assert!(RETAGS[..3].iter().all(|retag| staging.variant(i, *retag).is_ok()), "{i}");
    }
    let long = vec![frame(5, 60_000); 5];
    let long = batch(&long, usize::MAX);
    // SAFETY: as above; the earlier contents are discarded.
    let mut staging = unsafe { Staging::new(&long, &mut stage) };
    let deep = (0..5).take_while(|&i| !staging.head(i, 64).is_empty() && staging.whole().is_some()).count();
    assert!((1..5).contains(&deep), "{deep}");
    let longest = [frame(6, MAX_FRAME), frame(7, 14)];
    let longest = batch(&longest, usize::MAX);
    // SAFETY: as above.
    let mut staging = unsafe { Staging::new(&longest, &mut stage) };
    staging.head(0, 64);
    assert_eq!(staging.whole().map(<[u8]>::len), Some(MAX_FRAME));
    assert_eq!(staging.variant(0, RETAGS[1]), Err(DropReason::TooLong));
    assert!(staging.variant(0, RETAGS[2]).is_ok());
    staging.head(1, 64);
    assert_eq!(staging.variant(1, RETAGS[2]), Err(DropReason::Runt));
    assert_eq!(staging.variant(0, Retag::NONE), Err(DropReason::Runt), "its head is not the last one");
}

/// Objective: a variant has at most [`MAX_FRAGS`] pieces, its head included.
#[test]
fn the_pieces_of_a_frame_are_limited() {
    let frame = frame(8, 4 * MAX_FRAGS);
    for (count, fits) in [(MAX_FRAGS - 1, true), (MAX_FRAGS, false)] {
        let pieces: Vec<_> = frame.chunks(4).take(count).map(|piece| (piece.as_ptr(), 4)).collect();
        let mut frames = Batch::new();
        let mut stage = Stage::new();
        // SAFETY: `frame` outlives the batch.
        assert!(unsafe { frames.push_frags(&pieces) });
        // SAFETY: the stage is not read once the batch has gone.
        let mut staging = unsafe { Staging::new(&frames, &mut stage) };
        staging.head(0, 20);
        assert_eq!(staging.variant(0, Retag::NONE).is_ok(), fits || 4 * count <= HEAD);
    }
}

/// Objective: kept variants have the same bytes and pending offloads, and no longer need the frames.
#[test]
fn kept_variants_have_the_same_bytes() {
    let mut memory = vec![frame(9, 700), frame(10, 60)];
    let mut stage = Stage::new();
    let mut frames = batch(&memory, usize::MAX);
    frames.set_offload(Offload::CsumPartial { start: 34, offset: 6 });
    // SAFETY: `keep` copies the variants into the stage's own memory before the frames change.
    let mut staging = unsafe { Staging::new(&frames, &mut stage) };
    for i in 0..2 {
        staging.head(i, 64);
        assert!(staging.variant(i, RETAGS[1]).is_ok());
    }
    let expected: Vec<_> = memory.iter().map(|frame| retagged(frame, RETAGS[1])).collect();
    stage.keep();
    drop(frames);
    memory.clear();
    assert_eq!(bytes(stage.variants()), expected);
    assert_eq!(stage.variants().get(1).unwrap().offload(), Offload::CsumPartial { start: 38, offset: 6 });
    stage.clear();
    assert!(stage.variants().is_empty() && stage.own.is_empty());
}

/// Generates frames of a few conversations, so that consecutive frames often begin with the same bytes.
fn any_frame() -> impl Strategy<Value = (Vec<u8>, u8)> {
    let len = prop_oneof![Just(14usize), Just(19), Just(20), Just(60), Just(HEAD), Just(HEAD + 1), 20usize..2000];
    let kind = prop_oneof![9 => Just(0u8), 1 => 1u8..4];
    (prop_oneof![8 => Just(0u8), 1 => Just(1)], any::<u8>(), len, kind).prop_map(|(who, seed, len, kind)| {
        let mut bytes = frame(seed, len);
        let start = [[who; ADDRESSES].as_slice(), &TAGS[0]].concat();
        let known = start.len().min(len);
        bytes[..known].copy_from_slice(&start[..known]);
        (bytes, kind)
    })
}

proptest! {
    /// Objective: a run of similar frames yields the same variants as frames handled one by one; a run ends only at a
    /// frame with other first bytes, several pieces, an offload, the no-learn flag, or an unsuitable length; refused
    /// frames have no variant.
    #[test]
    fn runs_have_the_same_variants_as_single_frames(
        sent in proptest::collection::vec(any_frame(), 1..60),
        retag in 0usize..4,
        want in proptest::option::of(20usize..HEAD),
        odd: bool,
    ) {
        let retag = RETAGS[retag];
        let mut frames = Batch::new();
        for (bytes, kind) in &sent {
            let (first, rest) = bytes.split_at(if *kind == 1 { 10 } else { 0 });
            let pieces = [(first.as_ptr(), first.len() as u32), (rest.as_ptr(), rest.len() as u32)];
            // SAFETY: `sent` outlives the batch.
            let fits = unsafe { frames.push_frags(&pieces[usize::from(*kind != 1)..]) };
            prop_assert!(fits);
            match kind {
                2 => frames.set_no_learn(),
                3 => frames.set_offload(Offload::CsumPartial { start: 18, offset: 0 }),
                _ => {}
            }
        }
        let mut stage = Stage::new();
        let mut expected = Vec::new();
        let mut next = 0;
        // SAFETY: the stage is not read once the batch has gone.
        let mut staging = unsafe { Staging::new(&frames, &mut stage) };
        while next < sent.len() {
            staging.head(next, want.unwrap_or(64));
            if staging.variant(next, retag).is_ok() {
                expected.push(retagged(&sent[next].0, retag));
            }
            let like = &sent[next].0;
            let takes = |i: usize, head: &[u8], len: usize| {
                assert!(sent[i].0.starts_with(head) && len == sent[i].0.len());
                !odd || i.is_multiple_of(2)
            };
            let end = staging.run(next + 1..sent.len(), retag, want, takes);
            let runs = |i: usize| {
                let (bytes, kind) = &sent[i];
                let is_long = bytes.len() > HEAD && want.is_none();
                *kind == 0 && bytes.len() >= 20 && like.len() >= 20 && !is_long && bytes[..ALIKE] == like[..ALIKE]
            };
            prop_assert!((next + 1..end).all(runs) && (end == sent.len() || !runs(end)));
            let taken = (next + 1..end).filter(|i| !odd || i.is_multiple_of(2));
            expected.extend(taken.map(|i| retagged(&sent[i].0, retag)));
            next = end;
        }
        prop_assert_eq!(staging.variants(), expected.len());
        prop_assert_eq!(bytes(stage.variants()), expected);
    }
}
