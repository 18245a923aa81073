//! The device side of virtqueues (virtio 1.3 §2.6 to §2.8).
//!
//! [`split`] and [`packed`] each implement one layout. The queues of both layouts yield chains: the ID with which a
//! chain is returned to the driver, and the chain's buffers as pieces of this process's address space. Every descriptor
//! is read once, and checked against the guest's memory before use.
//!
//! Used buffers are collected and shown to the driver together by [`DeviceQueue::publish`], so a frame of several
//! buffers is never visible in part.
#![allow(unsafe_code)]

pub mod packed;
pub mod ring_index;
pub mod split;

use std::ptr::NonNull;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::features::{EVENT_IDX, INDIRECT_DESC, RING_PACKED};
use crate::memory::{GuestMemory, Hint};

/// Maximum number of pieces of a chain that are kept. A transmitted frame in a longer chain is dropped; in a longer
/// receive chain, only the first pieces are used.
pub const MAX_PIECES: usize = 128;
/// Number of descriptors, counted in chains with several descriptors, after which a batch from the driver ends; further
/// chains wait for the next batch. Guests use at most about twenty descriptors per frame.
const ENOUGH_WALKED: u32 = 512;
/// Maximum number of descriptors that are walked for one batch in either direction.
const MOST_WALKED: u32 = 8192;
/// Maximum size of a queue in descriptors (virtio 1.3 §2.6, §2.7).
pub const MAX_SIZE: u16 = 32_768;

/// `VIRTQ_DESC_F_NEXT`.
const NEXT: u16 = 1;
/// `VIRTQ_DESC_F_WRITE`: the device writes to the buffer.
const WRITE: u16 = 2;
/// `VIRTQ_DESC_F_INDIRECT`.
const INDIRECT: u16 = 4;

/// A protocol violation by the driver, which stops the queue for good. The type is as wide as a chain's ID, so that a
/// `Result` fits into one register.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DriverViolation {
    /// `avail.idx` moved by more than the queue's size.
    #[error("avail.idx moved by more than the queue's size")]
    AvailIndex,
    /// An available entry has an index outside the descriptor table.
    #[error("a chain begins at a descriptor outside the table")]
    Head,
    /// A `next` field has an index outside the descriptor table.
    #[error("a chain continues at a descriptor outside the table")]
    NextIndex,
    /// A chain has more descriptors than the queue, most likely because it loops.
    #[error("a chain is longer than the queue, or loops")]
    Loop,
    /// A buffer is outside the guest's memory.
    #[error("a buffer lies outside the guest's memory")]
    Address,
    /// An indirect table has an invalid size, or is inside another indirect table.
    #[error("an indirect table has an invalid size or is inside another one")]
    Indirect,
    /// A readable buffer follows a writable buffer.
    #[error("a readable buffer follows a writable one")]
    Order,
    /// The file behind the memory was truncated.
    #[error("the guest's memory is gone: its file was cut short")]
    MemoryGone,
}

/// A piece of a buffer, contiguous in this process's address space.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Address of the first byte.
    pub ptr: NonNull<u8>,
    /// Length in bytes.
    pub len: u32,
}

/// A chain of descriptors that the driver made available and that the device must return to the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// In a split ring, the index of the first descriptor; in a packed ring, the buffer ID.
    pub id: u16,
    /// Number of ring entries that the chain takes: in a packed ring, its descriptors; in a split ring, always 1.
    pub count: u16,
}

/// The buffers of a chain.
pub struct Pieces {
    list: [Piece; MAX_PIECES],
    /// Number of readable pieces, which come first.
    readable: usize,
    len: usize,
    /// Whether the chain had more pieces than are kept.
    overflow: bool,
    /// Number of descriptors walked since [`Pieces::begin`]. Chains with a single descriptor do not count.
    walked: u32,
    hint: Hint,
}

// SAFETY: the pieces are addresses, which are used only while the memory in which they were found is held.
unsafe impl Send for Pieces {}

impl Default for Pieces {
    fn default() -> Self {
        let none = Piece { ptr: NonNull::dangling(), len: 0 };
        Pieces { list: [none; MAX_PIECES], readable: 0, len: 0, overflow: false, walked: 0, hint: Hint::default() }
    }
}

impl Pieces {
    /// Forgets the chain and the memory hint. The caller must do this after the memory has changed.
    pub fn forget(&mut self) {
        self.clear();
        self.hint = Hint::default();
    }

    #[inline]
    fn clear(&mut self) {
        self.readable = 0;
        self.len = 0;
        self.overflow = false;
    }

    /// Begins a batch: resets the number of walked descriptors.
    #[inline]
    pub fn begin(&mut self) {
        self.walked = 0;
    }

    /// Returns the number of descriptors walked since [`Pieces::begin`]. Chains with a single descriptor do not count.
    pub fn walked(&self) -> u32 {
        self.walked
    }

    /// Resets the number of walked descriptors to `walked`, an earlier result of [`Pieces::walked`].
    pub fn go_back(&mut self, walked: u32) {
        self.walked = walked;
    }

    /// Returns whether the current batch from the driver should end, because enough descriptors were walked for it.
    #[inline]
    pub fn is_enough(&self) -> bool {
        self.walked >= ENOUGH_WALKED
    }

    /// Returns whether the limit of walked descriptors is reached: the pieces of a further chain would be incomplete,
    /// so that chain must wait for the next batch.
    #[inline]
    pub fn is_exhausted(&self) -> bool {
        self.walked >= MOST_WALKED
    }

    /// Counts a walked descriptor. Returns whether the limit is exceeded, so that the rest of the chain must be
    /// skipped.
    #[inline]
    fn step(&mut self) -> bool {
        self.walked += 1;
        let stops = self.walked > MOST_WALKED;
        self.overflow |= stops;
        stops
    }

    /// Returns the readable buffers.
    #[inline]
    pub fn readable(&self) -> &[Piece] {
        &self.list[..self.readable]
    }

    /// Returns the writable buffers.
    #[inline]
    pub fn writable(&self) -> &[Piece] {
        &self.list[self.readable..self.len]
    }

    /// Returns the readable buffer, if the chain has exactly one; writable buffers may follow it.
    #[inline]
    pub fn only_readable(&self) -> Option<Piece> {
        (self.readable == 1).then_some(self.list[0])
    }

    /// Returns the chain's only buffer, if it is writable.
    #[inline]
    pub fn only_writable(&self) -> Option<Piece> {
        (self.readable == 0 && self.len == 1).then_some(self.list[0])
    }

    /// Returns whether the chain had more pieces than are kept.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.overflow
    }

    /// Adds the buffer of a chain with one buffer. [`Pieces::clear`] must have been called before.
    #[inline]
    fn add_only(&mut self, memory: &GuestMemory, desc: QueueDesc) -> Result<(), DriverViolation> {
        let len = u64::from(desc.len);
        match memory.guest(desc.addr, len, &mut self.hint) {
            Some((ptr, n)) if n == len && n > 0 => {
                self.list[0] = Piece { ptr, len: desc.len };
                self.readable = usize::from(desc.flags & WRITE == 0);
                self.len = 1;
                Ok(())
            }
            _ => self.add_pieces(memory, desc),
        }
    }

    /// Adds a buffer in the rare cases: the buffer is empty, spans several regions, or is outside all regions.
    #[cold]
    #[inline(never)]
    fn add_pieces(&mut self, memory: &GuestMemory, desc: QueueDesc) -> Result<(), DriverViolation> {
        self.add(memory, desc)
    }

    /// Adds the buffer of a descriptor.
    #[inline]
    fn add(&mut self, memory: &GuestMemory, desc: QueueDesc) -> Result<(), DriverViolation> {
        let mut at = desc.addr;
        let mut left = u64::from(desc.len);
        let writes = desc.flags & WRITE != 0;
        if !writes && self.len > self.readable {
            return Err(DriverViolation::Order);
        }
        while left > 0 && !self.overflow {
            let (ptr, n) = memory.guest(at, left, &mut self.hint).ok_or(DriverViolation::Address)?;
            match self.list.get_mut(self.len) {
                Some(place) => {
                    *place = Piece { ptr, len: n as u32 };
                    self.len += 1;
                    self.readable += usize::from(!writes);
                }
                None => self.overflow = true,
            }
            // A region may end at the end of the address space, so the address may wrap around to 0.
            at = at.wrapping_add(n);
            left -= n;
        }
        Ok(())
    }
}

/// A descriptor, read once.
#[derive(Clone, Copy, Debug)]
struct QueueDesc {
    addr: u64,
    len: u32,
    /// The descriptor's flags.
    flags: u16,
    /// In a split ring, the field `next`; in a packed ring, the buffer ID.
    other: u16,
}

/// Reads the 16 bytes of a descriptor, once.
///
/// # Safety
/// `at` is readable for 16 bytes and aligned to 8.
#[inline]
unsafe fn words(at: *const u8) -> (u64, u64) {
    #[cfg(fuzzing)]
    netvale_mem::probe::read();
    // SAFETY: two words of 8 bytes, readable and aligned, as promised; the other side may be writing them, hence
    // atomic.
    unsafe {
        let w = at.cast::<std::sync::atomic::AtomicU64>();
        ((*w).load(std::sync::atomic::Ordering::Relaxed), (*w.add(1)).load(std::sync::atomic::Ordering::Relaxed))
    }
}

/// A queue of either layout.
pub enum DeviceQueue {
    /// Split.
    Split(split::SplitQueue),
    /// Packed.
    Packed(packed::PackedQueue),
}

macro_rules! each {
    ($self:ident, $q:ident => $e:expr) => {
        match $self {
            DeviceQueue::Split($q) => $e,
            DeviceQueue::Packed($q) => $e,
        }
    };
}

/// A position in a queue, to which the queue can return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    at: u16,
    wrap: bool,
}

impl DeviceQueue {
    /// Returns the number of entries.
    pub fn size(&self) -> u16 {
        each!(self, q => q.size())
    }

    /// Returns the next chain that the driver made available; `None` if there is none.
    ///
    /// # Errors
    /// [`DriverViolation`] if the available ring, a descriptor or an indirect table breaks the rules.
    // Inlined, because a call would pack the result into a register for each frame, and the caller would unpack it.
    #[inline(always)]
    pub fn next(&mut self, memory: &GuestMemory, pieces: &mut Pieces) -> Result<Option<Chain>, DriverViolation> {
        each!(self, q => q.next(memory, pieces))
    }

    /// Returns whether the driver made chains available that [`DeviceQueue::next`] has not returned.
    #[inline]
    pub fn has_next(&mut self) -> bool {
        each!(self, q => q.has_next())
    }

    /// Prefetches the memory of the next chains.
    #[inline]
    pub fn prefetch(&mut self) {
        each!(self, q => q.prefetch())
    }

    /// Returns the position of the chain that [`DeviceQueue::next`] yields next.
    #[inline]
    pub fn position(&self) -> QueuePosition {
        each!(self, q => q.position())
    }

    /// Returns to `position`: chains that were taken after that position are yielded again.
    #[inline]
    pub fn back_to(&mut self, position: QueuePosition) {
        each!(self, q => q.back_to(position))
    }

    /// Returns a chain, to whose buffers `written` bytes were written, to the driver. The driver sees the chain with
    /// the next [`DeviceQueue::publish`].
    #[inline]
    pub fn give_back(&mut self, chain: Chain, written: u32) {
        each!(self, q => q.give_back(chain, written))
    }

    /// Returns several chains to the driver in order, with one check of the layout.
    #[inline]
    pub fn give_back_all(&mut self, chains: impl Iterator<Item = (Chain, u32)>) {
        each!(self, q => q.give_back_all(chains));
    }

    /// Shows the driver the returned chains. Returns whether the driver must be notified; false if there were no chains
    /// to show.
    #[inline]
    pub fn publish(&mut self) -> bool {
        each!(self, q => q.publish())
    }

    /// Requests kicks from the driver. Returns whether chains are already available, for which no kick may come; the
    /// caller must then not sleep.
    pub fn arm(&mut self) -> bool {
        each!(self, q => q.arm())
    }

    /// Stops requesting kicks while the queue is polled.
    pub fn disarm(&mut self) {
        each!(self, q => q.disarm())
    }

    /// Returns the position of the queue, in the form of the argument `base` of [`DeviceQueue::new`].
    pub fn base(&self) -> u32 {
        each!(self, q => q.base())
    }

    /// Returns the addresses and lengths of the areas of the rings that the device writes, for the dirty log.
    pub fn device_area(&self) -> [(*const u8, usize); 2] {
        each!(self, q => q.device_area())
    }
}

/// Location of a queue in the hypervisor's own ("user") addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueAddresses {
    /// Descriptor table or ring.
    pub desc: u64,
    /// Available ring (split), or driver event suppression (packed).
    pub avail: u64,
    /// Used ring (split), or device event suppression (packed).
    pub used: u64,
}

/// The negotiated features that concern queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFeatures {
    /// `VIRTIO_F_RING_PACKED`.
    pub packed: bool,
    /// `VIRTIO_F_EVENT_IDX`.
    pub event_idx: bool,
    /// `VIRTIO_F_INDIRECT_DESC`.
    pub indirect: bool,
}

impl QueueFeatures {
    /// Selects the features of queues from all negotiated features.
    pub fn of(features: u64) -> QueueFeatures {
        let has = |bit: u64| features & bit != 0;
        QueueFeatures { packed: has(RING_PACKED), event_idx: has(EVENT_IDX), indirect: has(INDIRECT_DESC) }
    }
}

impl DeviceQueue {
    /// Creates a queue at position `base`. In a split queue, `base` is the index of the next entry to take. In a packed
    /// queue, the lower half of `base` is that index with its wrap counter in bit 15, and the upper half is the index
    /// of the next entry to return, in the same form. Returns `None` if the queue is not entirely in the memory, or its
    /// size is invalid.
    pub fn new(
        memory: &GuestMemory,
        size: u16,
        at: QueueAddresses,
        base: u32,
        features: QueueFeatures,
    ) -> Option<DeviceQueue> {
        if features.packed {
            packed::PackedQueue::new(memory, size, at, base, features).map(DeviceQueue::Packed)
        } else {
            split::SplitQueue::new(memory, size, at, base, features).map(DeviceQueue::Split)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;
    use crate::memory::RegionSpec;

    const BYTES: usize = 0x3000;
    /// A small size, so that the ring wraps around often.
    const SIZE: u16 = 8;

    /// A queue, with the file and the mapping of the queue's memory.
    struct Ring {
        queue: DeviceQueue,
        file: OwnedFd,
        _memory: GuestMemory,
    }

    fn ring(packed: bool) -> Ring {
        let file = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, BYTES as u64).unwrap();
        let spec = RegionSpec { guest: 0, size: BYTES as u64, user: 0, offset: 0 };
        let memory = GuestMemory::new(vec![(spec, file.try_clone().unwrap())]).unwrap();
        let at = QueueAddresses { desc: 0, avail: 0x1000, used: 0x2000 };
        let queue =
            DeviceQueue::new(&memory, SIZE, at, 0, QueueFeatures { packed, ..QueueFeatures::default() }).unwrap();
        Ring { queue, file, _memory: memory }
    }

    /// Returns all bytes that the driver sees, and the two values that an in-flight record reads: the queue's position,
    /// and whether returned chains are not shown yet.
    fn state(ring: &Ring) -> (Vec<u8>, u32, bool) {
        let mut bytes = vec![0; BYTES];
        assert_eq!(rustix::io::pread(&ring.file, &mut bytes, 0), Ok(BYTES));
        match &ring.queue {
            DeviceQueue::Split(q) => (bytes, u32::from(q.done()), false),
            DeviceQueue::Packed(q) => (bytes, u32::from(q.done().bits()), q.holds()),
        }
    }

    /// Objective: chains that are returned together leave the same bytes as chains that are returned one by one, before
    /// and after they are shown, for several rounds of the ring, even if a single chain was returned just before.
    #[test]
    fn together_as_one_by_one() {
        for packed in [false, true] {
            let mut one = ring(packed);
            let mut all = ring(packed);
            for round in 0..60u16 {
                let chain = |k: u16| (Chain { id: (round + k) % SIZE, count: 1 + k % 2 }, u32::from(round * k % 3));
                let chains: Vec<_> = (0..round % 5).map(chain).collect();
                if round % 4 == 3 {
                    one.queue.give_back(Chain::default(), 1);
                    all.queue.give_back(Chain::default(), 1);
                }
                chains.iter().for_each(|&(chain, written)| one.queue.give_back(chain, written));
                all.queue.give_back_all(chains.into_iter());
                assert_eq!(state(&one), state(&all), "packed: {packed}, round {round}");
                assert_eq!(one.queue.publish(), all.queue.publish());
                assert_eq!(state(&one), state(&all), "packed: {packed}, round {round}, shown");
            }
        }
    }

    /// Returns a split queue of `size` descriptors. The memory for its buffers consists of 64 regions of one page each,
    /// after which there is no memory.
    fn large(size: u16) -> (DeviceQueue, GuestMemory, OwnedFd) {
        let file = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
        let page = 0x1000u64;
        let rings = 0x20_0000u64;
        ftruncate(&file, rings + 64 * page).unwrap();
        let region = |guest, size, offset| RegionSpec { guest, size, user: guest, offset };
        let mut table = vec![(region(0, rings, 0), file.try_clone().unwrap())];
        table.extend((0..64).map(|i| (region(rings + i * page, page, rings + i * page), file.try_clone().unwrap())));
        let memory = GuestMemory::new(table).unwrap();
        let at = QueueAddresses { desc: 0, avail: 0x10_0000, used: 0x18_0000 };
        let queue = DeviceQueue::new(&memory, size, at, 0, QueueFeatures::default()).unwrap();
        (queue, memory, file)
    }

    fn put(file: &OwnedFd, at: u64, word: u64) {
        assert_eq!(rustix::io::pwrite(file, &word.to_le_bytes(), at), Ok(8));
    }

    /// Objective: work on chains is bounded. A buffer that spans many regions is followed only up to the maximum number
    /// of pieces. One batch walks a limited number of descriptors; the limit starts anew with the next batch.
    #[test]
    fn work_on_chains_is_bounded() {
        let (mut queue, memory, file) = large(32_768);
        let mut pieces = Pieces::default();
        // Three buffers span all 64 regions; a fourth buffer continues past the last region.
        for (i, end) in [(0u64, 64), (1, 64), (2, 64), (3, 65)] {
            put(&file, 16 * i, 0x20_0000);
            put(&file, 16 * i + 8, (end * 0x1000) | (1 << 32) | ((i + 1) << 48));
        }
        put(&file, 16 * 4 + 8, 0);
        put(&file, 0x10_0000, 1 << 16);
        let chain = queue.next(&memory, &mut pieces);
        assert_eq!(chain, Ok(Some(Chain { id: 0, count: 1 })));
        assert!(pieces.is_cut() && pieces.readable().len() == MAX_PIECES);
        // A chain whose only descriptor links to itself is cut by the limit of walked descriptors.
        put(&file, 16 * 9, 0x20_0000);
        put(&file, 16 * 9 + 8, 1 | 1 << 32 | 9 << 48);
        put(&file, 0x10_0000, 2 << 16 | 9 << 48);
        pieces.begin();
        assert_eq!(queue.next(&memory, &mut pieces), Ok(Some(Chain { id: 9, count: 1 })));
        assert!(pieces.is_exhausted() && pieces.is_cut());
        pieces.begin();
        assert!(!pieces.is_exhausted());
    }
}
