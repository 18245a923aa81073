//! The header of netvale's ptnet device: the first page of the memory that a virtual machine maps through ivshmem.
//!
//! Little-endian words. The page lies in memory that both sides write; each word is written by one side only, and the
//! other checks what it reads. `guest/linux/nvptnet_hw.h` is the same in C.

/// First eight bytes: `nvptnet` and a zero.
pub const MAGIC: [u32; 2] = [u32::from_le_bytes(*b"nvpt"), u32::from_le_bytes(*b"net\0")];
/// Version of this layout. A driver for other versions leaves the device alone.
pub const VERSION: u32 = 1;
/// Bytes set aside for the header.
pub const HEADER_BYTES: u64 = 4096;

/// Feature: frames may have a virtio-net header of 12 bytes in front.
pub const FEATURE_VNET_HDR: u32 = 1;

/// Status: the switch forwards frames.
pub const STATUS_LINK_UP: u32 = 1;
/// Status: the rings run.
pub const STATUS_RUNNING: u32 = 2;
/// Status: the host lost track of the rings: stop them and start them again.
pub const STATUS_NEEDS_RESET: u32 = 4;

/// Command: fresh rings, with the requested features and extra buffers. All earlier state of the rings is void.
pub const COMMAND_START: u32 = 1;
/// Command: the guest no longer touches the rings.
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
    /// Host: number of the last executed command.
    pub answered: u32,
    /// Host: its result: 0, or an error number of Linux.
    pub result: u32,
    /// Host: extra buffers granted, in the list of `ni_bufs_head`.
    pub extra_bufs: u32,
    /// Host: offset of the `netmap_if`, while the rings run.
    pub nifp: [u32; 2],
    /// Zero.
    pub pad2: [u32; 10],
    /// Guest: a `COMMAND_`.
    pub command: u32,
    /// Guest: its number, different from the last one's; written last.
    pub number: u32,
    /// Guest: requested features.
    pub wanted: u32,
    /// Guest: requested extra buffers.
    pub wanted_bufs: u32,
}

/// The devices that netmap published, presented by `vfio-user`: registers of 32 bits.
pub mod published {
    /// Vendor of both devices.
    pub const VENDOR: u16 = 0x1b36;
    /// The memory device.
    pub const MEMORY_DEVICE: u16 = 0x000c;
    /// The ptnet device.
    pub const PTNET_DEVICE: u16 = 0x000d;
    /// A feature: frames may have a virtio-net header.
    pub const FEATURE_VNET_HDR: u32 = 1;
    /// Control: fresh rings.
    pub const CREATE: u32 = 1;
    /// Control: the rings end.
    pub const DELETE: u32 = 2;

    /// Registers of the memory device.
    pub mod memory {
        /// Bytes of the memory, low half.
        pub const SIZE_LOW: u64 = 0;
        /// Bytes of the memory, high half.
        pub const SIZE_HIGH: u64 = 4;
        /// Number of the memory.
        pub const ID: u64 = 8;
        /// Offset, number and size of the objects of three pools: interfaces, rings, buffers.
        pub const POOLS: core::ops::RangeInclusive<u64> = 64..=96;
        /// First buffer.
        pub const BUF_OFFSET: u64 = 88;
        /// Number of buffers.
        pub const BUF_NUMBER: u64 = 92;
        /// Bytes a buffer.
        pub const BUF_SIZE: u64 = 96;
    }

    /// Registers of the ptnet device.
    pub mod reg {
        /// Features requested, and granted.
        pub const FEATURES: u64 = 0;
        /// Command, and its result.
        pub const CONTROL: u64 = 4;
        /// Last four bytes of the Ethernet address.
        pub const MAC_LOW: u64 = 8;
        /// First two bytes of it.
        pub const MAC_HIGH: u64 = 12;
        /// Offset of the `netmap_if`.
        pub const NIFP: u64 = 24;
        /// Rings the guest sends on.
        pub const TX_RINGS: u64 = 28;
        /// Rings the guest receives on.
        pub const RX_RINGS: u64 = 32;
        /// Slots of each tx ring.
        pub const TX_SLOTS: u64 = 36;
        /// Slots of each rx ring.
        pub const RX_SLOTS: u64 = 40;
        /// Bytes of virtio-net header.
        pub const HEADER_LEN: u64 = 44;
        /// Number of the memory.
        pub const MEMORY_ID: u64 = 48;
        /// Status blocks: guest to host, high and low; host to guest, high and low.
        pub const CSB: core::ops::RangeInclusive<u64> = 52..=64;
        /// Kick of ring 0; the others follow, four bytes each.
        pub const KICKS: u64 = 128;
    }
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
