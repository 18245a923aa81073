//! The receive queue, as the switch's ingress. Frames stay in the buffers that the device wrote.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use netvale_mem::copy::{copy_bytes, peek, prefetch_read};
use netvale_port::batch::{BATCH, Batch, MAX_FRAGS};
use netvale_port::{DropReason, Ingress, MAX_FRAME, RingCounters, soft};
use netvale_wire::VnetHdr;
use netvale_wire::offload::MAX_HEADERS;
use netvale_wire::unfilled::{UnfilledChecksum, unfilled};
use netvale_wire::vnet::{F_DATA_VALID, F_NEEDS_CSUM, GSO_NONE};

use super::ram::BUF;
use super::started::RunningQueue;
use super::{DeviceViolation, RUN, UsedBuffer};
use crate::device::ingress::read_header;

/// Number of buffers that are posted together, so that the cache line with the ring's index moves to the device once
/// per group, not once per buffer.
const REFILL: usize = 64;

impl RunningQueue {
    fn fill(&mut self, batch: &mut Batch) -> Result<(), DeviceViolation> {
        while batch.has_room_for_frags() && self.taken.len() < BATCH {
            let mut run = [UsedBuffer::default(); RUN];
            let most = RUN.min(BATCH - self.taken.len()).min(batch.room());
            let got = self.queue.used_run(&mut run[..most])?;
            for used in &run[..got] {
                prefetch_read(self.ram.buf(used.id).as_ptr().wrapping_add(self.framing.hdr_len));
            }
            let mut rest = run[..got].iter().copied();
            while let Some(used) = rest.next() {
                self.taken.push(used.id);
                if self.framing.bare {
                    self.push_bare(used, batch)?;
                } else {
                    self.frame(used, &mut rest, batch)?;
                }
            }
            if got < most {
                break;
            }
        }
        Ok(())
    }

    /// Takes a frame, which may continue in further buffers.
    #[inline]
    fn frame(
        &mut self,
        first: UsedBuffer,
        rest: &mut impl Iterator<Item = UsedBuffer>,
        batch: &mut Batch,
    ) -> Result<(), DeviceViolation> {
        let hdr_len = self.framing.hdr_len;
        let len = first.len;
        if len > BUF || (len as usize) < hdr_len {
            return Err(DeviceViolation::Length(len));
        }
        let at = self.ram.buf(first.id);
        // SAFETY: `at` is the start of one of our buffers, which is longer than a header. The header's first two bytes
        // contain the offloads; its last two bytes contain the number of buffers, if buffers are mergeable. The device
        // may be writing, so each value is read once.
        let (to_do, count) = unsafe {
            let count = if self.framing.mergeable { peek::<u16>(at.as_ptr().add(10)) } else { 1 };
            (peek::<u16>(at.as_ptr()), u16::from_le(count).max(1))
        };
        // SAFETY: the address is inside the buffer, which stays ours until `release`.
        let begin = (unsafe { at.as_ptr().cast_const().add(hdr_len) }, len - hdr_len as u32);
        let pushed = if count == 1 {
            // SAFETY: these are the bytes after the header, up to `len`, which is at most the buffer's size; the buffer
            // stays ours until `release`.
            unsafe { batch.push(begin.0, begin.1) }
        } else {
            self.push_rest(begin.0, begin.1, count, rest, batch)?
        };
        if !pushed {
            self.counters.dropped(DropReason::TooLong, 1);
        } else if to_do != 0 {
            // SAFETY: `at` is the start of one of our buffers, which is longer than a header. As the device may write
            // at any time, only this copy is used.
            let header = unsafe { read_header(at.as_ptr(), hdr_len) };
            let known = soft::parse_header(&header[..hdr_len]);
            if known.is_none_or(|h| soft::set_offload(batch, &h).is_err()) {
                self.counters.dropped(DropReason::BadVnetHeader, 1);
            } else if known.is_some_and(|h| is_only_valid(&h)) {
                fill_checksum(batch, begin.0, begin.1);
            }
        }
        Ok(())
    }

    #[cold]
    fn push_rest(
        &mut self,
        begin: *const u8,
        len: u32,
        count: u16,
        rest: &mut impl Iterator<Item = UsedBuffer>,
        batch: &mut Batch,
    ) -> Result<bool, DeviceViolation> {
        let mut pieces = [(begin, len); MAX_FRAGS];
        let mut used = 1;
        let mut total = len as usize;
        for _ in 1..count {
            // The device publishes all buffers of a frame together (§5.1.6.3.1).
            let more = match rest.next() {
                Some(more) => more,
                None => self.queue.next_used()?.ok_or(DeviceViolation::Buffers(count))?,
            };
            if more.len > BUF {
                return Err(DeviceViolation::Length(more.len));
            }
            self.taken.push(more.id);
            if let Some(place) = pieces.get_mut(used) {
                *place = (self.ram.buf(more.id).as_ptr().cast_const(), more.len);
            }
            used += 1;
            total += more.len as usize;
        }
        let fits = used <= MAX_FRAGS && total <= MAX_FRAME;
        // SAFETY: the pieces are in our buffers, which stay ours until `release`.
        Ok(fits && unsafe { batch.push_frags(&pieces[..used]) })
    }

    /// Posts all free buffers and shows them to the device.
    fn refill(&mut self) {
        self.queue.post_free(&self.ram, BUF);
        if self.queue.publish() {
            self.kick.ring();
        }
    }

    /// Pushes a frame that is in one buffer, with an empty header.
    #[inline]
    fn push_bare(&self, used: UsedBuffer, batch: &mut Batch) -> Result<(), DeviceViolation> {
        let hdr_len = self.framing.hdr_len;
        if used.len > BUF || (used.len as usize) < hdr_len {
            return Err(DeviceViolation::Length(used.len));
        }
        // SAFETY: the frame is inside the buffer, which stays ours until `release`. The batch has room: no more buffers
        // were taken than the batch holds.
        unsafe { batch.push(self.ram.buf(used.id).as_ptr().cast_const().add(hdr_len), used.len - hdr_len as u32) };
        Ok(())
    }
}

/// Returns whether a header only declares the checksum valid (`DATA_VALID`), without any offload.
fn is_only_valid(header: &VnetHdr) -> bool {
    header.flags & (F_DATA_VALID | F_NEEDS_CSUM) == F_DATA_VALID && header.gso_type == GSO_NONE
}

/// Fills in the pending checksum of the frame that was pushed last: without the checksum, receivers that do not
/// negotiate offloads would drop the frame.
#[cold]
fn fill_checksum(batch: &mut Batch, begin: *const u8, len: u32) {
    let Some(frame) = batch.len().checked_sub(1).and_then(|last| batch.get(last)) else { return };
    let mut prefix = [0; MAX_HEADERS];
    let known = frame.copy_out(0, &mut prefix).min(prefix.len());
    let Some(UnfilledChecksum { offload, at, sum }) = unfilled(frame.len(), &prefix[..known]) else { return };
    if at + sum.len() > len as usize {
        return;
    }
    // SAFETY: `len` bytes of one of our buffers begin at `begin`. The buffer stays ours until `release`, and no
    // reference to these bytes exists.
    unsafe { copy_bytes(sum.as_ptr(), begin.cast_mut().add(at), sum.len()) };
    batch.set_offload(offload);
}

/// The receive queue.
impl Ingress for RunningQueue {
    // SAFETY: frames lie in the driver's buffers, which live as long as this queue, and are not the device's until
    // `release`.
    unsafe fn take(&mut self, batch: &mut Batch) {
        if self.broken {
            return;
        }
        if self.queue.free() == usize::from(self.ram.size()) {
            // The device has just started and has no buffers yet.
            self.refill();
        }
        if let Err(why) = self.fill(batch) {
            self.report(why);
        }
        self.counters.passed(batch.len() as u64, batch.bytes());
    }

    fn release(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        self.queue.recycle(self.taken.drain(..));
        // If this process is killed, a successor needs the position. The position must be noted before the buffers are
        // posted again, as posting overwrites the buffers' old entries.
        let (done, turn) = self.queue.done();
        self.ram.note(done, turn);
        if !self.broken && self.queue.free() >= REFILL.min(usize::from(self.ram.size()) / 4) {
            self.refill();
        }
    }

    fn arm(&mut self) -> bool {
        if self.broken {
            return false;
        }
        self.refill();
        self.queue.arm()
    }

    fn disarm(&mut self) {
        if !self.broken {
            self.refill();
            self.queue.disarm();
        }
    }

    /// Returns `None`: the doorbell is in the queue's seat, which outlives the device.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}
