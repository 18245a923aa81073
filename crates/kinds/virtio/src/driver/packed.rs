//! The driver's side of the packed layout (virtio 1.3 §2.8).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use netvale_mem::notify::full_fence;

use super::ids::{BuffersState, DriverBuffers};
use super::ram::QueueRam;
use super::simd::{Simd, WIDE_PACKED, name_run};
use super::{DeviceViolation, DriverFeatures, DriverQueueState, UsedBuffer};
use crate::queue::ring_index::{AT_DESC, AVAIL, DISABLE, ENABLE, USED, WrapIndex};

const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// The driver's side of a packed ring.
pub struct PackedDriver<B> {
    n: u16,
    ring: NonNull<u8>,
    driver_event: NonNull<u8>,
    device_event: NonNull<u8>,
    event_idx: bool,
    ids: B,
    vector: Option<Simd>,
    /// Number of descriptors of the chain that begins with each buffer.
    counts: Box<[u16]>,
    next: WrapIndex,
    /// Index of the first descriptor that is not shown to the device yet, and its flags, which are written last.
    held: Option<(u16, u16)>,
    shown: WrapIndex,
    done: WrapIndex,
}

// SAFETY: the pointers are addresses inside the driver's memory, which the owner of this queue keeps mapped.
unsafe impl<B: DriverBuffers> Send for PackedDriver<B> {}

impl<B: DriverBuffers> PackedDriver<B> {
    /// Creates an empty queue in zeroed memory.
    pub fn new(ram: &QueueRam, features: DriverFeatures) -> Self {
        let queue = PackedDriver::empty(ram, features, B::new(ram.size()));
        queue.event(queue.driver_event).store(DISABLE << 16, Ordering::Relaxed);
        queue
    }

    /// See [`super::DriverQueue::continued`].
    pub fn continued(ram: &QueueRam, features: DriverFeatures, state: &DriverQueueState) -> Option<Self> {
        let ids = B::continued(ram.size(), &state.buffers)?;
        let mut queue = PackedDriver::empty(ram, features, ids);
        queue.count(&state.buffers);
        let next = WrapIndex::of(state.next);
        let done = WrapIndex::of(state.done);
        queue.next = next;
        queue.shown = next;
        queue.done = done;
        (next.at < queue.n && done.at < queue.n).then_some(queue)
    }

    /// See [`super::DriverQueue::state`].
    pub fn state(&self) -> DriverQueueState {
        let next = self.next.bits();
        let done = self.done.bits();
        DriverQueueState { size: self.n, next, done, buffers: self.ids.state() }
    }

    /// See [`super::DriverQueue::done`].
    #[inline]
    pub fn done(&self) -> u16 {
        self.done.bits()
    }

    /// Clears descriptors that a predecessor wrote but did not show to the device. The device reads in order, and does
    /// not read past the first unshown descriptor.
    pub fn forget_unshown(&self) {
        for i in 0..self.ids.free() as u16 {
            let index = self.next.after(i, self.n);
            self.flags(index.at).store(self.stale(index), Ordering::Release);
        }
    }

    /// Stores the number of descriptors of each chain that the device has.
    fn count(&mut self, buffers: &BuffersState) {
        let mut behind = 0;
        let chains: Vec<(u16, u16)> = match buffers {
            BuffersState::Any { posted, .. } => {
                posted.iter().filter_map(|chain| Some((*chain.first()?, chain.len() as u16))).collect()
            }
            BuffersState::Ordered { oldest, posted } => {
                let chain = |len: &u16| {
                    behind += len;
                    ((oldest + behind - len) & (self.n - 1), *len)
                };
                posted.iter().map(chain).collect()
            }
        };
        for (first, len) in chains {
            self.counts.get_mut(usize::from(first)).into_iter().for_each(|count| *count = len);
        }
    }

    fn empty(ram: &QueueRam, features: DriverFeatures, ids: B) -> Self {
        let n = ram.size();
        let start = WrapIndex { at: 0, wrap: true };
        PackedDriver {
            n,
            ring: ram.desc(),
            driver_event: ram.avail(),
            device_event: ram.used(),
            event_idx: features.queue.event_idx,
            ids,
            vector: (features.vector && features.in_order).then(Simd::best),
            counts: vec![0; usize::from(n)].into_boxed_slice(),
            next: start,
            held: None,
            shown: start,
            done: start,
        }
    }

    #[inline]
    fn at(&self, i: u16) -> *mut u8 {
        self.ring.as_ptr().wrapping_add(16 * usize::from(i))
    }

    #[inline]
    fn flags(&self, i: u16) -> &AtomicU16 {
        #[cfg(fuzzing)]
        netvale_mem::probe::read();
        // SAFETY: `i` is below n, so the address is inside the ring, and aligned to 2. The device shares it, hence
        // atomic.
        unsafe { AtomicU16::from_ptr(self.at(i).add(14).cast()) }
    }

    #[inline]
    fn event(&self, at: NonNull<u8>) -> &AtomicU32 {
        #[cfg(fuzzing)]
        netvale_mem::probe::read();
        // SAFETY: the address is the start of an area of whole pages, so four aligned bytes are there. The device
        // shares them, hence atomic.
        unsafe { AtomicU32::from_ptr(at.as_ptr().cast()) }
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

    /// See [`super::DriverQueue::post`].
    #[inline]
    pub fn post(&mut self, ram: &QueueRam, first: u16, write: impl Fn(u16) -> bool, len: impl Fn(u16) -> u32) {
        let mut id = first;
        let mut count = 0u16;
        let mut index = self.next;
        loop {
            let next = self.ids.next(id);
            let turn = if index.wrap { AVAIL } else { USED };
            let flags = turn | if write(id) { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
            // The device reads descriptors in order: while the first unshown descriptor is marked as unavailable, the
            // device does not reach the later ones.
            let shown = if self.held.is_none() {
                self.held = Some((index.at, flags));
                self.stale(index)
            } else {
                flags
            };
            let rest = u64::from(len(id)) | u64::from(first) << 32 | u64::from(shown) << 48;
            let at = self.at(index.at);
            // SAFETY: `at` is a descriptor of the ring, aligned. The first word is the address; the second is length,
            // ID and flags.
            unsafe {
                AtomicU64::from_ptr(at.cast()).store(ram.guest(id), Ordering::Relaxed);
                AtomicU64::from_ptr(at.add(8).cast()).store(rest, Ordering::Release);
            }
            count += 1;
            index = index.after(1, self.n);
            match next {
                Some(behind) => id = behind,
                None => break,
            }
        }
        if let Some(c) = self.counts.get_mut(usize::from(first)) {
            *c = count;
        }
        self.next = index;
        self.ids.give(first);
    }

    /// Returns the flags that mean "not available" at an index that is about to be posted: the flags of the previous
    /// round of the ring.
    #[inline]
    fn stale(&self, index: WrapIndex) -> u16 {
        if index.wrap { 0 } else { AVAIL | USED }
    }

    /// See [`super::DriverQueue::publish`].
    #[inline]
    pub fn publish(&mut self) -> bool {
        let Some((first, flags)) = self.held.take() else { return false };
        self.flags(first).store(flags, Ordering::Release);
        let old = std::mem::replace(&mut self.shown, self.next);
        full_fence();
        let event = self.event(self.device_event).load(Ordering::Relaxed);
        self.next.is_wanted(event, old, self.n, self.event_idx)
    }

    #[inline]
    fn is_used(&self) -> bool {
        let flags = self.flags(self.done.at).load(Ordering::Acquire);
        (flags & AVAIL != 0) == self.done.wrap && (flags & USED != 0) == self.done.wrap
    }

    /// Returns ID and length of the used descriptor at `done`.
    #[inline]
    fn used(&self) -> UsedBuffer {
        let at = self.at(self.done.at);
        // SAFETY: a descriptor of the ring, aligned.
        unsafe {
            UsedBuffer {
                len: AtomicU32::from_ptr(at.add(8).cast()).load(Ordering::Relaxed),
                id: AtomicU16::from_ptr(at.add(12).cast()).load(Ordering::Relaxed),
            }
        }
    }

    /// Takes back the chain that begins at `id`, and moves the position past the chain's descriptors.
    #[inline]
    fn get_back(&mut self, id: u16) -> Result<(), DeviceViolation> {
        if !self.ids.get_back(id) {
            return Err(DeviceViolation::UsedId);
        }
        let count = self.counts.get(usize::from(id)).copied().unwrap_or(1);
        self.done = self.done.after(count, self.n);
        Ok(())
    }

    /// See [`super::DriverQueue::next_used`].
    #[inline]
    pub fn next_used(&mut self) -> Result<Option<UsedBuffer>, DeviceViolation> {
        if !self.is_used() {
            return Ok(None);
        }
        let used = self.used();
        self.get_back(used.id)?;
        Ok(Some(used))
    }

    /// Takes back used descriptors with vector instructions, [`WIDE_PACKED`] at a time, as long as they are in order.
    /// Returns the number of descriptors.
    #[inline]
    pub fn wide_run(&mut self, into: &mut [UsedBuffer]) -> Result<usize, DeviceViolation> {
        let Some(simd) = self.vector else { return Ok(0) };
        let mut got = 0;
        while let Some(place) = into.get_mut(got..got + WIDE_PACKED) {
            let Some(first) = self.ids.oldest() else { break };
            let end = self.n - WIDE_PACKED as u16;
            let flags = WRITE | if self.done.wrap { AVAIL | USED } else { 0 };
            let mut lens = [0; WIDE_PACKED];
            let fits = self.done.at <= end && first <= end;
            // SAFETY: `fits` means that 4 descriptors, aligned to 16, begin there before the end of the ring; this
            // processor has the instructions.
            if !fits || !unsafe { simd.packed(self.at(self.done.at), first, flags, &mut lens) } {
                break;
            }
            name_run(first, &lens, place);
            for used in place.iter() {
                self.get_back(used.id)?;
            }
            got += WIDE_PACKED;
        }
        Ok(got)
    }

    /// See [`super::DriverQueue::reclaim`].
    #[inline]
    pub fn reclaim(&mut self) -> Result<(), DeviceViolation> {
        while self.is_used() {
            let last = self.used().id;
            // With in-order buffers, one used descriptor returns all earlier buffers, too (§2.8.9).
            while let Some(id) = self.ids.oldest().filter(|id| *id != last) {
                self.get_back(id)?;
                self.ids.recycle(id);
            }
            self.get_back(last)?;
            self.ids.recycle(last);
        }
        Ok(())
    }

    /// See [`super::DriverQueue::arm`].
    pub fn arm(&mut self) -> bool {
        let word = if self.event_idx { AT_DESC << 16 | u32::from(self.done.bits()) } else { ENABLE << 16 };
        self.event(self.driver_event).store(word, Ordering::Relaxed);
        full_fence();
        self.is_used()
    }

    /// See [`super::DriverQueue::disarm`].
    pub fn disarm(&mut self) {
        self.event(self.driver_event).store(DISABLE << 16, Ordering::Relaxed);
    }
}
