//! The egress to the host's stack: one write per frame, directly from the frame's buffers.
#![allow(unsafe_code)]

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_port::batch::{Batch, MAX_FRAGS};
use netvale_port::pace::QueuePace;
use netvale_port::{DropReason, Egress, FrameRef, RingCounters, Scratch, soft};
use rustix::io::Errno;

use crate::link::TapLink;

/// Maximum length of a frame in bytes: a 64 KiB packet after an Ethernet header with a VLAN tag.
const LONGEST: usize = 65_535 + 18;

/// One queue of a TAP as an egress. Concurrent writes of several workers are safe.
pub struct TapEgress {
    queue: Arc<OwnedFd>,
    counters: Arc<RingCounters>,
    link: TapLink,
    pace: QueuePace,
}

/// The result of writing a frame.
enum TapWriteResult {
    Yes,
    No(DropReason),
    Full,
}

impl TapEgress {
    /// Creates the egress of `queue`.
    pub fn new(queue: Arc<OwnedFd>, counters: Arc<RingCounters>) -> Self {
        TapEgress { queue, counters, link: TapLink::default(), pace: QueuePace::default() }
    }

    /// Sets the link, which records what the results of calls on the queue show about the interface.
    pub fn behind(self, link: TapLink) -> Self {
        TapEgress { link, ..self }
    }

    fn write(&self, frame: &FrameRef<'_>) -> TapWriteResult {
        if frame.len() > LONGEST {
            return TapWriteResult::No(DropReason::TooLong);
        }
        let header = soft::header_bytes(&frame.offload());
        let empty: &[u8] = &[];
        let mut iov = [IoSlice::new(empty); 1 + MAX_FRAGS];
        let used = 1 + frame.pieces().min(MAX_FRAGS);
        for (k, place) in iov.iter_mut().take(used).enumerate() {
            *place = match k.checked_sub(1) {
                None => IoSlice::new(&header),
                Some(i) => {
                    let (ptr, len) = frame.piece(i).raw();
                    // SAFETY: `ptr` is readable for `len` bytes until the batch is cleared (the contract of
                    // `Batch::push`), and the batch outlives this call. This process never reads the slice, which only
                    // carries address and length to writev; writev copies the bytes.
                    IoSlice::new(unsafe { std::slice::from_raw_parts(ptr, len) })
                }
            };
        }
        match self.link.call(|| rustix::io::writev(&*self.queue, &iov[..used])) {
            Ok(_) => TapWriteResult::Yes,
            Err(Errno::AGAIN | Errno::NOBUFS) => TapWriteResult::Full,
            // The interface is down.
            Err(Errno::IO) => TapWriteResult::No(DropReason::Idle),
            Err(_) => TapWriteResult::No(DropReason::Device),
        }
    }
}

impl Egress for TapEgress {
    fn deliver(&self, batch: &Batch, picks: &[u16], _scratch: &mut Scratch) -> usize {
        let mut frames = 0;
        let mut bytes = 0;
        let mut done = 0;
        let mut meter = self.pace.begin(picks.len());
        for &pick in picks {
            if !meter.goes_on() {
                self.counters.dropped(DropReason::Device, (picks.len() - done) as u64);
                done = picks.len();
                break;
            }
            if let Some(frame) = batch.get(usize::from(pick)) {
                match self.write(&frame) {
                    TapWriteResult::Yes => {
                        frames += 1;
                        bytes += frame.len() as u64;
                    }
                    TapWriteResult::No(why) => self.counters.dropped(why, 1),
                    TapWriteResult::Full => break,
                }
            }
            done += 1;
        }
        meter.end();
        self.counters.passed(frames, bytes);
        done
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}
