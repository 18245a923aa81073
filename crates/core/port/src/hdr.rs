//! The length of a port's virtio-net header, which may change while frames pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of virtio-net header before each frame of a port: 0, 10 or 12. Clones share the same length.
///
/// A change takes effect with the next batch; frames in flight at that moment may be handled with either length.
#[derive(Clone, Debug, Default)]
pub struct HdrLen {
    len: Arc<AtomicU32>,
    is_cut: bool,
}

impl HdrLen {
    /// The current length in bytes.
    #[inline]
    pub fn get(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    /// Sets whether large segments for this port are cut, because the port's header carries checksum offloads only.
    #[must_use]
    pub fn with_segments_cut(self, is_cut: bool) -> HdrLen {
        HdrLen { is_cut, ..self }
    }

    /// Whether large segments are cut.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Sets the length. Returns false, without a change, if `len` is not 0, 10 or 12.
    pub fn set(&self, len: u32) -> bool {
        let known = matches!(len, 0 | 10 | 12);
        if known {
            self.len.store(len, Ordering::Relaxed);
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
