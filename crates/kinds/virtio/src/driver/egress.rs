//! The transmit queue, as the switch's egress, which copies a frame into as many buffers as needed.
#![allow(unsafe_code)]

use std::cell::Cell;

use netvale_mem::copy::{copy_bytes, prefetch_write};
use netvale_port::batch::{Batch, MAX_FRAGS};
use netvale_port::seat::ToPeer;
use netvale_port::soft::{FrameForm, PutResult, SegmentRoom, header_bytes};
use netvale_port::{DropReason, FrameRef, Scratch};

use super::ram::{BUF, QueueRam};
use super::started::RunningQueue;
use super::{DeviceViolation, DriverQueue};

/// Number of frames whose buffers are prefetched together.
const GROUP: usize = 32;

impl RunningQueue {
    /// Reclaims buffers that the device has sent.
    fn reclaim(&mut self) -> Result<(), DeviceViolation> {
        let reclaimed = self.queue.reclaim();
        // If this process is killed, a successor needs the position. The position must be noted before the buffers are
        // posted again, as posting overwrites the buffers' old entries.
        let (done, turn) = self.queue.done();
        self.ram.note(done, turn);
        reclaimed
    }

    fn deliver_to(&mut self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> Result<usize, DeviceViolation> {
        let mut frames = 0;
        let mut bytes = 0;
        if self.queue.free() < picks.len() {
            self.reclaim()?;
        }
        let mut done = 0;
        if batch.is_plain(BUF - self.framing.hdr_len as u32) {
            (done, bytes) = send_plain(self, batch, picks);
            frames = done as u64;
        }
        for &pick in picks.iter().skip(done) {
            let Some(frame) = batch.get(usize::from(pick)) else { continue };
            let mut put = self.send(&frame, scratch);
            if put == PutResult::Full {
                self.reclaim()?;
                put = self.send(&frame, scratch);
            }
            match put {
                PutResult::Done => {
                    frames += 1;
                    bytes += frame.len() as u64;
                }
                PutResult::TooLong => self.counters.dropped(DropReason::TooLong, 1),
                PutResult::Full => break,
            }
            done += 1;
        }
        if self.queue.publish() {
            self.kick.ring();
        }
        self.counters.passed(frames, bytes);
        Ok(done)
    }

    fn send(&mut self, frame: &FrameRef<'_>, scratch: &mut Scratch) -> PutResult {
        let queue = &mut self.queue;
        let ram = &self.ram;
        let blank = &mut *self.blank;
        let hdr_len = self.framing.hdr_len;
        if self.framing.to_device(frame) == FrameForm::AsIs {
            let header = header_bytes(&frame.offload());
            // SAFETY: `put` passes `n` writable bytes of our buffers at `to`.
            return put(queue, ram, blank, hdr_len, &header, frame.len(), |at, to, n| unsafe {
                frame.copy_out_raw(at, to, n)
            });
        }
        let room = SegmentRoom { free: queue.free(), all: ram.size().into(), bytes: BUF as usize, lead: hdr_len };
        scratch.soften_into(frame, &self.counters, &room, |bytes| {
            put(queue, ram, blank, hdr_len, &[0; 12], bytes.len(), |at, to, n| {
                let rest = bytes.get(at..).unwrap_or(&[]);
                let n = rest.len().min(n);
                // SAFETY: `put` passes `n` writable bytes of our buffers at `to`; `rest` is private.
                unsafe { copy_bytes(rest.as_ptr(), to, n) };
                n
            })
        })
    }
}

/// Sends frames of one piece that fit into one buffer and have no offloads, as long as buffers are free. Returns the
/// number of sent frames and the number of their bytes. A separate function, so that its loop gets all registers.
#[inline(never)]
fn send_plain(s: &mut RunningQueue, batch: &Batch, picks: &[u16]) -> (usize, u64) {
    let hdr_len = s.framing.hdr_len;
    let mut done = 0;
    let mut bytes = 0;
    for group in picks.chunks(GROUP) {
        let mut ids = [0u16; GROUP];
        let mut count = 0;
        for place in ids.iter_mut().take(group.len()) {
            let Some(id) = s.queue.take(1) else { break };
            prefetch_write(s.ram.buf(id).as_ptr().wrapping_add(hdr_len));
            *place = id;
            count += 1;
        }
        for (&id, &pick) in ids[..count].iter().zip(group) {
            let at = s.ram.buf(id).as_ptr();
            if let Some(blank) = s.blank.get_mut(usize::from(id)).filter(|blank| !**blank) {
                // SAFETY: `at` is the start of one of our buffers, which is longer than a header.
                unsafe { at.write_bytes(0, hdr_len) };
                *blank = true;
            }
            let len = batch.get(usize::from(pick)).map_or(0, |frame| {
                // SAFETY: `at` is the start of one of our buffers of BUF bytes, in which header and frame have room; a
                // plain frame has one piece.
                unsafe { frame.copy_single_to(at.add(hdr_len)) };
                frame.len()
            });
            s.queue.post(&s.ram, id, |_| false, |_| (hdr_len + len) as u32);
            bytes += len as u64;
        }
        done += count;
        if count < group.len() {
            break;
        }
    }
    (done, bytes)
}

/// Writes header and frame to a chain of buffers, and posts the chain.
fn put(
    queue: &mut DriverQueue,
    ram: &QueueRam,
    blank: &mut [bool],
    hdr_len: usize,
    header: &[u8; 12],
    len: usize,
    mut read: impl FnMut(usize, *mut u8, usize) -> usize,
) -> PutResult {
    let size = BUF as usize;
    let need = hdr_len + len;
    let count = need.div_ceil(size);
    if count > MAX_FRAGS || count > usize::from(ram.size()) {
        return PutResult::TooLong;
    }
    let Some(first) = queue.take(count) else { return PutResult::Full };
    let mut id = Some(first);
    let mut at = 0;
    while let Some(i) = id {
        let to = ram.buf(i).as_ptr();
        if let Some(blank) = blank.get_mut(usize::from(i)) {
            *blank = false;
        }
        let skip = hdr_len.saturating_sub(at);
        let n = (need - at).min(size);
        // SAFETY: the buffer has `size` bytes; the header is shorter and lies in the first buffer.
        unsafe {
            copy_bytes(header.as_ptr(), to, skip);
            read(at + skip - hdr_len, to.add(skip), n - skip);
        }
        at += n;
        id = queue.link(i);
    }
    let left = Cell::new(need as u32);
    queue.post(
        ram,
        first,
        |_| false,
        |_| {
            let n = left.get().min(BUF);
            left.set(left.get() - n);
            n
        },
    );
    PutResult::Done
}

/// The transmit queue.
impl ToPeer for RunningQueue {
    fn deliver(&mut self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> Option<usize> {
        if self.broken {
            return None;
        }
        let done = self.deliver_to(batch, picks, scratch);
        Some(done.unwrap_or_else(|why| {
            self.report(why);
            picks.len()
        }))
    }

    fn takes_uso(&self) -> bool {
        self.framing.is_uso_to_device()
    }
}
