//! A ring: its header and its arithmetic.

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

/// Number of slots from `head` up to, not including, `tail` in a ring of `n` slots: the application's slots. `head` and
/// `tail` must be below `n`; the result is in 0..n.
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

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
