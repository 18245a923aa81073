//! The entry point of a port in the region: the offsets of its rings.

use crate::layout::assert_layout;

/// `struct netmap_if`: the 56-byte header; `ring_ofs[]` (`i64` each) follows it immediately.
///
/// Written by the host at registration, except `ni_bufs_head`.
///
/// `ring_ofs[]` lists the tx rings, host tx rings, rx rings and host rx rings, in this order; each entry is the
/// ring's offset in bytes from the start of this header, and **0 for a ring that the registration did not bind**.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetmapIf {
    /// The port's name, cut to 15 bytes and NUL-terminated.
    pub ni_name: [u8; 16],
    /// API version, [`crate::NETMAP_API`].
    pub ni_version: u32,
    /// Flags: [`NI_PRIV_MEM`] or 0.
    pub ni_flags: u32,
    /// Number of tx rings, without host rings.
    pub ni_tx_rings: u32,
    /// Number of rx rings, without host rings.
    pub ni_rx_rings: u32,
    /// Index of the first extra buffer, 0 for none. The first `u32` of each extra buffer is the index of the next extra
    /// buffer; 0 ends the list. Written by the host at registration, later by the application: at close, the host frees
    /// the buffers in the list.
    pub ni_bufs_head: u32,
    /// Number of host tx rings; at least 1, even for a port without any.
    pub ni_host_tx_rings: u32,
    /// Number of host rx rings; at least 1, even for a port without any.
    pub ni_host_rx_rings: u32,
    /// Reserved, zero.
    pub ni_spare1: [u32; 3],
}

assert_layout!(NetmapIf, size 56, {
    ni_name: 0, ni_version: 16, ni_flags: 20, ni_tx_rings: 24, ni_rx_rings: 28, ni_bufs_head: 32,
    ni_host_tx_rings: 36, ni_host_rx_rings: 40,
});

/// Bytes of `ni_name`, including the terminating NUL (Linux's `IFNAMSIZ`).
pub const IFNAMSIZ: usize = 16;
/// Offset of `ring_ofs[0]` from the start of a `netmap_if`, bytes.
pub const IF_RING_OFS: usize = 56;
/// `ni_flags`: the port's memory is private, not shared with other ports.
pub const NI_PRIV_MEM: u32 = 0x1;
