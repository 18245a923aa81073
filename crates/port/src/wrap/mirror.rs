//! A second egress that gets a copy of the passing frames.
//!
//! The copy is best effort: frames that find no room there are dropped and counted there, and never hold the first
//! egress back. With a capture file as the second egress, this is a tracer.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use netvale_mem::drops::{DropReason, RingCounters};

use crate::batch::{BATCH, Batch};
use crate::egress::Room;
use crate::{Egress, Ingress, Scratch};

/// Delivers `picks` to `copy`; frames that do not fit are dropped there.
fn copy_to(copy: &dyn Egress, batch: &Batch, picks: &[u16], scratch: &mut Scratch) {
    if !picks.is_empty() {
        let done = copy.deliver(batch, picks, scratch);
        copy.counters().dropped(DropReason::NoRoom, picks.len().saturating_sub(done) as u64);
    }
}

/// An egress that copies to another egress the frames it is done with, also those it dropped for reasons of its own.
pub struct MirrorEgress<E> {
    inner: E,
    copy: Arc<dyn Egress>,
}

impl<E: Egress> MirrorEgress<E> {
    /// Wraps `inner`; `copy` gets what `inner` accepts.
    pub fn new(inner: E, copy: Arc<dyn Egress>) -> Self {
        MirrorEgress { inner, copy }
    }
}

impl<E: Egress> Egress for MirrorEgress<E> {
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let done = self.inner.deliver(batch, picks, scratch);
        copy_to(self.copy.as_ref(), batch, picks.get(..done).unwrap_or(picks), scratch);
        done
    }

    fn room(&self) -> Option<&dyn Room> {
        self.inner.room()
    }

    fn counters(&self) -> &Arc<RingCounters> {
        self.inner.counters()
    }
}

/// An ingress that copies its frames to an egress.
pub struct MirrorIngress<I> {
    inner: I,
    copy: Arc<dyn Egress>,
    picks: Vec<u16>,
    scratch: Scratch,
}

impl<I: Ingress> MirrorIngress<I> {
    /// Wraps `inner`; `copy` gets what `inner` takes.
    pub fn new(inner: I, copy: Arc<dyn Egress>) -> Self {
        MirrorIngress { inner, copy, picks: Vec::with_capacity(BATCH), scratch: Scratch::new() }
    }
}

impl<I: Ingress> Ingress for MirrorIngress<I> {
    // SAFETY: frames lie where the inner ingress keeps them, which is released and dropped with this one only.
    unsafe fn take(&mut self, batch: &mut Batch) {
        let before = batch.len();
        // SAFETY: the caller's contract; here they are read immediately.
        unsafe { self.inner.take(batch) };
        self.picks.clear();
        self.picks.extend((before..batch.len()).map(|i| i as u16));
        copy_to(self.copy.as_ref(), batch, &self.picks, &mut self.scratch);
    }

    fn release(&mut self) {
        self.inner.release();
    }

    fn is_wanted(&self) -> bool {
        self.inner.is_wanted()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wake_fd()
    }

    fn woken(&mut self) {
        self.inner.woken();
    }

    fn is_cheap(&self) -> bool {
        self.inner.is_cheap()
    }

    fn counters(&self) -> &Arc<RingCounters> {
        self.inner.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrap::loopback;
    use crate::wrap::tests::{deliver, taken};

    /// Objective: the copy gets exactly the frames the first egress is done with; a full copy counts drops and holds
    /// nothing back.
    #[test]
    fn copies() {
        let frames: Vec<Vec<u8>> = (0..4u8).map(|i| vec![i; 60]).collect();
        let (first, mut out) = loopback(3).unwrap();
        let (copy, mut seen) = loopback(8).unwrap();
        let mirror = MirrorEgress::new(first, Arc::new(copy));
        assert_eq!(deliver(&mirror, &frames, |_| {}), 3);
        assert_eq!(taken(&mut out), frames[..3]);
        assert_eq!(taken(&mut seen), frames[..3]);

        let (full, mut seen) = loopback(2).unwrap();
        let (send, ingress) = loopback(8).unwrap();
        let full: Arc<dyn Egress> = Arc::new(full);
        let mut mirror = MirrorIngress::new(ingress, Arc::clone(&full));
        assert_eq!(deliver(&send, &frames, |_| {}), 4);
        assert_eq!(taken(&mut mirror), frames);
        assert_eq!(taken(&mut seen), frames[..2]);
        assert_eq!(full.counters().drops(DropReason::NoRoom), 2);
    }
}
