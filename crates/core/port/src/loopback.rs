//! An egress that returns its frames through an ingress.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use netvale_mem::drops::{DropReason, RingCounters};
use netvale_mem::notify::{self, Doorbell};
use netvale_wire::offload::Offload;

use crate::batch::{BATCH, Batch, FrameRef};
use crate::{Egress, Ingress, Scratch};

/// A frame in private memory. Its bytes stay in place when the `Vec` is moved.
struct LoopbackFrame {
    bytes: Vec<u8>,
    offload: Offload,
    no_learn: bool,
}

/// State shared by both ends, with which a delivery wakes the sleeping ingress.
struct LoopbackWake {
    need_kick: AtomicU32,
    doorbell: Doorbell,
}

/// The egress of a pair: frames delivered to it come out of the paired [`LoopbackIngress`].
pub struct LoopbackEgress {
    to: SyncSender<LoopbackFrame>,
    wake: Arc<LoopbackWake>,
    counters: Arc<RingCounters>,
}

/// The ingress of a pair: returns the frames delivered to the paired [`LoopbackEgress`], in order and with their
/// offloads.
pub struct LoopbackIngress {
    from: Receiver<LoopbackFrame>,
    /// The frames of the batch, from `take` to `release`.
    frames: Vec<LoopbackFrame>,
    next: Option<LoopbackFrame>,
    wake: Arc<LoopbackWake>,
    counters: Arc<RingCounters>,
}

/// Creates a pair that holds at most `capacity` frames; 0 counts as 1.
///
/// # Errors
/// The error of eventfd(2).
pub fn loopback(capacity: usize) -> std::io::Result<(LoopbackEgress, LoopbackIngress)> {
    let (to, from) = sync_channel(capacity.max(1));
    let wake = Arc::new(LoopbackWake { need_kick: AtomicU32::new(0), doorbell: Doorbell::new()? });
    let egress = LoopbackEgress { to, wake: Arc::clone(&wake), counters: Arc::default() };
    let ingress =
        LoopbackIngress { from, frames: Vec::with_capacity(BATCH), next: None, wake, counters: Arc::default() };
    Ok((egress, ingress))
}

fn copy(frame: &FrameRef<'_>) -> LoopbackFrame {
    let mut bytes = vec![0; frame.len()];
    frame.copy_out(0, &mut bytes);
    LoopbackFrame { bytes, offload: frame.offload(), no_learn: frame.no_learn() }
}

impl Egress for LoopbackEgress {
    fn deliver(&self, batch: &Batch, picks: &[u16], _scratch: &mut Scratch) -> usize {
        let mut frames = 0;
        let mut bytes = 0;
        let mut done = 0;
        for &pick in picks {
            if let Some(frame) = batch.get(pick.into()) {
                if self.to.try_send(copy(&frame)).is_err() {
                    break;
                }
                frames += 1;
                bytes += frame.len() as u64;
            }
            done += 1;
        }
        self.counters.passed(frames, bytes);
        if frames > 0 && notify::wanted(&self.wake.need_kick) {
            self.wake.doorbell.ring();
        }
        done
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

impl LoopbackIngress {
    fn look(&mut self) -> bool {
        self.next = self.next.take().or_else(|| self.from.try_recv().ok());
        self.next.is_some()
    }
}

impl Ingress for LoopbackIngress {
    // SAFETY: frames stay in `frames` until `release`.
    unsafe fn take(&mut self, batch: &mut Batch) {
        let mut frames = 0;
        let mut bytes = 0;
        while batch.room() > 0 && self.look() {
            let Some(frame) = self.next.take() else { break };
            let Ok(len) = u32::try_from(frame.bytes.len()) else {
                self.counters.dropped(DropReason::TooLong, 1);
                continue;
            };
            // SAFETY: `len` bytes of private memory on the heap, which stay in place when the Vec is moved to `frames`,
            // and are neither written nor freed before `release`.
            unsafe { batch.push(frame.bytes.as_ptr(), len) };
            batch.set_offload(frame.offload);
            if frame.no_learn {
                batch.set_no_learn();
            }
            frames += 1;
            bytes += u64::from(len);
            self.frames.push(frame);
        }
        self.counters.passed(frames, bytes);
    }

    fn release(&mut self) {
        self.frames.clear();
    }

    fn arm(&mut self) -> bool {
        notify::arm(&self.wake.need_kick);
        self.look()
    }

    fn disarm(&mut self) {
        notify::disarm(&self.wake.need_kick);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wake.doorbell.as_fd())
    }

    fn woken(&mut self) {
        self.wake.doorbell.drain();
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;
    use crate::tests::{bytes, deliver, taken};

    /// Objective: frames come out in order, with their offloads and no-learn flags; frames that do not fit are left to
    /// the caller.
    #[test]
    fn frames_come_out_in_order_with_their_marks() {
        let (egress, ingress) = loopback(3).unwrap();
        let mut source = Source::new(Box::new(ingress));
        let frames: Vec<Vec<u8>> = (1..=4u8).map(|i| vec![i; usize::from(i) * 20]).collect();
        let offload = Offload::CsumPartial { start: 14, offset: 2 };
        let marked = |batch: &mut Batch| {
            batch.set_offload(offload);
            batch.set_no_learn();
        };
        assert_eq!(deliver(&egress, &frames, marked), 3);
        let mut spare = Box::default();
        let batch = source.take(&mut spare);
        let last = batch.get(2).unwrap();
        assert_eq!((last.offload(), last.no_learn()), (offload, true));
        assert_eq!(batch.get(1).unwrap().offload(), Offload::None);
        source.release(&mut spare);
        assert_eq!((egress.counters().frames(), source.ingress().counters().bytes()), (3, 120));
        assert_eq!(deliver(&egress, &frames[3..], |_| {}), 1);
        assert_eq!(bytes(source.take(&mut spare)), frames[3..]);
    }

    /// Objective: a delivery wakes an armed ingress, and does not wake a disarmed one; arming reports frames that are
    /// already available.
    #[test]
    fn frames_wake_only_an_armed_sleeper() {
        let (egress, mut ingress) = loopback(8).unwrap();
        assert_eq!(deliver(&egress, &[vec![1; 60]], |_| {}), 1);
        assert!(!ingress.wake.doorbell.drain());
        assert!(ingress.arm());
        ingress.disarm();
        assert_eq!(taken(&mut ingress), [vec![1; 60]]);
        assert!(!ingress.arm());
        assert_eq!(deliver(&egress, &[vec![2; 60]], |_| {}), 1);
        assert!(ingress.wake.doorbell.drain());
        assert_eq!(taken(&mut ingress), [vec![2; 60]]);
    }
}
