//! The communication status block: a ring's pointers, exchanged outside the ring.
//!
//! In CSB mode `head`, `cur` and `tail` of the ring header are the application's private matter; the two sides
//! communicate through one entry of two arrays, each written by one side only and one cache line long: writer and
//! reader do not share lines. Entries are ordered tx rings first, then rx rings.
//!
//! **Order of access.** The application stores `cur`, then `head`; the host loads `head`, then `cur`: so the host
//! never sees a `head` newer than its `cur`. The host stores `hwcur`, then `hwtail`; the application loads
//! `hwtail`, then `hwcur`. Stores are releases, loads acquires.
//!
//! Source: netmap.h, `struct nm_csb_atok`, `struct nm_csb_ktoa`.

use crate::layout::assert_layout;

/// `struct nm_csb_atok`, application to kernel (here: host), 64 bytes. Written by the application only.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmCsbAtok {
    /// The ring's `head`, a slot index.
    pub head: u32,
    /// The ring's `cur`, a slot index.
    pub cur: u32,
    /// Non-zero: the application wants to be notified when the host has moved. Starts at 1.
    pub appl_need_kick: u32,
    /// Flags of the application's last sync. Starts at 1.
    pub sync_flags: u32,
    /// Padding to a cache line.
    pub pad: [u32; 12],
}

assert_layout!(NmCsbAtok, size 64, { head: 0, cur: 4, appl_need_kick: 8, sync_flags: 12 });

/// `struct nm_csb_ktoa`, kernel (here: host) to application, 64 bytes. Written by the host only.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmCsbKtoa {
    /// The host's `hwcur`: the first slot it has not processed yet, a slot index.
    pub hwcur: u32,
    /// The host's `hwtail`: the end of the application's slots, a slot index.
    pub hwtail: u32,
    /// Non-zero: the host wants to be notified when the application has moved. Starts at 1.
    pub kern_need_kick: u32,
    /// Padding to a cache line.
    pub pad: [u32; 13],
}

assert_layout!(NmCsbKtoa, size 64, { hwcur: 0, hwtail: 4, kern_need_kick: 8 });

/// Size, stride and alignment of a CSB entry, bytes.
pub const CSB_ENTRY: usize = 64;
