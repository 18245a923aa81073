//! Offsets at which frames begin in the buffers of a ring (netmap.h, `NETMAP_REQ_OPT_OFFSETS`), and whether the ring
//! accepts frames.
//!
//! In a ring with offsets, a slot's `ptr` holds the frame's offset in its buffer. The application may write `ptr` at
//! any time, so each user reads `ptr` once and limits the offset to the ring's maximum. For most rings, which have no
//! offsets, the check costs one load per batch.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ring::RingMem;

/// The format of the offsets in the `ptr` fields of a ring's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetRule {
    /// Number of low bits that hold the offset: 1 to 64.
    pub bits: u32,
    /// Largest offset in bytes, at most a buffer's size. Larger offsets are reduced to this maximum.
    pub max: u32,
    /// The offset in all slots when the ring is opened, in bytes.
    pub initial: u32,
}

impl OffsetRule {
    /// The bits of `ptr` that hold the offset: `offset_mask` of the ring's header.
    pub fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits.clamp(1, 64))
    }

    /// Returns the offset in a slot's `ptr`, in bytes.
    #[inline]
    pub fn of(&self, ptr: u64) -> u32 {
        (ptr & self.mask()).min(self.max.into()) as u32
    }

    /// Returns `ptr` with its offset bits replaced by `offset`, in bytes.
    #[inline]
    pub fn put(&self, ptr: u64, offset: u32) -> u64 {
        ptr & !self.mask() | u64::from(offset) & self.mask()
    }
}

/// The offset rule of a ring, and whether the ring is closed or has no reader, in the host's private memory. Workers
/// read this while the control thread changes it.
#[derive(Debug, Default)]
pub struct Offsets(AtomicU64);

const INITIAL_AT: u32 = 24;
const BITS_AT: u32 = 48;
const FIELD: u64 = (1 << 24) - 1;
const CLOSED: u64 = 1 << 63;
const IDLE: u64 = 1 << 62;

impl Offsets {
    /// The rule; `None` if the ring has no offsets.
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

    /// Whether the ring accepts no frames at present: it is closed, or has no reader.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (CLOSED | IDLE) != 0
    }

    /// Whether the ring has no reader.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) & IDLE != 0
    }

    /// Sets whether the ring has no reader. A ring without a reader accepts no frames.
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

    /// Sets the rule, or removes it (`None`). Reopens a closed ring.
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

/// The way to find a frame's offset in its buffer: [`AtStart`], at no cost, or an [`OffsetRule`].
pub trait OffsetSource: Copy {
    /// Returns the frame's offset in the buffer of slot `i`, from a single read of the slot's `ptr`.
    fn of_slot(self, ring: &RingMem, i: u32) -> u32;
}

/// No offsets: frames begin at the start of their buffers.
#[derive(Clone, Copy, Debug)]
pub struct AtStart;

impl OffsetSource for AtStart {
    #[inline(always)]
    fn of_slot(self, _: &RingMem, _: u32) -> u32 {
        0
    }
}

impl OffsetSource for OffsetRule {
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
        /// Objective: a rule survives its encoding, whether the ring is closed or not; no `ptr` yields an offset beyond
        /// the maximum; a stored offset is read back, and the other bits of `ptr` stay unchanged.
        #[test]
        fn a_rule_survives_its_encoding(
            bits in 17u32..=64,
            max in 0u32..=65_536,
            initial in 0u32..=65_536,
            ptr in any::<u64>(),
            to in 0u32..=65_536,
        ) {
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
