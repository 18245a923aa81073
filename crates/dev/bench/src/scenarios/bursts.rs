//! Sends and receives frames at the queues of ports: one frame is sent repeatedly in bursts, and the frames that arrive
//! at the other end are taken.
#![allow(unsafe_code)]

use netvale_port::{BATCH, Batch, Egress, Ingress, Scratch, Source};

use super::*;

/// A burst of one frame, to be sent repeatedly, with the scratch memory for sending.
pub struct Burst {
    batch: Batch,
    picks: Vec<u16>,
    scratch: Scratch,
}

impl Burst {
    /// Creates a burst of `count` copies of a frame of `len` bytes from one station to another.
    pub fn new(to: u16, from: u16, len: u32, count: usize) -> Burst {
        let bytes = frame(to, from, len).leak();
        let mut batch = Batch::new();
        for _ in 0..count {
            // SAFETY: the bytes are leaked, so they outlive the batch.
            unsafe { batch.push(bytes.as_ptr(), len) };
        }
        Burst { batch, picks: (0..BATCH as u16).collect(), scratch: Scratch::new() }
    }

    /// Sends the burst.
    pub fn send(&mut self, egress: &(impl Egress + ?Sized)) {
        let count = self.batch.len();
        egress.deliver(&self.batch, &self.picks[..count], &mut self.scratch);
    }

    /// Sends `frames` instead of the burst.
    pub fn pass_on(&mut self, egress: &(impl Egress + ?Sized), frames: &Batch) {
        egress.deliver(frames, &self.picks[..frames.len()], &mut self.scratch);
    }
}

/// The receiving end: takes the frames that arrive at a queue.
pub struct Outlet {
    source: Source,
    spare: Box<Batch>,
}

impl Outlet {
    /// Creates an outlet that takes frames from the queue `ingress`.
    pub fn new(ingress: Box<dyn Ingress>) -> Outlet {
        Outlet { source: Source::new(ingress), spare: Box::default() }
    }

    /// Takes the available frames. Returns their number.
    pub fn take(&mut self) -> usize {
        self.take_with(|frames| frames.len())
    }

    /// Takes the available frames, passes them to `work`, and releases them.
    pub fn take_with<T>(&mut self, work: impl FnOnce(&Batch) -> T) -> T {
        let done = work(self.source.take(&mut self.spare));
        self.source.release(&mut self.spare);
        done
    }
}
