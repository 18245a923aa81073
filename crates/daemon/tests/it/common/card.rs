//! Frames of a simulated guest with an e1000.
#![allow(unsafe_code)]

use netvale_e1000::driver::remote::SimulatedGuest;
use netvale_port::{Batch, Egress, FrameRef, Ingress, Scratch};

use crate::common::until;

pub fn send_from(guest: &SimulatedGuest, frame: &[u8]) {
    let mut batch = Batch::new();
    // SAFETY: the frame exists longer than the batch.
    unsafe { batch.push(frame.as_ptr(), frame.len() as u32) };
    until("there is room", || guest.egress.deliver(&batch, &[0], &mut Scratch::new()) == 1);
}

/// Takes and returns the frames that the guest has received.
pub fn frames_at(guest: &mut SimulatedGuest) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    // SAFETY: the batch is not used after `release`.
    unsafe { guest.ingress.take(&mut batch) };
    let copy = |one: FrameRef<'_>| {
        let mut frame = vec![0; one.len()];
        one.copy_out(0, &mut frame);
        frame
    };
    let frames = batch.iter().map(copy).collect();
    batch.clear();
    guest.ingress.release();
    frames
}
