//! What the device sends us: the receive queue as an ingress. Frames stay in the buffers they came in.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_mem::copy::{peek, prefetch_read};
use netvale_mem::lent::{Away, Borrower, Lent};
use netvale_port::batch::{BATCH, Batch, MAX_FRAGS};
use netvale_port::wake::WakeSet;
use netvale_port::{DropReason, Ingress, MAX_FRAME, RingCounters, soft};

use super::frontend::Started;
use super::ram::BUF;
use super::{BadDevice, RUN, Used};
use crate::net::ingress::read_header;

/// Buffers that are posted together: the line with the index is fetched once for all of them.
const REFILL: usize = 64;

/// The receive queue.
pub struct VirtioIngress {
    /// At the queue while it has buffers of a batch.
    queue: Borrower<Started>,
    intake: Intake,
    /// Wakes the worker when the device rings.
    wake: Arc<WakeSet>,
}

/// What it does with the queue while it is there.
struct Intake {
    /// Buffers of the batch taken last.
    taken: Vec<u16>,
    counters: Arc<RingCounters>,
}

impl VirtioIngress {
    /// `wake` holds what the device rings.
    pub fn new(queue: Arc<Lent<Started>>, wake: Arc<WakeSet>, counters: Arc<RingCounters>) -> Self {
        let intake = Intake { taken: Vec::with_capacity(2 * BATCH), counters };
        VirtioIngress { queue: Borrower::new(queue), intake, wake }
    }
}

impl Intake {
    fn look(&mut self, s: &mut Started, batch: &mut Batch) {
        if s.broken {
            return;
        }
        if s.queue.free() == usize::from(s.ram.size()) {
            // A device that just started.
            refill(s);
        }
        if let Err(why) = self.fill(s, batch) {
            s.report(why);
        }
    }

    fn fill(&mut self, s: &mut Started, batch: &mut Batch) -> Result<(), BadDevice> {
        while batch.has_room_for_frags() && self.taken.len() < BATCH {
            let mut run = [Used::default(); RUN];
            let most = RUN.min(BATCH - self.taken.len()).min(batch.room());
            let got = s.queue.used_run(&mut run[..most])?;
            for used in &run[..got] {
                prefetch_read(s.ram.buf(used.id).as_ptr().wrapping_add(s.framing.hdr_len));
            }
            let mut rest = run[..got].iter().copied();
            while let Some(used) = rest.next() {
                self.taken.push(used.id);
                if s.framing.bare {
                    push_bare(s, used, batch)?;
                } else {
                    self.frame(s, used, &mut rest, batch)?;
                }
            }
            if got < most {
                break;
            }
        }
        Ok(())
    }

    /// One frame, which may go on in further buffers.
    #[inline]
    fn frame(
        &mut self,
        s: &mut Started,
        first: Used,
        rest: &mut impl Iterator<Item = Used>,
        batch: &mut Batch,
    ) -> Result<(), BadDevice> {
        let hdr_len = s.framing.hdr_len;
        let len = first.len;
        if len > BUF || (len as usize) < hdr_len {
            return Err(BadDevice::Length(len));
        }
        let at = s.ram.buf(first.id);
        // SAFETY: a buffer of ours, longer than a header: what is left to do are the first two bytes, the number of buffers, where there
        // is one, the last two. The device may be writing: each is read once.
        let (to_do, count) = unsafe {
            let count = if s.framing.mergeable { peek::<u16>(at.as_ptr().add(10)) } else { 1 };
            (peek::<u16>(at.as_ptr()), u16::from_le(count).max(1))
        };
        // SAFETY: inside the buffer; it stays ours until `release`.
        let begin = (unsafe { at.as_ptr().cast_const().add(hdr_len) }, len - hdr_len as u32);
        let pushed = if count == 1 {
            // SAFETY: what is behind the header, up to `len`, which is at most the buffer's; the buffer stays ours until `release`.
            unsafe { batch.push(begin.0, begin.1) }
        } else {
            self.push_rest(s, begin, count, rest, batch)?
        };
        if !pushed {
            self.counters.dropped(DropReason::TooLong, 1);
        } else if to_do != 0 {
            // SAFETY: a buffer of ours, longer than a header. The device may have written meanwhile: only this copy counts.
            let header = unsafe { read_header(at.as_ptr(), hdr_len) };
            let known = soft::parse_header(&header[..hdr_len]);
            if known.is_none_or(|h| soft::set_offload(batch, &h).is_err()) {
                self.counters.dropped(DropReason::BadVnetHeader, 1);
            }
        }
        Ok(())
    }

    #[cold]
    fn push_rest(
        &mut self,
        s: &mut Started,
        begin: (*const u8, u32),
        count: u16,
        rest: &mut impl Iterator<Item = Used>,
        batch: &mut Batch,
    ) -> Result<bool, BadDevice> {
        let mut pieces = [begin; MAX_FRAGS];
        let (mut used, mut total) = (1, begin.1 as usize);
        for _ in 1..count {
            // The device shows all buffers of a frame at once (§5.1.6.3.1).
            let more = match rest.next() {
                Some(more) => more,
                None => s.queue.next_used()?.ok_or(BadDevice::Buffers(count))?,
            };
            if more.len > BUF {
                return Err(BadDevice::Length(more.len));
            }
            self.taken.push(more.id);
            if let Some(place) = pieces.get_mut(used) {
                *place = (s.ram.buf(more.id).as_ptr().cast_const(), more.len);
            }
            (used, total) = (used + 1, total + more.len as usize);
        }
        let fits = used <= MAX_FRAGS && total <= MAX_FRAME;
        // SAFETY: buffers of ours, which stay ours until `release`.
        Ok(fits && unsafe { batch.push_frags(&pieces[..used]) })
    }
}

/// Posts all free buffers.
fn refill(s: &mut Started) {
    while let Some(id) = s.queue.take(1) {
        s.queue.post(&s.ram, id, |_| true, |_| BUF);
    }
    if s.queue.publish() {
        s.kick.ring();
    }
}

/// A frame in one buffer, behind a header that says nothing.
#[inline]
fn push_bare(s: &Started, used: Used, batch: &mut Batch) -> Result<(), BadDevice> {
    let hdr_len = s.framing.hdr_len;
    if used.len > BUF || (used.len as usize) < hdr_len {
        return Err(BadDevice::Length(used.len));
    }
    // SAFETY: inside the buffer; it stays ours until `release`. There is room: no more were taken than that.
    unsafe { batch.push(s.ram.buf(used.id).as_ptr().cast_const().add(hdr_len), used.len - hdr_len as u32) };
    Ok(())
}

impl Ingress for VirtioIngress {
    // SAFETY: frames lie in the driver's buffers, which are there as long as this thread is inside: until `release`.
    unsafe fn take(&mut self, batch: &mut Batch) {
        let (intake, Ok(s)) = (&mut self.intake, self.queue.enter()) else { return };
        let before = (batch.len(), batch.bytes());
        intake.look(s, batch);
        intake.counters.passed((batch.len() - before.0) as u64, batch.bytes() - before.1);
        if intake.taken.is_empty() {
            self.queue.leave();
        } else if batch.is_empty() {
            self.release();
        }
    }

    fn release(&mut self) {
        let Some(s) = self.queue.content() else { return };
        for id in self.intake.taken.drain(..) {
            s.queue.recycle(id);
        }
        if !s.broken && s.queue.free() >= REFILL.min(usize::from(s.ram.size()) / 4) {
            refill(s);
        }
        self.queue.leave();
    }

    fn arm(&mut self) -> bool {
        let arm = |s: &mut Started| {
            if s.broken {
                return false;
            }
            refill(s);
            s.queue.arm()
        };
        self.queue.visit(arm).unwrap_or_else(Away::is_busy)
    }

    fn disarm(&mut self) {
        // Nothing there is disarmed already.
        let _ = self.queue.visit(|s| {
            if !s.broken {
                refill(s);
                s.queue.disarm();
            }
        });
    }

    fn is_wanted(&self) -> bool {
        self.queue.is_wanted()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wake.as_fd())
    }

    fn woken(&mut self) {
        self.wake.drain();
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.intake.counters
    }
}

impl Drop for VirtioIngress {
    fn drop(&mut self) {
        self.release();
    }
}
