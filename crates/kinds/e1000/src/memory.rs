//! The guest's memory, as descriptors address it: an access never leaves one window.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_vfio_user::dma::Dma;

use crate::paravirt::{self, Paravirt};
use crate::ring::DESCRIPTOR;
use crate::tx::{Raw, TX_DONE};

/// A snapshot of the windows. They stay mapped while it exists.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Dma>);

impl Memory {
    /// Takes a snapshot of the current windows.
    pub fn of(dma: &Dma) -> Memory {
        Memory(Arc::new(dma.clone()))
    }

    /// A finder of consecutive places in it.
    #[inline]
    pub fn finder(&self) -> Finder<'_> {
        Finder { dma: &self.0, start: 0, size: 0, first: std::ptr::null_mut() }
    }

    /// The status block at `address`, for rings whose heads are `heads`.
    pub fn paravirt(&self, address: u64, heads: (u32, u32)) -> Option<Paravirt> {
        let (map, offset) = self.0.find(address, paravirt::BYTES)?;
        Paravirt::new(map, offset, heads)
    }

    /// The status block at `address`, unchanged from another process.
    pub fn paravirt_as_it_is(&self, address: u64) -> Option<Paravirt> {
        let (map, offset) = self.0.find(address, paravirt::BYTES)?;
        Paravirt::at(map, offset)
    }
}

/// Finds places in a guest's memory: most lie in the same window as the previous one.
pub struct Finder<'a> {
    dma: &'a Dma,
    /// The window of the last place: its address, its length, and its mapping.
    start: u64,
    size: u64,
    first: *mut u8,
}

impl<'a> Finder<'a> {
    /// Address of `len` bytes at guest address `address`: readable and writable while the memory exists.
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

    /// The descriptor at `address`, read once.
    #[inline]
    pub fn descriptor(&mut self, address: u64) -> Option<Raw> {
        self.words(address).map(|words| [0, 1].map(|i: usize| words[i].load(Ordering::Relaxed)))
    }

    /// Marks a transmit descriptor, read as `raw`, as done.
    #[inline]
    pub fn sent(&mut self, address: u64, raw: Raw) {
        if let Some(words) = self.words(address) {
            words[1].store(raw[1] | TX_DONE, Ordering::Release);
        }
    }

    /// Writes length and status to a receive descriptor once its buffer is filled.
    #[inline]
    pub fn received(&mut self, address: u64, status: u64) {
        if let Some(words) = self.words(address) {
            words[1].store(status, Ordering::Release);
        }
    }
}
