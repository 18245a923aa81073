//! The legacy request, which programs that call `nm_open` send.
//!
//! Source: `net/netmap_legacy.h`. A host refuses `nr_version` below [`crate::NETMAP_MIN_API`] and sets no upper
//! bound.

use crate::layout::assert_layout;

/// `struct nmreq`, 60 bytes: argument of `NIOCGINFO` and `NIOCREGIF`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nmreq {
    /// Port name, NUL-terminated. Written by the application.
    pub nr_name: [u8; 16],
    /// API version. Written by the application; the host writes back its own API version.
    pub nr_version: u32,
    /// Offset of the port's `netmap_if` in the region, bytes. Written by the host.
    pub nr_offset: u32,
    /// Size of the region, bytes. Written by the host.
    pub nr_memsize: u32,
    /// Number of slots in each tx ring. Requested by the application (0: default); the host writes the actual number.
    pub nr_tx_slots: u32,
    /// Number of slots in each rx ring; requested and written like `nr_tx_slots`.
    pub nr_rx_slots: u32,
    /// Number of tx rings; requested and written like `nr_tx_slots`.
    pub nr_tx_rings: u16,
    /// Number of rx rings; requested and written like `nr_tx_slots`.
    pub nr_rx_rings: u16,
    /// Index of the ring to bind, in the bits of [`NETMAP_RING_MASK`]. The other bits are the `NETMAP_*_RING` and
    /// `NETMAP_*_POLL` flags.
    pub nr_ringid: u16,
    /// `NETMAP_BDG_*` command; 0 for an ordinary registration.
    pub nr_cmd: u16,
    /// Argument of the command; reserved on registration.
    pub nr_arg1: u16,
    /// Id of the memory region (0: the host chooses), or an argument of the command. The host writes the actual id.
    pub nr_arg2: u16,
    /// Number of extra buffers. Requested by the application; the host writes the number granted.
    pub nr_arg3: u32,
    /// `NR_REG_*` in the bits of [`NR_REG_MASK`], and the `NR_*` flags of a register request.
    pub nr_flags: u32,
    /// Reserved.
    pub spare2: [u32; 1],
}

assert_layout!(Nmreq, size 60, {
    nr_name: 0, nr_version: 16, nr_offset: 20, nr_memsize: 24, nr_tx_slots: 28, nr_rx_slots: 32, nr_tx_rings: 36,
    nr_rx_rings: 38, nr_ringid: 40, nr_cmd: 42, nr_arg1: 44, nr_arg2: 46, nr_arg3: 48, nr_flags: 52,
});

/// Bits of `nr_flags` that hold the `NR_REG_*` mode.
pub const NR_REG_MASK: u32 = 0xf;

/// `nr_ringid`: bind only the NIC ring whose index is in the bits of [`NETMAP_RING_MASK`].
pub const NETMAP_HW_RING: u16 = 0x4000;
/// `nr_ringid`: bind the host rings.
pub const NETMAP_SW_RING: u16 = 0x2000;
/// `nr_ringid`: bits that hold the ring's index.
pub const NETMAP_RING_MASK: u16 = 0x0fff;
/// `nr_ringid`: `poll` syncs tx rings only if `POLLOUT` is requested.
pub const NETMAP_NO_TX_POLL: u16 = 0x1000;
/// `nr_ringid`: `poll` syncs rx rings even if `POLLIN` is not requested.
pub const NETMAP_DO_RX_POLL: u16 = 0x8000;

/// `nr_cmd`: attach a port to a switch.
pub const NETMAP_BDG_ATTACH: u16 = 1;
/// `nr_cmd`: detach a port from its switch.
pub const NETMAP_BDG_DETACH: u16 = 2;
/// `nr_cmd`: replace a switch's lookup function; not available outside the kernel.
pub const NETMAP_BDG_REGOPS: u16 = 3;
/// `nr_cmd`: list a switch's ports.
pub const NETMAP_BDG_LIST: u16 = 4;
/// `nr_cmd`: set a port's virtio-net header length, bytes in `nr_arg1`.
pub const NETMAP_BDG_VNET_HDR: u16 = 5;
/// `nr_cmd`: create a persistent VALE port.
pub const NETMAP_BDG_NEWIF: u16 = 6;
/// `nr_cmd`: delete a persistent VALE port.
pub const NETMAP_BDG_DELIF: u16 = 7;
/// `nr_cmd`: start passthrough to a guest.
pub const NETMAP_PT_HOST_CREATE: u16 = 8;
/// `nr_cmd`: have a thread poll an attached port.
pub const NETMAP_BDG_POLLING_ON: u16 = 10;
/// `nr_cmd`: stop the thread that polls an attached port.
pub const NETMAP_BDG_POLLING_OFF: u16 = 11;
/// `nr_cmd`: return a port's virtio-net header length, bytes, in `nr_arg1`.
pub const NETMAP_VNET_HDR_GET: u16 = 12;
/// `nr_arg1` of [`NETMAP_BDG_ATTACH`]: attach the interface's host rings too.
pub const NETMAP_BDG_HOST: u16 = 1;
