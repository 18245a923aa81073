//! A ring with what belongs to it.

use std::sync::Arc;

use crate::csb::Csb;
use crate::offsets::{OffsetRule, Offsets};
use crate::ring::RingMem;

/// One ring of a port with its CSB entry.
#[derive(Clone, Debug)]
pub struct RingSide {
    /// Slots and buffers.
    pub ring: RingMem,
    /// Status block.
    pub csb: Csb,
    /// Index in the region's CSB arrays.
    pub csb_index: u32,
    /// The host's: where frames begin in their buffers.
    pub offsets: Arc<Offsets>,
}

impl RingSide {
    /// Writes an offset into the slots from `first` up to (not including) `end`; into all of them if the two are the same.
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

    /// Puts a rule in force on a ring that nobody else looks at: its header says so, and all its slots hold the initial offset.
    pub fn begin_offsets(&self, rule: OffsetRule) {
        self.offsets.set(Some(rule));
        self.ring.set_offset_mask(rule.mask());
        if rule.initial != 0 {
            self.write_offset(&rule, rule.initial, 0, 0);
        }
    }

    /// Ends that, with the ring as empty as a fresh one. Nobody looks at it.
    pub fn end_offsets(&self) {
        let n = self.ring.num_slots();
        (0..n).for_each(|i| self.ring.set_ptr(i, 0));
        self.ring.set_offset_mask(0);
        self.offsets.set(None);
    }
}
