//! The driver's side of the packed layout (virtio 1.3 §2.8).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use netvale_mem::notify::full_fence;

use super::ids::Ids;
use super::ram::QueueRam;
use super::{BadDevice, Used};
use crate::queue::QueueFeatures;
use crate::queue::place::{AT_DESC, AVAIL, DISABLE, ENABLE, Place, USED};

const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// The driver's side.
pub struct PackedDriver {
    n: u16,
    ring: NonNull<u8>,
    driver_event: NonNull<u8>,
    device_event: NonNull<u8>,
    event_idx: bool,
    ids: Ids,
    /// Descriptors of the chain that begins with this id.
    counts: Box<[u16]>,
    next: Place,
    /// First descriptor of what is not shown yet, with its flags.
    held: Option<(u16, u16)>,
    shown: Place,
    done: Place,
}

// SAFETY: addresses inside the driver's memory, which whoever holds the queue holds, too.
unsafe impl Send for PackedDriver {}

impl PackedDriver {
    /// An empty queue in zeroed memory.
    pub fn new(ram: &QueueRam, features: QueueFeatures) -> PackedDriver {
        let n = ram.size();
        let start = Place { at: 0, wrap: true };
        let queue = PackedDriver {
            n,
            ring: ram.desc(),
            driver_event: ram.avail(),
            device_event: ram.used(),
            event_idx: features.event_idx,
            ids: Ids::new(n),
            counts: vec![0; usize::from(n)].into_boxed_slice(),
            next: start,
            held: None,
            shown: start,
            done: start,
        };
        queue.event(queue.driver_event).store(DISABLE << 16, Ordering::Relaxed);
        queue
    }

    #[inline]
    fn at(&self, i: u16) -> *mut u8 {
        self.ring.as_ptr().wrapping_add(16 * usize::from(i))
    }

    #[inline]
    fn flags(&self, i: u16) -> &AtomicU16 {
        // SAFETY: `i` is below n; aligned to 2, shared with the device.
        unsafe { AtomicU16::from_ptr(self.at(i).add(14).cast()) }
    }

    #[inline]
    fn event(&self, at: NonNull<u8>) -> &AtomicU32 {
        // SAFETY: four bytes at the beginning of an area of a page, shared with the device.
        unsafe { AtomicU32::from_ptr(at.as_ptr().cast()) }
    }

    /// See [`super::DriverQueue::ids`].
    #[inline]
    pub fn ids(&mut self) -> &mut Ids {
        &mut self.ids
    }

    /// See [`super::DriverQueue::post`].
    #[inline]
    pub fn post(&mut self, ram: &QueueRam, first: u16, write: bool, len: impl Fn(u16) -> u32) {
        let (mut id, mut count, mut place) = (first, 0u16, self.next);
        loop {
            let next = self.ids.next(id);
            let at = self.at(place.at);
            // SAFETY: a descriptor of the ring, aligned: the address; length and id, the flags apart.
            unsafe {
                AtomicU64::from_ptr(at.cast()).store(ram.guest(id), Ordering::Relaxed);
                AtomicU32::from_ptr(at.add(8).cast()).store(len(id), Ordering::Relaxed);
                AtomicU16::from_ptr(at.add(12).cast()).store(first, Ordering::Relaxed);
            }
            let turn = if place.wrap { AVAIL } else { USED };
            let flags = turn | if write { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
            if self.held.is_none() {
                // The device goes through them in order: as long as the first is not shown, none is.
                self.held = Some((place.at, flags));
            } else {
                self.flags(place.at).store(flags, Ordering::Release);
            }
            (count, place) = (count + 1, place.after(1, self.n));
            match next {
                Some(behind) => id = behind,
                None => break,
            }
        }
        if let Some(c) = self.counts.get_mut(usize::from(first)) {
            *c = count;
        }
        self.next = place;
        self.ids.give(first);
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

    /// See [`super::DriverQueue::next_used`].
    #[inline]
    pub fn next_used(&mut self) -> Result<Option<Used>, BadDevice> {
        if !self.is_used() {
            return Ok(None);
        }
        let at = self.at(self.done.at);
        // SAFETY: a descriptor of the ring, aligned.
        let (len, id) = unsafe {
            (
                AtomicU32::from_ptr(at.add(8).cast()).load(Ordering::Relaxed),
                AtomicU16::from_ptr(at.add(12).cast()).load(Ordering::Relaxed),
            )
        };
        if !self.ids.get_back(id) {
            return Err(BadDevice::UsedId);
        }
        let count = self.counts.get(usize::from(id)).copied().unwrap_or(1);
        self.done = self.done.after(count, self.n);
        Ok(Some(Used { id, len }))
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
