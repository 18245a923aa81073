//! The driver's side of the split layout (virtio 1.3 §2.7).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use netvale_mem::notify::full_fence;

use super::ids::Ids;
use super::ram::QueueRam;
use super::{BadDevice, Used};
use crate::queue::QueueFeatures;

const NEXT: u64 = 1;
const WRITE: u64 = 2;

/// The driver's side.
pub struct SplitDriver {
    n: u16,
    desc: NonNull<u8>,
    avail: NonNull<u8>,
    used: NonNull<u8>,
    event_idx: bool,
    ids: Ids,
    /// Next entry of the available ring.
    next: u16,
    /// `avail.idx` as published.
    shown: u16,
    /// Next entry of the used ring.
    done: u16,
    /// `used.idx` as last read.
    seen: u16,
}

// SAFETY: addresses inside the driver's memory, which whoever holds the queue holds, too.
unsafe impl Send for SplitDriver {}

impl SplitDriver {
    /// An empty queue in zeroed memory.
    pub fn new(ram: &QueueRam, features: QueueFeatures) -> SplitDriver {
        let n = ram.size();
        let (desc, avail, used) = (ram.desc(), ram.avail(), ram.used());
        let event_idx = features.event_idx;
        let queue =
            SplitDriver { n, desc, avail, used, event_idx, ids: Ids::new(n), next: 0, shown: 0, done: 0, seen: 0 };
        // Polling at first.
        queue.half(avail, 0).store(1, Ordering::Relaxed);
        queue
    }

    #[inline]
    fn half(&self, at: NonNull<u8>, offset: usize) -> &AtomicU16 {
        // SAFETY: `QueueRam` has room for rings of n entries; offsets are even and inside. Shared with the device, hence atomic.
        unsafe { AtomicU16::from_ptr(at.as_ptr().add(offset).cast()) }
    }

    fn used_event(&self) -> &AtomicU16 {
        self.half(self.avail, 4 + 2 * usize::from(self.n))
    }

    fn avail_event(&self) -> &AtomicU16 {
        self.half(self.used, 4 + 8 * usize::from(self.n))
    }

    /// See [`super::DriverQueue::ids`].
    #[inline]
    pub fn ids(&mut self) -> &mut Ids {
        &mut self.ids
    }

    /// See [`super::DriverQueue::post`].
    #[inline]
    pub fn post(&mut self, ram: &QueueRam, first: u16, write: bool, len: impl Fn(u16) -> u32) {
        let mut id = first;
        loop {
            let next = self.ids.next(id);
            let flags = if write { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
            let rest = u64::from(len(id)) | flags << 32 | u64::from(next.unwrap_or(0)) << 48;
            let at = self.desc.as_ptr().wrapping_add(16 * usize::from(id.min(self.n - 1)));
            // SAFETY: a descriptor of the table, aligned.
            unsafe {
                AtomicU64::from_ptr(at.cast()).store(ram.guest(id), Ordering::Relaxed);
                AtomicU64::from_ptr(at.add(8).cast()).store(rest, Ordering::Relaxed);
            }
            match next {
                Some(behind) => id = behind,
                None => break,
            }
        }
        self.half(self.avail, 4 + 2 * usize::from(self.next & (self.n - 1))).store(first, Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
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

    /// See [`super::DriverQueue::next_used`].
    #[inline]
    pub fn next_used(&mut self) -> Result<Option<Used>, BadDevice> {
        if !self.has_used() {
            return Ok(None);
        }
        if self.seen.wrapping_sub(self.done) > self.n {
            return Err(BadDevice::UsedIndex);
        }
        let at = self.used.as_ptr().wrapping_add(4 + 8 * usize::from(self.done & (self.n - 1)));
        // SAFETY: an entry of the used ring, aligned to 4.
        let (id, len) = unsafe {
            (
                AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed),
                AtomicU32::from_ptr(at.add(4).cast()).load(Ordering::Relaxed),
            )
        };
        let id = u16::try_from(id).ok().filter(|id| self.ids.get_back(*id)).ok_or(BadDevice::UsedId)?;
        self.done = self.done.wrapping_add(1);
        Ok(Some(Used { id, len }))
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
