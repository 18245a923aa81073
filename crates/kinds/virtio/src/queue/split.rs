//! The split layout (virtio 1.3 §2.7): a table of descriptors, the available ring, which the driver fills, and the used
//! ring, which the device fills.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use netvale_mem::copy::prefetch_read;
use netvale_mem::notify::full_fence;

use super::{
    Chain, DriverViolation, INDIRECT, MAX_SIZE, NEXT, Pieces, QueueAddresses, QueueDesc, QueueFeatures, QueuePosition,
    words,
};
use crate::memory::{GuestMemory, Hint};

/// `VIRTQ_AVAIL_F_NO_INTERRUPT`.
const NO_INTERRUPT: u16 = 1;
/// `VIRTQ_USED_F_NO_NOTIFY`.
const NO_NOTIFY: u16 = 1;
/// Number of chains whose descriptors are prefetched before they are read.
const AHEAD: u16 = 16;

/// The device's side of a split queue.
pub struct SplitQueue {
    size: u16,
    desc: NonNull<u8>,
    avail: NonNull<u8>,
    used: NonNull<u8>,
    features: QueueFeatures,
    /// Index of the next entry of the available ring.
    next: u16,
    /// `avail.idx` as last read.
    seen: u16,
    /// Index of the next entry of the used ring.
    done: u16,
    /// `used.idx` as last published.
    shown: u16,
}

// SAFETY: the pointers are addresses inside a guest's memory, which `LiveQueue` holds together with the queue; nothing
// depends on the thread.
unsafe impl Send for SplitQueue {}

impl SplitQueue {
    /// See [`super::DeviceQueue::new`].
    pub fn new(
        memory: &GuestMemory,
        size: u16,
        at: QueueAddresses,
        base: u32,
        features: QueueFeatures,
    ) -> Option<SplitQueue> {
        if !size.is_power_of_two() || size > MAX_SIZE {
            return None;
        }
        let n = u64::from(size);
        let desc = memory.user(at.desc, 16 * n, 16)?;
        // Each ring has flags, index, entries and event index.
        let avail = memory.user(at.avail, 4 + 2 * n + 2, 2)?;
        let used = memory.user(at.used, 4 + 8 * n + 2, 4)?;
        let next = base as u16;
        let mut queue = SplitQueue { size, desc, avail, used, features, next, seen: next, done: next, shown: next };
        // A queue starts with no chain in flight: all chains that were taken earlier have been returned.
        queue.done = queue.used_idx().load(Ordering::Relaxed);
        queue.shown = queue.done;
        Some(queue)
    }

    #[inline]
    fn half(&self, at: NonNull<u8>, offset: usize) -> &AtomicU16 {
        #[cfg(fuzzing)]
        netvale_mem::probe::read();
        // SAFETY: `new` checked the areas. Callers pass offsets below 4 + 2n + 2 for `avail`, and 0, 2 or 4 + 8n for
        // `used`; the addresses are aligned to 2. The driver shares the rings, hence atomic.
        unsafe { AtomicU16::from_ptr(at.as_ptr().add(offset).cast()) }
    }

    fn avail_flags(&self) -> &AtomicU16 {
        self.half(self.avail, 0)
    }

    fn avail_idx(&self) -> &AtomicU16 {
        self.half(self.avail, 2)
    }

    fn used_event(&self) -> &AtomicU16 {
        self.half(self.avail, 4 + 2 * usize::from(self.size))
    }

    fn used_flags(&self) -> &AtomicU16 {
        self.half(self.used, 0)
    }

    fn used_idx(&self) -> &AtomicU16 {
        self.half(self.used, 2)
    }

    fn avail_event(&self) -> &AtomicU16 {
        self.half(self.used, 4 + 8 * usize::from(self.size))
    }

    #[inline]
    fn entry(&self, at: u16) -> u16 {
        let i = usize::from(at & (self.size - 1));
        self.half(self.avail, 4 + 2 * i).load(Ordering::Relaxed)
    }

    /// Reads a descriptor of the table; `i` is below the size.
    #[inline]
    fn desc(&self, i: u16) -> QueueDesc {
        // SAFETY: `i` is below the size, and `new` checked that this many descriptors of 16 bytes, aligned to 16, lie
        // in the memory.
        let (addr, rest) = unsafe { words(self.desc.as_ptr().add(16 * usize::from(i))) };
        unpack(addr, rest)
    }

    /// Returns the number of entries.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// See [`super::DeviceQueue::has_next`].
    #[inline]
    pub fn has_next(&mut self) -> bool {
        if self.next == self.seen {
            self.seen = self.avail_idx().load(Ordering::Acquire);
        }
        self.next != self.seen
    }

    /// See [`super::DeviceQueue::prefetch`].
    #[inline]
    pub fn prefetch(&mut self) {
        if !self.has_next() {
            return;
        }
        for k in 0..self.seen.wrapping_sub(self.next).min(AHEAD) {
            let i = self.entry(self.next.wrapping_add(k)) & (self.size - 1);
            prefetch_read(self.desc.as_ptr().wrapping_add(16 * usize::from(i)));
        }
    }

    /// See [`super::DeviceQueue::next`].
    #[inline(always)]
    pub fn next(&mut self, memory: &GuestMemory, pieces: &mut Pieces) -> Result<Option<Chain>, DriverViolation> {
        pieces.clear();
        if !self.has_next() {
            return Ok(None);
        }
        let ready = self.seen.wrapping_sub(self.next);
        if ready > self.size {
            return Err(DriverViolation::AvailIndex);
        }
        if ready > AHEAD {
            let i = self.entry(self.next.wrapping_add(AHEAD)) & (self.size - 1);
            prefetch_read(self.desc.as_ptr().wrapping_add(16 * usize::from(i)));
        }
        let head = self.entry(self.next);
        if head >= self.size {
            return Err(DriverViolation::Head);
        }
        let first = self.desc(head);
        if first.flags & (INDIRECT | NEXT) == 0 {
            pieces.add_only(memory, first)?;
        } else {
            self.walk(memory, first, pieces)?;
        }
        self.next = self.next.wrapping_add(1);
        Ok(Some(Chain { id: head, count: 1 }))
    }

    /// Walks a chain that has several buffers or is in an indirect table. This is a separate function to save registers
    /// in [`SplitQueue::next`].
    #[inline(never)]
    fn walk(&self, memory: &GuestMemory, mut d: QueueDesc, pieces: &mut Pieces) -> Result<(), DriverViolation> {
        for _ in 0..self.size {
            if d.flags & INDIRECT != 0 {
                if !self.features.indirect || d.flags & NEXT != 0 {
                    return Err(DriverViolation::Indirect);
                }
                return self.walk_indirect(memory, d, pieces);
            }
            pieces.add(memory, d)?;
            if d.flags & NEXT == 0 || pieces.step() {
                return Ok(());
            }
            if d.other >= self.size {
                return Err(DriverViolation::NextIndex);
            }
            d = self.desc(d.other);
        }
        Err(DriverViolation::Loop)
    }

    fn walk_indirect(
        &self,
        memory: &GuestMemory,
        table: QueueDesc,
        pieces: &mut Pieces,
    ) -> Result<(), DriverViolation> {
        let count = table.len / 16;
        // A chain may not have more descriptors than the queue (§2.7.5.3.1).
        if !table.len.is_multiple_of(16) || count == 0 || count > u32::from(self.size) {
            return Err(DriverViolation::Indirect);
        }
        let mut i = 0u32;
        for _ in 0..count {
            let (addr, rest) = indirect_words(memory, table.addr, i).ok_or(DriverViolation::Indirect)?;
            let d = unpack(addr, rest);
            if d.flags & INDIRECT != 0 {
                return Err(DriverViolation::Indirect);
            }
            pieces.add(memory, d)?;
            if d.flags & NEXT == 0 || pieces.step() {
                return Ok(());
            }
            i = u32::from(d.other);
            if i >= count {
                return Err(DriverViolation::NextIndex);
            }
        }
        Err(DriverViolation::Loop)
    }

    /// See [`super::DeviceQueue::position`].
    #[inline]
    pub fn position(&self) -> QueuePosition {
        QueuePosition { at: self.next, wrap: false }
    }

    /// See [`super::DeviceQueue::back_to`].
    #[inline]
    pub fn back_to(&mut self, position: QueuePosition) {
        self.next = position.at;
    }

    /// See [`super::DeviceQueue::give_back`].
    #[inline]
    pub fn give_back(&mut self, chain: Chain, written: u32) {
        self.fill(self.done, chain, written);
        self.done = self.done.wrapping_add(1);
    }

    /// See [`super::DeviceQueue::give_back_all`].
    #[inline]
    pub fn give_back_all(&mut self, chains: impl Iterator<Item = (Chain, u32)>) {
        let mut done = self.done;
        for (chain, written) in chains {
            self.fill(done, chain, written);
            done = done.wrapping_add(1);
        }
        self.done = done;
    }

    /// Fills entry `done` of the used ring.
    #[inline]
    fn fill(&self, done: u16, chain: Chain, written: u32) {
        let i = usize::from(done & (self.size - 1));
        let at = self.used.as_ptr().wrapping_add(4 + 8 * i);
        // SAFETY: `at` is an entry of the used ring, ID and length, aligned to 4.
        unsafe {
            AtomicU32::from_ptr(at.cast()).store(u32::from(chain.id), Ordering::Relaxed);
            AtomicU32::from_ptr(at.add(4).cast()).store(written, Ordering::Relaxed);
        }
    }

    /// See [`super::DeviceQueue::publish`].
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.done == self.shown {
            return false;
        }
        self.used_idx().store(self.done, Ordering::Release);
        let old = std::mem::replace(&mut self.shown, self.done);
        full_fence();
        if self.features.event_idx {
            let event = self.used_event().load(Ordering::Relaxed);
            // §2.7.7.2: the driver requests a notification when the used index passes the driver's event index.
            self.done.wrapping_sub(event).wrapping_sub(1) < self.done.wrapping_sub(old)
        } else {
            self.avail_flags().load(Ordering::Relaxed) & NO_INTERRUPT == 0
        }
    }

    /// See [`super::DeviceQueue::arm`].
    pub fn arm(&mut self) -> bool {
        if self.features.event_idx {
            self.avail_event().store(self.next, Ordering::Relaxed);
        }
        self.used_flags().store(0, Ordering::Relaxed);
        full_fence();
        let idx = self.avail_idx().load(Ordering::Acquire);
        self.seen = idx;
        idx != self.next
    }

    /// See [`super::DeviceQueue::disarm`].
    pub fn disarm(&mut self) {
        // With event indices, the old event index is left in place: the driver passes it, and kicks, only once in
        // 65,536 entries.
        if !self.features.event_idx {
            self.used_flags().store(NO_NOTIFY, Ordering::Relaxed);
        }
    }

    /// See [`super::DeviceQueue::base`].
    pub fn base(&self) -> u32 {
        u32::from(self.next)
    }

    /// Returns the index of the next entry of the used ring.
    pub fn done(&self) -> u16 {
        self.done
    }

    /// Resumes after the last entry that was shown as used, with no chain in flight.
    pub fn resume(&mut self) {
        self.next = self.done;
        self.seen = self.done;
    }

    /// See [`super::DeviceQueue::device_area`].
    pub fn device_area(&self) -> [(*const u8, usize); 2] {
        [(self.used.as_ptr(), 4 + 8 * usize::from(self.size) + 2), (self.used.as_ptr(), 0)]
    }
}

fn unpack(addr: u64, rest: u64) -> QueueDesc {
    QueueDesc { addr, len: rest as u32, flags: (rest >> 32) as u16, other: (rest >> 48) as u16 }
}

/// Reads descriptor `i` of an indirect table; its 16 bytes may be unaligned or span two regions. Returns `None` if any
/// of these bytes is outside the memory.
pub(super) fn indirect_words(memory: &GuestMemory, table: u64, i: u32) -> Option<(u64, u64)> {
    let at = table.checked_add(16 * u64::from(i))?;
    let mut hint = Hint::default();
    let (p, n) = memory.guest(at, 16, &mut hint)?;
    if n == 16 && (p.as_ptr() as usize).is_multiple_of(align_of::<AtomicU64>()) {
        // SAFETY: `memory.guest` found 16 bytes in one piece, and they are aligned to 8.
        return Some(unsafe { words(p.as_ptr()) });
    }
    let mut bytes = [0u8; 16];
    for (k, byte) in bytes.iter_mut().enumerate() {
        let (p, _) = memory.guest(at.checked_add(k as u64)?, 1, &mut hint)?;
        // SAFETY: `memory.guest` found this byte in a region; volatile, as the driver may be writing it.
        *byte = unsafe { p.as_ptr().read_volatile() };
    }
    let (low, high) = bytes.split_at(8);
    Some((u64::from_le_bytes(low.try_into().ok()?), u64::from_le_bytes(high.try_into().ok()?)))
}
