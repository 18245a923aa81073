//! A driver's fast path, by negotiated features and options.

use super::simd::Simd;
use crate::features::{GUEST_CSUM, IN_ORDER, MRG_RXBUF, RING_PACKED};

/// The path of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// One descriptor ring instead of three areas.
    pub packed: bool,
    /// A frame may come in several buffers.
    pub mergeable: bool,
    /// Buffers come back in order.
    pub in_order: bool,
    /// Reads several entries together with these instructions; `None`: one at a time.
    pub vector: Option<Simd>,
}

impl Path {
    /// Chooses by the negotiated features. Several entries are read together if buffers come back in order, each frame
    /// has one buffer, and its header is empty: no checksums or segments are left to us.
    pub fn of(features: u64, vector: bool) -> Path {
        let has = |bit: u64| features & bit != 0;
        let packed = has(RING_PACKED);
        let mergeable = has(MRG_RXBUF);
        let in_order = has(IN_ORDER);
        let fits = vector && in_order && !mergeable && !has(GUEST_CSUM);
        Path { packed, mergeable, in_order, vector: fits.then(Simd::best) }
    }

    /// The path as `netvale show` prints it.
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
    fn choice() {
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
