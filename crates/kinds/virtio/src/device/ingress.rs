//! A guest's transmit queue, as the switch's ingress. Frames stay in the guest's buffers until they have been
//! delivered.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use netvale_mem::copy::{copy_bytes, peek, prefetch_read};
use netvale_port::batch::{BATCH, Batch, MAX_FRAGS};
use netvale_port::{DropReason, Ingress, MAX_FRAME, RingCounters, soft};

use super::live::LiveQueue;
use crate::queue::{DriverViolation, Piece};

/// Frames that are each, with their header, in one piece of memory. Their headers are read together, after their first
/// cache lines have been prefetched.
struct PieceRun {
    list: [(*const u8, u32); RUN],
    len: usize,
}

/// Number of frames read together.
const RUN: usize = 32;

impl LiveQueue {
    fn fill(&mut self, batch: &mut Batch) {
        let hdr_len = self.framing.hdr_len as u32;
        let mut run = PieceRun { list: [(std::ptr::null(), 0); RUN], len: 0 };
        if let Some(frame) = self.announce.take() {
            self.announced = frame;
            // SAFETY: `announced` owns the bytes. They are reached only through this pointer, and do not change until
            // the next announcement, which follows `release`.
            unsafe { batch.push(self.announced.as_ptr(), self.announced.len() as u32) };
        }
        self.queue.prefetch();
        self.pieces.begin();
        while self.taken.len() < BATCH && run.len + batch.len() < BATCH && batch.has_room_for_frags() {
            let chain = match self.queue.next(&self.memory, &mut self.pieces) {
                Ok(Some(chain)) => chain,
                Ok(None) => break,
                Err(why) => {
                    self.report(why);
                    break;
                }
            };
            self.taken.push(chain);
            match self.pieces.only_readable() {
                Some(Piece { ptr, len }) if len > hdr_len => {
                    prefetch_read(ptr.as_ptr());
                    run.list[run.len] = (ptr.as_ptr(), len);
                    run.len += 1;
                    if run.len == RUN {
                        self.push_run(&mut run, batch);
                    }
                }
                _ => {
                    self.push_run(&mut run, batch);
                    self.push_pieces(batch);
                    if self.pieces.is_enough() {
                        break;
                    }
                }
            }
        }
        self.push_run(&mut run, batch);
    }

    #[inline]
    fn push_run(&self, run: &mut PieceRun, batch: &mut Batch) {
        let hdr_len = self.framing.hdr_len;
        for &(ptr, len) in &run.list[..run.len] {
            let frame = len - hdr_len as u32;
            if frame as usize > MAX_FRAME {
                self.counters.dropped(DropReason::TooLong, 1);
                continue;
            }
            // SAFETY: the piece lies in the guest's memory, which is held until `release`; header and frame are `len`
            // bytes of it.
            let header = unsafe {
                batch.push(ptr.add(hdr_len), frame);
                self.framing.sender_offloads.then(|| peek::<u64>(ptr))
            };
            // The first two bytes of a header are its flags and its GSO type, which are zero if there is no offload, as
            // is usual.
            if header.is_some_and(|h| h.to_le() & 0xffff != 0) {
                // SAFETY: the piece is longer than a header. Only the bytes of this second read are used; the first
                // read only decided whether to make the second.
                let bytes = unsafe { read_header(ptr, hdr_len) };
                self.set_offload(batch, &bytes[..hdr_len]);
            }
        }
        run.len = 0;
    }

    fn set_offload(&self, batch: &mut Batch, header: &[u8]) {
        let known = soft::parse_header(header);
        if known.is_none_or(|h| soft::set_offload(batch, &h).is_err()) {
            self.counters.dropped(DropReason::BadVnetHeader, 1);
        }
    }

    /// Pushes a frame that consists of several pieces, or whose header is a separate piece.
    #[cold]
    fn push_pieces(&self, batch: &mut Batch) {
        let hdr_len = self.framing.hdr_len;
        let mut header = [0u8; 12];
        let mut got = 0;
        let mut pieces = [(std::ptr::null::<u8>(), 0u32); MAX_FRAGS];
        let mut count = 0;
        let mut total = 0usize;
        let mut fits = !self.pieces.is_cut();
        for p in self.pieces.readable() {
            let skip = (hdr_len - got).min(p.len as usize);
            // SAFETY: the piece has at least `skip` bytes, and `header` has room for hdr_len bytes.
            unsafe { copy_bytes(p.ptr.as_ptr(), header.as_mut_ptr().add(got), skip) };
            got += skip;
            let rest = p.len as usize - skip;
            if rest > 0 {
                match pieces.get_mut(count) {
                    // SAFETY: the address is after the header and inside the piece.
                    Some(place) => *place = (unsafe { p.ptr.as_ptr().cast_const().add(skip) }, rest as u32),
                    None => fits = false,
                }
                count += 1;
                total += rest;
            }
        }
        if got < hdr_len || total == 0 {
            self.counters.dropped(DropReason::BadVnetHeader, 1);
            return;
        }
        // SAFETY: the pieces are in the guest's memory, which is held until `release`.
        if !fits || total > MAX_FRAME || !unsafe { batch.push_frags(&pieces[..count]) } {
            self.counters.dropped(DropReason::TooLong, 1);
            return;
        }
        if header[0] | header[1] != 0 && self.framing.sender_offloads {
            self.set_offload(batch, &header[..hdr_len]);
        }
    }
}

/// Reads a header of 10 or 12 bytes, each byte once.
///
/// # Safety
/// `at` is readable for `hdr_len` bytes.
#[inline]
pub(crate) unsafe fn read_header(at: *const u8, hdr_len: usize) -> [u8; 12] {
    // SAFETY: the reads cover 8 + 2 or 8 + 4 bytes, which are readable as promised.
    unsafe {
        let [a, b, c, d, e, f, g, h] = peek::<u64>(at).to_ne_bytes();
        let last = at.add(8);
        let [i, j, k, l] = match hdr_len {
            12 => peek::<u32>(last).to_ne_bytes(),
            _ => [peek::<u8>(last), peek::<u8>(last.add(1)), 0, 0],
        };
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }
}

/// The guest's transmit queue.
impl Ingress for LiveQueue {
    // SAFETY: frames lie in guest memory, which stays mapped until `release`, or in `announced`.
    #[inline]
    unsafe fn take(&mut self, batch: &mut Batch) {
        debug_assert!(self.taken.is_empty());
        if self.is_on() {
            self.fill(batch);
            if self.is_damaged() {
                self.report(DriverViolation::MemoryGone);
            }
        }
        self.counters.passed(batch.len() as u64, batch.bytes());
    }

    #[inline]
    fn release(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        self.queue.give_back_all(self.taken.drain(..).map(|chain| (chain, 0)));
        self.publish();
        // Memory may have been lost while the frames were delivered.
        if self.is_damaged() {
            self.report(DriverViolation::MemoryGone);
        }
    }

    fn arm(&mut self) -> bool {
        self.is_on() && (self.polled || LiveQueue::arm(self))
    }

    fn disarm(&mut self) {
        LiveQueue::disarm(self);
    }

    /// Returns `None`: the kick descriptor is in the queue's seat, which outlives the guest's connection.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}
