//! In-flight records of our queues: the front end keeps them in case we end without notice (vhost-user, "Inflight I/O
//! tracking"). We give buffers back in order of arrival, so the position of the last one is enough.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use netvale_mem::Mapping;
use netvale_virtio::device::live;
use netvale_virtio::memory::{MemoryError, map};
use netvale_virtio::queue::Queue;
use netvale_virtio::queue::ring_index::RingIndex;
use serde::{Deserialize, Serialize};

/// Queue regions begin at multiples of this.
const ALIGN: u64 = 64;
/// Bytes before the first descriptor's record: split, packed.
const HEAD: (u64, u64) = (16, 32);
/// Bytes per descriptor: split, packed.
const EACH: (u64, u64) = (16, 32);
/// Version of the layout; 0 before anything was stored.
const VERSION: u16 = 1;

// Offsets in a queue's region.
const VERSION_AT: usize = 8;
const DESC_NUM_AT: usize = 10;
/// Split.
const SPLIT_USED_AT: usize = 14;
/// Packed: used index, old used index, their wrap counters, in one word.
const PLACES_AT: usize = 16;

/// Bytes for `queues` queues of `size` descriptors.
pub fn bytes(queues: u16, size: u16, packed: bool) -> u64 {
    u64::from(queues) * queue_bytes(size, packed)
}

fn queue_bytes(size: u16, packed: bool) -> u64 {
    let (head, each) = if packed { (HEAD.1, EACH.1) } else { (HEAD.0, EACH.0) };
    (head + each * u64::from(size)).next_multiple_of(ALIGN)
}

/// The memory that survives this process.
#[derive(Debug)]
pub struct Inflight {
    map: Mapping,
    base: NonNull<u8>,
    file: Arc<OwnedFd>,
    shape: Shape,
}

/// Location and layout of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Bytes.
    pub len: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Number of queues.
    pub queues: u16,
    /// Descriptors of each.
    pub size: u16,
}

// SAFETY: an address inside `map`, which moves along; its bytes are only accessed as atomics.
unsafe impl Send for Inflight {}
// SAFETY: a shared reference allows the same as an owned value: atomic accesses.
unsafe impl Sync for Inflight {}

impl Inflight {
    /// Maps a region.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn new(file: OwnedFd, shape: Shape) -> Result<Inflight, MemoryError> {
        let Shape { len, offset, .. } = shape;
        if offset.checked_add(len).is_none() {
            return Err(MemoryError::Wraps { guest: offset, size: len });
        }
        let file = Arc::new(file);
        let map = map(Arc::clone(&file), offset, len)?;
        Ok(Inflight { base: map.start(), map, file, shape })
    }

    /// Its shape and its file.
    pub fn file(&self) -> (Shape, &Arc<OwnedFd>) {
        (self.shape, &self.file)
    }
}

/// One queue's record.
pub struct Record {
    region: Arc<Inflight>,
    from: usize,
    /// Packed: the position that the driver has been shown.
    old: RingIndex,
}

impl Record {
    /// The record of queue `i`. If we or a predecessor left the queue without notice, it resumes where it stopped, and
    /// the flag is true. `None` if the region has no room for it or does not fit it.
    pub fn open(region: &Arc<Inflight>, i: usize, queue: &mut Queue) -> Option<(Record, bool)> {
        let mut record = Record::part(region, i, queue)?;
        let is_kept = record.is_kept(queue)?;
        if is_kept {
            record.resume(queue)?;
        } else {
            record.begin(queue);
        }
        Some((record, is_kept))
    }

    /// The record of queue `i`, whose position is known. `None` inside: nothing is recorded.
    pub fn continued(region: &Arc<Inflight>, i: usize, queue: &Queue) -> Option<Option<Record>> {
        let mut record = Record::part(region, i, queue)?;
        if let Queue::Packed(q) = queue {
            record.old = q.done();
        }
        Some(record.is_kept(queue)?.then_some(record))
    }

    fn part(region: &Arc<Inflight>, i: usize, queue: &Queue) -> Option<Record> {
        let packed = matches!(queue, Queue::Packed(_));
        let Shape { len, queues, size, .. } = region.shape;
        let fits = bytes(queues, size, packed) <= len && (region.base.as_ptr() as u64).is_multiple_of(8);
        if !fits || i >= usize::from(queues) || queue.size() > size {
            return None;
        }
        let from = i * queue_bytes(size, packed) as usize;
        Some(Record { region: Arc::clone(region), from, old: RingIndex { at: 0, wrap: true } })
    }

    /// Whether anything is recorded; `None` if the record does not fit the queue.
    fn is_kept(&self, queue: &Queue) -> Option<bool> {
        match self.half(VERSION_AT).load(Ordering::Relaxed) {
            0 => Some(false),
            VERSION => (self.half(DESC_NUM_AT).load(Ordering::Relaxed) == queue.size()).then_some(true),
            _ => None,
        }
    }

    #[inline]
    fn half(&self, at: usize) -> &AtomicU16 {
        // SAFETY: `part` checked that the queue's region lies in the mapping; all of these are in its first 32 bytes,
        // aligned.
        unsafe { AtomicU16::from_ptr(self.region.base.as_ptr().add(self.from + at).cast()) }
    }

    #[inline]
    fn indices(&self) -> &AtomicU64 {
        // SAFETY: `part` checked that the queue's region lies in the mapping, aligned to 8; this is in its first 32
        // bytes.
        unsafe { AtomicU64::from_ptr(self.region.base.as_ptr().add(self.from + PLACES_AT).cast()) }
    }

    fn begin(&mut self, queue: &Queue) {
        if let Queue::Packed(q) = queue {
            self.old = q.done();
            self.keep(self.old);
        }
        self.half(DESC_NUM_AT).store(queue.size(), Ordering::Relaxed);
        self.half(VERSION_AT).store(VERSION, Ordering::Release);
    }

    fn resume(&mut self, queue: &mut Queue) -> Option<()> {
        match queue {
            Queue::Split(q) => q.resume(),
            Queue::Packed(q) => {
                let word = self.indices().load(Ordering::Acquire);
                let index = |idx: u64, wrap: u64| RingIndex { at: (word >> idx) as u16, wrap: word >> wrap & 1 != 0 };
                let new = index(0, 32);
                let old = index(16, 40);
                if new.at >= q.size() || old.at >= q.size() {
                    return None;
                }
                // The process ended between these two steps: only the ring shows whether the driver has seen the
                // position.
                self.old = if new == old || q.is_used(old) { new } else { old };
                q.resume(self.old);
                self.keep(self.old);
            }
        }
        Some(())
    }

    /// Packed: stores the position about to be shown, and the previous one.
    fn keep(&self, new: RingIndex) {
        let old = self.old;
        let word = u64::from(new.at) | u64::from(old.at) << 16 | u64::from(new.wrap) << 32 | u64::from(old.wrap) << 40;
        self.indices().store(word, Ordering::Release);
    }
}

impl live::Record for Record {
    fn showing(&mut self, queue: &Queue) {
        if let Queue::Packed(q) = queue
            && q.holds()
        {
            self.keep(q.done());
        }
    }

    fn shown(&mut self, queue: &Queue) {
        match queue {
            Queue::Packed(q) => {
                self.old = q.done();
                self.keep(self.old);
            }
            Queue::Split(q) => self.half(SPLIT_USED_AT).store(q.done(), Ordering::Release),
        }
    }

    /// The front end knows the queue's position: it will pass it on when it restarts the queue.
    fn close(&self) {
        self.half(VERSION_AT).store(0, Ordering::Release);
    }

    fn is_damaged(&self) -> bool {
        self.region.map.is_damaged()
    }
}
