//! An ingress that delivers frames as a bad line would.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_mem::drops::{DropReason, RingCounters};

use crate::Ingress;
use crate::batch::{BATCH, Batch, FrameRef, MAX_FRAGS};

/// How far back, in frames, a frame that is overtaken can fall.
const REORDER_DISTANCE: u64 = 8;

/// The probability of each fault per frame: 0 never, 1 always. The same seed and the same batches give the same faults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The frame is dropped, and counted as [`DropReason::Injected`].
    pub drop: f64,
    /// One bit of a private copy of the frame is inverted.
    pub corrupt: f64,
    /// The frame comes twice, if the batch has room and the frame is one piece.
    pub duplicate: f64,
    /// The frame swaps places with one of the eight frames behind it, within its batch.
    pub reorder: f64,
    /// Seed of the sequence of faults.
    pub seed: u64,
}

/// Counts of faults other than drops.
#[derive(Debug, Default)]
pub struct FaultCounts {
    corrupted: AtomicU64,
    duplicated: AtomicU64,
    reordered: AtomicU64,
}

impl FaultCounts {
    /// Frames with an inverted bit.
    pub fn corrupted(&self) -> u64 {
        self.corrupted.load(Ordering::Relaxed)
    }

    /// Frames that came twice.
    pub fn duplicated(&self) -> u64 {
        self.duplicated.load(Ordering::Relaxed)
    }

    /// Pairs of frames that changed places.
    pub fn reordered(&self) -> u64 {
        self.reordered.load(Ordering::Relaxed)
    }
}

/// A small generator (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns true with this probability.
    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && ((self.roll() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// Returns a number below `n`, which is not 0.
    fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }
}

/// An ingress around another that injects faults. The inner one's counters count its frames before the faults.
pub struct FaultIngress<I> {
    inner: I,
    faults: Faults,
    dice: Dice,
    /// The inner ingress's frames, until `release`.
    brought: Batch,
    /// The frames to pass on: index in `brought`, and whether to corrupt it.
    plan: Vec<(usize, bool)>,
    /// Private copies of corrupted frames, until `release`. `Vec`s, whose bytes stay where they are when they are moved.
    copies: Vec<Vec<u8>>,
    /// Whether the last batch was dropped as a whole: there may be more frames behind it.
    swallowed: bool,
    counts: Arc<FaultCounts>,
}

impl<I: Ingress> FaultIngress<I> {
    /// Wraps `inner`.
    pub fn new(inner: I, faults: Faults) -> Self {
        FaultIngress {
            inner,
            faults,
            dice: Dice(faults.seed),
            brought: Batch::new(),
            plan: Vec::with_capacity(BATCH),
            copies: Vec::new(),
            swallowed: false,
            counts: Arc::default(),
        }
    }

    /// The counts of faults other than drops.
    pub fn counts(&self) -> &Arc<FaultCounts> {
        &self.counts
    }

    fn make_plan(&mut self) {
        self.plan.clear();
        let total = self.brought.len();
        for (i, frame) in self.brought.iter().enumerate() {
            if self.dice.happens(self.faults.drop) {
                self.inner.counters().dropped(DropReason::Injected, 1);
                continue;
            }
            self.plan.push((i, !frame.is_empty() && self.dice.happens(self.faults.corrupt)));
            let behind = total - i - 1;
            let fits = self.plan.len() + behind < BATCH && frame.pieces() == 1;
            if fits && self.dice.happens(self.faults.duplicate) {
                self.plan.push((i, false));
                self.counts.duplicated.fetch_add(1, Ordering::Relaxed);
            }
        }
        for i in 0..self.plan.len() {
            let behind = (self.plan.len() - i - 1) as u64;
            if behind > 0 && self.dice.happens(self.faults.reorder) {
                let other = i + 1 + self.dice.below(behind.min(REORDER_DISTANCE)) as usize;
                self.plan.swap(i, other);
                self.counts.reordered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Makes a private copy of a non-empty frame with one bit inverted.
    fn corrupted(dice: &mut Dice, frame: &FrameRef<'_>) -> Vec<u8> {
        let mut bytes = vec![0; frame.len()];
        frame.copy_out(0, &mut bytes);
        let (at, bit) = (dice.below(bytes.len() as u64) as usize, dice.below(8));
        bytes[at] ^= 1 << bit;
        bytes
    }

    /// Passes the planned frames on.
    fn pass_on(&mut self, batch: &mut Batch) {
        for &(i, corrupt) in &self.plan {
            let Some(frame) = self.brought.get(i) else { continue };
            let mut pieces = [(std::ptr::null(), 0); MAX_FRAGS];
            let count = if corrupt {
                let copy = Self::corrupted(&mut self.dice, &frame);
                pieces[0] = (copy.as_ptr(), copy.len() as u32);
                self.copies.push(copy);
                self.counts.corrupted.fetch_add(1, Ordering::Relaxed);
                1
            } else {
                let count = frame.pieces().min(MAX_FRAGS);
                for (k, piece) in pieces.iter_mut().enumerate().take(count) {
                    let (ptr, len) = frame.piece(k).raw();
                    *piece = (ptr, len as u32);
                }
                count
            };
            // SAFETY: each piece is readable for as long as `take` promises:
            // - a piece of a frame in `brought`: by the inner ingress's promise, which is asked and told when this one is;
            // - a copy: on the heap, kept in `copies` and not written until `release`; its bytes do not move with the Vec.
            unsafe { batch.push_frags(&pieces[..count]) };
            batch.set_offload(frame.offload());
            if frame.no_learn() {
                batch.set_no_learn();
            }
        }
    }
}

impl<I: Ingress> Ingress for FaultIngress<I> {
    // SAFETY: frames lie where the inner ingress keeps them, or in `copies`, until `release`.
    unsafe fn take(&mut self, batch: &mut Batch) {
        self.brought.clear();
        // SAFETY: `brought` is cleared before the inner ingress is asked again, above, or told to release; the caller treats `batch` so.
        unsafe { self.inner.take(&mut self.brought) };
        self.make_plan();
        self.pass_on(batch);
        self.swallowed = batch.is_empty() && !self.brought.is_empty();
        if self.swallowed {
            // Nobody releases a batch without frames.
            self.release();
        }
    }

    fn release(&mut self) {
        self.brought.clear();
        self.copies.clear();
        self.inner.release();
    }

    fn is_wanted(&self) -> bool {
        self.inner.is_wanted()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm() | self.swallowed
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wake_fd()
    }

    fn woken(&mut self) {
        self.inner.woken();
    }

    /// Always false: an empty batch does not mean that the inner one has nothing, so the worker has to look again by
    /// itself.
    fn is_cheap(&self) -> bool {
        true
    }

    fn counters(&self) -> &Arc<RingCounters> {
        self.inner.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;
    use crate::wrap::tests::{deliver, taken};
    use crate::wrap::{LoopbackIngress, loopback};

    fn frames() -> Vec<Vec<u8>> {
        (0..200u8).map(|i| vec![i; 60]).collect()
    }

    /// Passes `frames` through `faults`. Returns what comes out, and the ingress.
    fn bring(faults: Faults, frames: &[Vec<u8>]) -> (Vec<Vec<u8>>, FaultIngress<LoopbackIngress>) {
        let (egress, ingress) = loopback(frames.len()).unwrap();
        assert_eq!(deliver(&egress, frames, |_| {}), frames.len());
        let mut ingress = FaultIngress::new(ingress, faults);
        (taken(&mut ingress), ingress)
    }

    /// Objective: without faults nothing changes.
    #[test]
    fn clean_line() {
        assert_eq!(bring(Faults::default(), &frames()).0, frames());
    }

    /// Objective: drops are counted by name and keep the others in order; the same seed drops the same frames, another
    /// seed others.
    #[test]
    fn drops() {
        let some = |seed| Faults { drop: 0.3, seed, ..Faults::default() };
        let (left, ingress) = bring(some(1), &frames());
        let dropped = ingress.counters().drops(DropReason::Injected);
        assert!((30..=90).contains(&dropped), "{dropped}");
        assert_eq!(left.len() as u64 + dropped, 200);
        assert!(left.is_sorted());
        assert_eq!(bring(some(1), &frames()).0, left);
        assert_ne!(bring(some(2), &frames()).0, left);
    }

    /// Objective: when a whole batch is dropped, the worker does not sleep, as there may be frames behind it.
    #[test]
    fn all_dropped() {
        let (left, mut ingress) = bring(Faults { drop: 1.0, ..Faults::default() }, &frames());
        assert!(left.is_empty() && ingress.arm() && ingress.is_cheap());
        assert!(taken(&mut ingress).is_empty() && !ingress.arm());
    }

    /// Objective: a corrupted frame differs in one bit, and the sender's own copy is unchanged.
    #[test]
    fn corrupts() {
        let (out, ingress) = bring(Faults { corrupt: 1.0, ..Faults::default() }, &frames());
        assert_eq!((out.len(), ingress.counts().corrupted()), (200, 200));
        for (a, b) in out.iter().zip(frames()) {
            assert_eq!(a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>(), 1);
        }
    }

    /// Objective: frames come twice as long as the batch has room, and none is lost because of it.
    #[test]
    fn duplicates() {
        let (mut out, ingress) = bring(Faults { duplicate: 1.0, ..Faults::default() }, &frames());
        assert_eq!((out.len(), ingress.counts().duplicated()), (BATCH, 56));
        out.dedup();
        assert_eq!(out, frames());
    }

    /// Objective: frames swap places, and none is lost, added or moved further than promised at a time.
    #[test]
    fn reorders() {
        let (mut out, ingress) = bring(Faults { reorder: 0.1, seed: 7, ..Faults::default() }, &frames());
        assert!(!out.is_sorted() && ingress.counts().reordered() > 5);
        out.sort();
        assert_eq!(out, frames());
    }

    /// Objective: frames of several pieces keep their pieces and marks.
    #[test]
    fn pieces() {
        struct Two(Vec<u8>, Arc<RingCounters>);
        impl Ingress for Two {
            // SAFETY: frames lie in a Vec that is neither written nor freed before the ingress is dropped.
            unsafe fn take(&mut self, batch: &mut Batch) {
                let p = self.0.as_ptr();
                // SAFETY: 40 and 20 bytes of a Vec of 60.
                unsafe { batch.push_frags(&[(p, 40), (p.add(40), 20)]) };
                batch.set_no_learn();
            }
            fn release(&mut self) {}
            fn arm(&mut self) -> bool {
                false
            }
            fn disarm(&mut self) {}
            fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
                None
            }
            fn counters(&self) -> &Arc<RingCounters> {
                &self.1
            }
        }
        let ingress = FaultIngress::new(Two((0..60).collect(), Arc::default()), Faults::default());
        let (mut source, mut spare) = (Source::new(Box::new(ingress)), Box::default());
        let frame = source.take(&mut spare).get(0).unwrap();
        let mut bytes = [0; 60];
        assert_eq!((frame.pieces(), frame.no_learn(), frame.copy_out(0, &mut bytes)), (2, true, 60));
        assert!(bytes.iter().copied().eq(0..60));
    }
}
