//! The communication status block: a ring's pointers, exchanged outside the ring.
//!
//! In CSB mode only the application uses `head`, `cur` and `tail` of the ring header. For each ring, the two sides
//! communicate through an entry in each of two arrays: one array is written by the application, the other by the host.
//! An entry is one cache line long, so that the two sides never write to the same line. Entries of tx rings come first,
//! then entries of rx rings.
//!
//! **Order of access.** The application stores `cur`, then `head`; the host loads `head`, then `cur`. The host thus
//! never sees a `head` that is newer than `cur`. The host stores `hwcur`, then `hwtail`; the application loads
//! `hwtail`, then `hwcur`. In each case the second store has release order, and the first load has acquire order.
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
    /// Non-zero if the application wants a notification once the host has moved `hwcur` or `hwtail`. Starts at 1.
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
    /// The host's `hwcur`, a slot index: the first slot that the host has not processed yet.
    pub hwcur: u32,
    /// The host's `hwtail`, a slot index: the end of the application's slots.
    pub hwtail: u32,
    /// Non-zero if the host wants a notification once the application has moved `head` or `cur`. Starts at 1.
    pub kern_need_kick: u32,
    /// Padding to a cache line.
    pub pad: [u32; 13],
}

assert_layout!(NmCsbKtoa, size 64, { hwcur: 0, hwtail: 4, kern_need_kick: 8 });

/// Size, stride and alignment of a CSB entry, bytes.
pub const CSB_ENTRY: usize = 64;
