//! The guest's memory, as descriptors name it: whatever they say, only what lies in one window is touched.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_vfio_user::dma::Dma;

use crate::paravirt::{self, Paravirt};
use crate::ring::DESCRIPTOR;
use crate::tx::Raw;

/// DD, descriptor done, in the second word of a transmit descriptor (§3.3.3.2).
const TX_DONE: u64 = 1 << 32;

/// Windows as they were at one moment. What they map stays mapped as long as somebody has it.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Dma>);

impl Memory {
    /// Those that there are now.
    pub fn of(dma: &Dma) -> Memory {
        Memory(Arc::new(dma.clone()))
    }

    /// `len` bytes at `address`: readable and writable as long as this is not dropped.
    #[inline]
    pub fn at(&self, address: u64, len: u64) -> Option<*mut u8> {
        let (map, offset) = self.0.find(address, len)?;
        map.at(offset, len, 1).map(std::ptr::NonNull::as_ptr)
    }

    /// The status block at `address`, for rings that are that far.
    pub fn paravirt(&self, address: u64, heads: (u32, u32)) -> Option<Paravirt> {
        let (map, offset) = self.0.find(address, paravirt::BYTES)?;
        Paravirt::new(map, offset, heads)
    }

    fn words(&self, address: u64) -> Option<&[AtomicU64; 2]> {
        let (map, offset) = self.0.find(address, DESCRIPTOR)?;
        let place = map.at(offset, DESCRIPTOR, 8)?;
        // SAFETY: `at` checked bounds and alignment of 16 bytes; they are accessed atomically only, and stay mapped as long as self.
        Some(unsafe { place.cast::<[AtomicU64; 2]>().as_ref() })
    }

    /// The descriptor at `address`, read once.
    #[inline]
    pub fn descriptor(&self, address: u64) -> Option<Raw> {
        self.words(address).map(|words| [0, 1].map(|i: usize| words[i].load(Ordering::Relaxed)))
    }

    /// Says that a transmit descriptor, which was read as `raw`, is done.
    #[inline]
    pub fn sent(&self, address: u64, raw: Raw) {
        if let Some(words) = self.words(address) {
            words[1].store(raw[1] | TX_DONE, Ordering::Release);
        }
    }

    /// Writes what was received: length, status and the rest, once the buffer is filled.
    #[inline]
    pub fn received(&self, address: u64, status: u64) {
        if let Some(words) = self.words(address) {
            words[1].store(status, Ordering::Release);
        }
    }
}
