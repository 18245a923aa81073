//! A ring with its status block and its offsets.

use std::sync::Arc;

use crate::csb::Csb;
use crate::offsets::{OffsetRule, Offsets};
use crate::ring::RingMem;

/// One ring of a port with its CSB entry.
#[derive(Clone, Debug)]
pub struct RingSide {
    /// The slots and buffers.
    pub ring: RingMem,
    /// The status block.
    pub csb: Csb,
    /// Index of the ring's entry in the region's CSB arrays.
    pub csb_index: u32,
    /// The rule for offsets of frames in their buffers, in the host's private memory.
    pub offsets: Arc<Offsets>,
}

impl RingSide {
    /// Writes an offset into the slots from `first` up to (not including) `end`; into all slots if `first` equals
    /// `end`.
    pub fn write_offset(&self, rule: &OffsetRule, offset: u32, first: u32, end: u32) {
        let ring = &self.ring;
        let mut i = first;
        loop {
            ring.set_ptr(i, rule.put(ring.ptr(i), offset));
            i = ring.next(i);
            if i == end || i == first {
                break;
            }
        }
    }

    /// Applies a rule to an unused ring: sets the header's `offset_mask`, and writes the initial offset into all slots.
    pub fn begin_offsets(&self, rule: OffsetRule) {
        self.offsets.set(Some(rule));
        self.ring.set_offset_mask(rule.mask());
        if rule.initial != 0 {
            self.write_offset(&rule, rule.initial, 0, 0);
        }
    }

    /// Removes the rule from an unused ring, and clears the header's `offset_mask` and the `ptr` fields of all slots.
    pub fn end_offsets(&self) {
        let n = self.ring.num_slots();
        (0..n).for_each(|i| self.ring.set_ptr(i, 0));
        self.ring.set_offset_mask(0);
        self.offsets.set(None);
    }
}
