//! The driver's side of the split layout (virtio 1.3 §2.7).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use netvale_mem::notify::full_fence;

use super::ids::{DriverBuffers, NONE};
use super::ram::QueueRam;
use super::simd::{Simd, WIDE, name_run};
use super::{DeviceViolation, DriverFeatures, DriverQueueState, UsedBuffer};

const NEXT: u64 = 1;
const WRITE: u64 = 2;

/// The driver's side of a split ring.
pub struct SplitDriver<B> {
    n: u16,
    desc: NonNull<u8>,
    avail: NonNull<u8>,
    used: NonNull<u8>,
    event_idx: bool,
    ids: B,
    vector: Option<Simd>,
    /// Last value written to the second half of each descriptor (length, flags, next); an equal value is not written
    /// again. The first half, the address, is constant.
    said: Box<[u64]>,
    /// Last value written to each entry of the available ring; an equal value is not written again.
    listed: Box<[u16]>,
    /// Index of the next entry of the available ring.
    next: u16,
    /// `avail.idx` as published.
    shown: u16,
    /// Index of the next entry of the used ring.
    done: u16,
    /// `used.idx` as last read.
    seen: u16,
}

// SAFETY: the pointers are addresses inside the driver's memory, which the owner of this queue keeps mapped.
unsafe impl<B: DriverBuffers> Send for SplitDriver<B> {}

impl<B: DriverBuffers> SplitDriver<B> {
    /// Creates an empty queue in zeroed memory.
    pub fn new(ram: &QueueRam, features: DriverFeatures) -> Self {
        let n = ram.size();
        let queue = SplitDriver::empty(ram, features, B::new(n));
        for id in 0..n {
            // SAFETY: the address is a descriptor of the table, aligned.
            unsafe { AtomicU64::from_ptr(queue.desc(id).cast()) }.store(ram.guest(id), Ordering::Relaxed);
        }
        // The queue starts in polling mode.
        queue.half(queue.avail, 0).store(1, Ordering::Relaxed);
        queue
    }

    /// See [`super::DriverQueue::continued`].
    pub fn continued(ram: &QueueRam, features: DriverFeatures, state: &DriverQueueState) -> Option<Self> {
        let ids = B::continued(ram.size(), &state.buffers)?;
        let mut queue = SplitDriver::empty(ram, features, ids);
        // The device may have changed the rings, so all entries count as unknown and are written again.
        queue.listed.fill(NONE);
        queue.next = state.next;
        queue.shown = state.next;
        queue.done = state.done;
        queue.seen = state.done;
        (queue.next.wrapping_sub(queue.done) <= queue.n).then_some(queue)
    }

    /// See [`super::DriverQueue::state`].
    pub fn state(&self) -> DriverQueueState {
        DriverQueueState { size: self.n, next: self.next, done: self.done, buffers: self.ids.state() }
    }

    /// See [`super::DriverQueue::done`].
    #[inline]
    pub fn done(&self) -> u16 {
        self.done
    }

    fn empty(ram: &QueueRam, features: DriverFeatures, ids: B) -> Self {
        let n = ram.size();
        SplitDriver {
            n,
            desc: ram.desc(),
            avail: ram.avail(),
            used: ram.used(),
            event_idx: features.queue.event_idx,
            ids,
            vector: (features.vector && features.in_order).then(Simd::best),
            said: vec![0; usize::from(n)].into_boxed_slice(),
            listed: vec![0; usize::from(n)].into_boxed_slice(),
            next: 0,
            shown: 0,
            done: 0,
            seen: 0,
        }
    }

    #[inline]
    fn desc(&self, id: u16) -> *mut u8 {
        self.desc.as_ptr().wrapping_add(16 * usize::from(id.min(self.n - 1)))
    }

    #[inline]
    fn half(&self, at: NonNull<u8>, offset: usize) -> &AtomicU16 {
        #[cfg(fuzzing)]
        netvale_mem::probe::read();
        // SAFETY: `QueueRam` has room for rings of n entries, and the offset is even and inside them. The device shares
        // the rings, hence atomic.
        unsafe { AtomicU16::from_ptr(at.as_ptr().add(offset).cast()) }
    }

    fn used_event(&self) -> &AtomicU16 {
        self.half(self.avail, 4 + 2 * usize::from(self.n))
    }

    fn avail_event(&self) -> &AtomicU16 {
        self.half(self.used, 4 + 8 * usize::from(self.n))
    }

    /// Returns the owners of the buffers.
    #[inline]
    pub fn ids(&self) -> &B {
        &self.ids
    }

    /// Returns the owners of the buffers, which the caller may change.
    #[inline]
    pub fn ids_mut(&mut self) -> &mut B {
        &mut self.ids
    }

    #[inline]
    fn say(&mut self, id: u16, rest: u64) {
        let at = self.desc(id);
        if let Some(said) = self.said.get_mut(usize::from(id)).filter(|said| **said != rest) {
            *said = rest;
            // SAFETY: the address is the second half of a descriptor of the table, aligned.
            unsafe { AtomicU64::from_ptr(at.add(8).cast()) }.store(rest, Ordering::Relaxed);
        }
    }

    #[inline]
    fn list(&mut self, first: u16) {
        let i = usize::from(self.next & (self.n - 1));
        if let Some(listed) = self.listed.get_mut(i).filter(|listed| **listed != first) {
            *listed = first;
            self.half(self.avail, 4 + 2 * i).store(first, Ordering::Relaxed);
        }
        self.next = self.next.wrapping_add(1);
    }

    /// See [`super::DriverQueue::post`].
    #[inline]
    pub fn post(&mut self, _ram: &QueueRam, first: u16, write: impl Fn(u16) -> bool, len: impl Fn(u16) -> u32) {
        let mut id = first;
        loop {
            let next = self.ids.next(id);
            let flags = if write(id) { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
            self.say(id, u64::from(len(id)) | flags << 32 | u64::from(next.unwrap_or(0)) << 48);
            match next {
                Some(behind) => id = behind,
                None => break,
            }
        }
        self.list(first);
        self.ids.give(first);
    }

    /// See [`super::DriverQueue::publish`].
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.next == self.shown {
            return false;
        }
        self.half(self.avail, 2).store(self.next, Ordering::Release);
        let old = std::mem::replace(&mut self.shown, self.next);
        full_fence();
        if self.event_idx {
            let event = self.avail_event().load(Ordering::Relaxed);
            self.next.wrapping_sub(event).wrapping_sub(1) < self.next.wrapping_sub(old)
        } else {
            self.half(self.used, 0).load(Ordering::Relaxed) & 1 == 0
        }
    }

    #[inline]
    fn has_used(&mut self) -> bool {
        if self.done == self.seen {
            self.seen = self.half(self.used, 2).load(Ordering::Acquire);
        }
        self.done != self.seen
    }

    /// Returns the number of used entries that the device has written and the driver has not taken back yet.
    #[inline]
    fn filled(&mut self) -> Result<u16, DeviceViolation> {
        if !self.has_used() {
            return Ok(0);
        }
        let filled = self.seen.wrapping_sub(self.done);
        if filled > self.n { Err(DeviceViolation::UsedIndex) } else { Ok(filled) }
    }

    #[inline]
    fn entry(&self, done: u16) -> *mut u8 {
        #[cfg(fuzzing)]
        netvale_mem::probe::read();
        self.used.as_ptr().wrapping_add(4 + 8 * usize::from(done & (self.n - 1)))
    }

    /// See [`super::DriverQueue::next_used`].
    #[inline]
    pub fn next_used(&mut self) -> Result<Option<UsedBuffer>, DeviceViolation> {
        if self.filled()? == 0 {
            return Ok(None);
        }
        let at = self.entry(self.done);
        // SAFETY: `at` is an entry of the used ring, aligned to 4.
        let (id, len) = unsafe {
            (
                AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed),
                AtomicU32::from_ptr(at.add(4).cast()).load(Ordering::Relaxed),
            )
        };
        let id = u16::try_from(id).ok().filter(|id| self.ids.get_back(*id)).ok_or(DeviceViolation::UsedId)?;
        self.done = self.done.wrapping_add(1);
        Ok(Some(UsedBuffer { id, len }))
    }

    /// Takes back used entries with vector instructions, [`WIDE`] at a time, as long as they are in order. Returns the
    /// number of entries.
    #[inline]
    pub fn wide_run(&mut self, into: &mut [UsedBuffer]) -> Result<usize, DeviceViolation> {
        let Some(simd) = self.vector else { return Ok(0) };
        let mut got = 0;
        let filled = usize::from(self.filled()?);
        while got + WIDE <= filled
            && let Some(place) = into.get_mut(got..got + WIDE)
        {
            let Some(first) = self.ids.oldest() else { break };
            let at = usize::from(self.done & (self.n - 1));
            let end = usize::from(self.n) - WIDE;
            let mut lens = [0; WIDE];
            // SAFETY: 8 entries of 8 bytes, aligned to 4, begin there before the end of the ring; this processor has
            // the instructions.
            if at > end || usize::from(first) > end || !unsafe { simd.split(self.entry(self.done), first, &mut lens) } {
                break;
            }
            name_run(first, &lens, place);
            for used in place.iter() {
                if !self.ids.get_back(used.id) {
                    return Err(DeviceViolation::UsedId);
                }
            }
            self.done = self.done.wrapping_add(WIDE as u16);
            got += WIDE;
        }
        Ok(got)
    }

    /// See [`super::DriverQueue::reclaim`].
    #[inline]
    pub fn reclaim(&mut self) -> Result<(), DeviceViolation> {
        if self.ids.oldest().is_none() {
            while let Some(used) = self.next_used()? {
                self.ids.recycle(used.id);
            }
            return Ok(());
        }
        // With in-order buffers, the number of entries suffices; the device need not even write any entry but the last
        // of a batch (§2.7.9).
        for _ in 0..self.filled()? {
            let id = self.ids.oldest().filter(|id| self.ids.get_back(*id)).ok_or(DeviceViolation::UsedIndex)?;
            self.ids.recycle(id);
            self.done = self.done.wrapping_add(1);
        }
        Ok(())
    }

    /// See [`super::DriverQueue::arm`].
    pub fn arm(&mut self) -> bool {
        self.used_event().store(self.done, Ordering::Relaxed);
        self.half(self.avail, 0).store(0, Ordering::Relaxed);
        full_fence();
        self.has_used()
    }

    /// See [`super::DriverQueue::disarm`].
    pub fn disarm(&mut self) {
        if !self.event_idx {
            self.half(self.avail, 0).store(1, Ordering::Relaxed);
        }
    }
}
