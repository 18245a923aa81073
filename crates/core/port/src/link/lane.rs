//! A lane: a ring of bytes with one writer at a time and one reader.
//!
//! Frames follow one another, each contiguous and after a record that describes it. Advancing `tail` passes the
//! writer's bytes to the reader; advancing `head` returns them. No other process maps this memory.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use netvale_wire::offload::Offload;

use crate::Batch;
use crate::batch::{MAX_FRAME, weight};

/// The record in front of each frame.
#[derive(Clone, Copy)]
#[repr(C)]
struct LaneRecord {
    /// Offset of the next record from this record, in bytes.
    size: u32,
    /// Length of the frame in bytes, or [`GAP`].
    len: u32,
    arrived: u64,
    /// Number of times that the frame will still be handed out.
    uses: u16,
    /// Whether the frame's source address must not be learned.
    no_learn: bool,
    offload: Offload,
}

/// Value of `len` in a gap, i.e. the unused bytes at the end of the ring if the next frame did not fit there. A gap has
/// only the fields `size` and `len`.
const GAP: u32 = u32::MAX;
const ALIGN: u64 = 8;
const HEADER: u64 = size_of::<LaneRecord>() as u64;
/// Minimum size of a frame in a ring, in bytes: a record and an Ethernet header.
pub(super) const LEAST_FRAME: u64 = (HEADER + 14).next_multiple_of(ALIGN);
/// Minimum size of a ring in bytes: a frame of any length must fit.
const LEAST: u64 = 2 * (MAX_FRAME as u64 + HEADER);
/// Maximum size of a ring in bytes: offsets must fit into [`LaneRecord::size`].
const MOST: u64 = 1 << 31;

thread_local! {
    static OWN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns this thread's number, which determines the lane that the thread tries first.
pub(super) fn own() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    OWN.with(|own| {
        let number = own.get().unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        own.set(Some(number));
        number
    })
}

/// A ring of bytes with one writer at a time and one reader.
pub(super) struct LinkLane {
    memory: NonNull<u8>,
    capacity: u64,
    /// Position of the next record to write. Positions count bytes and do not wrap around.
    tail: AtomicU64,
    /// Position of the oldest record that the reader still needs.
    head: AtomicU64,
    is_written: AtomicBool,
}

// SAFETY: `memory` is this value's own. Its bytes from `tail` to `head` belong to the thread that set `is_written`,
// its bytes from `head` to `tail` belong to the reader, of which there is one (`LaneReader` is neither made twice nor
// cloned).
unsafe impl Send for LinkLane {}
// SAFETY: as above.
unsafe impl Sync for LinkLane {}

impl Drop for LinkLane {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; no reference to it is left.
        unsafe { dealloc(self.memory.as_ptr(), layout(self.capacity)) };
    }
}

fn layout(capacity: u64) -> Layout {
    // This layout is valid: `capacity` is at most MOST, far below the limit of a layout, and ALIGN is a power of two.
    Layout::from_size_align(capacity as usize, ALIGN as usize).unwrap_or(Layout::new::<u64>())
}

/// Frames put into a lane but not yet [published](LaneWriter::publish).
pub(super) struct LanePut {
    pub(super) frames: usize,
    pub(super) bytes: u64,
    tail: u64,
}

/// The exclusive right to write into a lane.
pub(super) struct LaneWriter<'a>(&'a LinkLane);

impl Drop for LaneWriter<'_> {
    fn drop(&mut self) {
        self.0.is_written.store(false, Ordering::Release);
    }
}

impl LinkLane {
    /// Size in bytes of a ring for which `bytes` bytes are requested.
    pub(super) fn capacity_for(bytes: u64) -> u64 {
        bytes.clamp(LEAST, MOST).next_multiple_of(ALIGN)
    }

    /// Creates a ring of about `bytes` bytes; `None` if there is no memory. Pages are allocated on first write.
    pub(super) fn new(bytes: u64) -> Option<LinkLane> {
        let capacity = Self::capacity_for(bytes);
        // SAFETY: the layout's size is not 0.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout(capacity)) })?;
        let (tail, head, is_written) = Default::default();
        Some(LinkLane { memory, capacity, tail, head, is_written })
    }

    /// Whether a thread holds the right to write.
    pub(super) fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Relaxed)
    }

    /// Takes the right to write; `None` if another thread holds it.
    pub(super) fn write(&self) -> Option<LaneWriter<'_>> {
        (!self.is_written.swap(true, Ordering::Acquire)).then_some(LaneWriter(self))
    }

    /// A pointer to the byte at a position.
    fn at(&self, position: u64) -> *mut u8 {
        // SAFETY: the remainder is below `capacity`, the size of the allocation.
        unsafe { self.memory.as_ptr().add((position % self.capacity) as usize) }
    }

    /// Reads the record at a position; `Err` contains the size of a gap.
    ///
    /// # Safety
    /// A record or a gap begins at `position`, and belongs to the caller.
    unsafe fn record(&self, position: u64) -> Result<LaneRecord, u32> {
        let at = self.at(position);
        // SAFETY: a gap has at least ALIGN bytes, because positions and the capacity are multiples of ALIGN; a record
        // is complete.
        unsafe {
            let [size, len] = at.cast::<[u32; 2]>().read();
            if len == GAP { Err(size) } else { Ok(at.cast::<LaneRecord>().read()) }
        }
    }
}

impl LaneWriter<'_> {
    /// Copies frames after the previous frames while the lane has room and their total size with records is at most
    /// `room` bytes. The reader sees the new frames once they are [published](LaneWriter::publish).
    pub(super) fn put(&mut self, batch: &Batch, picks: &[u16], now: u64, room: u64) -> LanePut {
        let lane = self.0;
        let mut at = lane.tail.load(Ordering::Relaxed);
        let head = lane.head.load(Ordering::Acquire);
        let mut put = LanePut { frames: 0, bytes: 0, tail: at };
        for &pick in picks {
            let Some(frame) = batch.get(pick.into()) else { break };
            let size = (HEADER + frame.len() as u64).next_multiple_of(ALIGN);
            let to_end = lane.capacity - at % lane.capacity;
            let gap = if size > to_end { to_end } else { 0 };
            if at + gap + size - head > lane.capacity || put.bytes + size > room {
                break;
            }
            let record = LaneRecord {
                size: size as u32,
                len: frame.len() as u32,
                arrived: now,
                uses: 1,
                no_learn: frame.no_learn(),
                offload: frame.offload(),
            };
            // SAFETY: the bytes up to `at + gap + size` are free, as checked above, and only this value may write them;
            // neither the gap, which ends where the ring ends, nor the record, which then begins where the ring begins,
            // reaches past the end.
            unsafe {
                if gap > 0 {
                    lane.at(at).cast::<[u32; 2]>().write([gap as u32, GAP]);
                }
                let to = lane.at(at + gap);
                to.cast::<LaneRecord>().write(record);
                frame.copy_out_raw(0, to.add(HEADER as usize), frame.len());
            }
            at += gap + size;
            put.frames += 1;
            put.bytes += size;
        }
        put.tail = at;
        put
    }

    /// Passes the frames to the reader.
    pub(super) fn publish(self, put: &LanePut) {
        self.0.tail.store(put.tail, Ordering::Release);
    }
}

/// A frame that the reader has found in the lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneFrame {
    pub(super) position: u64,
    pub(super) arrived: u64,
    pub(super) len: u32,
    /// Bytes on the wire: a large segment counts as all the frames into which it is cut.
    pub(super) on_wire: u32,
    /// Size in the lane in bytes, including the record.
    pub(super) size: u64,
}

/// Address, length and attributes of a frame in a lane.
pub(super) struct FramePlace {
    pub(super) at: *const u8,
    pub(super) len: u32,
    /// The offload pending on the frame.
    pub(super) offload: Offload,
    /// Whether the frame's source address must not be learned.
    pub(super) no_learn: bool,
}

/// The reader's position in a lane. Each lane has one reader.
#[derive(Default)]
pub(super) struct LaneReader {
    /// Position of the next record to read.
    next: u64,
    /// Position of the oldest record still needed.
    oldest: u64,
}

impl LaneReader {
    /// Whether there are unread frames.
    pub(super) fn has_news(&self, lane: &LinkLane) -> bool {
        self.next != lane.tail.load(Ordering::Acquire)
    }

    /// Returns the next frame; `None` if all frames have been read. A frame remains the next frame until it is
    /// [taken](LaneReader::take).
    pub(super) fn peek(&mut self, lane: &LinkLane) -> Option<LaneFrame> {
        while self.has_news(lane) {
            // SAFETY: records from `next` to the tail are complete, and belong to the reader.
            match unsafe { lane.record(self.next) } {
                Ok(record) => {
                    let LaneRecord { size, len, arrived, offload, .. } = record;
                    let on_wire = weight(len, offload).bytes;
                    return Some(LaneFrame { position: self.next, arrived, len, on_wire, size: size.into() });
                }
                Err(gap) => self.next += u64::from(gap),
            }
        }
        None
    }

    /// Advances past a frame, and records that the frame will be handed out `uses` times.
    pub(super) fn take(&mut self, lane: &LinkLane, found: &LaneFrame, uses: u16) {
        self.next = found.position + found.size;
        // SAFETY: the record belongs to the reader until `oldest` has passed it.
        unsafe { (&raw mut (*lane.at(found.position).cast::<LaneRecord>()).uses).write(uses) };
        if uses == 0 {
            self.give_back(lane);
        }
    }

    /// Returns the address, length and attributes of the frame at `position`. The frame's bytes stay valid until the
    /// frame is [done](LaneReader::done).
    pub(super) fn frame(&self, lane: &LinkLane, position: u64) -> FramePlace {
        // SAFETY: as in `take`.
        let record = unsafe { lane.record(position) };
        // SAFETY: the frame follows its record in the same allocation.
        let at = unsafe { lane.at(position).add(HEADER as usize) }.cast_const();
        let none = FramePlace { at, len: 0, offload: Offload::None, no_learn: false };
        let placed = |LaneRecord { len, offload, no_learn, .. }: LaneRecord| FramePlace { at, len, offload, no_learn };
        record.map_or(none, placed)
    }

    /// Records that a frame was handed out, or dropped, once. Returns whether that was its last use.
    pub(super) fn done(&mut self, lane: &LinkLane, position: u64) -> bool {
        // SAFETY: as in `take`.
        let left = unsafe {
            let uses = &raw mut (*lane.at(position).cast::<LaneRecord>()).uses;
            uses.write(uses.read().saturating_sub(1));
            uses.read()
        };
        if left == 0 {
            self.give_back(lane);
        }
        left == 0
    }

    /// Gives back to the writer the oldest records, up to the first record that is still needed.
    fn give_back(&mut self, lane: &LinkLane) {
        while self.oldest < self.next {
            // SAFETY: records from the oldest record to the next record belong to the reader.
            match unsafe { lane.record(self.oldest) } {
                Ok(record) if record.uses > 0 => break,
                Ok(record) => self.oldest += u64::from(record.size),
                Err(gap) => self.oldest += u64::from(gap),
            }
        }
        lane.head.store(self.oldest, Ordering::Release);
    }
}
