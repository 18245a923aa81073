//! The driver's rings as a switch uses them. Frames to send are copied into buffers; received frames stay in their
//! buffers.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_mem::copy::copy_bytes;
use netvale_mem::fault::Fault;
use netvale_mem::lent::{Borrower, EntryError, InUse, Lent};
use netvale_mem::notify::Doorbell;
use netvale_port::batch::BATCH;
use netvale_port::soft::{FrameForm, PutResult, SegmentRoom};
use netvale_port::{Batch, DropReason, Egress, FrameRef, Ingress, RingCounters, Scratch};

use super::CardViolation;
use super::ram::BUF;
use super::rx::CardRxRing;
use super::tx::CardTxRing;
use crate::regs::ICR_LSC;

/// Minimum length of a frame on a wire in bytes, without CRC. The driver pads shorter frames, because an emulated card
/// that does not pad correctly would send bytes of an earlier frame.
const SHORTEST: usize = 60;

/// Both rings of a card; empty while no card runs.
#[derive(Default)]
pub struct CardRings {
    /// The transmit ring.
    pub tx: Lent<CardTxRing>,
    /// The receive ring.
    pub rx: Arc<Lent<CardRxRing>>,
}

impl CardRings {
    /// Installs the rings of a running card.
    ///
    /// # Errors
    /// [`InUse`] if a worker does not return an earlier ring in time.
    pub fn put(&self, tx: CardTxRing, rx: CardRxRing) -> Result<(), InUse> {
        self.tx.put(tx)?;
        self.rx.put(rx)
    }
}

/// The transmit ring, as the switch's egress.
pub struct DriverEgress {
    rings: Arc<CardRings>,
    fault: Fault,
    counters: Arc<RingCounters>,
}

impl DriverEgress {
    /// Creates the egress for the cards of a port.
    pub fn new(rings: Arc<CardRings>, fault: Fault) -> Self {
        DriverEgress { rings, fault, counters: Arc::default() }
    }

    fn deliver_to(
        &self,
        tx: &mut CardTxRing,
        batch: &Batch,
        picks: &[u16],
        scratch: &mut Scratch,
    ) -> Result<usize, CardViolation> {
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
    fn send(&self, tx: &mut CardTxRing, frame: &FrameRef<'_>, scratch: &mut Scratch) -> PutResult {
        if FrameForm::of(frame, false) == FrameForm::AsIs {
            // SAFETY: `put` passes `n` bytes of room in one of our buffers.
            return put(tx, frame.len(), |to, n| unsafe { frame.copy_out_raw(0, to, n) });
        }
        let room = SegmentRoom { free: tx.free() as usize, all: tx.size() as usize, bytes: BUF, lead: 0 };
        scratch.soften_into(frame, &self.counters, &room, |bytes| {
            put(tx, bytes.len(), |to, n| {
                let n = bytes.len().min(n);
                // SAFETY: `put` passes `n` bytes of one of our buffers; `bytes` is private and has at least `n` bytes.
                unsafe { copy_bytes(bytes.as_ptr(), to, n) };
                n
            })
        })
    }
}

#[inline]
fn put(tx: &mut CardTxRing, len: usize, fill: impl FnOnce(*mut u8, usize) -> usize) -> PutResult {
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

/// The receive ring, as the switch's ingress.
pub struct DriverIngress {
    /// Borrows the ring while its frames are in a batch.
    rx: Borrower<CardRxRing>,
    rings: Arc<CardRings>,
    fault: Fault,
    /// Doorbell that the card rings.
    call: Doorbell,
    /// Doorbell that the ingress rings when the link changes.
    link: Arc<Doorbell>,
    counters: Arc<RingCounters>,
}

impl DriverIngress {
    /// Creates the ingress for the cards of a port. The card rings `call`; the ingress rings `link` when the link
    /// changes.
    pub fn new(rings: Arc<CardRings>, fault: Fault, call: Doorbell, link: Arc<Doorbell>) -> Self {
        DriverIngress { rx: Borrower::new(Arc::clone(&rings.rx)), rings, fault, call, link, counters: Arc::default() }
    }

    /// Publishes packets that Send Combining holds back. The receive queue's worker calls this after each interrupt.
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

/// Adds received frames to the batch. `taken` counts the frames taken from the ring, including dropped frames.
fn fill(
    rx: &mut CardRxRing,
    batch: &mut Batch,
    taken: &mut usize,
    counters: &RingCounters,
) -> Result<(), CardViolation> {
    while batch.has_room_for_frags() && *taken < BATCH {
        let Some(frame) = rx.take()? else { break };
        *taken += 1;
        if !frame.is_whole {
            counters.dropped(DropReason::TooLong, 1);
        } else if frame.len > 0 {
            // SAFETY: one of our buffers, which is not returned to the card before `release`.
            unsafe { batch.push(frame.at, frame.len) };
        }
    }
    Ok(())
}

impl Ingress for DriverIngress {
    // SAFETY: frames are in the driver's buffers, which live while this thread borrows the ring: until `release`.
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
        self.rx.visit(|rx| !rx.is_broken && rx.arm()).unwrap_or_else(EntryError::is_busy)
    }

    fn disarm(&mut self) {
        // An absent ring counts as disarmed.
        let _ = self.rx.visit(CardRxRing::disarm);
    }

    fn is_wanted(&self) -> bool {
        self.rx.is_wanted()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.call.as_fd())
    }

    fn woken(&mut self) {
        self.call.drain();
        let causes = self.rx.visit(CardRxRing::interrupted).unwrap_or(0);
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
