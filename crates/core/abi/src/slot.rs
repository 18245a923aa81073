//! One slot of a ring: its buffer, length and flags.

use crate::layout::assert_layout;

/// `struct netmap_slot`, 16 bytes: one entry of a ring.
///
/// Every field is written by the slot's owner; the crate's documentation defines which side that is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetmapSlot {
    /// Index of the slot's buffer in the region's buffer pool; 0 and 1 are never a slot's buffer. An owner that
    /// replaces the buffer with another of its buffers sets [`NS_BUF_CHANGED`].
    pub buf_idx: u32,
    /// Length of the frame's part in the buffer, bytes, at most `nr_buf_size`. Written by the application on tx, by the
    /// host on rx.
    pub len: u16,
    /// `NS_*` flags. On a VALE port, [`NS_PORT_MASK`] covers one more value. On tx, it is the index of the destination
    /// port, which overrides the forwarding table (0: use the table). On rx, it is the fragment count ([`ns_rfrags`]).
    pub flags: u16,
    /// With [`NS_INDIRECT`], the application's address of the frame. Where offsets are in use
    /// (`NETMAP_REQ_OPT_OFFSETS`), the bits of the ring's `offset_mask` hold the frame's offset in its buffer, bytes.
    pub ptr: u64,
}

assert_layout!(NetmapSlot, size 16, { buf_idx: 0, len: 4, flags: 6, ptr: 8 });

/// The application changed `buf_idx`; the host must look the buffer up again.
pub const NS_BUF_CHANGED: u16 = 0x0001;
/// Tx: the host must advance `tail` past this slot as soon as it has sent the frame.
pub const NS_REPORT: u16 = 0x0002;
/// Pass the frame to (or from) the host stack; only with [`crate::ring::NR_FORWARD`].
pub const NS_FORWARD: u16 = 0x0004;
/// VALE: do not learn the frame's source address.
pub const NS_NO_LEARN: u16 = 0x0008;
/// VALE, tx: the frame is in the application's memory at `ptr`, not in the slot's buffer.
pub const NS_INDIRECT: u16 = 0x0010;
/// The frame continues in the next slot; clear in the last slot of a frame.
pub const NS_MOREFRAG: u16 = 0x0020;
/// On a monitor's rx ring: the frame was seen on a tx ring.
pub const NS_TXMON: u16 = 0x0040;
/// netvale's own flag, only with [`NS_INDIRECT`]: the bytes at `ptr` could not be read. The library that copies
/// indirect slots sets the flag before it publishes such a slot, and clears it when it publishes the slot again with a
/// readable `ptr`.
pub const NS_UNREADABLE: u16 = 0x0080;
/// Bit position in `flags` of the destination port (tx) or fragment count (rx).
pub const NS_PORT_SHIFT: u16 = 8;
/// Bits of `flags` that hold the destination port (tx) or fragment count (rx) on a VALE port.
pub const NS_PORT_MASK: u16 = 0xff00;
/// Maximum number of slots of a frame.
pub const NETMAP_MAX_FRAGS: usize = 64;

/// Number of slots of a frame, from the `flags` of any of its slots, on rx rings of a VALE port (netmap.h:
/// `NS_RFRAGS`).
///
/// ```
/// assert_eq!(netvale_abi::slot::ns_rfrags(0x0300), 3);
/// ```
pub const fn ns_rfrags(flags: u16) -> u8 {
    (flags >> NS_PORT_SHIFT) as u8
}
