//! The communication status block (CSB) of one ring, laid out as netmap's `nm_csb_atok` / `nm_csb_ktoa`.
//!
//! The application writes `head`, `cur` and `appl_need_kick`; the host writes `hwcur`, `hwtail` and `kern_need_kick`.
//! Each half is a cache line of its own. A hostile peer may write to both halves, so every load is a snapshot that the
//! reader checks.
#![allow(unsafe_code)]

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use netvale_abi::{NmCsbAtok, NmCsbKtoa};

use crate::mapping::Mapping;

/// The moment at which a frame is copied for monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// When the frame enters or leaves the ring.
    Passing,
    /// When the frame's slot is released: on an rx ring by the program, which may have changed the frame; on a tx ring
    /// by the host.
    Released,
}

/// A view of both halves of one ring's CSB entry.
#[derive(Clone, Debug)]
pub struct Csb {
    atok: NonNull<u8>,
    ktoa: NonNull<u8>,
    /// Keeps the memory behind the pointers mapped.
    _maps: [Arc<Mapping>; 2],
}

// SAFETY: all access is through atomics inside a mapping that the Arc keeps alive.
unsafe impl Send for Csb {}
// SAFETY: a shared view offers the same atomic accesses as an owned one.
unsafe impl Sync for Csb {}

impl Csb {
    /// Creates a view of the entry whose halves are at these offsets in `map`; `None` if a half is misaligned or
    /// outside the mapping.
    pub fn new(map: &Arc<Mapping>, atok: u64, ktoa: u64) -> Option<Self> {
        Self::apart(map, atok, map, ktoa)
    }

    /// Like [`Csb::new`], with each half in a mapping of its own.
    pub fn apart(atok_map: &Arc<Mapping>, atok: u64, ktoa_map: &Arc<Mapping>, ktoa: u64) -> Option<Self> {
        let atok = atok_map.at(atok, size_of::<NmCsbAtok>() as u64, 64)?;
        let ktoa = ktoa_map.at(ktoa, size_of::<NmCsbKtoa>() as u64, 64)?;
        Some(Csb { atok, ktoa, _maps: [Arc::clone(atok_map), Arc::clone(ktoa_map)] })
    }

    #[inline]
    fn word(&self, half: NonNull<u8>, offset: usize) -> &AtomicU32 {
        #[cfg(fuzzing)]
        crate::probe::read();
        // SAFETY: `new` checked that there are 64 aligned bytes at `half`; offsets below are 4-aligned fields of those
        // 64 bytes; the mapping lives as long as self; this process accesses the word only atomically.
        unsafe { AtomicU32::from_ptr(half.as_ptr().add(offset).cast()) }
    }

    /// The word `appl_need_kick`: not 0 if the application wants a kick for a new `hwtail`.
    #[inline]
    pub fn appl_need_kick(&self) -> &AtomicU32 {
        self.word(self.atok, offset_of!(NmCsbAtok, appl_need_kick))
    }

    /// The word `kern_need_kick`: not 0 if the host wants a kick for a new `head`.
    #[inline]
    pub fn kern_need_kick(&self) -> &AtomicU32 {
        self.word(self.ktoa, offset_of!(NmCsbKtoa, kern_need_kick))
    }

    /// The word that holds the [name](crate::mirror::name) of the ring into which this ring's frames are copied at
    /// `moment`, for monitors; 0 for none. The words of the two moments follow netmap's words in the host's half.
    #[inline]
    pub fn mirror(&self, moment: Moment) -> &AtomicU32 {
        let behind = match moment {
            Moment::Passing => 0,
            Moment::Released => 4,
        };
        self.word(self.ktoa, offset_of!(NmCsbKtoa, pad) + behind)
    }

    /// Application: publishes `cur`, then `head`, in netmap's order. Does not write unchanged values, so that a program
    /// that polls for frames leaves the cache line in the cache of the host's CPU.
    #[inline]
    pub fn publish_head(&self, head: u32, cur: u32) {
        if self.cur() != cur {
            self.word(self.atok, offset_of!(NmCsbAtok, cur)).store(cur, Ordering::Relaxed);
        }
        let place = self.word(self.atok, offset_of!(NmCsbAtok, head));
        if place.load(Ordering::Relaxed) != head {
            place.store(head, Ordering::Release);
        }
    }

    /// Host: returns a snapshot of `head`. What the application wrote before it published that `head` is visible.
    #[inline]
    pub fn head(&self) -> u32 {
        self.word(self.atok, offset_of!(NmCsbAtok, head)).load(Ordering::Acquire)
    }

    /// Host: returns a snapshot of `cur`.
    #[inline]
    pub fn cur(&self) -> u32 {
        self.word(self.atok, offset_of!(NmCsbAtok, cur)).load(Ordering::Relaxed)
    }

    /// Host: publishes `hwcur`, then `hwtail`.
    #[inline]
    pub fn publish_tail(&self, hwcur: u32, hwtail: u32) {
        self.word(self.ktoa, offset_of!(NmCsbKtoa, hwcur)).store(hwcur, Ordering::Relaxed);
        self.word(self.ktoa, offset_of!(NmCsbKtoa, hwtail)).store(hwtail, Ordering::Release);
    }

    /// Application: returns a snapshot of `hwtail`. What the host wrote before it published that `hwtail` is visible.
    #[inline]
    pub fn hwtail(&self) -> u32 {
        self.word(self.ktoa, offset_of!(NmCsbKtoa, hwtail)).load(Ordering::Acquire)
    }

    /// Application: returns a snapshot of `hwcur`.
    #[inline]
    pub fn hwcur(&self) -> u32 {
        self.word(self.ktoa, offset_of!(NmCsbKtoa, hwcur)).load(Ordering::Relaxed)
    }

    /// Sets both halves to the state of a new ring: `head = cur = hwcur = 0`, and the given `hwtail`. Of the two
    /// `need_kick` flags only `kern_need_kick` is set: the application is awake, and needs no kick until it sets
    /// `appl_need_kick`.
    pub fn reset(&self, hwtail: u32) {
        self.publish_head(0, 0);
        self.word(self.atok, offset_of!(NmCsbAtok, sync_flags)).store(1, Ordering::Relaxed);
        self.appl_need_kick().store(0, Ordering::Relaxed);
        self.kern_need_kick().store(1, Ordering::Relaxed);
        self.mirror(Moment::Passing).store(0, Ordering::Relaxed);
        self.mirror(Moment::Released).store(0, Ordering::Relaxed);
        self.publish_tail(0, hwtail);
    }
}
