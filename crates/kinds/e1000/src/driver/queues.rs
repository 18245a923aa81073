//! The driver's rings as a switch uses them. Sent frames are copied into buffers; received ones stay in theirs.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_mem::copy::copy_bytes;
use netvale_mem::fault::Fault;
use netvale_mem::lent::{Away, Borrower, InUse, Lent};
use netvale_mem::notify::Doorbell;
use netvale_port::batch::BATCH;
use netvale_port::soft::{Form, PutResult, Room};
use netvale_port::{Batch, DropReason, Egress, FrameRef, Ingress, RingCounters, Scratch};

use super::DeviceViolation;
use super::ram::BUF;
use super::rx::RxRing;
use super::tx::TxRing;
use crate::regs::ICR_LSC;

/// Shortest frame on a wire, without CRC. A card may pad; an emulated one that does not would send bytes of an earlier
/// frame.
const SHORTEST: usize = 60;

/// Both rings, while the card runs.
#[derive(Default)]
pub struct Rings {
    /// The transmit ring.
    pub tx: Lent<TxRing>,
    /// The receive ring.
    pub rx: Arc<Lent<RxRing>>,
}

impl Rings {
    /// Lends the rings of a running card.
    ///
    /// # Errors
    /// [`InUse`] if workers stay inside a ring for too long.
    pub fn put(&self, tx: TxRing, rx: RxRing) -> Result<(), InUse> {
        self.tx.put(tx)?;
        self.rx.put(rx)
    }
}

/// The transmit ring as an egress.
pub struct DriverEgress {
    rings: Arc<Rings>,
    fault: Fault,
    counters: Arc<RingCounters>,
}

impl DriverEgress {
    /// Creates the egress of a running card.
    pub fn new(rings: Arc<Rings>, fault: Fault) -> Self {
        DriverEgress { rings, fault, counters: Arc::default() }
    }

    fn deliver_to(
        &self,
        tx: &mut TxRing,
        batch: &Batch,
        picks: &[u16],
        scratch: &mut Scratch,
    ) -> Result<usize, DeviceViolation> {
        let mut frames = 0;
        let mut bytes = 0;
        let mut done = 0;
        if (tx.free() as usize) < picks.len() {
            tx.reclaim()?;
        }
        for &pick in picks {
            let Some(frame) = batch.get(usize::from(pick)) else { continue };
            match self.send(tx, &frame, scratch) {
                PutResult::Done => {
                    frames += 1;
                    bytes += frame.len() as u64;
                }
                PutResult::TooLong => self.counters.dropped(DropReason::TooLong, 1),
                PutResult::Full => break,
            }
            done += 1;
        }
        tx.publish();
        self.counters.passed(frames, bytes);
        Ok(done)
    }

    #[inline]
    fn send(&self, tx: &mut TxRing, frame: &FrameRef<'_>, scratch: &mut Scratch) -> PutResult {
        if Form::of(frame, false) == Form::AsIs {
            // SAFETY: `put` passes that much room in one of our buffers.
            return put(tx, frame.len(), |to, n| unsafe { frame.copy_out_raw(0, to, n) });
        }
        let room = Room { free: tx.free() as usize, all: tx.size() as usize, bytes: BUF, lead: 0 };
        scratch.soften_into(frame, &self.counters, &room, |bytes| {
            put(tx, bytes.len(), |to, n| {
                let n = bytes.len().min(n);
                // SAFETY: `put` passes `n` bytes of one of our buffers; `bytes` is private and has at least `n`.
                unsafe { copy_bytes(bytes.as_ptr(), to, n) };
                n
            })
        })
    }
}

#[inline]
fn put(tx: &mut TxRing, len: usize, fill: impl FnOnce(*mut u8, usize) -> usize) -> PutResult {
    if len > BUF {
        return PutResult::TooLong;
    }
    let Some(to) = tx.buffer() else { return PutResult::Full };
    let filled = fill(to, len);
    let padded = filled.max(SHORTEST);
    // SAFETY: one of our buffers; it is longer than the shortest frame.
    unsafe { to.add(filled).write_bytes(0, padded - filled) };
    tx.push(padded);
    PutResult::Done
}

impl Egress for DriverEgress {
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let Some(mut tx) = self.rings.tx.enter().ok().filter(|tx| !tx.is_broken) else {
            self.counters.dropped(DropReason::Idle, picks.len() as u64);
            return picks.len();
        };
        self.deliver_to(&mut tx, batch, picks, scratch).unwrap_or_else(|why| {
            tx.is_broken = true;
            self.fault.report(why);
            picks.len()
        })
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

/// The receive ring as an ingress.
pub struct DriverIngress {
    /// Inside the ring while its frames are in a batch.
    rx: Borrower<RxRing>,
    rings: Arc<Rings>,
    fault: Fault,
    /// Rung by the card.
    call: Doorbell,
    /// Rung when the link changes.
    link: Arc<Doorbell>,
    counters: Arc<RingCounters>,
}

impl DriverIngress {
    /// Creates the ingress of a running card. The card rings `call`; the ingress rings `link` when the link changes.
    pub fn new(rings: Arc<Rings>, fault: Fault, call: Doorbell, link: Arc<Doorbell>) -> Self {
        DriverIngress { rx: Borrower::new(Arc::clone(&rings.rx)), rings, fault, call, link, counters: Arc::default() }
    }

    /// Sends packets held back by Send Combining; whichever worker is awake does this.
    fn send_more(&self) {
        let Some(mut tx) = self.rings.tx.enter().ok().filter(|tx| !tx.is_broken) else { return };
        match tx.reclaim() {
            Ok(()) => tx.publish(),
            Err(why) => {
                tx.is_broken = true;
                self.fault.report(why);
            }
        }
    }
}

/// Takes received frames; `taken` counts them, dropped ones included.
fn fill(rx: &mut RxRing, batch: &mut Batch, taken: &mut usize, counters: &RingCounters) -> Result<(), DeviceViolation> {
    while batch.has_room_for_frags() && *taken < BATCH {
        let Some(frame) = rx.take()? else { break };
        *taken += 1;
        if !frame.is_whole {
            counters.dropped(DropReason::TooLong, 1);
        } else if frame.len > 0 {
            // SAFETY: one of our buffers, which stays ours until `release`.
            unsafe { batch.push(frame.at, frame.len) };
        }
    }
    Ok(())
}

impl Ingress for DriverIngress {
    // SAFETY: frames lie in the driver's buffers, which live while this thread is inside: until `release`.
    unsafe fn take(&mut self, batch: &mut Batch) {
        let Ok(rx) = self.rx.enter() else { return };
        let before = (batch.len(), batch.bytes());
        let mut taken = 0;
        if !rx.is_broken
            && let Err(why) = fill(rx, batch, &mut taken, &self.counters)
        {
            rx.is_broken = true;
            self.fault.report(why);
        }
        self.counters.passed((batch.len() - before.0) as u64, batch.bytes() - before.1);
        if taken == 0 {
            self.rx.leave();
        } else if batch.is_empty() {
            self.release();
        }
    }

    fn release(&mut self) {
        if let Some(rx) = self.rx.content() {
            rx.give_back();
            self.rx.leave();
        }
    }

    fn arm(&mut self) -> bool {
        self.rx.visit(|rx| !rx.is_broken && rx.arm()).unwrap_or_else(Away::is_busy)
    }

    fn disarm(&mut self) {
        // An absent ring counts as disarmed.
        let _ = self.rx.visit(RxRing::disarm);
    }

    fn is_wanted(&self) -> bool {
        self.rx.is_wanted()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.call.as_fd())
    }

    fn woken(&mut self) {
        self.call.drain();
        let causes = self.rx.visit(RxRing::interrupted).unwrap_or(0);
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
