//! In-flight records of netvale's queues. The front end keeps the records in case netvale ends without notice
//! (vhost-user, "Inflight I/O tracking"). netvale returns buffers in order of arrival, so a record needs only the
//! position of the last returned buffer.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use netvale_mem::Mapping;
use netvale_virtio::device::live;
use netvale_virtio::memory::{MemoryError, map};
use netvale_virtio::queue::DeviceQueue;
use netvale_virtio::queue::ring_index::WrapIndex;
use serde::{Deserialize, Serialize};

/// Alignment of each queue's record in bytes.
const ALIGN: u64 = 64;
/// Size in bytes of a record's header, which precedes the descriptors' entries: for a split queue, for a packed queue.
const HEAD: (u64, u64) = (16, 32);
/// Size in bytes of a descriptor's entry in a record: for a split queue, for a packed queue.
const EACH: (u64, u64) = (16, 32);
/// Version of the layout. A record has version 0 until the device stores anything in it.
const VERSION: u16 = 1;

// Offsets in a queue's record, in bytes: of the version (`VERSION_AT`) and of the number of descriptors
// (`DESC_NUM_AT`).
const VERSION_AT: usize = 8;
const DESC_NUM_AT: usize = 10;
/// Offset of the used index in a split queue's record.
const SPLIT_USED_AT: usize = 14;
/// Offset in a packed queue's record of the word with the used index, the old used index, and their wrap counters.
const PLACES_AT: usize = 16;

/// Returns the size in bytes of the memory for the records of `queues` queues of `size` descriptors.
pub fn bytes(queues: u16, size: u16, packed: bool) -> u64 {
    u64::from(queues) * queue_bytes(size, packed)
}

fn queue_bytes(size: u16, packed: bool) -> u64 {
    let (head, each) = if packed { (HEAD.1, EACH.1) } else { (HEAD.0, EACH.0) };
    (head + each * u64::from(size)).next_multiple_of(ALIGN)
}

/// The shared memory with the in-flight records of a device's queues, which survives this process.
#[derive(Debug)]
pub struct Inflight {
    map: Mapping,
    base: NonNull<u8>,
    file: Arc<OwnedFd>,
    shape: InflightShape,
}

/// Location of the memory with in-flight records in its file, and the records' layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InflightShape {
    /// Length in bytes.
    pub len: u64,
    /// Offset in the file at which the records begin.
    pub offset: u64,
    /// Number of queues.
    pub queues: u16,
    /// Number of descriptors of each queue.
    pub size: u16,
}

// SAFETY: `base` is an address inside `map`, which moves to the other thread together with it; the bytes are only
// accessed as atomics.
unsafe impl Send for Inflight {}
// SAFETY: a shared reference allows the same accesses as an owned value, all of which are atomic.
unsafe impl Sync for Inflight {}

impl Inflight {
    /// Maps the memory that a front end passed.
    ///
    /// # Errors
    /// [`MemoryError`] if the memory cannot be mapped.
    pub fn new(file: OwnedFd, shape: InflightShape) -> Result<Inflight, MemoryError> {
        let InflightShape { len, offset, .. } = shape;
        let file = Arc::new(file);
        let map = map(Arc::clone(&file), offset, len)?;
        Ok(Inflight { base: map.start(), map, file, shape })
    }

    /// Returns the memory's shape and file.
    pub fn file(&self) -> (InflightShape, &Arc<OwnedFd>) {
        (self.shape, &self.file)
    }
}

/// One queue's in-flight record.
pub struct QueueRecord {
    region: Arc<Inflight>,
    from: usize,
    /// For packed rings, the position that the driver has seen.
    old: WrapIndex,
}

impl QueueRecord {
    /// Opens the record of queue `i`. If an earlier process used the queue and ended without notice, the queue resumes
    /// where that process stopped, and the returned flag is true. Returns `None` if the memory has no room for the
    /// record, or the record does not fit the queue.
    pub fn open(region: &Arc<Inflight>, i: usize, queue: &mut DeviceQueue) -> Option<(QueueRecord, bool)> {
        let mut record = QueueRecord::part(region, i, queue)?;
        let is_kept = record.is_kept(queue)?;
        if is_kept {
            record.resume(queue)?;
        } else {
            record.begin(queue);
        }
        Some((record, is_kept))
    }

    /// Returns the record of queue `i`, whose position the caller knows. Returns `Some(None)` if nothing is recorded,
    /// and `None` if the memory has no room for the record or the record does not fit the queue.
    pub fn continued(region: &Arc<Inflight>, i: usize, queue: &DeviceQueue) -> Option<Option<QueueRecord>> {
        let mut record = QueueRecord::part(region, i, queue)?;
        if let DeviceQueue::Packed(q) = queue {
            record.old = q.done();
        }
        Some(record.is_kept(queue)?.then_some(record))
    }

    fn part(region: &Arc<Inflight>, i: usize, queue: &DeviceQueue) -> Option<QueueRecord> {
        let packed = matches!(queue, DeviceQueue::Packed(_));
        let InflightShape { len, queues, size, .. } = region.shape;
        let fits = bytes(queues, size, packed) <= len && (region.base.as_ptr() as u64).is_multiple_of(8);
        if !fits || i >= usize::from(queues) || queue.size() > size {
            return None;
        }
        let from = i * queue_bytes(size, packed) as usize;
        Some(QueueRecord { region: Arc::clone(region), from, old: WrapIndex { at: 0, wrap: true } })
    }

    /// Returns whether anything is recorded; `None` if the record does not fit the queue.
    fn is_kept(&self, queue: &DeviceQueue) -> Option<bool> {
        match self.half(VERSION_AT).load(Ordering::Relaxed) {
            0 => Some(false),
            VERSION => (self.half(DESC_NUM_AT).load(Ordering::Relaxed) == queue.size()).then_some(true),
            _ => None,
        }
    }

    #[inline]
    fn half(&self, at: usize) -> &AtomicU16 {
        // SAFETY: `part` checked that the queue's record lies in the mapping; each 16-bit field is aligned and within
        // the record's first 32 bytes.
        unsafe { AtomicU16::from_ptr(self.region.base.as_ptr().add(self.from + at).cast()) }
    }

    #[inline]
    fn indices(&self) -> &AtomicU64 {
        // SAFETY: `part` checked that the queue's record lies in the mapping, aligned to 8 bytes; this field is within
        // the record's first 32 bytes.
        unsafe { AtomicU64::from_ptr(self.region.base.as_ptr().add(self.from + PLACES_AT).cast()) }
    }

    fn begin(&mut self, queue: &DeviceQueue) {
        if let DeviceQueue::Packed(q) = queue {
            self.old = q.done();
            self.keep(self.old);
        }
        self.half(DESC_NUM_AT).store(queue.size(), Ordering::Relaxed);
        self.half(VERSION_AT).store(VERSION, Ordering::Release);
    }

    fn resume(&mut self, queue: &mut DeviceQueue) -> Option<()> {
        match queue {
            DeviceQueue::Split(q) => q.resume(),
            DeviceQueue::Packed(q) => {
                let word = self.indices().load(Ordering::Acquire);
                let index = |idx: u64, wrap: u64| WrapIndex { at: (word >> idx) as u16, wrap: word >> wrap & 1 != 0 };
                let new = index(0, 32);
                let old = index(16, 40);
                if new.at >= q.size() || old.at >= q.size() {
                    return None;
                }
                // If the process ended between storing the new position and publishing it in the ring, only the ring
                // shows whether the driver has seen the old or the new position.
                self.old = if new == old || q.is_used(old) { new } else { old };
                q.resume(self.old);
                self.keep(self.old);
            }
        }
        Some(())
    }

    /// For packed rings: stores the position that the driver is about to see, and the position that it has already
    /// seen.
    fn keep(&self, new: WrapIndex) {
        let old = self.old;
        let word = u64::from(new.at) | u64::from(old.at) << 16 | u64::from(new.wrap) << 32 | u64::from(old.wrap) << 40;
        self.indices().store(word, Ordering::Release);
    }
}

impl live::InflightRecord for QueueRecord {
    fn showing(&mut self, queue: &DeviceQueue) {
        if let DeviceQueue::Packed(q) = queue
            && q.holds()
        {
            self.keep(q.done());
        }
    }

    fn shown(&mut self, queue: &DeviceQueue) {
        match queue {
            DeviceQueue::Packed(q) => {
                self.old = q.done();
                self.keep(self.old);
            }
            DeviceQueue::Split(q) => self.half(SPLIT_USED_AT).store(q.done(), Ordering::Release),
        }
    }

    /// Clears the record, which is no longer needed: the front end knows the queue's position, and sends the position
    /// when it restarts the queue.
    fn close(&self) {
        self.half(VERSION_AT).store(0, Ordering::Release);
    }

    fn is_damaged(&self) -> bool {
        self.region.map.is_damaged()
    }
}
