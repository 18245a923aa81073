//! Copies of frames that wait for a receiver after their ingress was removed.
#![allow(unsafe_code)]

use crate::batch::{BATCH, Batch, FrameRef, MAX_FRAME};
use crate::soft;

/// Length in bytes of the virtio-net header in front of each kept frame.
const HEADER: usize = 12;

/// Kept frames, each after a virtio-net header that describes the frame's pending offload.
#[derive(Debug, Default)]
pub struct KeptFrames(Vec<Vec<u8>>);

impl FromIterator<Vec<u8>> for KeptFrames {
    /// Collects at most [`BATCH`] frames made by [`KeptFrames::frame`]; the rest is omitted.
    fn from_iter<I: IntoIterator<Item = Vec<u8>>>(frames: I) -> Self {
        KeptFrames(frames.into_iter().take(BATCH).collect())
    }
}

impl KeptFrames {
    /// Copies frames, each after a virtio-net header that describes the frame's pending offload.
    pub fn of<'a>(frames: impl Iterator<Item = FrameRef<'a>>) -> KeptFrames {
        frames.map(|frame| KeptFrames::frame(&frame)).collect()
    }

    /// Returns a copy of a frame after a virtio-net header that describes the frame's pending offload.
    pub fn frame(frame: &FrameRef<'_>) -> Vec<u8> {
        let mut bytes = soft::header_bytes(&frame.offload()).to_vec();
        bytes.resize(HEADER + frame.len(), 0);
        frame.copy_out(0, &mut bytes[HEADER..]);
        bytes
    }

    /// Adds the frames to an empty batch, in order. If a frame contradicts its header (the sender may have changed the
    /// frame during the copy), the frame is added without the offload.
    ///
    /// # Safety
    /// The batch must not be read after this value is dropped.
    pub(crate) unsafe fn describe(&self, batch: &mut Batch) {
        for (header, frame) in self.0.iter().filter_map(|bytes| bytes.split_at_checked(HEADER)) {
            let len = frame.len().min(MAX_FRAME) as u32;
            // SAFETY: `len` bytes of a vector that this value keeps, and that no code changes.
            let push = |batch: &mut Batch| unsafe { batch.push(frame.as_ptr(), len) };
            push(batch);
            if soft::parse_header(header).is_some_and(|header| soft::set_offload(batch, &header).is_err()) {
                push(batch);
            }
        }
    }
}
