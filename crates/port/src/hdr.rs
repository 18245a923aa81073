//! The length of a port's virtio-net header, which its owner may change while frames pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of virtio-net header before each frame of a port: 0, 10 or 12. Clones share the same length.
///
/// A change takes effect with the next batch; frames under way at that moment may be handled with either length.
#[derive(Clone, Debug, Default)]
pub struct HdrLen(Arc<AtomicU32>);

impl HdrLen {
    /// The current length in bytes.
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the length. Returns whether `len` is a valid one; otherwise nothing changes.
    pub fn set(&self, len: u32) -> bool {
        let known = matches!(len, 0 | 10 | 12);
        if known {
            self.0.store(len, Ordering::Relaxed);
        }
        known
    }
}

impl From<u32> for HdrLen {
    fn from(len: u32) -> Self {
        let this = HdrLen::default();
        this.set(len);
        this
    }
}
