//! The driver's memory: a sealed memfd with status block, rings and buffers.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_mem::Mapping;
use netvale_mem::csb::Csb;
use netvale_mem::mapping::{PageKind, sealed_memfd};
use netvale_mem::words::Words;
use rustix::io::Errno;

use crate::direction::CardDirection;
use crate::paravirt::{BYTES, CAUSES_AT, RX_AT, TX_AT};
use crate::ring::DESCRIPTOR;

/// Guest address of the first byte of the memory. It differs from all addresses in this process, so that code that
/// confuses guest and process addresses fails.
pub const GUEST: u64 = 0x1_0000_0000;
/// Size of a buffer in bytes (RCTL.BSIZE is zero).
pub const BUF: usize = 2048;
const PAGE: u64 = 4096;

/// A driver's memory.
pub struct CardRam {
    fd: OwnedFd,
    map: Arc<Mapping>,
    slots: u32,
}

impl CardRam {
    /// Creates memory for two rings of `slots` descriptors each, a power of two.
    ///
    /// # Errors
    /// The kernel's error if the process is out of memory or descriptors.
    pub fn new(slots: u32) -> Result<CardRam, Errno> {
        let len = Self::buffers_at(slots) + 2 * u64::from(slots) * BUF as u64;
        let (fd, map, _) = sealed_memfd("netvale-e1000", len, PageKind::Ordinary)?;
        let map = map.watched();
        let ram = CardRam { fd, map: Arc::new(map), slots };
        for direction in [CardDirection::Transmit, CardDirection::Receive] {
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

    /// Number of descriptors of each ring.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Guest address of a ring.
    pub fn ring(&self, direction: CardDirection) -> u64 {
        GUEST + self.ring_at(direction)
    }

    /// Guest address of the status block.
    pub fn block(&self) -> u64 {
        GUEST
    }

    fn ring_at(&self, direction: CardDirection) -> u64 {
        PAGE + if direction == CardDirection::Receive { Self::ring_bytes(self.slots) } else { 0 }
    }

    fn buffer_at(&self, direction: CardDirection, i: u32) -> u64 {
        let first = if direction == CardDirection::Receive { u64::from(self.slots) } else { 0 };
        Self::buffers_at(self.slots) + (first + u64::from(i % self.slots)) * BUF as u64
    }

    fn at(&self, offset: u64) -> NonNull<u8> {
        // SAFETY: offsets of rings and buffers are inside the mapping, which `new` made large enough.
        unsafe { self.map.start().add(offset as usize) }
    }

    /// Buffer `i` of a ring; an index outside the ring wraps around.
    #[inline]
    pub fn buffer(&self, direction: CardDirection, i: u32) -> NonNull<u8> {
        self.at(self.buffer_at(direction, i))
    }

    /// One of the two words of descriptor `i`: half 0 is the buffer's address, half 1 is the rest.
    #[inline]
    pub fn word(&self, direction: CardDirection, i: u32, half: u64) -> &AtomicU64 {
        #[cfg(fuzzing)]
        netvale_mem::probe::read();
        let at = self.at(self.ring_at(direction) + u64::from(i % self.slots) * DESCRIPTOR + half % 2 * 8);
        // SAFETY: eight aligned bytes of a ring; both sides access them only atomically, and they live as long as self.
        unsafe { AtomicU64::from_ptr(at.as_ptr().cast()) }
    }

    /// The part of the status block that belongs to a ring; `None` if the memory is too small for it.
    pub fn csb(&self, direction: CardDirection) -> Option<Csb> {
        let (atok, ktoa) = match direction {
            CardDirection::Transmit => TX_AT,
            CardDirection::Receive => RX_AT,
        };
        Csb::new(&self.map, atok, ktoa)
    }

    /// The causes in the status block; `None` if the memory is too small for them.
    pub fn causes(&self) -> Option<Words> {
        Words::new(&self.map, CAUSES_AT, 1)
    }

    /// Clears the status block.
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

impl AsFd for CardRam {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
