//! The ingress from the host's stack: one read per frame, into private buffers.
#![allow(unsafe_code)]

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_port::batch::Batch;
use netvale_port::{DropReason, Ingress, MAX_FRAME, RingCounters, soft};

use crate::device::HDR_LEN;
use crate::link::TapLink;

/// Maximum number of frames per call of `take`: more large frames would overflow the second-level cache and delay other
/// ingresses.
const READS: usize = 32;

/// One queue of a TAP as an ingress.
pub struct TapIngress {
    queue: Arc<OwnedFd>,
    /// Buffers of [`MAX_FRAME`] bytes for the frames between `take` and `release`; never moved, written only in `take`.
    /// One block, so large that the allocator takes it from the kernel: pages that no frame has used take no memory.
    frames: Box<[u8]>,
    counters: Arc<RingCounters>,
    link: TapLink,
    taken: bool,
}

impl TapIngress {
    /// Creates the ingress of `queue`. `link` records what the results of calls on the queue show about the interface.
    pub fn new(queue: Arc<OwnedFd>, link: TapLink) -> Self {
        let frames = vec![0; READS * MAX_FRAME].into_boxed_slice();
        TapIngress { queue, frames, counters: Arc::default(), link, taken: false }
    }
}

impl Ingress for TapIngress {
    // SAFETY: frames are in `frames`, written only here.
    unsafe fn take(&mut self, batch: &mut Batch) {
        debug_assert!(!self.taken);
        let mut bytes = 0;
        let before = batch.len();
        for frame in self.frames.chunks_exact_mut(MAX_FRAME) {
            let mut header = [0u8; HDR_LEN];
            let mut iov = [IoSliceMut::new(&mut header), IoSliceMut::new(frame)];
            let Ok(got) = self.link.call(|| rustix::io::readv(&*self.queue, &mut iov)) else { break };
            let Some(len) = got.checked_sub(HDR_LEN) else { break };
            // SAFETY: `frame` is a part of MAX_FRAME >= len bytes of a heap block owned by self; the block is neither
            // moved nor written again before the next `take`.
            if !unsafe { batch.push(frame.as_ptr(), len as u32) } {
                break;
            }
            let offload = soft::parse_header(&header).map(|h| soft::set_offload(batch, &h));
            if offload != Some(Ok(())) {
                self.counters.dropped(DropReason::BadVnetHeader, 1);
                continue;
            }
            bytes += len as u64;
        }
        self.taken = !batch.is_empty();
        self.counters.passed((batch.len() - before) as u64, bytes);
    }

    fn release(&mut self) {
        self.taken = false;
    }

    fn arm(&mut self) -> bool {
        // The queue itself wakes the worker, level-triggered.
        false
    }

    fn disarm(&mut self) {}

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.as_fd())
    }

    fn is_cheap(&self) -> bool {
        false
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}
