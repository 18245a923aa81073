//! A ring: its header, its arithmetic, and the rules on `head` and `cur`.

use core::fmt;

use crate::layout::assert_layout;

/// `struct timeval` as 64-bit Linux lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeval {
    /// Seconds.
    pub tv_sec: i64,
    /// Microseconds, 0..=999,999.
    pub tv_usec: i64,
}

assert_layout!(Timeval, size 16, { tv_sec: 0, tv_usec: 8 });

/// `struct netmap_ring`: the 256-byte header; `num_slots` slots ([`crate::NetmapSlot`]) follow it immediately.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetmapRing {
    /// Offset in bytes from the start of this header to buffer 0 of the pool. Written once by the host.
    pub buf_ofs: i64,
    /// Number of slots in the ring. Written once by the host.
    pub num_slots: u32,
    /// Size and stride of a buffer, bytes. Written once by the host.
    pub nr_buf_size: u32,
    /// Index of this ring among the port's rings of its direction. Written once by the host.
    pub ringid: u16,
    /// Direction: [`NR_TX`] or [`NR_RX`]. Written once by the host.
    pub dir: u16,
    /// First slot that belongs to the application, 0..num_slots. Written by the application (and by the host when
    /// it re-initialises a bad ring).
    pub head: u32,
    /// Wake-up point, 0..num_slots. Written by the application (and by the host on re-initialisation).
    pub cur: u32,
    /// First slot, after `head`, that belongs to the host, 0..num_slots. Written by the host; an application's value is
    /// overwritten.
    pub tail: u32,
    /// Flags: [`NR_TIMESTAMP`], [`NR_FORWARD`]. Written by the application.
    pub flags: u32,
    /// Padding.
    pub pad0: u32,
    /// Time of the last sync when [`NR_TIMESTAMP`] is set. Written by the host.
    pub ts: Timeval,
    /// Bits of a slot's `ptr` that hold the frame's offset; 0 when offsets are not in use. Written once by the host.
    pub offset_mask: u64,
    /// Alignment that frames must keep when offsets are in use, bytes. Written once by the host.
    pub buf_align: u64,
    /// Padding up to [`crate::NM_CACHE_ALIGN`].
    pub pad1: [u8; 56],
    /// For the application's use, typically a lock. The host never touches it.
    pub sem: [u8; 128],
}

assert_layout!(NetmapRing, size 256, {
    buf_ofs: 0, num_slots: 8, nr_buf_size: 12, ringid: 16, dir: 18, head: 20, cur: 24, tail: 28, flags: 32,
    ts: 40, offset_mask: 56, buf_align: 64, sem: 128,
});

impl Default for NetmapRing {
    /// All bytes zero.
    fn default() -> Self {
        Self {
            buf_ofs: 0,
            num_slots: 0,
            nr_buf_size: 0,
            ringid: 0,
            dir: 0,
            head: 0,
            cur: 0,
            tail: 0,
            flags: 0,
            pad0: 0,
            ts: Timeval::default(),
            offset_mask: 0,
            buf_align: 0,
            pad1: [0; 56],
            sem: [0; 128],
        }
    }
}

/// Offset of `slot[0]` from the start of a ring, bytes.
pub const RING_SLOT_OFS: usize = 256;
/// `dir` of a transmit ring.
pub const NR_TX: u16 = 0;
/// `dir` of a receive ring.
pub const NR_RX: u16 = 1;
/// Ring flag: write `ts` at every sync.
pub const NR_TIMESTAMP: u32 = 0x0002;
/// Ring flag: frames with [`crate::slot::NS_FORWARD`] pass between NIC and host rings.
pub const NR_FORWARD: u32 = 0x0004;

/// The slot after `i` in a ring of `n` slots. `i` must be below `n`.
///
/// ```
/// assert_eq!(netvale_abi::ring_next(2, 4), 3);
/// assert_eq!(netvale_abi::ring_next(3, 4), 0);
/// ```
#[inline]
pub const fn ring_next(i: u32, n: u32) -> u32 {
    if i + 1 >= n { 0 } else { i + 1 }
}

/// Number of slots from `head` up to, not including, `tail` in a ring of `n` slots: the application's slots. Both must
/// be below `n`; the result is in 0..n.
///
/// ```
/// assert_eq!(netvale_abi::ring_space(1, 3, 4), 2);
/// assert_eq!(netvale_abi::ring_space(3, 1, 4), 2);
/// assert_eq!(netvale_abi::ring_space(2, 2, 4), 0);
/// ```
#[inline]
pub const fn ring_space(head: u32, tail: u32, n: u32) -> u32 {
    if tail >= head { tail - head } else { n - (head - tail) }
}

/// Whether slot `i` is on the walk from slot `from` to slot `to` (both ends included). All three must be below `n`.
///
/// ```
/// assert!(netvale_abi::ring_between(3, 0, 1, 4));
/// assert!(!netvale_abi::ring_between(3, 2, 1, 4));
/// ```
#[inline]
pub const fn ring_between(from: u32, i: u32, to: u32, n: u32) -> bool {
    ring_space(from, i, n) <= ring_space(from, to, n)
}

/// The slot `count` slots after `i` in a ring of `n` slots. `i` must be below `n`, `count` at most `n`.
///
/// ```
/// assert_eq!(netvale_abi::ring::ring_advance(3, 2, 4), 1);
/// ```
#[inline]
pub const fn ring_advance(i: u32, count: u32, n: u32) -> u32 {
    let left = n - i;
    if count >= left { count - left } else { i + count }
}

/// A violation of the ring rules by an application. The host responds like netmap: it re-initialises the ring
/// (`head = cur = hwcur`, `tail = hwtail`) and reports an error on the next `poll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// `head` is not an index of the ring.
    HeadOutOfRange {
        /// The application's value.
        head: u32,
        /// Slots in the ring.
        num_slots: u32,
    },
    /// `cur` is not an index of the ring.
    CurOutOfRange {
        /// The application's value.
        cur: u32,
        /// Slots in the ring.
        num_slots: u32,
    },
    /// `head` moved backwards or past `tail`: it is outside `first ..= tail`, circularly.
    HeadNotOwned {
        /// The application's value.
        head: u32,
        /// The first slot that the application owned before this sync.
        first: u32,
        /// The end of the application's slots.
        tail: u32,
    },
    /// `cur` is before `head` or past `tail`: it is outside `head ..= tail`, circularly.
    CurNotOwned {
        /// The application's value.
        cur: u32,
        /// The application's `head`, which is valid.
        head: u32,
        /// The end of the application's slots.
        tail: u32,
    },
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HeadOutOfRange { head, num_slots } => {
                write!(f, "head {head} is out of range: the ring has {num_slots} slots")
            }
            Self::CurOutOfRange { cur, num_slots } => {
                write!(f, "cur {cur} is out of range: the ring has {num_slots} slots")
            }
            Self::HeadNotOwned { head, first, tail } => {
                write!(f, "head {head} is outside {first}..={tail}, the slots the application owned")
            }
            Self::CurNotOwned { cur, head, tail } => {
                write!(f, "cur {cur} is outside {head}..={tail} (head..=tail)")
            }
        }
    }
}

impl core::error::Error for RingError {}

/// Checks an application's `head` and `cur` of a **tx** ring, as netmap's txsync prologue does. Returns the new `head`:
/// slots `first .. head` are now the host's to send.
///
/// `first` and `tail` are the **host's own copies**: the last `head` that it accepted (equal to `hwcur` once everything
/// accepted has been sent) and the last `tail` that it published (`hwtail` at that time). Both must be below
/// `num_slots`; `head` and `cur` may be anything. Read each once from shared memory and use only the returned value.
///
/// ```
/// use netvale_abi::ring::{RingError, tx_check};
/// assert_eq!(tx_check(2, 3, 0, 3, 4), Ok(2));
/// assert_eq!(tx_check(0, 0, 2, 3, 4), Err(RingError::HeadNotOwned { head: 0, first: 2, tail: 3 }));
/// ```
#[inline]
pub const fn tx_check(head: u32, cur: u32, first: u32, tail: u32, num_slots: u32) -> Result<u32, RingError> {
    check(head, cur, first, tail, num_slots)
}

/// Checks an application's `head` and `cur` of an **rx** ring, as netmap's rxsync prologue does. Returns the new
/// `head`: slots `hwcur .. head` were consumed and are the host's to fill again.
///
/// `hwcur` and `hwtail` are the **host's own copies**; both must be below `num_slots`. `hwtail` may be ahead of the
/// `tail` that the application saw. As in netmap, an application that moves `head` past that `tail` releases frames
/// unread. `head` and `cur` may be anything. Read each once from shared memory and use only the returned value.
///
/// ```
/// use netvale_abi::ring::{RingError, rx_check};
/// assert_eq!(rx_check(2, 2, 0, 2, 4), Ok(2));
/// assert_eq!(rx_check(1, 0, 0, 2, 4), Err(RingError::CurNotOwned { cur: 0, head: 1, tail: 2 }));
/// ```
#[inline]
pub const fn rx_check(head: u32, cur: u32, hwcur: u32, hwtail: u32, num_slots: u32) -> Result<u32, RingError> {
    check(head, cur, hwcur, hwtail, num_slots)
}

/// The check for both directions, which differ only in the meaning of `first` and `tail`.
#[inline]
const fn check(head: u32, cur: u32, first: u32, tail: u32, n: u32) -> Result<u32, RingError> {
    if head >= n {
        return Err(RingError::HeadOutOfRange { head, num_slots: n });
    }
    if cur >= n {
        return Err(RingError::CurOutOfRange { cur, num_slots: n });
    }
    if !ring_between(first, head, tail, n) {
        return Err(RingError::HeadNotOwned { head, first, tail });
    }
    if !ring_between(head, cur, tail, n) {
        return Err(RingError::CurNotOwned { cur, head, tail });
    }
    Ok(head)
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
