//! Prefetches the buffers of receive slots before frames are copied into them.

use netvale_mem::RingMem;
use netvale_mem::lease::Lease;

/// Prefetches the buffers of slots a few frames before they are filled, because their cache lines are in the receiver's
/// cache.
pub(crate) struct SlotPrefetcher<const HDR: usize> {
    slot: u32,
    left: u32,
}

impl<const HDR: usize> SlotPrefetcher<HDR> {
    const FRAMES: u32 = 8;

    #[inline]
    fn ask(ring: &RingMem, slot: u32) {
        let buf_idx = ring.slot_word(slot).buf_idx;
        if HDR == 0 { ring.prefetch_write(buf_idx) } else { ring.prefetch_write_two(buf_idx) }
    }

    #[inline]
    pub(crate) fn new(ring: &RingMem, lease: &Lease) -> Self {
        let mut slot = lease.slot;
        for _ in 0..lease.count.min(Self::FRAMES) {
            Self::ask(ring, slot);
            slot = ring.next(slot);
        }
        Self { slot, left: lease.count.saturating_sub(Self::FRAMES) }
    }

    #[inline]
    pub(crate) fn step(&mut self, ring: &RingMem) {
        if self.left > 0 {
            Self::ask(ring, self.slot);
            self.slot = ring.next(self.slot);
            self.left -= 1;
        }
    }
}
