//! Access to the guest's memory by guest address. Each access must lie in a single window.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_vfio_user::dma::Dma;

use crate::paravirt::{self, Paravirt};
use crate::ring::DESCRIPTOR;
use crate::tx::{RawDesc, TX_DONE};

/// A snapshot of a guest's memory windows, which stay mapped while it exists.
#[derive(Clone, Debug, Default)]
pub struct CardMemory(Arc<Dma>);

impl CardMemory {
    /// Takes a snapshot of the current windows.
    pub fn of(dma: &Dma) -> CardMemory {
        CardMemory(Arc::new(dma.clone()))
    }

    /// Creates a finder for successive look-ups.
    #[inline]
    pub fn finder(&self) -> Finder<'_> {
        Finder { dma: &self.0, start: 0, size: 0, first: std::ptr::null_mut() }
    }

    /// Locates the status block at `address`, and initialises it for rings with these heads; `None` if it is misaligned
    /// or not in one window.
    pub fn paravirt(&self, address: u64, tx_head: u32, rx_head: u32) -> Option<Paravirt> {
        let (map, offset) = self.0.find(address, paravirt::BYTES)?;
        Paravirt::new(map, offset, tx_head, rx_head)
    }

    /// Locates the status block at `address` that another process has used, without changing it; `None` if it is
    /// misaligned or not in one window.
    pub fn paravirt_as_it_is(&self, address: u64) -> Option<Paravirt> {
        let (map, offset) = self.0.find(address, paravirt::BYTES)?;
        Paravirt::at(map, offset)
    }
}

/// Translates guest addresses to pointers. Optimised for addresses in the same window as the previous address.
pub struct Finder<'a> {
    dma: &'a Dma,
    /// Guest address of the window found last.
    start: u64,
    /// Length of this window in bytes; zero before the first look-up.
    size: u64,
    /// Start of this window in this process.
    first: *mut u8,
}

impl<'a> Finder<'a> {
    /// Returns a pointer to `len` bytes at guest address `address`, readable and writable while the memory is borrowed;
    /// `None` unless one window contains all of these bytes.
    #[inline]
    pub fn at(&mut self, address: u64, len: u64) -> Option<*mut u8> {
        let from = address.wrapping_sub(self.start);
        if from >= self.size || len > self.size - from {
            return self.elsewhere(address, len);
        }
        // SAFETY: inside the window, which stays mapped while the memory is borrowed.
        Some(unsafe { self.first.add(from as usize) })
    }

    #[cold]
    fn elsewhere(&mut self, address: u64, len: u64) -> Option<*mut u8> {
        let (map, from) = self.dma.find(address, len)?;
        self.start = address - from;
        self.size = map.len() as u64;
        self.first = map.start().as_ptr();
        map.at(from, len, 1).map(std::ptr::NonNull::as_ptr)
    }

    #[inline]
    fn words(&mut self, address: u64) -> Option<&'a [AtomicU64; 2]> {
        #[cfg(fuzzing)]
        netvale_mem::probe::read();
        let place = self.at(address, DESCRIPTOR)?.cast::<[AtomicU64; 2]>();
        // SAFETY: 16 bytes, only accessed atomically, and mapped while the memory is borrowed.
        place.is_aligned().then(|| unsafe { &*place })
    }

    /// Reads the descriptor at `address` once; `None` if it is misaligned or not in one window.
    #[inline]
    pub fn descriptor(&mut self, address: u64) -> Option<RawDesc> {
        self.words(address).map(|words| [0, 1].map(|i: usize| words[i].load(Ordering::Relaxed)))
    }

    /// Writes back a transmit descriptor as done; `raw` is the descriptor as it was read.
    #[inline]
    pub fn sent(&mut self, address: u64, raw: RawDesc) {
        if let Some(words) = self.words(address) {
            words[1].store(raw[1] | TX_DONE, Ordering::Release);
        }
    }

    /// Writes `status`, which contains the length, to a receive descriptor whose buffer was filled.
    #[inline]
    pub fn received(&mut self, address: u64, status: u64) {
        if let Some(words) = self.words(address) {
            words[1].store(status, Ordering::Release);
        }
    }
}
