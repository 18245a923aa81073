//! The rings of an AF_XDP socket (linux/if_xdp.h), shared with the kernel: for each ring, we are either the producer or
//! the consumer.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::xdp::XdpRingOffset;

/// `XDP_RING_NEED_WAKEUP`.
const NEED_WAKEUP: u32 = 1;

/// A mapped ring of `size` entries of type `T`.
#[derive(Debug)]
pub struct XdpRing<T> {
    map: NonNull<u8>,
    len: usize,
    producer: usize,
    consumer: usize,
    flags: Option<usize>,
    desc: usize,
    size: u32,
    /// This side's own index.
    mine: u32,
    /// The last known index of the other side.
    theirs: u32,
    _entries: std::marker::PhantomData<T>,
}

// SAFETY: shared words are accessed atomically; entries only by the side that owns them.
unsafe impl<T: Send> Send for XdpRing<T> {}

impl<T: Copy> XdpRing<T> {
    /// Maps the ring at `page_offset` of `socket`, which has `size` entries, a power of two; `at` holds the offsets of
    /// its indices, flags and entries in the mapping. We are the producer if `produces`, otherwise the kernel is.
    ///
    /// # Errors
    /// The error of mmap(2).
    pub fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        at: &XdpRingOffset,
        size: u32,
        produces: bool,
    ) -> Result<XdpRing<T>, Errno> {
        let desc = at.desc as usize;
        let len = desc + size as usize * size_of::<T>();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps none of our mappings.
        let p = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, socket, page_offset)? };
        let mut ring = XdpRing {
            map: NonNull::new(p.cast()).ok_or(Errno::NOMEM)?,
            len,
            producer: at.producer as usize,
            consumer: at.consumer as usize,
            flags: at.flags.map(|f| f as usize),
            desc,
            size,
            mine: 0,
            theirs: 0,
            _entries: std::marker::PhantomData,
        };
        // The indices are zero unless the ring was used before.
        let mine = if produces { ring.producer } else { ring.consumer };
        ring.mine = ring.word(mine).load(Ordering::Relaxed);
        ring.theirs = ring.mine;
        if produces {
            ring.theirs = ring.word(ring.consumer).load(Ordering::Relaxed);
        }
        Ok(ring)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at + 4 <= self.len && at.is_multiple_of(4));
        // SAFETY: the offset is the kernel's own, so it is aligned and inside the mapping. The kernel accesses the
        // word, too, hence the atomic type.
        unsafe { AtomicU32::from_ptr(self.map.as_ptr().add(at).cast()) }
    }

    #[inline]
    fn entry(&self, index: u32) -> *mut T {
        let i = (index & (self.size - 1)) as usize;
        // SAFETY: the ring has `size` entries, a power of two, from `desc` on.
        unsafe { self.map.as_ptr().add(self.desc).cast::<T>().add(i) }
    }

    /// Whether the kernel must be woken for new entries.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.flags.is_some_and(|at| self.word(at).load(Ordering::Relaxed) & NEED_WAKEUP != 0)
    }

    /// Number of entries of the ring.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// As producer: the number of entries that are certainly free. The consumer's index is read again only if more than
    /// half of the ring appears to be used.
    #[inline]
    pub fn room(&mut self) -> u32 {
        let used = self.mine.wrapping_sub(self.theirs);
        if used > self.size / 2 {
            self.theirs = self.word(self.consumer).load(Ordering::Acquire);
        }
        self.size.saturating_sub(self.mine.wrapping_sub(self.theirs))
    }

    /// Whether this side has ever published or taken entries.
    pub fn was_used(&self) -> bool {
        self.mine != 0
    }

    /// As producer: the number of published entries that the kernel has not taken.
    pub fn pending(&mut self) -> u32 {
        self.theirs = self.word(self.consumer).load(Ordering::Acquire);
        self.mine.wrapping_sub(self.theirs)
    }

    /// The entries that the producer has published and the consumer has not returned. `None` if there would be more
    /// such entries than the ring has entries.
    pub fn published(&self) -> Option<Vec<T>> {
        self.between(self.given_back(), self.shown())
    }

    /// As consumer: the entries that would be taken next, including those that [`XdpRing::rewind`] has made available
    /// again. `None` if there would be more such entries than the ring has entries.
    pub fn unread(&self) -> Option<Vec<T>> {
        self.between(self.mine, self.shown())
    }

    fn between(&self, first: u32, end: u32) -> Option<Vec<T>> {
        let count = Some(end.wrapping_sub(first)).filter(|count| *count <= self.size)?;
        // SAFETY: entries inside the ring. The kernel may replace returned entries: any bytes are a valid `T`, and its
        // value does not matter here.
        Some((0..count).map(|i| unsafe { self.entry(first.wrapping_add(i)).read_volatile() }).collect())
    }

    /// Number of entries that the consumer has ever returned, modulo 2^32.
    pub fn given_back(&self) -> u32 {
        self.word(self.consumer).load(Ordering::Acquire)
    }

    /// Number of entries that the producer has ever published, modulo 2^32.
    pub fn shown(&self) -> u32 {
        self.word(self.producer).load(Ordering::Acquire)
    }

    /// As consumer: moves our position back, so that the last `count` returned entries are taken again. The caller must
    /// ensure that the producer has not reused these entries and does not do so before they are returned again.
    pub fn rewind(&mut self, count: u32) {
        self.mine = self.given_back().wrapping_sub(count);
    }

    /// As producer: fills the next entry, which must be free. The kernel sees the entry after the next
    /// [`XdpRing::publish`].
    #[inline]
    pub fn put(&mut self, value: T) {
        // SAFETY: an entry inside the ring that is ours until it is published.
        unsafe { self.entry(self.mine).write(value) };
        self.mine = self.mine.wrapping_add(1);
    }

    /// As producer: publishes the filled entries to the kernel.
    #[inline]
    pub fn publish(&self) {
        self.word(self.producer).store(self.mine, Ordering::Release);
    }

    /// As consumer: the number of entries that can be taken.
    #[inline]
    pub fn ready(&mut self) -> u32 {
        let known = self.theirs.wrapping_sub(self.mine);
        if known == 0 {
            self.theirs = self.word(self.producer).load(Ordering::Acquire);
        }
        self.theirs.wrapping_sub(self.mine).min(self.size)
    }

    /// As consumer: takes the next entry, which must exist.
    #[inline]
    pub fn take(&mut self) -> T {
        // SAFETY: an entry inside the ring that the kernel has filled.
        let value = unsafe { self.entry(self.mine).read() };
        self.mine = self.mine.wrapping_add(1);
        value
    }

    /// As consumer: returns the taken entries to the producer.
    #[inline]
    pub fn release(&self) {
        self.word(self.consumer).store(self.mine, Ordering::Release);
    }
}

impl<T> Drop for XdpRing<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`; no pointer into it is left.
        let _ = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::os::fd::{AsFd, OwnedFd};

    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    const SIZE: u32 = 8;
    const AT: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 64, flags: Some(128), desc: 192 };

    /// Both sides of a ring in plain memory whose indices begin at `start`.
    fn both(start: u32) -> (OwnedFd, XdpRing<u64>, XdpRing<u64>) {
        let memory = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, 4096).unwrap();
        for at in [AT.producer, AT.consumer] {
            rustix::io::pwrite(&memory, &start.to_ne_bytes(), at).unwrap();
        }
        let side = |produces| XdpRing::map(memory.as_fd(), 0, &AT, SIZE, produces).unwrap();
        let producer = side(true);
        let consumer = side(false);
        (memory, producer, consumer)
    }

    proptest! {
        /// Objective: the other side takes each entry once, in order, and not before it is published; no entry is
        /// reused before it is returned. All of this holds when indices wrap around at 2^32, too.
        #[test]
        fn the_other_side_takes_entries_once_in_order(start in prop_oneof![Just(0), Just(u32::MAX - 20), any::<u32>()],
                      steps in proptest::collection::vec((0..4u8, 0..12u32), 1..200)) {
            let (_memory, mut producer, mut consumer) = both(start);
            let mut put = VecDeque::new();
            let mut shown = VecDeque::new();
            let mut taken = 0u32;
            let mut next = 0u64;
            for (what, count) in steps {
                match what {
                    0 => for _ in 0..count {
                        prop_assert!(producer.room() <= SIZE - (put.len() + shown.len()) as u32 - taken);
                        if producer.room() == 0 {
                            break;
                        }
                        producer.put(next);
                        put.push_back(next);
                        next += 1;
                    },
                    1 => {
                        producer.publish();
                        shown.append(&mut put);
                    }
                    2 => for _ in 0..count {
                        prop_assert!(consumer.ready() as usize <= shown.len());
                        if consumer.ready() == 0 {
                            prop_assert!(shown.is_empty());
                            break;
                        }
                        prop_assert_eq!(Some(consumer.take()), shown.pop_front());
                        taken += 1;
                    },
                    _ => {
                        consumer.release();
                        taken = 0;
                        prop_assert_eq!(producer.pending() as usize, put.len() + shown.len());
                        prop_assert_eq!(producer.room(), SIZE - (put.len() + shown.len()) as u32);
                    }
                }
            }
        }
    }

    /// Objective: if a producer's index implies more entries than the ring has, no more than the ring's entries are
    /// read; a successor resumes at its predecessor's position.
    #[test]
    fn a_lying_producer_is_refused_and_an_heir_resumes() {
        let (memory, mut producer, mut consumer) = both(0);
        rustix::io::pwrite(&memory, &1000u32.to_ne_bytes(), AT.producer).unwrap();
        assert_eq!(consumer.ready(), SIZE);
        rustix::io::pwrite(&memory, &0u32.to_ne_bytes(), AT.producer).unwrap();
        (0..3).for_each(|value| producer.put(value));
        producer.publish();
        let mut heir = XdpRing::<u64>::map(memory.as_fd(), 0, &AT, SIZE, true).unwrap();
        assert!(heir.was_used() && !consumer.was_used());
        assert_eq!((heir.pending(), heir.room()), (3, SIZE - 3));
    }

    /// Objective: returned entries can be taken again, together with later entries.
    #[test]
    fn entries_given_back_can_be_taken_again() {
        let (_memory, mut producer, mut consumer) = both(u32::MAX - 3);
        (0..5).for_each(|value| producer.put(value));
        producer.publish();
        let taken: Vec<u64> = (0..consumer.ready()).map(|_| consumer.take()).collect();
        consumer.release();
        (5..7).for_each(|value| producer.put(value));
        producer.publish();
        assert_eq!((taken, consumer.unread()), (vec![0, 1, 2, 3, 4], Some(vec![5, 6])));
        consumer.rewind(2);
        assert_eq!(consumer.unread(), Some(vec![3, 4, 5, 6]));
        let again: Vec<u64> = (0..4).map(|_| (consumer.ready() > 0).then(|| consumer.take()).unwrap()).collect();
        assert_eq!((again, consumer.ready()), (vec![3, 4, 5, 6], 0));
        consumer.rewind(7);
        assert_eq!(consumer.unread(), None, "more than the ring has");
    }

    /// Objective: a wake-up is needed if and only if the other side has requested it.
    #[test]
    fn the_other_side_is_woken_only_if_it_asks() {
        let (memory, producer, _consumer) = both(0);
        assert!(!producer.needs_wakeup());
        rustix::io::pwrite(&memory, &NEED_WAKEUP.to_ne_bytes(), 128).unwrap();
        assert!(producer.needs_wakeup());
    }
}
