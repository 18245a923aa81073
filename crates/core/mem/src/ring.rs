//! One ring in shared memory: header, slots and buffers, with all bounds fixed when the view is created.
#![allow(unsafe_code)]

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use netvale_abi::slot::{NS_BUF_CHANGED, NS_MOREFRAG};
use netvale_abi::{NetmapRing, NetmapSlot};

use crate::layout::{BUF_SIZE_RANGE, RESERVED_BUFS, RING_SLOTS_RANGE};
use crate::mapping::Mapping;

#[cfg(not(target_endian = "little"))]
compile_error!("slots are read as little-endian words");

/// Location of a ring and its buffers in a mapping. Offsets are in bytes from the mapping's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlace {
    /// Offset of the `netmap_ring` in bytes.
    pub ring: u64,
    /// Number of slots.
    pub slots: u32,
    /// Offset of buffer 0 in bytes.
    pub bufs: u64,
    /// Number of buffers, including the reserved buffers.
    pub num_bufs: u32,
    /// Distance between buffers in bytes.
    pub buf_size: u32,
}

/// A view of one ring. It is cheap to clone.
///
/// Slot accesses never panic: an index out of range means slot 0. Slots are read and written as whole words, with
/// relaxed atomics: the CSB orders the accesses, and a peer that writes slots at the wrong moment damages only its own
/// frames. Buffers are reached only through [`RingMem::buf`], which checks the index.
#[derive(Clone, Debug)]
pub struct RingMem {
    header: NonNull<u8>,
    slots: NonNull<u8>,
    bufs: NonNull<u8>,
    place: RingPlace,
    /// Usable bytes of a buffer: its size, but at most 65,535, as a slot's length has 16 bits.
    limit: u32,
    map: Arc<Mapping>,
}

// SAFETY: all access is through atomics or raw copies inside a mapping that the Arc keeps alive.
unsafe impl Send for RingMem {}
// SAFETY: a shared view offers the same as an owned one: atomic accesses, and raw copies, which may race with accesses
// of other processes anyway.
unsafe impl Sync for RingMem {}

const SLOTS_AT: usize = size_of::<NetmapRing>();
const SLOT: usize = size_of::<NetmapSlot>();

impl RingMem {
    /// Creates a view of the ring at `place`; `None` if any part of it is outside the mapping, or its sizes are
    /// invalid.
    pub fn new(map: &Arc<Mapping>, place: RingPlace) -> Option<Self> {
        let is_ring = RING_SLOTS_RANGE.contains(&place.slots) && BUF_SIZE_RANGE.contains(&place.buf_size);
        if !is_ring || place.num_bufs <= RESERVED_BUFS {
            return None;
        }
        let bytes = SLOTS_AT as u64 + SLOT as u64 * u64::from(place.slots);
        let header = map.at(place.ring, bytes, 8)?;
        let bufs = map.at(place.bufs, u64::from(place.num_bufs) * u64::from(place.buf_size), 64)?;
        // SAFETY: `at` checked header + SLOTS_AT + slots.
        let slots = unsafe { header.add(SLOTS_AT) };
        let limit = place.buf_size.min(u16::MAX.into());
        Some(RingMem { header, slots, bufs, place, limit, map: Arc::clone(map) })
    }

    /// Number of slots.
    #[inline]
    pub fn num_slots(&self) -> u32 {
        self.place.slots
    }

    /// Size of a buffer in bytes.
    #[inline]
    pub fn buf_size(&self) -> u32 {
        self.place.buf_size
    }

    /// Number of bytes of a buffer from `at` on that a slot's length can express: a length has 16 bits, so the last of
    /// 65,536 bytes does not count.
    #[inline]
    pub fn room(&self, at: u32) -> u32 {
        self.limit.saturating_sub(at)
    }

    /// Number of buffers in the pool, including the two reserved buffers.
    pub fn num_bufs(&self) -> u32 {
        self.place.num_bufs
    }

    /// The location of the ring and its buffers in the mapping.
    pub fn place(&self) -> RingPlace {
        self.place
    }

    /// The mapping that contains the ring.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }

    /// Whether both rings have buffers of the same pool, so that their slots may exchange buffers.
    pub fn shares_buffers_with(&self, other: &RingMem) -> bool {
        self.bufs == other.bufs && self.place.num_bufs == other.place.num_bufs && self.buf_size() == other.buf_size()
    }

    /// Index of the slot after `i`.
    #[inline]
    pub fn next(&self, i: u32) -> u32 {
        if i + 1 >= self.place.slots { 0 } else { i + 1 }
    }

    /// Index of the slot before `i`.
    #[inline]
    pub fn prev(&self, i: u32) -> u32 {
        if i == 0 { self.place.slots - 1 } else { i - 1 }
    }

    /// Returns the slot after the last complete frame in the slots from `from` up to (not including) `to`: `to`, unless
    /// a frame continues at `to`; `from` if no frame is complete.
    #[inline]
    pub fn last_whole(&self, from: u32, to: u32) -> u32 {
        let goes_on = from != to && self.slot_word(self.prev(to)).flags & NS_MOREFRAG != 0;
        if goes_on { self.before_the_last(from, to) } else { to }
    }

    #[cold]
    fn before_the_last(&self, from: u32, to: u32) -> u32 {
        let mut end = to;
        for _ in 0..self.place.slots {
            if end == from || self.slot_word(self.prev(end)).flags & NS_MOREFRAG == 0 {
                return end;
            }
            end = self.prev(end);
        }
        from
    }

    #[inline]
    fn slot_ptr(&self, i: u32) -> *mut u8 {
        let i = if i < self.place.slots { i as usize } else { 0 };
        // SAFETY: i < slots, and `new` checked that all slots are in the mapping.
        unsafe { self.slots.as_ptr().add(i * SLOT) }
    }

    /// Returns a snapshot of slot `i`.
    #[inline]
    pub fn slot(&self, i: u32) -> NetmapSlot {
        #[cfg(fuzzing)]
        crate::probe::read();
        let p = self.slot_ptr(i).cast::<u64>();
        // SAFETY: the two aligned words of a slot inside the mapping, accessed atomically.
        let (w, ptr) = unsafe {
            (AtomicU64::from_ptr(p).load(Ordering::Relaxed), AtomicU64::from_ptr(p.add(1)).load(Ordering::Relaxed))
        };
        NetmapSlot { buf_idx: w as u32, len: (w >> 32) as u16, flags: (w >> 48) as u16, ptr }
    }

    /// Returns a snapshot of slot `i` without its `ptr` field, which only indirect slots and offsets use.
    #[inline]
    pub fn slot_word(&self, i: u32) -> NetmapSlot {
        #[cfg(fuzzing)]
        crate::probe::read();
        // SAFETY: the first aligned word of a slot inside the mapping, accessed atomically.
        let w = unsafe { AtomicU64::from_ptr(self.slot_ptr(i).cast()).load(Ordering::Relaxed) };
        NetmapSlot { buf_idx: w as u32, len: (w >> 32) as u16, flags: (w >> 48) as u16, ptr: 0 }
    }

    /// Returns the ORed flags of the slots from `from` up to (not including) `to`; `from` and `to` must be indices of
    /// the ring.
    ///
    /// This takes two instructions per slot, and the slots are in the CPU's cache, as the caller has just written them.
    #[inline]
    pub fn flags_between(&self, from: u32, to: u32) -> u16 {
        if from <= to {
            return self.flags_of_run(from, to);
        }
        self.flags_of_run(from, self.place.slots) | self.flags_of_run(0, to)
    }

    #[inline]
    fn flags_of_run(&self, from: u32, to: u32) -> u16 {
        const AT_ONCE: usize = 8;
        #[cfg(fuzzing)]
        crate::probe::read();
        let to = to.min(self.place.slots);
        let mut at = self.slot_ptr(from);
        let mut left = to.saturating_sub(from) as usize;
        let mut all = 0u64;
        // SAFETY: `left` slots from `from` on are in the ring; their first words are aligned, and accessed atomically.
        let word =
            |at: *mut u8, k: usize| unsafe { AtomicU64::from_ptr(at.add(k * SLOT).cast()).load(Ordering::Relaxed) };
        while left >= AT_ONCE {
            all |= word(at, 0) | word(at, 1) | word(at, 2) | word(at, 3);
            all |= word(at, 4) | word(at, 5) | word(at, 6) | word(at, 7);
            // SAFETY: at most one slot beyond the ring's last slot; all slots are in one mapping.
            at = unsafe { at.add(AT_ONCE * SLOT) };
            left -= AT_ONCE;
        }
        all |= (0..left).fold(0, |some, k| some | word(at, k));
        (all >> 48) as u16
    }

    /// Writes slot `i`, except its `ptr` field.
    #[inline]
    pub fn set_slot_word(&self, i: u32, buf_idx: u32, len: u16, flags: u16) {
        let w = u64::from(buf_idx) | u64::from(len) << 32 | u64::from(flags) << 48;
        // SAFETY: the first aligned word of a slot inside the mapping, accessed atomically.
        unsafe { AtomicU64::from_ptr(self.slot_ptr(i).cast()).store(w, Ordering::Relaxed) };
    }

    /// Returns a snapshot of the `ptr` field of slot `i`.
    #[inline]
    pub fn ptr(&self, i: u32) -> u64 {
        #[cfg(fuzzing)]
        crate::probe::read();
        // SAFETY: the second aligned word of a slot inside the mapping, accessed atomically.
        unsafe { AtomicU64::from_ptr(self.slot_ptr(i).cast::<u64>().add(1)).load(Ordering::Relaxed) }
    }

    /// Writes the `ptr` field of slot `i`.
    #[inline]
    pub fn set_ptr(&self, i: u32, ptr: u64) {
        // SAFETY: the second aligned word of a slot inside the mapping, accessed atomically.
        unsafe { AtomicU64::from_ptr(self.slot_ptr(i).cast::<u64>().add(1)).store(ptr, Ordering::Relaxed) };
    }

    /// Swaps the buffers in `count` slots, from slot `from` on, with the buffers in the same slots of ring `to`, and
    /// copies lengths and flags to `to`. Sets `NS_BUF_CHANGED` in all these slots. Returns the slot after the last
    /// swapped slot.
    #[inline]
    pub fn swap_slots(&self, to: &RingMem, from: u32, count: u32) -> u32 {
        const CHANGED: u64 = (NS_BUF_CHANGED as u64) << 48;
        const BUF: u64 = u32::MAX as u64;
        const LEN: u64 = (u16::MAX as u64) << 32;
        let n = self.place.slots.min(to.place.slots);
        let mut i = if from < n { from } else { 0 };
        let mut left = count;
        while left > 0 {
            let run = left.min(n - i);
            for k in i as usize..(i + run) as usize {
                #[cfg(fuzzing)]
                crate::probe::read();
                // SAFETY: i + run <= n, and `new` checked for both rings that all of their slots are in the mapping;
                // their first words are aligned, and accessed atomically.
                let (full, empty) = unsafe {
                    let word = |ring: &RingMem| AtomicU64::from_ptr(ring.slots.as_ptr().add(k * SLOT).cast());
                    (word(self), word(to))
                };
                let f = full.load(Ordering::Relaxed);
                let e = empty.load(Ordering::Relaxed);
                empty.store(f | CHANGED, Ordering::Relaxed);
                full.store(e & BUF | f & LEN | CHANGED, Ordering::Relaxed);
            }
            left -= run;
            i = if i + run == n { 0 } else { i + run };
        }
        i
    }

    /// Writes `len` and `flags` of slot `i`, which keeps its buffer.
    #[inline]
    pub fn set_len_flags(&self, i: u32, len: u16, flags: u16) {
        let w = u32::from(len) | u32::from(flags) << 16;
        // SAFETY: the aligned second half of a slot's first word, inside the mapping, accessed atomically.
        unsafe { AtomicU32::from_ptr(self.slot_ptr(i).add(4).cast()).store(w, Ordering::Relaxed) };
    }

    /// Returns the start of buffer `idx`, `buf_size()` bytes long; `None` if the index is reserved or outside the pool.
    #[inline]
    pub fn buf(&self, idx: u32) -> Option<NonNull<u8>> {
        if idx < RESERVED_BUFS || idx >= self.place.num_bufs {
            return None;
        }
        // SAFETY: idx < num_bufs, and `new` checked that all buffers are in the mapping.
        Some(unsafe { self.bufs.add(idx as usize * self.place.buf_size as usize) })
    }

    /// Prefetches the first cache line of buffer `idx` for a read. Does nothing for an index outside the pool.
    #[inline]
    pub fn prefetch_read(&self, idx: u32) {
        if let Some(p) = self.buf(idx) {
            crate::copy::prefetch_read(p.as_ptr());
        }
    }

    /// Prefetches the first cache line of buffer `idx` for a write.
    #[inline]
    pub fn prefetch_write(&self, idx: u32) {
        if let Some(p) = self.buf(idx) {
            crate::copy::prefetch_write(p.as_ptr());
        }
    }

    /// Like [`prefetch_read`](Self::prefetch_read), for the first two cache lines: a short frame with a virtio-net
    /// header in front spans both lines.
    #[inline]
    pub fn prefetch_read_two(&self, idx: u32) {
        if let Some(p) = self.buf(idx) {
            crate::copy::prefetch_read(p.as_ptr());
            crate::copy::prefetch_read(p.as_ptr().wrapping_add(64));
        }
    }

    /// Like [`prefetch_read_two`](Self::prefetch_read_two), for a write.
    #[inline]
    pub fn prefetch_write_two(&self, idx: u32) {
        if let Some(p) = self.buf(idx) {
            crate::copy::prefetch_write(p.as_ptr());
            crate::copy::prefetch_write(p.as_ptr().wrapping_add(64));
        }
    }

    /// Copies `bytes` to offset `at` of buffer `idx`. Returns whether the bytes fit; if not, nothing is written.
    #[inline]
    pub fn write(&self, idx: u32, at: u32, bytes: &[u8]) -> bool {
        let Some(p) = self.within(idx, at, bytes.len()) else { return false };
        // SAFETY: `within` checked that the bytes fit into the buffer; `bytes` is private memory, so the ranges do not
        // overlap.
        unsafe { crate::copy::copy_bytes(bytes.as_ptr(), p.as_ptr(), bytes.len()) };
        true
    }

    /// Copies the bytes at offset `at` of buffer `idx` into `bytes`. Returns whether the buffer has that many bytes; if
    /// not, nothing is read.
    #[inline]
    pub fn read(&self, idx: u32, at: u32, bytes: &mut [u8]) -> bool {
        let Some(p) = self.within(idx, at, bytes.len()) else { return false };
        // SAFETY: `within` checked the bounds; `bytes` is private memory, so the ranges do not overlap.
        unsafe { crate::copy::copy_bytes(p.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        true
    }

    /// Copies `len` bytes at offset `at` of buffer `other` of the ring `from` to the start of buffer `idx`. Returns
    /// whether both buffers have that many bytes; if not, nothing is written.
    pub fn copy_buf(&self, idx: u32, from: &RingMem, other: u32, at: u32, len: usize) -> bool {
        let (Some(to), Some(p)) = (self.within(idx, 0, len), from.within(other, at, len)) else { return false };
        // SAFETY: `within` checked that the bytes are inside both buffers, whose mappings the rings keep; the buffers
        // may be the same.
        unsafe { crate::copy::copy_bytes(p.as_ptr(), to.as_ptr(), len) };
        true
    }

    /// Returns a pointer to the `len` bytes at offset `at` of buffer `idx`; `None` if the index is invalid, or the
    /// bytes exceed the buffer or the length that a slot can express.
    #[inline]
    pub fn within(&self, idx: u32, at: u32, len: usize) -> Option<NonNull<u8>> {
        let room = self.limit.checked_sub(at)? as usize;
        let p = self.buf(idx)?;
        // SAFETY: at <= buf_size, so the result is inside the buffer or one past its end.
        (len <= room).then(|| unsafe { p.add(at as usize) })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        #[cfg(fuzzing)]
        crate::probe::read();
        // SAFETY: an aligned u32 field of the ring header inside the mapping, only accessed atomically by us.
        unsafe { AtomicU32::from_ptr(self.header.as_ptr().add(offset).cast()) }
    }

    /// Writes `head`, `cur` and `tail` of the header, for programs that use the netmap ABI.
    #[inline]
    pub fn set_indices(&self, head: u32, cur: u32, tail: u32) {
        self.word(offset_of!(NetmapRing, head)).store(head, Ordering::Relaxed);
        self.word(offset_of!(NetmapRing, cur)).store(cur, Ordering::Relaxed);
        self.word(offset_of!(NetmapRing, tail)).store(tail, Ordering::Relaxed);
    }

    /// Returns a snapshot of the header's `head`, `cur` and `tail`.
    pub fn indices(&self) -> (u32, u32, u32) {
        let get = |o| self.word(o).load(Ordering::Relaxed);
        (get(offset_of!(NetmapRing, head)), get(offset_of!(NetmapRing, cur)), get(offset_of!(NetmapRing, tail)))
    }

    /// The header's `flags` (`NR_TIMESTAMP`, `NR_FORWARD`).
    #[inline]
    pub fn flags(&self) -> u32 {
        self.word(offset_of!(NetmapRing, flags)).load(Ordering::Relaxed)
    }

    /// Writes the header's `flags`.
    pub fn set_flags(&self, flags: u32) {
        self.word(offset_of!(NetmapRing, flags)).store(flags, Ordering::Relaxed);
    }

    fn offset_mask_word(&self) -> &AtomicU64 {
        #[cfg(fuzzing)]
        crate::probe::read();
        // SAFETY: an aligned u64 field of the header inside the mapping, only accessed atomically by us.
        unsafe { AtomicU64::from_ptr(self.header.as_ptr().add(offset_of!(NetmapRing, offset_mask)).cast()) }
    }

    /// The header's `offset_mask`; not 0 if the `ptr` fields of slots hold offsets.
    #[inline]
    pub fn offset_mask(&self) -> u64 {
        self.offset_mask_word().load(Ordering::Relaxed)
    }

    /// Writes the header's `offset_mask`.
    pub fn set_offset_mask(&self, mask: u64) {
        self.offset_mask_word().store(mask, Ordering::Relaxed);
    }

    /// Writes the header's time stamp, a `struct timeval`.
    pub fn set_timestamp(&self, sec: i64, usec: i64) {
        let at = offset_of!(NetmapRing, ts);
        for (k, v) in [sec, usec].into_iter().enumerate() {
            // SAFETY: an aligned u64 of the 16-byte `ts` field of the header, accessed atomically.
            unsafe {
                AtomicU64::from_ptr(self.header.as_ptr().add(at + 8 * k).cast()).store(v as u64, Ordering::Relaxed)
            };
        }
    }

    /// The header's time stamp: seconds and microseconds.
    pub fn timestamp(&self) -> (i64, i64) {
        let at = offset_of!(NetmapRing, ts);
        // SAFETY: an aligned u64 of the 16-byte `ts` field of the header, accessed atomically.
        let get = |k: usize| unsafe {
            AtomicU64::from_ptr(self.header.as_ptr().add(at + 8 * k).cast()).load(Ordering::Relaxed)
        };
        (get(0) as i64, get(1) as i64)
    }

    /// Initialises the header of a new ring, with `head = cur = 0` and this `tail`.
    pub fn init_header(&self, ringid: u16, rx: bool, tail: u32) {
        let u64_at = |o: usize, v: u64| {
            // SAFETY: an aligned u64 field of the header, accessed atomically.
            unsafe { AtomicU64::from_ptr(self.header.as_ptr().add(o).cast()).store(v, Ordering::Relaxed) };
        };
        let u16_at = |o: usize, v: u16| {
            // SAFETY: an aligned u16 field of the header, accessed atomically.
            unsafe { AtomicU16::from_ptr(self.header.as_ptr().add(o).cast()).store(v, Ordering::Relaxed) };
        };
        // buf_ofs is relative to the ring, and may be negative in netmap; here the buffers come after the rings.
        u64_at(offset_of!(NetmapRing, buf_ofs), self.place.bufs.wrapping_sub(self.place.ring));
        self.word(offset_of!(NetmapRing, num_slots)).store(self.place.slots, Ordering::Relaxed);
        self.word(offset_of!(NetmapRing, nr_buf_size)).store(self.place.buf_size, Ordering::Relaxed);
        u16_at(offset_of!(NetmapRing, ringid), ringid);
        u16_at(offset_of!(NetmapRing, dir), u16::from(rx));
        self.set_flags(0);
        self.set_timestamp(0, 0);
        self.set_offset_mask(0);
        u64_at(offset_of!(NetmapRing, buf_align), 0);
        self.set_indices(0, 0, tail);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Objective: sizes that no ring can have are refused; a frame can use all but one byte of a buffer of 65,536
    /// bytes.
    #[test]
    fn sizes_that_no_ring_can_have_are_refused() {
        let map = Arc::new(Mapping::private(1 << 20).unwrap());
        let ring = |slots, num_bufs, buf_size| {
            RingMem::new(&map, RingPlace { ring: 0, slots, bufs: 1 << 16, num_bufs, buf_size })
        };
        for (slots, num_bufs, buf_size) in [
            (8, 6, 0),
            (8, 6, 63),
            (8, 6, 65_537),
            (8, 6, u32::MAX),
            (1, 6, 64),
            (16_385, 6, 64),
            (8, 2, 64),
            (8, 16, 65_536),
        ] {
            assert!(ring(slots, num_bufs, buf_size).is_none(), "{slots} {num_bufs} {buf_size}");
        }
        let small = ring(8, 6, 64).unwrap();
        assert_eq!([0, 1, 64, 65].map(|at| small.room(at)), [64, 63, 0, 0]);
        let large = ring(8, 6, 65_536).unwrap();
        assert_eq!([0, 1, 2, 65_536].map(|at| large.room(at)), [65_535, 65_534, 65_533, 0]);
    }
}
