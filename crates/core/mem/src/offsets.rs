//! Offsets at which frames begin in the buffers of a ring (netmap.h, `NETMAP_REQ_OPT_OFFSETS`), and whether the ring
//! takes frames.
//!
//! With offsets, a slot's `ptr` holds the frame's offset in its buffer. The application may write it at any time, so it
//! is read once and limited to the ring's maximum. Rings without offsets, nearly all, cost one load of a word per
//! batch.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ring::RingMem;

/// The contents of `ptr` in the slots of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetRule {
    /// Number of low bits that hold the offset: 1 to 64.
    pub bits: u32,
    /// Largest offset in bytes, at most a buffer's size. Larger ones count as this.
    pub max: u32,
    /// The offset in all slots after the ring was opened.
    pub initial: u32,
}

impl OffsetRule {
    /// The bits of `ptr` that hold the offset: `offset_mask` of the ring's header.
    pub fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits.clamp(1, 64))
    }

    /// The offset in a slot's `ptr`.
    #[inline]
    pub fn of(&self, ptr: u64) -> u32 {
        (ptr & self.mask()).min(self.max.into()) as u32
    }

    /// Replaces the offset in a slot's `ptr`.
    #[inline]
    pub fn put(&self, ptr: u64, offset: u32) -> u64 {
        ptr & !self.mask() | u64::from(offset) & self.mask()
    }
}

/// The rule of a ring, kept in the host's private memory. Read by workers while the control thread changes it.
#[derive(Debug, Default)]
pub struct Offsets(AtomicU64);

const INITIAL_AT: u32 = 24;
const BITS_AT: u32 = 48;
const FIELD: u64 = (1 << 24) - 1;
const CLOSED: u64 = 1 << 63;
const IDLE: u64 = 1 << 62;

impl Offsets {
    /// The rule, if any.
    #[inline]
    pub fn rule(&self) -> Option<OffsetRule> {
        let word = self.0.load(Ordering::Relaxed) & !(CLOSED | IDLE);
        let field = |at: u32| (word >> at & FIELD) as u32;
        (word != 0).then(|| OffsetRule { bits: (word >> BITS_AT) as u32, max: field(0), initial: field(INITIAL_AT) })
    }

    /// The initial offset; 0 without a rule.
    #[inline]
    pub fn initial(&self) -> u32 {
        (self.0.load(Ordering::Relaxed) >> INITIAL_AT & FIELD) as u32
    }

    /// Whether the ring is closed to frames for now.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (CLOSED | IDLE) != 0
    }

    /// Whether the ring has no reader.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) & IDLE != 0
    }

    /// Sets whether the ring has a reader. Without one it takes no frames.
    pub fn set_idle(&self, idle: bool) {
        if idle {
            self.0.fetch_or(IDLE, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!IDLE, Ordering::Relaxed);
        }
    }

    /// Closes the ring to frames until the next [`Offsets::set`].
    pub fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::Relaxed);
    }

    /// Sets or removes the rule.
    pub fn set(&self, rule: Option<OffsetRule>) {
        let word = |r: OffsetRule| {
            u64::from(r.max) & FIELD
                | (u64::from(r.initial) & FIELD) << INITIAL_AT
                | u64::from(r.bits.clamp(1, 64)) << BITS_AT
        };
        let idle = self.0.load(Ordering::Relaxed) & IDLE;
        self.0.store(rule.map_or(0, word) | idle, Ordering::Relaxed);
    }
}

/// How to find a frame's offset in its buffer: 0, or in the slot's `ptr`. The first costs nothing.
pub trait Begin: Copy {
    /// The offset in slot `i`, whose `ptr` is read once.
    fn of_slot(self, ring: &RingMem, i: u32) -> u32;
}

/// Frames begin at the start of their buffers.
#[derive(Clone, Copy, Debug)]
pub struct AtStart;

impl Begin for AtStart {
    #[inline(always)]
    fn of_slot(self, _: &RingMem, _: u32) -> u32 {
        0
    }
}

impl Begin for OffsetRule {
    #[inline]
    fn of_slot(self, ring: &RingMem, i: u32) -> u32 {
        self.of(ring.ptr(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::test_config())]
        /// Objective: a rule survives its encoding, closed or not; no `ptr` gives an offset beyond the maximum; a
        /// stored offset is read back, and other bits of `ptr` stay.
        #[test]
        fn rules(bits in 17u32..=64, max in 0u32..=65_536, initial in 0u32..=65_536, ptr in any::<u64>(), to in 0u32..=65_536) {
            let rule = OffsetRule { bits, max, initial };
            let offsets = Offsets::default();
            prop_assert_eq!((offsets.rule(), offsets.initial(), offsets.is_closed()), (None, 0, false));
            offsets.close();
            prop_assert_eq!((offsets.rule(), offsets.is_closed()), (None, true));
            offsets.set(Some(rule));
            prop_assert_eq!((offsets.rule(), offsets.initial(), offsets.is_closed()), (Some(rule), initial, false));
            offsets.close();
            prop_assert_eq!((offsets.rule(), offsets.is_closed()), (Some(rule), true));
            offsets.set_idle(true);
            offsets.set(Some(rule));
            prop_assert_eq!((offsets.rule(), offsets.initial(), offsets.is_closed()), (Some(rule), initial, true));
            offsets.set_idle(false);
            prop_assert_eq!((offsets.rule(), offsets.is_closed(), offsets.is_idle()), (Some(rule), false, false));
            prop_assert!(rule.of(ptr) <= max);
            let put = rule.put(ptr, to);
            prop_assert_eq!(rule.of(put), to.min(max));
            prop_assert_eq!(put & !rule.mask(), ptr & !rule.mask());
        }
    }
}
