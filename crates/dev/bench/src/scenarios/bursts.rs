//! Frames at queues of ports: one sent again and again in bursts, and what is taken at the other end.
#![allow(unsafe_code)]

use netvale_port::{BATCH, Batch, Egress, Ingress, Scratch, Source};

use super::*;

/// A burst of one frame, to be sent again and again, and what sending takes.
pub struct Burst {
    batch: Batch,
    picks: Vec<u16>,
    scratch: Scratch,
}

impl Burst {
    /// That many times a frame of `len` bytes between two stations.
    pub fn new(to: u16, from: u16, len: u32, count: usize) -> Burst {
        let bytes = frame(to, from, len).leak();
        let mut batch = Batch::new();
        for _ in 0..count {
            // SAFETY: leaked, so it outlives the batch.
            unsafe { batch.push(bytes.as_ptr(), len) };
        }
        Burst { batch, picks: (0..BATCH as u16).collect(), scratch: Scratch::new() }
    }

    /// Sends it.
    pub fn send(&mut self, egress: &(impl Egress + ?Sized)) {
        let count = self.batch.len();
        egress.deliver(&self.batch, &self.picks[..count], &mut self.scratch);
    }

    /// Sends other frames.
    pub fn pass_on(&mut self, egress: &(impl Egress + ?Sized), frames: &Batch) {
        egress.deliver(frames, &self.picks[..frames.len()], &mut self.scratch);
    }
}

/// Where frames come out.
pub struct Outlet {
    source: Source,
    spare: Box<Batch>,
}

impl Outlet {
    /// Takes from that queue.
    pub fn new(ingress: Box<dyn Ingress>) -> Outlet {
        Outlet { source: Source::new(ingress), spare: Box::default() }
    }

    /// Takes what is there. Returns how many frames that was.
    pub fn take(&mut self) -> usize {
        self.take_with(|frames| frames.len())
    }

    /// Takes what is there, does something with it, and gives it back.
    pub fn take_with<T>(&mut self, work: impl FnOnce(&Batch) -> T) -> T {
        let done = work(self.source.take(&mut self.spare));
        self.source.release(&mut self.spare);
        done
    }
}
