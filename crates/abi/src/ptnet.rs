//! The header of netvale's ptnet device: the first page of the memory that a virtual machine maps through ivshmem.
//!
//! Little-endian words. The page lies in memory that both sides write; each word is written by one side only, and the other checks what
//! it reads. `guest/linux/nvptnet_hw.h` says the same in C.

/// First eight bytes: `nvptnet` and a zero.
pub const MAGIC: [u32; 2] = [u32::from_le_bytes(*b"nvpt"), u32::from_le_bytes(*b"net\0")];
/// Version of this layout. A driver that does not know it leaves the device alone.
pub const VERSION: u32 = 1;
/// Bytes set aside for the header.
pub const HEADER_BYTES: u64 = 4096;

/// Feature: frames may have a virtio-net header of 12 bytes in front.
pub const FEATURE_VNET_HDR: u32 = 1;

/// Status: the switch carries frames.
pub const STATUS_LINK_UP: u32 = 1;
/// Status: the rings run.
pub const STATUS_RUNNING: u32 = 2;
/// Status: the host lost track of the rings: stop them and start them again.
pub const STATUS_NEEDS_RESET: u32 = 4;

/// Command: fresh rings, with the features and extra buffers wanted. Everything the guest knew of the rings is void.
pub const COMMAND_START: u32 = 1;
/// Command: the rings are not touched any more.
pub const COMMAND_STOP: u32 = 2;

/// The header, as words from the start of the memory. Offsets are in bytes from there, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PtnetHeader {
    /// [`MAGIC`].
    pub magic: [u32; 2],
    /// [`VERSION`].
    pub version: u32,
    /// [`HEADER_BYTES`].
    pub header_bytes: u32,
    /// Features offered.
    pub features: u32,
    /// Interrupt vectors and doorbells: one a tx ring, one an rx ring, one for everything else, in this order.
    pub vectors: u32,
    /// Rings the guest sends on.
    pub tx_rings: u32,
    /// Rings the guest receives on.
    pub rx_rings: u32,
    /// Slots of each tx ring.
    pub tx_slots: u32,
    /// Slots of each rx ring.
    pub rx_slots: u32,
    /// Bytes a buffer.
    pub buf_size: u32,
    /// Buffers, the two reserved ones included.
    pub num_bufs: u32,
    /// Ethernet address, six bytes.
    pub mac: [u32; 2],
    /// MTU, bytes.
    pub mtu: u32,
    /// The peer number to ring.
    pub host_peer: u32,
    /// First `nm_csb_atok`, low and high half.
    pub csb_atok: [u32; 2],
    /// First `nm_csb_ktoa`.
    pub csb_ktoa: [u32; 2],
    /// First ring object: tx rings, then rx rings.
    pub ring_pool: [u32; 2],
    /// Bytes a ring object.
    pub ring_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Buffer 0.
    pub buf_pool: [u32; 2],
    /// First `netmap_if` object.
    pub if_pool: [u32; 2],
    /// Bytes in all.
    pub total: [u32; 2],
    /// Zero.
    pub pad: [u32; 34],
    /// Host: `STATUS_` bits.
    pub status: u32,
    /// Host: number of the command executed last.
    pub answered: u32,
    /// Host: what came of it: 0, or an error number of Linux.
    pub result: u32,
    /// Host: extra buffers granted, in the list of `ni_bufs_head`.
    pub extra_bufs: u32,
    /// Host: offset of the `netmap_if`, while the rings run.
    pub nifp: [u32; 2],
    /// Zero.
    pub pad2: [u32; 10],
    /// Guest: a `COMMAND_`.
    pub command: u32,
    /// Guest: its number, any but the last one's; written last.
    pub number: u32,
    /// Guest: features wanted.
    pub wanted: u32,
    /// Guest: extra buffers wanted.
    pub wanted_bufs: u32,
}

/// Number of the word at a byte offset, for [`core::mem::offset_of`].
pub const fn word(offset: usize) -> usize {
    offset / 4
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(PtnetHeader, host_peer) == 60);
    assert!(offset_of!(PtnetHeader, total) == 112);
    assert!(offset_of!(PtnetHeader, status) == 256);
    assert!(offset_of!(PtnetHeader, nifp) == 272);
    assert!(offset_of!(PtnetHeader, command) == 320);
    assert!(size_of::<PtnetHeader>() == 336);
};
