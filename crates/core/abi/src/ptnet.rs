//! The header of netvale's ptnet device: the first page of the memory that a virtual machine maps through ivshmem.
//!
//! All words are little-endian. Host and guest can both write to the page. Each word has one intended writer, the host
//! or the guest, and the reader checks every value. `guest/linux/nvptnet_hw.h` declares the same layout in C.

/// First eight bytes of the header: `nvptnet` and a NUL.
pub const MAGIC: [u32; 2] = [u32::from_le_bytes(*b"nvpt"), u32::from_le_bytes(*b"net\0")];
/// Version of this layout. A driver does not use a device with another version.
pub const VERSION: u32 = 1;
/// Bytes reserved for the header.
pub const HEADER_BYTES: u64 = 4096;

/// Feature: frames may begin with a virtio-net header of 12 bytes.
pub const FEATURE_VNET_HDR: u32 = 1;

/// Status: the switch forwards frames.
pub const STATUS_LINK_UP: u32 = 1;
/// Status: the rings exist, and can be used.
pub const STATUS_RUNNING: u32 = 2;
/// Status: the host has lost the state of the rings. The guest must stop and restart them.
pub const STATUS_NEEDS_RESET: u32 = 4;

/// Command: create rings with the requested features and extra buffers. Earlier rings become invalid.
pub const COMMAND_START: u32 = 1;
/// Command: stop the rings. Afterwards, the guest must not touch them.
pub const COMMAND_STOP: u32 = 2;

/// The header, at the start of the memory. All offsets in it are in bytes from the start of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PtnetHeader {
    /// The magic number, [`MAGIC`].
    pub magic: [u32; 2],
    /// Version of the layout, [`VERSION`].
    pub version: u32,
    /// Size of the header, [`HEADER_BYTES`].
    pub header_bytes: u32,
    /// Features that the device offers: `FEATURE_*` bits.
    pub features: u32,
    /// Number of interrupt vectors and of doorbells: first a vector for each tx ring, then a vector for each rx ring,
    /// then a vector for everything else.
    pub vectors: u32,
    /// Number of rings on which the guest sends.
    pub tx_rings: u32,
    /// Number of rings on which the guest receives.
    pub rx_rings: u32,
    /// Number of slots of each tx ring.
    pub tx_slots: u32,
    /// Number of slots of each rx ring.
    pub rx_slots: u32,
    /// Size of a buffer, bytes.
    pub buf_size: u32,
    /// Number of buffers, including the two reserved buffers.
    pub num_bufs: u32,
    /// Ethernet address, six bytes.
    pub mac: [u32; 2],
    /// MTU, bytes.
    pub mtu: u32,
    /// The host's ivshmem peer number, to which the guest's doorbells go.
    pub host_peer: u32,
    /// Offset of the first `nm_csb_atok`, bytes, low word first.
    pub csb_atok: [u32; 2],
    /// Offset of the first `nm_csb_ktoa`, bytes, low word first.
    pub csb_ktoa: [u32; 2],
    /// Offset of the first ring object, bytes, low word first. Tx rings come first, then rx rings.
    pub ring_pool: [u32; 2],
    /// Size of a ring object, bytes.
    pub ring_size: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// Offset of buffer 0, bytes, low word first.
    pub buf_pool: [u32; 2],
    /// Offset of the first `netmap_if` object, bytes, low word first.
    pub if_pool: [u32; 2],
    /// Size of the memory, bytes, low word first.
    pub total: [u32; 2],
    /// Padding, zero.
    pub pad: [u32; 34],
    /// Host: status bits, `STATUS_*`.
    pub status: u32,
    /// Host: sequence number ([`PtnetHeader::number`]) of the last executed command.
    pub answered: u32,
    /// Host: result of the last executed command: 0, or a Linux error number.
    pub result: u32,
    /// Host: number of extra buffers granted, which are in the list of `ni_bufs_head`.
    pub extra_bufs: u32,
    /// Host: offset of the `netmap_if`, bytes, low word first; valid while the rings run.
    pub nifp: [u32; 2],
    /// Padding, zero.
    pub pad2: [u32; 10],
    /// Guest: the command, one of `COMMAND_*`.
    pub command: u32,
    /// Guest: sequence number of the command. A new number starts the command, so it is written after the command's
    /// other words.
    pub number: u32,
    /// Guest: requested features, `FEATURE_*` bits.
    pub wanted: u32,
    /// Guest: number of extra buffers requested.
    pub wanted_bufs: u32,
}

/// The PCI devices that netmap defined for its guest drivers, emulated over vfio-user. Registers have 32 bits.
pub mod published {
    /// PCI vendor ID of both devices.
    pub const VENDOR: u16 = 0x1b36;
    /// PCI device ID of the memory device.
    pub const MEMORY_DEVICE: u16 = 0x000c;
    /// PCI device ID of the ptnet device.
    pub const PTNET_DEVICE: u16 = 0x000d;
    /// Feature: frames may begin with a virtio-net header.
    pub const FEATURE_VNET_HDR: u32 = 1;
    /// Control: create the rings.
    pub const CREATE: u32 = 1;
    /// Control: delete the rings.
    pub const DELETE: u32 = 2;

    /// Registers of the memory device.
    pub mod memory {
        /// Size of the memory in bytes, low word.
        pub const SIZE_LOW: u64 = 0;
        /// Size of the memory in bytes, high word.
        pub const SIZE_HIGH: u64 = 4;
        /// Id of the memory; a ptnet device refers to the memory by this id.
        pub const ID: u64 = 8;
        /// Registers with the offset, number and size of the objects in each of three pools: `netmap_if`s, rings,
        /// buffers.
        pub const POOLS: core::ops::RangeInclusive<u64> = 64..=96;
        /// Offset of the first buffer, bytes.
        pub const BUF_OFFSET: u64 = 88;
        /// Number of buffers.
        pub const BUF_NUMBER: u64 = 92;
        /// Size of a buffer, bytes.
        pub const BUF_SIZE: u64 = 96;
    }

    /// Registers of the ptnet device.
    pub mod reg {
        /// Features: the guest writes the features that it requests, and reads the features that the device granted.
        pub const FEATURES: u64 = 0;
        /// Control: the guest writes a command, and reads its result.
        pub const CONTROL: u64 = 4;
        /// Last four bytes of the Ethernet address.
        pub const MAC_LOW: u64 = 8;
        /// First two bytes of the Ethernet address.
        pub const MAC_HIGH: u64 = 12;
        /// Offset of the `netmap_if` in the memory, bytes.
        pub const NIFP: u64 = 24;
        /// Number of rings on which the guest sends.
        pub const TX_RINGS: u64 = 28;
        /// Number of rings on which the guest receives.
        pub const RX_RINGS: u64 = 32;
        /// Number of slots of each tx ring.
        pub const TX_SLOTS: u64 = 36;
        /// Number of slots of each rx ring.
        pub const RX_SLOTS: u64 = 40;
        /// Length of the virtio-net header, bytes.
        pub const HEADER_LEN: u64 = 44;
        /// Id of the memory that contains the rings: [`super::memory::ID`] of the memory device.
        pub const MEMORY_ID: u64 = 48;
        /// Addresses of the CSB arrays, high word first: guest to host, then host to guest.
        pub const CSB: core::ops::RangeInclusive<u64> = 52..=64;
        /// Kick register of ring 0. The kick registers of the other rings follow, four bytes each.
        pub const KICKS: u64 = 128;
    }
}

/// Index of the 32-bit word at a byte offset, e.g. of a field of [`PtnetHeader`].
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
