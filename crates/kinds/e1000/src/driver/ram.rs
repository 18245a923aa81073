//! The driver's memory: one sealed memfd with status block, rings and buffers.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_mem::Mapping;
use netvale_mem::csb::Csb;
use netvale_mem::mapping::{Pages, sealed_memfd};
use netvale_mem::words::Words;
use rustix::io::Errno;

use crate::direction::Direction;
use crate::paravirt::{BYTES, CAUSES_AT};
use crate::ring::DESCRIPTOR;

/// The card's address of the first byte: any number that is no address in this process, to expose mix-ups.
pub const GUEST: u64 = 0x1_0000_0000;
/// Bytes of a buffer (RCTL.BSIZE is zero).
pub const BUF: usize = 2048;
const PAGE: u64 = 4096;

/// A driver's memory.
pub struct Ram {
    fd: OwnedFd,
    map: Arc<Mapping>,
    slots: u32,
}

impl Ram {
    /// Creates memory for two rings of `slots` descriptors each, a power of two.
    ///
    /// # Errors
    /// The kernel's error when out of memory or descriptors.
    pub fn new(slots: u32) -> Result<Ram, Errno> {
        let len = Self::buffers_at(slots) + 2 * u64::from(slots) * BUF as u64;
        let (fd, map, _) = sealed_memfd("netvale-e1000", len, Pages::Ordinary)?;
        let map = map.watched();
        let ram = Ram { fd, map: Arc::new(map), slots };
        for direction in [Direction::Transmit, Direction::Receive] {
            (0..slots)
                .for_each(|i| ram.word(direction, i, 0).store(GUEST + ram.buffer_at(direction, i), Ordering::Relaxed));
        }
        Ok(ram)
    }

    fn ring_bytes(slots: u32) -> u64 {
        (u64::from(slots) * DESCRIPTOR).next_multiple_of(PAGE)
    }

    fn buffers_at(slots: u32) -> u64 {
        PAGE + 2 * Self::ring_bytes(slots)
    }

    /// Descriptors of each ring.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The card's address of a ring.
    pub fn ring(&self, direction: Direction) -> u64 {
        GUEST + self.ring_at(direction)
    }

    /// The card's address of the status block.
    pub fn block(&self) -> u64 {
        GUEST
    }

    fn ring_at(&self, direction: Direction) -> u64 {
        PAGE + if direction == Direction::Receive { Self::ring_bytes(self.slots) } else { 0 }
    }

    fn buffer_at(&self, direction: Direction, i: u32) -> u64 {
        let first = if direction == Direction::Receive { u64::from(self.slots) } else { 0 };
        Self::buffers_at(self.slots) + (first + u64::from(i % self.slots)) * BUF as u64
    }

    fn at(&self, offset: u64) -> NonNull<u8> {
        // SAFETY: offsets of rings and buffers lie inside the mapping, which `new` made large enough.
        unsafe { self.map.start().add(offset as usize) }
    }

    /// Buffer `i` of a ring; an index outside the ring wraps around.
    #[inline]
    pub fn buffer(&self, direction: Direction, i: u32) -> NonNull<u8> {
        self.at(self.buffer_at(direction, i))
    }

    /// A half of descriptor `i`: 0 its address, 1 the rest.
    #[inline]
    pub fn word(&self, direction: Direction, i: u32, half: u64) -> &AtomicU64 {
        #[cfg(fuzzing)]
        netvale_mem::probe::read();
        let at = self.at(self.ring_at(direction) + u64::from(i % self.slots) * DESCRIPTOR + half % 2 * 8);
        // SAFETY: eight aligned bytes of a ring; both sides access them only atomically, and they live as long as self.
        unsafe { AtomicU64::from_ptr(at.as_ptr().cast()) }
    }

    /// A ring's entry of the status block.
    pub fn csb(&self, (atok, ktoa): (u64, u64)) -> Option<Csb> {
        Csb::new(&self.map, atok, ktoa)
    }

    /// The status block's causes.
    pub fn causes(&self) -> Option<Words> {
        Words::new(&self.map, CAUSES_AT, 1)
    }

    /// Resets the memory to its initial state.
    pub fn clear_block(&self) {
        if let Some(words) = Words::new(&self.map, 0, BYTES as usize / 4) {
            (0..BYTES as usize / 4).for_each(|i| words.store(i, 0));
        }
    }

    /// The mapping of the whole memory.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }
}

impl AsFd for Ram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
