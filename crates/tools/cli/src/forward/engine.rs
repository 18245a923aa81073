//! Moves frames between rings: by swapping buffers if both rings are in one memory region, otherwise by copying.

use netvale::{RxRing, TxRing, swap_buffers};
use netvale_abi::slot::NS_MOREFRAG;
use netvale_mem::RingMem;

/// Counts of moved frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedCounts {
    /// Number of moved frames.
    pub frames: u64,
    /// Number of bytes in these frames.
    pub bytes: u64,
}

/// Returns the number of slots and of bytes of the frame that begins `at` slots after the head; `None` if the frame's
/// last slot has not arrived yet.
pub fn frame_at(rx: &RxRing, at: u32) -> Option<(u32, u64)> {
    let mut slots = 0;
    let mut bytes = 0;
    while at + slots < rx.space() {
        let slot = rx.slot(rx.at(at + slots));
        slots += 1;
        bytes += u64::from(slot.len);
        if slot.flags & NS_MOREFRAG == 0 {
            return Some((slots, bytes));
        }
    }
    None
}

/// Moves up to `most` whole frames, as many as `tx` has room for, and syncs `tx`. Returns the counts of the moved
/// frames. The other frames stay in `rx`, which the caller must sync. `swap` permits swapping buffers. Calls `edit` for
/// each moved frame, with the memory of `tx` and the index of the frame's first buffer.
pub fn move_frames(
    rx: &mut RxRing,
    tx: &mut TxRing,
    most: u32,
    swap: bool,
    mut edit: impl FnMut(&RingMem, u32),
) -> MovedCounts {
    // Frames can move slot by slot if each buffer of the receive ring fits into a buffer of the transmit ring.
    if rx.mem().buf_size() > tx.mem().buf_size() {
        return recut_frames(rx, tx, most, edit);
    }
    let zero_copy = swap && rx.mem().shares_buffers_with(tx.mem());
    let mut moved = MovedCounts::default();
    let mut slots = 0;
    while moved.frames < u64::from(most)
        && let Some((n, bytes)) = frame_at(rx, slots)
        && slots + n <= tx.space()
    {
        for k in slots..slots + n {
            move_slot(rx, rx.at(k), tx, tx.at(k), zero_copy);
        }
        edit(tx.mem(), tx.slot(tx.at(slots)).buf_idx);
        slots += n;
        moved = MovedCounts { frames: moved.frames + 1, bytes: moved.bytes + bytes };
    }
    finish(rx, tx, slots, slots);
    moved
}

/// Moves one slot: swaps the buffers if `zero_copy` is set and both rings are in one memory region; otherwise copies
/// the bytes.
pub fn move_slot(rx: &RxRing, from: u32, tx: &TxRing, to: u32, zero_copy: bool) {
    if zero_copy && swap_buffers(rx, from, tx, to) {
        return;
    }
    let slot = rx.slot(from);
    let mut bytes = [0u8; 2048];
    let mut at = 0;
    while at < u32::from(slot.len) {
        let n = (u32::from(slot.len) - at).min(bytes.len() as u32);
        let part = &mut bytes[..n as usize];
        if !rx.mem().read(slot.buf_idx, at, part) || !tx.mem().write(tx.slot(to).buf_idx, at, part) {
            break;
        }
        at += n;
    }
    // If the slot has no valid buffer, its frame is lost, and the transmitted slot is empty.
    tx.set_len(to, at as u16, slot.flags & NS_MOREFRAG);
}

/// Like [`move_frames`], but to a ring with smaller buffers, in which a frame may need more slots.
fn recut_frames(rx: &mut RxRing, tx: &mut TxRing, most: u32, mut edit: impl FnMut(&RingMem, u32)) -> MovedCounts {
    let mut frame = vec![0u8; 65_550];
    let mut moved = MovedCounts::default();
    while moved.frames < u64::from(most)
        && let Some((_, bytes)) = frame_at(rx, 0)
        && bytes.div_ceil(u64::from(tx.mem().buf_size())).max(1) <= u64::from(tx.space())
        && let Some(n) = rx.recv(&mut frame)
    {
        let first = tx.slot(tx.at(0)).buf_idx;
        tx.send(&frame[..n]);
        edit(tx.mem(), first);
        moved = MovedCounts { frames: moved.frames + 1, bytes: moved.bytes + n as u64 };
    }
    finish(rx, tx, 0, 0);
    moved
}

fn finish(rx: &mut RxRing, tx: &mut TxRing, released: u32, filled: u32) {
    rx.advance(released);
    tx.advance(filled);
    tx.sync();
}

#[cfg(test)]
mod tests {
    use super::*;
    use netvale::Port;
    use proptest::prelude::*;

    fn no_edit(_: &RingMem, _: u32) {}

    fn all_buffers(ports: &[&RingMem]) -> Vec<u32> {
        let mut all: Vec<u32> = ports.iter().flat_map(|m| (0..m.num_slots()).map(|i| m.slot_word(i).buf_idx)).collect();
        all.sort_unstable();
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Objective: frames of any length arrive whole and in order, for all buffer sizes and bursts.
        #[test]
        fn frames_arrive_whole(
            lens in proptest::collection::vec(1usize..700, 1..40),
            sizes in (1u32..5, 1u32..5),
            most in 1u32..9,
        ) {
            let (mut a, mut a_far) = Port::pipe_pair(32, sizes.0 * 64).unwrap();
            let (mut b_far, mut b) = Port::pipe_pair(32, sizes.1 * 64).unwrap();
            let frames: Vec<Vec<u8>> = lens.iter().enumerate().map(|(i, &n)| vec![i as u8; n]).collect();
            let mut next = 0;
            let mut got = Vec::new();
            let mut buf = vec![0; 1000];
            for _ in 0..10_000 {
                while next < frames.len() && a.tx()[0].send(&frames[next]) { next += 1; }
                a.sync();
                a_far.sync();
                move_frames(&mut a_far.rx()[0], &mut b_far.tx()[0], most, true, no_edit);
                a_far.sync();
                b_far.sync();
                b.sync();
                while let Some(n) = b.rx()[0].recv(&mut buf) { got.push(buf[..n].to_vec()); }
                b.sync();
                if got.len() == frames.len() { break; }
            }
            prop_assert_eq!(got, frames);
        }

        /// Objective: between rings in one memory region, frames move without a copy, and no buffer is lost or
        /// duplicated.
        #[test]
        fn swapping_keeps_every_buffer(counts in proptest::collection::vec((1u32..20, 1u32..30), 1..30)) {
            // The rx and tx rings of one end of a pipe are in one memory region.
            let (mut a, mut b) = Port::pipe_pair(16, 128).unwrap();
            let mut sent = 0u32;
            let mut back = 0u32;
            let before = {
                let a_tx = a.tx()[0].mem().clone();
                let b_tx = b.tx()[0].mem().clone();
                all_buffers(&[&a_tx, a.rx()[0].mem(), &b_tx, b.rx()[0].mem()])
            };
            for (n, most) in counts {
                for _ in 0..n {
                    if a.tx()[0].send(&sent.to_be_bytes()) { sent += 1; }
                }
                a.sync();
                b.sync();
                let (tx, rx) = b.rings();
                move_frames(&mut rx[0], &mut tx[0], most, true, no_edit);
                b.sync();
                a.sync();
                let mut bytes = [0; 8];
                while let Some(len) = a.rx()[0].recv(&mut bytes) {
                    prop_assert_eq!(&bytes[..len], &back.to_be_bytes());
                    back += 1;
                }
                a.sync();
            }
            let a_tx = a.tx()[0].mem().clone();
            let b_tx = b.tx()[0].mem().clone();
            prop_assert_eq!(all_buffers(&[&a_tx, a.rx()[0].mem(), &b_tx, b.rx()[0].mem()]), before);
            prop_assert!(back > 0);
        }
    }
}
