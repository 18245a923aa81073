//! What the tests of the wrappers share.
#![allow(unsafe_code)]

use crate::{Batch, Egress, Ingress, Scratch};

/// Delivers `frames` as one batch, the third one marked by `mark`.
pub(crate) fn deliver(egress: &dyn Egress, frames: &[Vec<u8>], mark: impl Fn(&mut Batch)) -> usize {
    with_batch(frames, mark, |batch, picks| egress.deliver(batch, picks, &mut Scratch::new()))
}

/// Shows `frames` as one batch, the third one marked by `mark`, and the picks of all of them.
pub(crate) fn with_batch<R>(
    frames: &[Vec<u8>],
    mark: impl Fn(&mut Batch),
    show: impl FnOnce(&Batch, &[u16]) -> R,
) -> R {
    let mut batch = Batch::new();
    for (i, f) in frames.iter().enumerate() {
        // SAFETY: `f` outlives the batch and is not written.
        assert!(unsafe { batch.push(f.as_ptr(), f.len() as u32) });
        if i == 2 {
            mark(&mut batch);
        }
    }
    let picks: Vec<u16> = (0..frames.len() as u16).collect();
    show(&batch, &picks)
}

/// One batch of an ingress, as bytes.
pub(crate) fn taken(ingress: &mut dyn Ingress) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    // SAFETY: the batch is read before `release`, and ends here.
    unsafe { ingress.take(&mut batch) };
    let frames = bytes(&batch);
    batch.clear();
    ingress.release();
    frames
}

/// The frames of a batch.
pub(crate) fn bytes(batch: &Batch) -> Vec<Vec<u8>> {
    let frames = batch.iter().map(|f| {
        let mut bytes = vec![0; f.len()];
        f.copy_out(0, &mut bytes);
        bytes
    });
    frames.collect()
}
