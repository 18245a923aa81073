//! Frames that are kept in memory of their own, while they wait for a receiver and their ingress has to go.
#![allow(unsafe_code)]

use crate::batch::{BATCH, Batch, FrameRef, MAX_FRAME};
use crate::soft;

/// Bytes of virtio-net header before each kept frame.
const HEADER: usize = 12;

/// Kept frames, each behind a virtio-net header that says what is left to do on it.
#[derive(Debug, Default)]
pub struct Kept(Vec<Vec<u8>>);

impl FromIterator<Vec<u8>> for Kept {
    /// Takes over frames as [`Kept::frame`] makes them, at most a batch of them.
    fn from_iter<I: IntoIterator<Item = Vec<u8>>>(frames: I) -> Self {
        Kept(frames.into_iter().take(BATCH).collect())
    }
}

impl Kept {
    /// Copies frames.
    pub fn of<'a>(frames: impl Iterator<Item = FrameRef<'a>>) -> Kept {
        frames.map(|frame| Kept::frame(&frame)).collect()
    }

    /// A copy of a frame behind its header.
    pub fn frame(frame: &FrameRef<'_>) -> Vec<u8> {
        let mut bytes = soft::header_bytes(&frame.offload()).to_vec();
        bytes.resize(HEADER + frame.len(), 0);
        frame.copy_out(0, &mut bytes[HEADER..]);
        bytes
    }

    /// Describes the frames in a batch that is empty, in order. One that is not what its header says (its sender may
    /// have changed it while it was copied) goes on as it is.
    ///
    /// # Safety
    /// The batch must not be read any more once this value is dropped.
    pub(crate) unsafe fn describe(&self, batch: &mut Batch) {
        for (header, frame) in self.0.iter().filter_map(|bytes| bytes.split_at_checked(HEADER)) {
            let len = frame.len().min(MAX_FRAME) as u32;
            // SAFETY: `len` bytes of a vector that nobody changes, and that this value keeps.
            let push = |batch: &mut Batch| unsafe { batch.push(frame.as_ptr(), len) };
            push(batch);
            if soft::parse_header(header).is_some_and(|header| soft::set_offload(batch, &header).is_err()) {
                push(batch);
            }
        }
    }
}
