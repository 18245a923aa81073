//! The driver's fast path, chosen from negotiated features and options.

use super::simd::Simd;
use crate::features::{GUEST_CSUM, IN_ORDER, MRG_RXBUF, RING_PACKED};

/// The variant of the driver's code that handles frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Whether the ring is packed: one descriptor ring instead of three areas.
    pub packed: bool,
    /// Whether a frame may span several buffers.
    pub mergeable: bool,
    /// Whether buffers come back in order.
    pub in_order: bool,
    /// The instructions that read several entries at a time; `None` if one entry is read at a time.
    pub vector: Option<Simd>,
}

impl Path {
    /// Chooses the path from the negotiated features. If `vector`, several entries are read at a time, provided that
    /// buffers come back in order, each frame has one buffer, and its header is empty, i.e. the device leaves no
    /// checksums or segments pending.
    pub fn of(features: u64, vector: bool) -> Path {
        let has = |bit: u64| features & bit != 0;
        let packed = has(RING_PACKED);
        let mergeable = has(MRG_RXBUF);
        let in_order = has(IN_ORDER);
        let fits = vector && in_order && !mergeable && !has(GUEST_CSUM);
        Path { packed, mergeable, in_order, vector: fits.then(Simd::best) }
    }

    /// Returns the path as `netvale show` prints it.
    pub fn words(self) -> String {
        let layout = if self.packed { "packed" } else { "split" };
        let buffers = if self.mergeable { "mergeable" } else { "non-mergeable" };
        let order = if self.in_order { ", in order" } else { "" };
        let vector = self.vector.map_or(String::new(), |simd| format!(", vector ({})", simd.name()));
        format!("{layout}, {buffers}{order}{vector}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the vector path is chosen only if the features allow it.
    #[test]
    fn the_vector_path_needs_its_features() {
        assert!(Path::of(IN_ORDER, true).vector.is_some());
        assert!(Path::of(IN_ORDER, false).vector.is_none());
        for features in [0, IN_ORDER | MRG_RXBUF, IN_ORDER | GUEST_CSUM, RING_PACKED] {
            assert_eq!(Path::of(features, true).vector, None);
        }
        assert_eq!(Path::of(MRG_RXBUF, true).words(), "split, mergeable");
        let words = Path::of(RING_PACKED | IN_ORDER, true).words();
        assert!(words.starts_with("packed, non-mergeable, in order, vector ("), "{words}");
    }
}
