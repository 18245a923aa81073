//! The packed layout (virtio 1.3 §2.8): one ring of descriptors, which the driver and the device overwrite in turn.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use netvale_mem::copy::prefetch_read;
use netvale_mem::notify::full_fence;

use super::ring_index::{AT_DESC, AVAIL, DISABLE, ENABLE, USED, WrapIndex};
use super::split::indirect_words;
use super::{
    Chain, DriverViolation, INDIRECT, MAX_SIZE, NEXT, Pieces, QueueAddresses, QueueDesc, QueueFeatures, QueuePosition,
    WRITE, words,
};
use crate::memory::GuestMemory;

/// Number of descriptors to prefetch ahead: two cache lines.
const AHEAD: u16 = 8;

/// Returns the flags that mark the descriptor at an index as used.
#[inline]
fn used_flags(index: WrapIndex) -> u16 {
    if index.wrap { AVAIL | USED } else { 0 }
}

/// The device's side of a packed queue.
pub struct PackedQueue {
    size: u16,
    ring: NonNull<u8>,
    driver_event: NonNull<u8>,
    device_event: NonNull<u8>,
    features: QueueFeatures,
    next: WrapIndex,
    done: WrapIndex,
    /// Index of the first descriptor that is not shown to the driver yet, and its flags, which are written last.
    held: Option<(WrapIndex, u16)>,
    /// Index after the last descriptor that was shown to the driver.
    shown: WrapIndex,
}

// SAFETY: the pointers are addresses inside a guest's memory, which `LiveQueue` holds together with the queue; nothing
// depends on the thread.
unsafe impl Send for PackedQueue {}

impl PackedQueue {
    /// See [`super::DeviceQueue::new`].
    pub fn new(
        memory: &GuestMemory,
        size: u16,
        at: QueueAddresses,
        base: u32,
        features: QueueFeatures,
    ) -> Option<PackedQueue> {
        if size == 0 || size > MAX_SIZE {
            return None;
        }
        let ring = memory.user(at.desc, 16 * u64::from(size), 16)?;
        let driver_event = memory.user(at.avail, 4, 4)?;
        let device_event = memory.user(at.used, 4, 4)?;
        // In the lower half, bits 0–14 are the index and bit 15 is the wrap counter of the next entry to take; the
        // upper half describes the next entry to return in the same way.
        let next = WrapIndex::of(base as u16);
        let done = WrapIndex::of((base >> 16) as u16);
        // A transport that knows only the lower half passes 0 for the upper half.
        let done = if base >> 16 == 0 { next } else { done };
        if next.at >= size || done.at >= size {
            return None;
        }
        let held = None;
        let mut queue = PackedQueue { size, ring, driver_event, device_event, features, next, done, held, shown: done };
        // User-Mode Linux passes 0 for a new ring, in which both wrap counters are 1. In a ring that has wrapped around
        // to 0, the device has used the first descriptor.
        if base == 0 && queue.flags(0).load(Ordering::Acquire) & USED == 0 {
            queue.resume(WrapIndex { at: 0, wrap: true });
        }
        Some(queue)
    }

    #[inline]
    fn at(&self, i: u16) -> *mut u8 {
        self.ring.as_ptr().wrapping_add(16 * usize::from(i))
    }

    #[inline]
    fn flags(&self, i: u16) -> &AtomicU16 {
        #[cfg(fuzzing)]
        netvale_mem::probe::read();
        // SAFETY: `i` is below the size, so these are bytes 14 and 15 of a descriptor, aligned to 2. The driver shares
        // them, hence atomic.
        unsafe { AtomicU16::from_ptr(self.at(i).add(14).cast()) }
    }

    /// Returns the number of descriptors.
    pub fn size(&self) -> u16 {
        self.size
    }

    #[inline]
    fn is_available(&self, flags: u16) -> bool {
        let avail = flags & AVAIL != 0;
        let used = flags & USED != 0;
        avail == self.next.wrap && used != self.next.wrap
    }

    /// See [`super::DeviceQueue::has_next`].
    #[inline]
    pub fn has_next(&mut self) -> bool {
        self.is_available(self.flags(self.next.at).load(Ordering::Acquire))
    }

    /// See [`super::DeviceQueue::prefetch`].
    #[inline]
    pub fn prefetch(&mut self) {
        for k in (0..16).step_by(4) {
            prefetch_read(self.at(self.next.after(k, self.size).at));
        }
    }

    /// See [`super::DeviceQueue::next`].
    #[inline(always)]
    pub fn next(&mut self, memory: &GuestMemory, pieces: &mut Pieces) -> Result<Option<Chain>, DriverViolation> {
        pieces.clear();
        if !self.has_next() {
            return Ok(None);
        }
        prefetch_read(self.at(self.next.after(AHEAD.min(self.size - 1), self.size).at));
        let first = self.desc(self.next.at);
        if first.flags & (INDIRECT | NEXT) != 0 {
            return self.walk(memory, first, pieces).map(Some);
        }
        pieces.add_only(memory, first)?;
        self.next = self.next.after(1, self.size);
        Ok(Some(Chain { id: first.other, count: 1 }))
    }

    /// Reads a descriptor; `i` is below the size.
    #[inline]
    fn desc(&self, i: u16) -> QueueDesc {
        // SAFETY: `i` is below the size, and `new` checked that this many descriptors of 16 bytes, aligned to 16, lie
        // in the memory.
        let (addr, rest) = unsafe { words(self.at(i)) };
        unpack(addr, rest)
    }

    /// Walks a chain that has several buffers or is in an indirect table. This is a separate function to save registers
    /// in [`PackedQueue::next`].
    #[inline(never)]
    fn walk(&mut self, memory: &GuestMemory, mut d: QueueDesc, pieces: &mut Pieces) -> Result<Chain, DriverViolation> {
        let mut i = self.next.at;
        for count in 1..=self.size {
            if d.flags & INDIRECT != 0 {
                if !self.features.indirect || d.flags & NEXT != 0 || count > 1 {
                    return Err(DriverViolation::Indirect);
                }
                self.walk_indirect(memory, d, pieces)?;
            } else {
                pieces.add(memory, d)?;
                // The walk continues even past the limit: only the end of this chain shows where the next chain begins.
                pieces.step();
            }
            if d.flags & NEXT == 0 {
                self.next = self.next.after(count, self.size);
                return Ok(Chain { id: d.other, count });
            }
            i = if i + 1 == self.size { 0 } else { i + 1 };
            d = self.desc(i);
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
        if !table.len.is_multiple_of(16) || count == 0 || count > u32::from(self.size) {
            return Err(DriverViolation::Indirect);
        }
        // §2.8.8: all descriptors of the table, in order; only WRITE is significant.
        for i in 0..count {
            let (addr, rest) = indirect_words(memory, table.addr, i).ok_or(DriverViolation::Indirect)?;
            let d = unpack(addr, rest);
            pieces.add(memory, QueueDesc { flags: d.flags & WRITE, ..d })?;
            if pieces.step() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// See [`super::DeviceQueue::position`].
    #[inline]
    pub fn position(&self) -> QueuePosition {
        QueuePosition { at: self.next.at, wrap: self.next.wrap }
    }

    /// See [`super::DeviceQueue::back_to`].
    #[inline]
    pub fn back_to(&mut self, position: QueuePosition) {
        self.next = WrapIndex { at: position.at, wrap: position.wrap };
    }

    /// See [`super::DeviceQueue::give_back`].
    #[inline]
    pub fn give_back(&mut self, chain: Chain, written: u32) {
        let index = self.done;
        let flags = self.fill(index, chain, written);
        match self.held {
            // The driver reads descriptors in order: while the first unshown descriptor is not marked as used, the
            // driver does not reach the later ones.
            None => self.held = Some((index, flags)),
            Some(_) => self.flags(index.at).store(flags, Ordering::Release),
        }
        self.done = index.after(chain.count.max(1), self.size);
    }

    /// See [`super::DeviceQueue::give_back_all`].
    #[inline]
    pub fn give_back_all(&mut self, mut chains: impl Iterator<Item = (Chain, u32)>) {
        if self.held.is_none() {
            let Some((chain, written)) = chains.next() else { return };
            self.give_back(chain, written);
        }
        let mut index = self.done;
        for (chain, written) in chains {
            let flags = self.fill(index, chain, written);
            self.flags(index.at).store(flags, Ordering::Release);
            index = index.after(chain.count.max(1), self.size);
        }
        self.done = index;
    }

    /// Fills the descriptor at `index` except its flags. Returns the flags, which mark the descriptor as used once they
    /// are written.
    #[inline]
    fn fill(&self, index: WrapIndex, chain: Chain, written: u32) -> u16 {
        let at = self.at(index.at);
        // SAFETY: `index` is below the size, so `at` is a descriptor of the ring, with the length at byte 8 and the ID
        // at byte 12, both aligned. The driver shares them, hence atomic.
        unsafe {
            AtomicU32::from_ptr(at.add(8).cast()).store(written, Ordering::Relaxed);
            AtomicU16::from_ptr(at.add(12).cast()).store(chain.id, Ordering::Relaxed);
        }
        used_flags(index) | if written > 0 { WRITE } else { 0 }
    }

    /// See [`super::DeviceQueue::publish`].
    #[inline]
    pub fn publish(&mut self) -> bool {
        let Some((first, flags)) = self.held.take() else { return false };
        self.flags(first.at).store(flags, Ordering::Release);
        let old = std::mem::replace(&mut self.shown, self.done);
        full_fence();
        // SAFETY: `new` checked that four bytes, aligned to 4, lie there; shared with the driver, hence atomic.
        let event = unsafe { AtomicU32::from_ptr(self.driver_event.as_ptr().cast()) }.load(Ordering::Relaxed);
        self.done.is_wanted(event, old, self.size, self.features.event_idx)
    }

    fn set_device_event(&self, off_wrap: u16, flags: u32) {
        // SAFETY: `new` checked that four bytes, aligned to 4, lie there; shared with the driver, hence atomic.
        unsafe { AtomicU32::from_ptr(self.device_event.as_ptr().cast()) }
            .store(flags << 16 | u32::from(off_wrap), Ordering::Relaxed);
    }

    /// See [`super::DeviceQueue::arm`].
    pub fn arm(&mut self) -> bool {
        if self.features.event_idx {
            self.set_device_event(self.next.bits(), AT_DESC);
        } else {
            self.set_device_event(0, ENABLE);
        }
        full_fence();
        self.has_next()
    }

    /// See [`super::DeviceQueue::disarm`].
    pub fn disarm(&mut self) {
        self.set_device_event(0, DISABLE);
    }

    /// See [`super::DeviceQueue::base`].
    pub fn base(&self) -> u32 {
        u32::from(self.next.bits()) | u32::from(self.done.bits()) << 16
    }

    /// See [`super::DeviceQueue::device_area`].
    pub fn device_area(&self) -> [(*const u8, usize); 2] {
        [(self.ring.as_ptr(), 16 * usize::from(self.size)), (self.device_event.as_ptr(), 4)]
    }

    /// Returns the index after all returned chains, whether or not they are shown yet.
    pub fn done(&self) -> WrapIndex {
        self.done
    }

    /// Returns whether there are returned chains that [`super::DeviceQueue::publish`] has not shown yet.
    pub fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// Returns whether the descriptor at `index` has been shown as used.
    pub fn is_used(&self, index: WrapIndex) -> bool {
        self.flags(index.at).load(Ordering::Acquire) & (AVAIL | USED) == used_flags(index)
    }

    /// Resumes at `index`, with nothing in flight.
    pub fn resume(&mut self, index: WrapIndex) {
        self.next = index;
        self.done = index;
        self.shown = index;
    }
}

/// Unpacks a descriptor's two words: the address; length, ID and flags.
fn unpack(addr: u64, rest: u64) -> QueueDesc {
    QueueDesc { addr, len: rest as u32, flags: (rest >> 48) as u16, other: (rest >> 32) as u16 }
}
