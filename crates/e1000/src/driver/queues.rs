//! The driver's rings as a switch sees them. Sent frames are copied into buffers; received ones stay in theirs.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_mem::copy::copy_bytes;
use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_port::batch::BATCH;
use netvale_port::slot::Slot;
use netvale_port::soft::{Form, Put};
use netvale_port::{Batch, DropReason, Egress, FrameRef, Ingress, RingCounters, Scratch};

use super::BadCard;
use super::ram::BUF;
use super::rx::RxRing;
use super::tx::TxRing;
use crate::regs::ICR_LSC;

/// Shortest frame on a wire, without CRC. A card may pad, but an emulated one that does not would send our buffer's last frame.
const SHORTEST: usize = 60;

/// Both rings' places, filled while the card runs.
#[derive(Default)]
pub struct Rings {
    /// What is sent.
    pub tx: Slot<TxRing>,
    /// What is received.
    pub rx: Slot<RxRing>,
}

/// What is sent.
pub struct DriverEgress {
    rings: Arc<Rings>,
    fault: Fault,
    counters: Arc<RingCounters>,
}

impl DriverEgress {
    /// Of those rings.
    pub fn new(rings: Arc<Rings>, fault: Fault) -> Self {
        DriverEgress { rings, fault, counters: Arc::default() }
    }

    fn deliver_to(
        &self,
        tx: &mut TxRing,
        batch: &Batch,
        picks: &[u16],
        scratch: &mut Scratch,
    ) -> Result<usize, BadCard> {
        let (mut frames, mut bytes, mut done) = (0, 0, 0);
        if (tx.free() as usize) < picks.len() {
            tx.reclaim()?;
        }
        for &pick in picks {
            let Some(frame) = batch.get(usize::from(pick)) else { continue };
            match self.send(tx, &frame, scratch) {
                Put::Done => (frames, bytes) = (frames + 1, bytes + frame.len() as u64),
                Put::TooLong => self.counters.dropped(DropReason::TooLong, 1),
                Put::Full => break,
            }
            done += 1;
        }
        tx.publish();
        self.counters.passed(frames, bytes);
        Ok(done)
    }

    #[inline]
    fn send(&self, tx: &mut TxRing, frame: &FrameRef<'_>, scratch: &mut Scratch) -> Put {
        if Form::of(frame, false) == Form::AsIs {
            // SAFETY: `put` hands out that much room in a buffer of ours.
            return put(tx, frame.len(), |to, n| unsafe { frame.copy_out_raw(0, to, n) });
        }
        scratch.soften_into(frame, &self.counters, |bytes| {
            put(tx, bytes.len(), |to, n| {
                let n = bytes.len().min(n);
                // SAFETY: as above; `bytes` is private.
                unsafe { copy_bytes(bytes.as_ptr(), to, n) };
                n
            })
        })
    }
}

#[inline]
fn put(tx: &mut TxRing, len: usize, fill: impl FnOnce(*mut u8, usize) -> usize) -> Put {
    if len > BUF {
        return Put::TooLong;
    }
    let Some(to) = tx.buffer() else { return Put::Full };
    let filled = fill(to, len);
    let padded = filled.max(SHORTEST);
    // SAFETY: a buffer of ours, which is longer than the shortest frame.
    unsafe { to.add(filled).write_bytes(0, padded - filled) };
    tx.push(padded);
    Put::Done
}

impl Egress for DriverEgress {
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let mut inside = self.rings.tx.enter();
        let Some(tx) = inside.as_mut() else {
            self.counters.dropped(DropReason::NotReady, picks.len() as u64);
            return picks.len();
        };
        self.deliver_to(tx, batch, picks, scratch).unwrap_or_else(|why| {
            self.fault.report(why);
            *inside = None;
            picks.len()
        })
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

/// What is received.
pub struct DriverIngress {
    rings: Arc<Rings>,
    fault: Fault,
    /// Rung by the card.
    call: Doorbell,
    /// Rung when the link changes.
    link: Arc<Doorbell>,
    /// Frames of the batch. While there are any, this thread is inside the ring's slot.
    taken: bool,
    counters: Arc<RingCounters>,
}

impl DriverIngress {
    /// `call` is what the card rings; `link` is rung when it says that its link changed.
    pub fn new(rings: Arc<Rings>, fault: Fault, call: Doorbell, link: Arc<Doorbell>) -> Self {
        DriverIngress { rings, fault, call, link, taken: false, counters: Arc::default() }
    }

    fn fill(&mut self, rx: &mut RxRing, batch: &mut Batch) -> Result<(), BadCard> {
        let mut looked = 0;
        while batch.has_room_for_frags() && looked < BATCH {
            let Some(frame) = rx.take()? else { break };
            (self.taken, looked) = (true, looked + 1);
            if !frame.is_whole {
                self.counters.dropped(DropReason::TooLong, 1);
            } else if frame.len > 0 {
                // SAFETY: a buffer of ours, which stays ours until `release`.
                unsafe { batch.push(frame.at, frame.len) };
            }
        }
        Ok(())
    }

    /// Packets that wait for others to be sent are looked after by who is awake.
    fn send_more(&self) {
        if let Some(tx) = self.rings.tx.enter().as_mut() {
            match tx.reclaim() {
                Ok(()) => tx.publish(),
                Err(why) => self.fault.report(why),
            }
        }
    }
}

impl Ingress for DriverIngress {
    fn take(&mut self, batch: &mut Batch) {
        if self.taken || !self.rings.rx.try_enter() {
            return;
        }
        let rings = Arc::clone(&self.rings);
        let before = (batch.len(), batch.bytes());
        // SAFETY: inside since `try_enter`; the reference ends before `leave`, here or in `release`.
        if let Some(rx) = unsafe { rings.rx.get() }
            && let Err(why) = self.fill(rx, batch)
        {
            self.fault.report(why);
        }
        self.counters.passed((batch.len() - before.0) as u64, batch.bytes() - before.1);
        if !self.taken {
            // SAFETY: inside since above.
            unsafe { rings.rx.leave() };
        } else if batch.is_empty() {
            self.release();
        }
    }

    fn release(&mut self) {
        if !std::mem::take(&mut self.taken) {
            return;
        }
        // SAFETY: inside since `take`; the reference is gone before `leave`.
        unsafe {
            self.rings.rx.get().into_iter().for_each(RxRing::give_back);
            self.rings.rx.leave();
        }
    }

    fn arm(&mut self) -> bool {
        self.taken || self.rings.rx.enter().as_mut().is_some_and(RxRing::arm)
    }

    fn disarm(&mut self) {
        if !self.taken {
            self.rings.rx.enter().as_mut().into_iter().for_each(RxRing::disarm);
        }
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.call.as_fd())
    }

    fn woken(&mut self) {
        self.call.drain();
        let causes = if self.taken { 0 } else { self.rings.rx.enter().as_mut().map_or(0, RxRing::interrupted) };
        if causes & ICR_LSC != 0 {
            self.link.ring();
        }
        self.send_more();
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

impl Drop for DriverIngress {
    fn drop(&mut self) {
        self.release();
    }
}
