//! A lane: a ring of bytes with one writer at a time and one reader.
//!
//! Frames lie in it one behind the other, each whole, behind a record of what is known about it. The writer's bytes
//! become the reader's with `tail`, and the writer's again with `head`. No other process has this memory.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use netvale_wire::offload::Offload;

use crate::Batch;
use crate::batch::{MAX_FRAME, weight};

/// What stands before each frame.
#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    /// Bytes to the next record.
    size: u32,
    /// Bytes of the frame, or [`GAP`].
    len: u32,
    arrived: u64,
    /// How often it is still to be handed out.
    uses: u16,
    /// Whether its source address is not to be learned.
    no_learn: bool,
    offload: Offload,
}

/// The length of what fills the end of the ring where no frame fits: only `size` and `len` are there.
const GAP: u32 = u32::MAX;
const ALIGN: u64 = 8;
const HEADER: u64 = size_of::<Record>() as u64;
/// What a frame takes in a ring, at least: one with nothing behind its Ethernet header.
pub(super) const LEAST_FRAME: u64 = (HEADER + 14).next_multiple_of(ALIGN);
/// The least and the most bytes of a ring: one frame of any length fits, and positions in it fit `size`.
const LEAST: u64 = 2 * (MAX_FRAME as u64 + HEADER);
const MOST: u64 = 1 << 31;

thread_local! {
    static OWN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The number of the lane that this thread tries first.
pub(super) fn own() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    OWN.with(|own| {
        let number = own.get().unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        own.set(Some(number));
        number
    })
}

/// A ring of bytes.
pub(super) struct Lane {
    memory: NonNull<u8>,
    capacity: u64,
    /// Where the next record begins, of the bytes of all laps.
    tail: AtomicU64,
    /// Where the oldest record begins that the reader still needs.
    head: AtomicU64,
    is_written: AtomicBool,
}

// SAFETY: `memory` is this value's own. Its bytes from `tail` to `head` belong to who set `is_written`, those from
// `head` to `tail` to the reader, of which there is one (`Reader` is neither made twice nor cloned).
unsafe impl Send for Lane {}
// SAFETY: as above.
unsafe impl Sync for Lane {}

impl Drop for Lane {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and referred to by nobody any more.
        unsafe { dealloc(self.memory.as_ptr(), layout(self.capacity)) };
    }
}

fn layout(capacity: u64) -> Layout {
    // MOST is far below what a layout may have, and ALIGN is a power of two.
    Layout::from_size_align(capacity as usize, ALIGN as usize).unwrap_or(Layout::new::<u64>())
}

/// What was put into a lane, for [`Writer::publish`].
pub(super) struct Put {
    pub(super) frames: usize,
    pub(super) bytes: u64,
    tail: u64,
}

/// The right to write into a lane.
pub(super) struct Writer<'a>(&'a Lane);

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.0.is_written.store(false, Ordering::Release);
    }
}

impl Lane {
    /// Bytes of a ring that is asked to have that many.
    pub(super) fn capacity_for(bytes: u64) -> u64 {
        bytes.clamp(LEAST, MOST).next_multiple_of(ALIGN)
    }

    /// Makes a ring of about that many bytes; `None` if there is no memory. Pages are taken only when they are first
    /// written.
    pub(super) fn new(bytes: u64) -> Option<Lane> {
        let capacity = Self::capacity_for(bytes);
        // SAFETY: the layout's size is not 0.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout(capacity)) })?;
        let (tail, head, is_written) = Default::default();
        Some(Lane { memory, capacity, tail, head, is_written })
    }

    /// Whether a thread has the right to write.
    pub(super) fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Relaxed)
    }

    /// The right to write, unless another thread has it.
    pub(super) fn write(&self) -> Option<Writer<'_>> {
        (!self.is_written.swap(true, Ordering::Acquire)).then_some(Writer(self))
    }

    /// A pointer to the byte at a position.
    fn at(&self, position: u64) -> *mut u8 {
        // SAFETY: the remainder is below `capacity`, the size of the allocation.
        unsafe { self.memory.as_ptr().add((position % self.capacity) as usize) }
    }

    /// Reads a record, or a gap's size.
    ///
    /// # Safety
    /// A record or a gap begins at `position`, and belongs to the caller.
    unsafe fn record(&self, position: u64) -> Result<Record, u32> {
        let at = self.at(position);
        // SAFETY: a gap has at least ALIGN bytes, as positions and the capacity are multiples of it; a record has all
        // of them.
        unsafe {
            let [size, len] = at.cast::<[u32; 2]>().read();
            if len == GAP { Err(size) } else { Ok(at.cast::<Record>().read()) }
        }
    }
}

impl Writer<'_> {
    /// Copies frames behind the last ones, as long as there is room and they have at most `room` bytes with their
    /// records. The reader sees them once they are [published](Writer::publish).
    pub(super) fn put(&mut self, batch: &Batch, picks: &[u16], now: u64, room: u64) -> Put {
        let lane = self.0;
        let (mut at, head) = (lane.tail.load(Ordering::Relaxed), lane.head.load(Ordering::Acquire));
        let mut put = Put { frames: 0, bytes: 0, tail: at };
        for &pick in picks {
            let Some(frame) = batch.get(pick.into()) else { break };
            let size = (HEADER + frame.len() as u64).next_multiple_of(ALIGN);
            let to_end = lane.capacity - at % lane.capacity;
            let gap = if size > to_end { to_end } else { 0 };
            if at + gap + size - head > lane.capacity || put.bytes + size > room {
                break;
            }
            let record = Record {
                size: size as u32,
                len: frame.len() as u32,
                arrived: now,
                uses: 1,
                no_learn: frame.no_learn(),
                offload: frame.offload(),
            };
            // SAFETY: the bytes up to `at + gap + size` are free, as was just seen, and this value alone may write
            // them; neither the gap, which ends with the ring, nor the record, which then begins with it, reaches past
            // its end.
            unsafe {
                if gap > 0 {
                    lane.at(at).cast::<[u32; 2]>().write([gap as u32, GAP]);
                }
                let to = lane.at(at + gap);
                to.cast::<Record>().write(record);
                frame.copy_out_raw(0, to.add(HEADER as usize), frame.len());
            }
            at += gap + size;
            (put.frames, put.bytes) = (put.frames + 1, put.bytes + size);
        }
        put.tail = at;
        put
    }

    /// Gives the reader what was put.
    pub(super) fn publish(self, put: &Put) {
        self.0.tail.store(put.tail, Ordering::Release);
    }
}

/// A frame in a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) position: u64,
    pub(super) arrived: u64,
    pub(super) len: u32,
    /// Bytes of all frames that it becomes.
    pub(super) on_wire: u32,
    /// Bytes that it takes, with its record.
    pub(super) size: u64,
}

/// Where a frame lies, and what goes with it.
pub(super) struct Placed {
    pub(super) at: *const u8,
    pub(super) len: u32,
    /// What is left to do on it.
    pub(super) offload: Offload,
    /// Whether its source address is not to be learned.
    pub(super) no_learn: bool,
}

/// The reader's side of a lane. There is one for each.
#[derive(Default)]
pub(super) struct Reader {
    /// The next record to be found.
    next: u64,
    /// The oldest one that is still needed.
    oldest: u64,
}

impl Reader {
    /// Whether there are frames that were not found yet.
    pub(super) fn has_news(&self, lane: &Lane) -> bool {
        self.next != lane.tail.load(Ordering::Acquire)
    }

    /// The next frame. It stays the next one until it is [taken](Reader::take).
    pub(super) fn peek(&mut self, lane: &Lane) -> Option<Found> {
        while self.has_news(lane) {
            // SAFETY: records from `next` to the tail are complete, and belong to the reader.
            match unsafe { lane.record(self.next) } {
                Ok(record) => {
                    let Record { size, len, arrived, offload, .. } = record;
                    let on_wire = weight(len, offload).bytes;
                    return Some(Found { position: self.next, arrived, len, on_wire, size: size.into() });
                }
                Err(gap) => self.next += u64::from(gap),
            }
        }
        None
    }

    /// Goes on behind a frame that was found, which is to be handed out `uses` times.
    pub(super) fn take(&mut self, lane: &Lane, found: &Found, uses: u16) {
        self.next = found.position + found.size;
        // SAFETY: the record belongs to the reader until `oldest` has passed it.
        unsafe { (&raw mut (*lane.at(found.position).cast::<Record>()).uses).write(uses) };
        if uses == 0 {
            self.give_back(lane);
        }
    }

    /// A frame's place. Its bytes stay until it is [done with](Reader::done).
    pub(super) fn frame(&self, lane: &Lane, position: u64) -> Placed {
        // SAFETY: as in `take`.
        let record = unsafe { lane.record(position) };
        // SAFETY: the frame lies behind its record, in the same allocation.
        let at = unsafe { lane.at(position).add(HEADER as usize) }.cast_const();
        let none = Placed { at, len: 0, offload: Offload::None, no_learn: false };
        let placed = |Record { len, offload, no_learn, .. }: Record| Placed { at, len, offload, no_learn };
        record.map_or(none, placed)
    }

    /// A frame was handed out, or will not be: once less is to be done. Returns whether it was the last time.
    pub(super) fn done(&mut self, lane: &Lane, position: u64) -> bool {
        // SAFETY: as in `take`.
        let left = unsafe {
            let uses = &raw mut (*lane.at(position).cast::<Record>()).uses;
            uses.write(uses.read().saturating_sub(1));
            uses.read()
        };
        if left == 0 {
            self.give_back(lane);
        }
        left == 0
    }

    /// Gives the oldest records back that are not needed any more.
    fn give_back(&mut self, lane: &Lane) {
        while self.oldest < self.next {
            // SAFETY: records from the oldest to the next one belong to the reader.
            match unsafe { lane.record(self.oldest) } {
                Ok(record) if record.uses > 0 => break,
                Ok(record) => self.oldest += u64::from(record.size),
                Err(gap) => self.oldest += u64::from(gap),
            }
        }
        lane.head.store(self.oldest, Ordering::Release);
    }
}
