//! The driver's memory: a sealed memfd with the rings and buffers of all its queues.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, compiler_fence};

use netvale_mem::Mapping;
use netvale_mem::copy::copy_bytes;
use netvale_mem::mapping::{PageKind, sealed_memfd};
use rustix::io::Errno;

use crate::memory::RegionSpec;

/// Guest physical address of the memory's first byte. Guest physical addresses differ from all addresses in this
/// process, so that code that confuses the two fails.
const GUEST: u64 = 0x1_0000_0000;
/// Distance between buffers in bytes: an odd number of cache lines, so that the buffers' first lines spread over all
/// sets of the cache.
const STRIDE: u32 = 2_112;
/// Unused bytes at the start of a buffer. The frame after the header then begins on a cache line. The header, which
/// rarely changes, is on a separate cache line, which therefore need not move between caches.
const PAD: u32 = 64 - 12;
/// Size of a buffer in bytes, including the virtio-net header.
pub const BUF: u32 = STRIDE - PAD;
/// Maximum size of a queue in descriptors.
pub const MAX_QUEUE: u16 = 4_096;
const PAGE: usize = 4_096;

/// A driver's memory.
pub struct DriverRam {
    fd: Arc<OwnedFd>,
    map: Arc<Mapping>,
    len: usize,
}

impl DriverRam {
    /// Creates memory for queues of these sizes.
    ///
    /// # Errors
    /// The kernel's error if memory or descriptors run out.
    pub fn new(sizes: &[u16]) -> Result<(DriverRam, Vec<QueueRam>), Errno> {
        let len = sizes.iter().map(|n| QueueRam::bytes(*n)).sum::<usize>();
        let (fd, map, _) = sealed_memfd("netvale-virtio", len as u64, PageKind::Ordinary)?;
        Ok(DriverRam::of(fd, map, sizes))
    }

    /// Maps a predecessor's memory.
    ///
    /// # Errors
    /// `EINVAL` if the file has another length or can be truncated; the kernel's error if the file cannot be mapped.
    pub fn restore(fd: OwnedFd, sizes: &[u16]) -> Result<(DriverRam, Vec<QueueRam>), Errno> {
        let len = sizes.iter().map(|n| QueueRam::bytes(*n)).sum::<usize>();
        let map = Mapping::map(fd.as_fd(), len)?;
        Ok(DriverRam::of(fd, map, sizes))
    }

    fn of(fd: OwnedFd, map: Mapping, sizes: &[u16]) -> (DriverRam, Vec<QueueRam>) {
        let len = map.len();
        let fd = Arc::new(fd);
        let map = Arc::new(map.watched().with_holes_in(Arc::clone(&fd)));
        let mut from = 0;
        let queues = sizes.iter().map(|&n| {
            let queue = QueueRam { map: Arc::clone(&map), from, n };
            from += QueueRam::bytes(n);
            queue
        });
        let queues = queues.collect();
        (DriverRam { fd, map, len }, queues)
    }

    /// Returns the description of the memory as a region, which the device's process gets.
    pub fn spec(&self) -> RegionSpec {
        // The user address is the guest physical address, too, so that the device's process learns no address of this
        // process.
        RegionSpec { guest: GUEST, size: self.len as u64, user: GUEST, offset: 0 }
    }

    /// Returns the mapping.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }

    /// Returns a copy of the file's descriptor.
    ///
    /// # Errors
    /// Fails if the process is out of descriptors.
    pub fn file(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)
    }
}

/// One queue's part of the memory.
pub struct QueueRam {
    map: Arc<Mapping>,
    from: usize,
    n: u16,
}

impl QueueRam {
    /// Returns the size of a queue's memory in bytes: descriptors, two rings, buffers. The rings are on separate pages,
    /// as the driver writes one and the device the other.
    fn bytes(n: u16) -> usize {
        Self::ring_bytes(n) * 3 + (usize::from(n) * STRIDE as usize).next_multiple_of(PAGE)
    }

    fn ring_bytes(n: u16) -> usize {
        (usize::from(n) * 16 + 64).next_multiple_of(PAGE)
    }

    /// Returns the number of descriptors.
    pub fn size(&self) -> u16 {
        self.n
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: all offsets that the functions below pass lie inside the queue's part of the mapping, which
        // `DriverRam::new` made large enough.
        unsafe { self.map.start().add(self.from + offset) }
    }

    /// Returns the address of the descriptor table (split) or descriptor ring (packed).
    pub fn desc(&self) -> NonNull<u8> {
        self.at(0)
    }

    /// Returns the address of the available ring (split) or of the driver event suppression (packed).
    pub fn avail(&self) -> NonNull<u8> {
        self.at(Self::ring_bytes(self.n))
    }

    /// Returns the address of the used ring (split) or of the device event suppression (packed).
    pub fn used(&self) -> NonNull<u8> {
        self.at(2 * Self::ring_bytes(self.n))
    }

    /// Returns the address of buffer `id`; an ID outside the queue selects the last buffer.
    #[inline]
    pub fn buf(&self, id: u16) -> NonNull<u8> {
        let id = id.min(self.n - 1);
        self.at(3 * Self::ring_bytes(self.n) + usize::from(id) * STRIDE as usize + PAD as usize)
    }

    /// Returns the guest physical address of buffer `id`.
    #[inline]
    pub fn guest(&self, id: u16) -> u64 {
        self.device_address(self.buf(id))
    }

    /// Converts an address in this process to the guest physical address that the device uses.
    #[inline]
    pub fn device_address(&self, p: NonNull<u8>) -> u64 {
        GUEST + (p.as_ptr() as u64 - self.map.start().as_ptr() as u64)
    }

    /// Writes `bytes` to the start of buffer `id`.
    pub fn put(&self, id: u16, bytes: &[u8]) {
        // SAFETY: the buffer is ours, and no more bytes are copied than it has.
        unsafe { copy_bytes(bytes.as_ptr(), self.buf(id).as_ptr(), bytes.len().min(BUF as usize)) };
    }

    /// Returns the first byte of buffer `id`.
    pub fn first_byte(&self, id: u16) -> u8 {
        // SAFETY: the buffer is ours; the read is volatile because a device may write to the buffer.
        unsafe { self.buf(id).as_ptr().read_volatile() }
    }

    /// Returns the ID of the buffer that begins at a guest physical address; `None` if no buffer begins there.
    pub fn id_at(&self, guest: u64) -> Option<u16> {
        let offset = guest.checked_sub(self.guest(0))?;
        let id = u16::try_from(offset / u64::from(STRIDE)).ok()?;
        (offset % u64::from(STRIDE) == 0 && id < self.n).then_some(id)
    }

    /// Returns the location of the driver's notes: after the available ring or driver event suppression, on a cache
    /// line that the device does not read.
    fn notes(&self) -> &AtomicU32 {
        let at = self.at(Self::ring_bytes(self.n) + usize::from(self.n) * 16);
        // SAFETY: the notes are inside the ring's pages, which have at least 64 bytes after the ring, and are aligned
        // to 4. The device shares them, hence atomic.
        unsafe { AtomicU32::from_ptr(at.as_ptr().cast()) }
    }

    /// Notes the driver's position, the result of [`super::DriverQueue::done`], in case this process is killed.
    #[inline]
    pub fn note(&self, done: u16, turn: u16) {
        self.notes().store(u32::from(done) | u32::from(turn) << 16, Ordering::Relaxed);
        // If the process is killed after this point, the note is stored: only the compiler could have deferred the
        // store, and this fence forbids that.
        compiler_fence(Ordering::SeqCst);
    }

    /// Returns the last note, as `(done, turn)`. A hostile device may have written anything there.
    pub fn noted(&self) -> (u16, u16) {
        let noted = self.notes().load(Ordering::Relaxed);
        (noted as u16, (noted >> 16) as u16)
    }

    /// Returns `idx` of the available ring.
    pub fn avail_idx(&self) -> u16 {
        self.avail_half(2)
    }

    /// Returns entry `index` of the available ring; the index wraps around.
    pub fn avail_entry(&self, index: u16) -> u16 {
        self.avail_half(4 + 2 * usize::from(index & (self.n - 1)))
    }

    fn avail_half(&self, offset: usize) -> u16 {
        // SAFETY: both offsets that the callers pass lie inside the ring and are even. The device shares the ring,
        // hence atomic.
        unsafe { AtomicU16::from_ptr(self.avail().as_ptr().add(offset).cast()) }.load(Ordering::Acquire)
    }

    /// Returns the two 64-bit words of a descriptor; an index outside the queue selects the last descriptor.
    pub fn descriptor(&self, index: u16) -> (u64, u64) {
        let at = self.desc().as_ptr().wrapping_add(16 * usize::from(index.min(self.n - 1)));
        // SAFETY: `at` is in a descriptor of the table or ring, aligned. The device shares it, hence atomic.
        let word = |at: *mut u8| unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::Acquire);
        (word(at), word(at.wrapping_add(8)))
    }

    /// Zeroes the rings and the notes.
    pub fn clear_rings(&self) {
        // SAFETY: these bytes are the rings; no other process knows them yet.
        unsafe { self.desc().as_ptr().write_bytes(0, 3 * Self::ring_bytes(self.n)) };
    }
}
