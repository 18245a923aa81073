//! Sends frames through an egress.
#![allow(unsafe_code)]

use netvale_port::{Batch, Egress, Scratch};

/// Delivers a frame `count` times, at most a batch. Returns the number of copies for which there was room.
pub fn deliver(egress: &dyn Egress, frame: &[u8], count: u16, scratch: &mut Scratch) -> usize {
    let mut batch = Batch::new();
    for _ in 0..count {
        // SAFETY: the batch ends with this function; the frame outlives it.
        unsafe { batch.push(frame.as_ptr(), frame.len() as u32) };
    }
    let picks: Vec<u16> = (0..batch.len() as u16).collect();
    egress.deliver(&batch, &picks, scratch)
}
