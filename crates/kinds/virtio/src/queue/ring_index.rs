//! Rules that both sides of a packed ring share (virtio 1.3 §2.8): its indices, and the conditions for notifying the
//! other side.

/// `VIRTQ_DESC_F_AVAIL`.
pub const AVAIL: u16 = 1 << 7;
/// `VIRTQ_DESC_F_USED`.
pub const USED: u16 = 1 << 15;

/// `RING_EVENT_FLAGS_ENABLE`: the writer of the event suppression requests a notification of every descriptor.
pub const ENABLE: u32 = 0;
/// `RING_EVENT_FLAGS_DISABLE`: it requests no notifications.
pub const DISABLE: u32 = 1;
/// `RING_EVENT_FLAGS_DESC`: it requests a notification when the descriptor at a given index is shown.
pub const AT_DESC: u32 = 2;

/// An index into a packed ring, with its wrap counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrapIndex {
    /// Index of a descriptor.
    pub at: u16,
    /// Wrap counter: 1 in the first round.
    pub wrap: bool,
}

impl WrapIndex {
    /// Converts from an index with the wrap counter in bit 15.
    #[inline]
    pub fn of(bits: u16) -> WrapIndex {
        WrapIndex { at: bits & 0x7fff, wrap: bits & 0x8000 != 0 }
    }

    /// Returns the index with the wrap counter in bit 15.
    #[inline]
    pub fn bits(self) -> u16 {
        self.at | u16::from(self.wrap) << 15
    }

    /// Returns the index after `count` descriptors, in a ring of `size`.
    #[inline]
    pub fn after(self, count: u16, size: u16) -> WrapIndex {
        let at = u32::from(self.at) + u32::from(count);
        if at >= u32::from(size) {
            WrapIndex { at: (at - u32::from(size)) as u16, wrap: !self.wrap }
        } else {
            WrapIndex { at: at as u16, wrap: self.wrap }
        }
    }

    /// Returns whether the other side, with event suppression `event`, requests a notification when the descriptors
    /// from `old` to just before this index are shown.
    #[inline]
    pub fn is_wanted(self, event: u32, old: WrapIndex, size: u16, event_idx: bool) -> bool {
        match event >> 16 & 3 {
            DISABLE => false,
            AT_DESC if event_idx => self.passed(WrapIndex::of(event as u16), old, size),
            _ => true,
        }
    }

    fn passed(self, named: WrapIndex, old: WrapIndex, size: u16) -> bool {
        // The distance backwards from this index to `p`; an index with the other wrap counter is one round earlier.
        let back = |p: WrapIndex| {
            let base = if p.wrap == self.wrap { 0 } else { u32::from(size) };
            (base + u32::from(self.at)).wrapping_sub(u32::from(p.at))
        };
        back(named).wrapping_sub(1) < back(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a notification is due exactly if the descriptor at the event index is among the shown descriptors,
    /// even if these wrap around the end of the ring.
    #[test]
    fn notified_of_what_was_passed() {
        let size = 8;
        for start in 0..16u16 {
            let old = WrapIndex { at: start % 8, wrap: start < 8 };
            for count in 1..=8 {
                let now = old.after(count, size);
                for ahead in 0..8u16 {
                    let named = old.after(ahead, size);
                    let event = AT_DESC << 16 | u32::from(named.bits());
                    assert_eq!(now.is_wanted(event, old, size, true), ahead < count, "{old:?} +{count}, {named:?}");
                }
            }
        }
        let a = WrapIndex { at: 0, wrap: true };
        let b = WrapIndex { at: 1, wrap: true };
        assert!(!b.is_wanted(DISABLE << 16, a, size, true) && b.is_wanted(ENABLE << 16, a, size, true));
    }
}
