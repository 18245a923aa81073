//! The switch's egress towards a guest. The egress copies each frame directly into the buffers that the driver posted.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use netvale_mem::copy::{copy_bytes, peek, prefetch_write};
use netvale_port::batch::Batch;
use netvale_port::seat::ToPeer;
use netvale_port::soft::{FrameForm, header_bytes};
use netvale_port::{DropReason, FrameRef, Scratch};

use super::live::LiveQueue;
use crate::queue::{Chain, DriverViolation, Piece};

/// Maximum number of descriptor chains (mergeable buffers) for one frame.
const MAX_CHAINS: usize = 64;
/// Size of a cache line in bytes.
const LINE: usize = 64;
/// Number of frames for which buffers are found, and prefetched, before the first frame is copied.
const GROUP: usize = 32;

/// Result of delivering one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FillResult {
    Done,
    Full,
    TooLong,
}

/// Frames and bytes delivered so far.
#[derive(Default)]
struct DeliveryTally {
    frames: u64,
    bytes: u64,
}

/// A one-piece buffer that was found for a frame.
#[derive(Clone, Copy)]
struct PieceRoom {
    chain: Chain,
    /// Size of header and frame in bytes.
    need: u32,
    ptr: NonNull<u8>,
}

impl Default for PieceRoom {
    fn default() -> PieceRoom {
        PieceRoom { chain: Chain::default(), need: 0, ptr: NonNull::dangling() }
    }
}

impl LiveQueue {
    fn deliver_to(&mut self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let mut tally = DeliveryTally::default();
        let done = match self.deliver_all(batch, picks, scratch, &mut tally) {
            (done, None) => done,
            (done, Some(why)) => {
                self.report(why);
                done
            }
        };
        self.publish();
        if self.is_damaged() {
            self.report(DriverViolation::MemoryGone);
        }
        self.counters.passed(tally.frames, tally.bytes);
        done
    }

    fn deliver_all(
        &mut self,
        batch: &Batch,
        picks: &[u16],
        scratch: &mut Scratch,
        tally: &mut DeliveryTally,
    ) -> (usize, Option<DriverViolation>) {
        let mut done = 0;
        self.queue.prefetch();
        self.pieces.begin();
        if batch.is_plain(u32::MAX) && self.log.is_none() {
            done = self.deliver_plain(batch, picks, tally);
        }
        for &pick in picks.iter().skip(done) {
            if self.pieces.is_exhausted() {
                return (done, None);
            }
            let put = match batch.get(usize::from(pick)) {
                Some(frame) => self.deliver_one(&frame, scratch, tally),
                None => Ok(FillResult::Done),
            };
            match put {
                Ok(FillResult::Full) => return (done, None),
                Ok(FillResult::Done) => {}
                Ok(FillResult::TooLong) => self.counters.dropped(DropReason::TooLong, 1),
                Err(why) => return (done, Some(why)),
            }
            done += 1;
        }
        (done, None)
    }

    /// Copies frames of one piece into buffers of one piece, up to the first frame or buffer of another kind. Returns
    /// the number of copied frames; [`LiveQueue::deliver_one`] must handle the next frame.
    #[inline]
    fn deliver_plain(&mut self, batch: &Batch, picks: &[u16], tally: &mut DeliveryTally) -> usize {
        let mut rooms = [PieceRoom::default(); GROUP];
        let mut done = 0;
        for picks in picks.chunks(GROUP) {
            let count = self.find_rooms(batch, picks, &mut rooms);
            let rooms = &rooms[..count];
            tally.bytes += self.fill_rooms(batch, picks, rooms);
            self.queue.give_back_all(rooms.iter().map(|room| (room.chain, room.need)));
            tally.frames += count as u64;
            done += count;
            if count < picks.len() {
                break;
            }
        }
        done
    }

    /// Finds a buffer of one piece for each frame, as long as the next buffer is of one piece and large enough. Returns
    /// the number of found buffers.
    #[inline]
    fn find_rooms(&mut self, batch: &Batch, picks: &[u16], rooms: &mut [PieceRoom; GROUP]) -> usize {
        let hdr_len = self.framing.hdr_len;
        let mut count = 0;
        for (room, &pick) in rooms.iter_mut().zip(picks) {
            let Some(frame) = batch.get(usize::from(pick)) else { break };
            let need = hdr_len + frame.len();
            let position = self.queue.position();
            // An error is ignored here: the slow path runs into the same error, and reports the violation.
            let chain = self.queue.next(&self.memory, &mut self.pieces).ok().flatten();
            match chain.zip(self.pieces.only_writable()) {
                Some((chain, Piece { ptr, len })) if len as usize >= need => {
                    prefetch_write(ptr.as_ptr().wrapping_add(hdr_len));
                    *room = PieceRoom { chain, need: need as u32, ptr };
                    count += 1;
                }
                _ => {
                    self.queue.back_to(position);
                    break;
                }
            }
        }
        count
    }

    /// Copies each frame into the buffer found for it. Returns the total length of the frames in bytes.
    #[inline]
    fn fill_rooms(&self, batch: &Batch, picks: &[u16], rooms: &[PieceRoom]) -> u64 {
        let hdr_len = self.framing.hdr_len;
        let mut bytes = 0;
        for (room, &pick) in rooms.iter().zip(picks) {
            let Some(frame) = batch.get(usize::from(pick)) else { continue };
            // SAFETY: the buffer lies in the guest's memory, which `self` holds, and has hdr_len + frame.len() bytes:
            // `find_rooms` checked the copy of its descriptor for this frame; a plain frame has one piece.
            unsafe {
                write_plain_header(room.ptr.as_ptr(), hdr_len);
                frame.copy_single_to(room.ptr.as_ptr().add(hdr_len));
            }
            bytes += frame.len() as u64;
        }
        bytes
    }

    fn deliver_one(
        &mut self,
        frame: &FrameRef<'_>,
        scratch: &mut Scratch,
        tally: &mut DeliveryTally,
    ) -> Result<FillResult, DriverViolation> {
        if self.framing.to_driver(frame) == FrameForm::AsIs {
            let header = header_bytes(&frame.offload());
            // SAFETY: `place` passes `n` writable bytes of a guest's buffer at `to`.
            let put = place(self, &header, frame.len(), |at, to, n| unsafe { frame.copy_out_raw(at, to, n) })?;
            if put == FillResult::Done {
                tally.frames += 1;
                tally.bytes += frame.len() as u64;
            }
            return Ok(put);
        }
        if scratch.may_have_to_wait() && !self.has_room_for(frame)? {
            return Ok(FillResult::Full);
        }
        let mut result = Ok(FillResult::Done);
        let mut any = false;
        let softened = scratch.soften(frame, |bytes| {
            if result != Ok(FillResult::Done) {
                return;
            }
            result = place(self, &[0; 12], bytes.len(), |at, to, n| {
                let rest = bytes.get(at..).unwrap_or(&[]);
                let n = rest.len().min(n);
                // SAFETY: `place` passes `n` writable bytes of a guest's buffer at `to`; `rest` is private.
                unsafe { copy_bytes(rest.as_ptr(), to, n) };
                n
            });
            if result == Ok(FillResult::Done) {
                any = true;
                tally.frames += 1;
                tally.bytes += bytes.len() as u64;
            }
        });
        match (softened, result) {
            (Err(why), _) => {
                self.counters.dropped(why, 1);
                Ok(FillResult::Done)
            }
            // If earlier segments of the frame had room, segments without room are lost, as on a wire.
            (Ok(_), Ok(FillResult::Full)) if any => {
                self.counters.dropped(DropReason::NoRoom, 1);
                Ok(FillResult::Done)
            }
            (Ok(_), result) => result,
        }
    }
}

impl LiveQueue {
    /// Returns false if a frame must wait because its segments may have room later. Returns true if all segments have
    /// room now, or waiting is useless because they will never have room.
    fn has_room_for(&mut self, frame: &FrameRef<'_>) -> Result<bool, DriverViolation> {
        let FrameForm::Segments { count, longest, .. } = FrameForm::of(frame, false) else { return Ok(true) };
        let need = self.framing.hdr_len + longest;
        let start = self.queue.position();
        let before = self.pieces.walked();
        let mut waits = false;
        let mut posted = 0;
        let mut last = 0;
        'all: for _ in 0..count {
            let mut room = 0;
            while room < need {
                if self.pieces.is_exhausted() {
                    // The limit on descriptors read per delivery is reached. The next delivery would begin with this
                    // frame and the full limit, which helps only if earlier frames have used up a part of the current
                    // limit.
                    waits = before > 0;
                    break 'all;
                }
                if self.queue.next(&self.memory, &mut self.pieces)?.is_none() {
                    // A driver that has posted all its buffers will post no more.
                    waits = posted + last <= usize::from(self.queue.size());
                    break 'all;
                }
                let pieces = self.pieces.writable();
                room += pieces.iter().map(|p| p.len as usize).sum::<usize>();
                last = pieces.len();
                posted += last;
                if !self.framing.mergeable {
                    break;
                }
            }
        }
        self.queue.back_to(start);
        // The descriptors were only peeked at: they count when they are read for the delivery itself.
        self.pieces.go_back(before);
        Ok(!waits)
    }
}

/// Writes the header of a frame without offloads, all in one buffer. If the header is on a separate cache line, it is
/// read before it is written: it usually has the right value already, and the line, if not written, stays in the caches
/// of both sides.
///
/// # Safety
/// `at` is writable for `hdr_len` bytes, which is 10 or 12.
#[inline]
unsafe fn write_plain_header(at: *mut u8, hdr_len: usize) {
    // The checksum offset, two bytes, is followed by num_buffers = 1 (§5.1.6.1).
    let last = (1u32 << 16).to_le();
    // SAFETY: the writes cover 8 + 2 or 8 + 4 bytes, which are writable as promised, at any alignment. The read only
    // decides whether to write an identical header: a driver that changes the header between read and write damages
    // only its own frame.
    unsafe {
        let first_at = at.cast::<u64>();
        let last_at = at.add(8).cast::<u32>();
        if hdr_len != 12 {
            first_at.write_unaligned(0);
            last_at.cast::<u16>().write_unaligned(0);
        } else if !(at as usize + hdr_len).is_multiple_of(LINE)
            || peek::<u64>(at) != 0
            || peek::<u32>(at.add(8)) != last
        {
            first_at.write_unaligned(0);
            last_at.write_unaligned(last);
        }
    }
}

/// Writes `header` and `len` bytes of a frame to as many buffers as needed. `read(at, to, n)` copies up to `n` bytes of
/// the frame, from offset `at` on, to `to`, and returns the number of copied bytes.
fn place(
    live: &mut LiveQueue,
    header: &[u8; 12],
    len: usize,
    mut read: impl FnMut(usize, *mut u8, usize) -> usize,
) -> Result<FillResult, DriverViolation> {
    let hdr_len = live.framing.hdr_len;
    let need = hdr_len + len;
    let start = live.queue.position();
    let mut chains = [(Chain::default(), 0u32); MAX_CHAINS];
    let mut used = 0;
    // Addresses of the two bytes of num_buffers.
    let mut count_at = [None::<NonNull<u8>>; 2];
    let mut at = 0;
    while at < need {
        let Some(chain) = live.queue.next(&live.memory, &mut live.pieces)? else {
            live.queue.back_to(start);
            return Ok(FillResult::Full);
        };
        let before = at;
        for p in live.pieces.writable() {
            let from = at;
            at = fill(p, at, need, hdr_len, header, &mut count_at, &mut read);
            live.wrote(p.ptr.as_ptr(), at - from);
        }
        match chains.get_mut(used) {
            Some(place) if at > before || used > 0 => *place = (chain, (at - before) as u32),
            _ => {
                live.queue.back_to(start);
                return Ok(FillResult::TooLong);
            }
        }
        used += 1;
        if at < need && !live.framing.mergeable {
            live.queue.back_to(start);
            return Ok(FillResult::TooLong);
        }
    }
    if hdr_len == 12 {
        for (place, byte) in count_at.iter().zip((used as u16).to_le_bytes()) {
            if let Some(p) = place {
                // SAFETY: `p` points to a byte of a buffer that was written above.
                unsafe { p.as_ptr().write_volatile(byte) };
                live.wrote(p.as_ptr(), 1);
            }
        }
    }
    chains[..used].iter().for_each(|&(chain, written)| live.queue.give_back(chain, written));
    Ok(FillResult::Done)
}

/// Copies header and frame, from offset `at` on, into a piece. Returns the offset after the copied bytes.
fn fill(
    p: &Piece,
    mut at: usize,
    need: usize,
    hdr_len: usize,
    header: &[u8; 12],
    count_at: &mut [Option<NonNull<u8>>; 2],
    read: &mut impl FnMut(usize, *mut u8, usize) -> usize,
) -> usize {
    let mut to = p.ptr;
    let mut room = (p.len as usize).min(need - at);
    if at < hdr_len {
        let n = room.min(hdr_len - at);
        // SAFETY: the piece and the header each have `n` more bytes.
        unsafe { copy_bytes(header.as_ptr().add(at), to.as_ptr(), n) };
        for k in 0..n {
            if let Some(place) = (at + k).checked_sub(10).and_then(|i| count_at.get_mut(i)) {
                // SAFETY: k < n, which is at most the piece's length.
                *place = Some(unsafe { to.add(k) });
            }
        }
        at += n;
        // SAFETY: n <= room, the number of bytes left in the piece, so the address is inside the piece or at its end.
        to = unsafe { to.add(n) };
        room -= n;
    }
    if room > 0 { at + read(at - hdr_len, to.as_ptr(), room) } else { at }
}

/// The guest's receive queue.
impl ToPeer for LiveQueue {
    #[inline]
    fn deliver(&mut self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> Option<usize> {
        self.is_on().then(|| self.deliver_to(batch, picks, scratch))
    }

    fn takes_uso(&self) -> bool {
        self.framing.is_uso_to_driver()
    }
}
