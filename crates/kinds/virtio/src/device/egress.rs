//! Towards a guest: each frame goes straight into the buffers that its driver posted.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use netvale_mem::copy::{copy_bytes, peek, prefetch_write};
use netvale_port::batch::Batch;
use netvale_port::seat::ToPeer;
use netvale_port::soft::{Form, header_bytes};
use netvale_port::{DropReason, FrameRef, Scratch};

use super::live::Live;
use crate::queue::{Chain, DriverViolation, Piece};

/// Most buffers a frame is spread over.
const MAX_CHAINS: usize = 64;
/// Bytes of a line of the cache.
const LINE: usize = 64;
/// Frames that are placed before the first is copied: their buffers are on their way meanwhile.
const GROUP: usize = 32;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PutResult {
    Done,
    Full,
    TooLong,
}

/// How a delivery went so far.
#[derive(Default)]
struct Tally {
    frames: u64,
    bytes: u64,
}

/// A buffer of one piece that a frame fits.
#[derive(Clone, Copy)]
struct Room {
    chain: Chain,
    /// Bytes of header and frame.
    need: u32,
    ptr: NonNull<u8>,
}

impl Default for Room {
    fn default() -> Room {
        Room { chain: Chain::default(), need: 0, ptr: NonNull::dangling() }
    }
}

impl Live {
    fn deliver_to(&mut self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let mut tally = Tally::default();
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
        tally: &mut Tally,
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
                None => Ok(PutResult::Done),
            };
            match put {
                Ok(PutResult::Full) => return (done, None),
                Ok(PutResult::Done) => {}
                Ok(PutResult::TooLong) => self.counters.dropped(DropReason::TooLong, 1),
                Err(why) => return (done, Some(why)),
            }
            done += 1;
        }
        (done, None)
    }

    /// Frames of one piece into buffers of one piece, as long as both are so. Returns how many; what is next, is for
    /// [`Live::deliver_one`].
    #[inline]
    fn deliver_plain(&mut self, batch: &Batch, picks: &[u16], tally: &mut Tally) -> usize {
        let mut rooms = [Room::default(); GROUP];
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

    /// A buffer of one piece for each frame, as long as there are such. Returns how many.
    #[inline]
    fn find_rooms(&mut self, batch: &Batch, picks: &[u16], rooms: &mut [Room; GROUP]) -> usize {
        let hdr_len = self.framing.hdr_len;
        let mut count = 0;
        for (room, &pick) in rooms.iter_mut().zip(picks) {
            let Some(frame) = batch.get(usize::from(pick)) else { break };
            let need = hdr_len + frame.len();
            let position = self.queue.position();
            // A broken queue is found out again, and reported, by the careful way.
            let chain = self.queue.next(&self.memory, &mut self.pieces).ok().flatten();
            match chain.zip(self.pieces.only_writable()) {
                Some((chain, Piece { ptr, len })) if len as usize >= need => {
                    prefetch_write(ptr.as_ptr().wrapping_add(hdr_len));
                    *room = Room { chain, need: need as u32, ptr };
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

    /// Copies a frame into each of the rooms found for them. Returns the frames' bytes.
    #[inline]
    fn fill_rooms(&self, batch: &Batch, picks: &[u16], rooms: &[Room]) -> u64 {
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
        tally: &mut Tally,
    ) -> Result<PutResult, DriverViolation> {
        if self.framing.to_driver(frame) == Form::AsIs {
            let header = header_bytes(&frame.offload());
            // SAFETY: `place` hands out room in a buffer of the guest.
            let put = place(self, &header, frame.len(), |at, to, n| unsafe { frame.copy_out_raw(at, to, n) })?;
            if put == PutResult::Done {
                (tally.frames, tally.bytes) = (tally.frames + 1, tally.bytes + frame.len() as u64);
            }
            return Ok(put);
        }
        if scratch.may_have_to_wait() && !self.has_room_for(frame)? {
            return Ok(PutResult::Full);
        }
        let (mut result, mut any) = (Ok(PutResult::Done), false);
        let softened = scratch.soften(frame, |bytes| {
            if result != Ok(PutResult::Done) {
                return;
            }
            result = place(self, &[0; 12], bytes.len(), |at, to, n| {
                let rest = bytes.get(at..).unwrap_or(&[]);
                let n = rest.len().min(n);
                // SAFETY: `place` hands out room in a buffer of the guest; `rest` is private.
                unsafe { copy_bytes(rest.as_ptr(), to, n) };
                n
            });
            if result == Ok(PutResult::Done) {
                any = true;
                (tally.frames, tally.bytes) = (tally.frames + 1, tally.bytes + bytes.len() as u64);
            }
        });
        match (softened, result) {
            (Err(why), _) => {
                self.counters.dropped(why, 1);
                Ok(PutResult::Done)
            }
            // Segments that found no room after others did are lost, as on a wire.
            (Ok(_), Ok(PutResult::Full)) if any => {
                self.counters.dropped(DropReason::NoRoom, 1);
                Ok(PutResult::Done)
            }
            (Ok(_), result) => result,
        }
    }
}

impl Live {
    /// Whether there is room for all segments of a frame, or never will be.
    fn has_room_for(&mut self, frame: &FrameRef<'_>) -> Result<bool, DriverViolation> {
        let Form::Segments { count, longest, .. } = Form::of(frame, false) else { return Ok(true) };
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
                    // The next delivery begins with this frame; one that began with it gets no further.
                    waits = before > 0;
                    break 'all;
                }
                if self.queue.next(&self.memory, &mut self.pieces)?.is_none() {
                    // A driver that has posted all it can will not post more.
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
        // Descriptors that were only looked at are walked again, and count then.
        self.pieces.go_back(before);
        Ok(!waits)
    }
}

/// The header of a frame with nothing left to do, in one buffer. One that has a line for itself is looked at first: it
/// most often says so already, and then stays in both sides' caches.
///
/// # Safety
/// `at` is writable for `hdr_len` bytes, which is 10 or 12.
#[inline]
unsafe fn write_plain_header(at: *mut u8, hdr_len: usize) {
    // Two bytes of checksum offset, then num_buffers = 1 (§5.1.6.1).
    let last = (1u32 << 16).to_le();
    // SAFETY: 8 + 2 or 8 + 4 bytes, which are there, as promised; they may lie anywhere. What the look finds decides
    // only whether a header is written that says the same: a driver that changes it meanwhile spoils its own frame.
    unsafe {
        let (first_at, last_at) = (at.cast::<u64>(), at.add(8).cast::<u32>());
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

/// Writes `header` and `len` bytes of a frame to as many buffers as they take. `read` copies bytes of the frame from a
/// position on to where there is room for that many, and returns how many it delivered.
fn place(
    live: &mut Live,
    header: &[u8; 12],
    len: usize,
    mut read: impl FnMut(usize, *mut u8, usize) -> usize,
) -> Result<PutResult, DriverViolation> {
    let hdr_len = live.framing.hdr_len;
    let need = hdr_len + len;
    let start = live.queue.position();
    let (mut chains, mut used) = ([(Chain::default(), 0u32); MAX_CHAINS], 0);
    // Where the two bytes of num_buffers came to lie.
    let mut count_at = [None::<NonNull<u8>>; 2];
    let mut at = 0;
    while at < need {
        let Some(chain) = live.queue.next(&live.memory, &mut live.pieces)? else {
            live.queue.back_to(start);
            return Ok(PutResult::Full);
        };
        let before = at;
        for p in live.pieces.writable() {
            let from = at;
            at = fill(p, at, need, (hdr_len, header), &mut count_at, &mut read);
            live.wrote(p.ptr.as_ptr(), at - from);
        }
        match chains.get_mut(used) {
            Some(place) if at > before || used > 0 => *place = (chain, (at - before) as u32),
            _ => {
                live.queue.back_to(start);
                return Ok(PutResult::TooLong);
            }
        }
        used += 1;
        if at < need && !live.framing.mergeable {
            live.queue.back_to(start);
            return Ok(PutResult::TooLong);
        }
    }
    if hdr_len == 12 {
        for (place, byte) in count_at.iter().zip((used as u16).to_le_bytes()) {
            if let Some(p) = place {
                // SAFETY: a byte of a buffer written above.
                unsafe { p.as_ptr().write_volatile(byte) };
                live.wrote(p.as_ptr(), 1);
            }
        }
    }
    chains[..used].iter().for_each(|&(chain, written)| live.queue.give_back(chain, written));
    Ok(PutResult::Done)
}

/// Fills a piece with the bytes from `at` on of header and frame. Returns where it ended.
fn fill(
    p: &Piece,
    mut at: usize,
    need: usize,
    (hdr_len, header): (usize, &[u8; 12]),
    count_at: &mut [Option<NonNull<u8>>; 2],
    read: &mut impl FnMut(usize, *mut u8, usize) -> usize,
) -> usize {
    let (mut to, mut room) = (p.ptr, (p.len as usize).min(need - at));
    if at < hdr_len {
        let n = room.min(hdr_len - at);
        // SAFETY: `n` bytes of the piece; the header has them, too.
        unsafe { copy_bytes(header.as_ptr().add(at), to.as_ptr(), n) };
        for k in 0..n {
            if let Some(place) = (at + k).checked_sub(10).and_then(|i| count_at.get_mut(i)) {
                // SAFETY: k < n, which is at most the piece's length.
                *place = Some(unsafe { to.add(k) });
            }
        }
        // SAFETY: n <= room <= the piece's length: inside of it, or its end.
        (at, to, room) = (at + n, unsafe { to.add(n) }, room - n);
    }
    if room > 0 { at + read(at - hdr_len, to.as_ptr(), room) } else { at }
}

/// A receive queue.
impl ToPeer for Live {
    #[inline]
    fn deliver(&mut self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> Option<usize> {
        self.is_on().then(|| self.deliver_to(batch, picks, scratch))
    }
}
