//! Helpers that the tests share.
#![allow(unsafe_code)]

use std::sync::Arc;

use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::host::HostRx;
use netvale_mem::layout::RegionSizes;
use netvale_mem::notify::Doorbell;
use netvale_mem::{PortShape, Region};

use crate::ring_out::RingEgress;
use crate::{Batch, Egress, Ingress, Scratch};

/// Delivers `frames` as one batch. Calls `mark` with the batch after adding the third frame, e.g. to set its offload.
pub(crate) fn deliver(egress: &dyn Egress, frames: &[Vec<u8>], mark: impl Fn(&mut Batch)) -> usize {
    with_batch(frames, mark, |batch, picks| egress.deliver(batch, picks, &mut Scratch::new()))
}

/// Passes `frames` to `show` as one batch, with the indices of all frames. `mark` is as for [`deliver`].
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

/// Takes one batch from an ingress, and returns its frames as bytes.
pub(crate) fn taken(ingress: &mut dyn Ingress) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    // SAFETY: the batch is read before `release`, and ends here.
    unsafe { ingress.take(&mut batch) };
    let frames = bytes(&batch);
    batch.clear();
    ingress.release();
    frames
}

/// The frames of a batch as bytes.
pub(crate) fn bytes(batch: &Batch) -> Vec<Vec<u8>> {
    let frames = batch.iter().map(|f| {
        let mut bytes = vec![0; f.len()];
        f.copy_out(0, &mut bytes);
        bytes
    });
    frames.collect()
}

/// Number of slots of a [`ring`].
pub(crate) const SLOTS: u32 = 16;

fn bell() -> Doorbell {
    Doorbell::new().unwrap()
}

/// Creates a ring. Returns the egress that fills it, and the application's side that reads it.
pub(crate) fn ring() -> (RingEgress, AppRing) {
    let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: SLOTS, rx_slots: SLOTS };
    let mem = Arc::new(Region::private(RegionSizes::for_port(2, SLOTS, 256, 0, 0)).unwrap().port(shape).unwrap());
    let host = HostRx::new(mem.rx[0].clone(), bell());
    let receiver = AppRing::new(mem.rx[0].clone(), Dir::Rx, bell());
    (RingEgress::new(mem, host, 0, Arc::default()), receiver)
}

/// Takes all filled slots from the receiver, and returns their contents.
pub(crate) fn received(receiver: &mut AppRing) -> Vec<Vec<u8>> {
    receiver.sync();
    let slots = (0..receiver.space()).map(|k| receiver.slot(receiver.at(k)));
    let frames = slots.map(|slot| {
        let mut bytes = vec![0; usize::from(slot.len)];
        assert!(receiver.mem().read(slot.buf_idx, 0, &mut bytes));
        bytes
    });
    let frames = frames.collect();
    receiver.advance(receiver.space());
    receiver.sync();
    frames
}
