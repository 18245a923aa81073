//! Requests of `NIOCCTRL` and their options.
//!
//! A request is a [`NmreqHeader`] that names the port and points at a body, one struct per request type, and at a
//! linked list of options. Pointers are addresses in the application, as `u64`. A request and its options take at most
//! [`NETMAP_REQ_MAXSIZE`] bytes.

use crate::layout::assert_layout;

mod option;
pub use option::*;

/// Maximum size of a request with all its options, bytes. A larger request fails with `EMSGSIZE`.
pub const NETMAP_REQ_MAXSIZE: usize = 4096;
/// Bytes of `nr_name`, including the terminating NUL.
pub const NETMAP_REQ_IFNAMSIZ: usize = 64;
/// Prefix of a switch's name.
pub const NM_BDG_NAME: &str = "vale";

/// `struct nmreq_header`, 88 bytes: argument of `NIOCCTRL`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NmreqHeader {
    /// API version, [`crate::NETMAP_MIN_API`]..=[`crate::NETMAP_MAX_API`]. Written by the application; the host
    /// writes back [`crate::NETMAP_API`].
    pub nr_version: u16,
    /// `NETMAP_REQ_*`: the type of request. Written by the application.
    pub nr_reqtype: u16,
    /// Must be zero.
    pub nr_reserved: u32,
    /// Port name, NUL-terminated. Includes the prefix `valeID:` and the pipe end, but not the prefix `netmap:`, the
    /// ring mode or flags. Written by the application.
    pub nr_name: [u8; NETMAP_REQ_IFNAMSIZ],
    /// Address of the first option ([`NmreqOption`]), 0 for none. Written by the application.
    pub nr_options: u64,
    /// Address of the request's body. Written by the application.
    pub nr_body: u64,
}

assert_layout!(NmreqHeader, size 88, {
    nr_version: 0, nr_reqtype: 2, nr_reserved: 4, nr_name: 8, nr_options: 72, nr_body: 80,
});

impl Default for NmreqHeader {
    /// All bytes zero.
    fn default() -> Self {
        Self {
            nr_version: 0,
            nr_reqtype: 0,
            nr_reserved: 0,
            nr_name: [0; NETMAP_REQ_IFNAMSIZ],
            nr_options: 0,
            nr_body: 0,
        }
    }
}

/// Bind a port to the file descriptor: [`NmreqRegister`].
pub const NETMAP_REQ_REGISTER: u16 = 1;
/// Information on a port: [`NmreqPortInfoGet`].
pub const NETMAP_REQ_PORT_INFO_GET: u16 = 2;
/// Attach a port to a switch: [`NmreqValeAttach`].
pub const NETMAP_REQ_VALE_ATTACH: u16 = 3;
/// Detach a port from its switch: [`NmreqValeDetach`].
pub const NETMAP_REQ_VALE_DETACH: u16 = 4;
/// List a switch's ports, one per call: [`NmreqValeList`].
pub const NETMAP_REQ_VALE_LIST: u16 = 5;
/// Set a port's virtio-net header length: [`NmreqPortHdr`].
pub const NETMAP_REQ_PORT_HDR_SET: u16 = 6;
/// Get a port's virtio-net header length: [`NmreqPortHdr`].
pub const NETMAP_REQ_PORT_HDR_GET: u16 = 7;
/// Create a persistent VALE port: [`NmreqValeNewif`].
pub const NETMAP_REQ_VALE_NEWIF: u16 = 8;
/// Delete a persistent VALE port; no body.
pub const NETMAP_REQ_VALE_DELIF: u16 = 9;
/// Start threads that poll an attached port: [`NmreqValePolling`].
pub const NETMAP_REQ_VALE_POLLING_ENABLE: u16 = 10;
/// Stop the threads that poll an attached port: [`NmreqValePolling`].
pub const NETMAP_REQ_VALE_POLLING_DISABLE: u16 = 11;
/// Information on a region's pools: [`NmreqPoolsInfo`].
pub const NETMAP_REQ_POOLS_INFO_GET: u16 = 12;
/// Sync the rings in a loop inside the ioctl, until stopped: [`NmreqSyncKloopStart`].
pub const NETMAP_REQ_SYNC_KLOOP_START: u16 = 13;
/// Stop the loop of [`NETMAP_REQ_SYNC_KLOOP_START`]; no body.
pub const NETMAP_REQ_SYNC_KLOOP_STOP: u16 = 14;
/// Switch a registered descriptor to CSB mode; no body, option [`NmreqOptCsb`].
pub const NETMAP_REQ_CSB_ENABLE: u16 = 15;

/// `struct nmreq_register`, 56 bytes: body of [`NETMAP_REQ_REGISTER`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqRegister {
    /// Offset of the port's `netmap_if` in the region, bytes. Written by the host.
    pub nr_offset: u64,
    /// Size of the region, bytes. Written by the host.
    pub nr_memsize: u64,
    /// Number of slots in each tx ring. Requested by the application (0: default); the host writes the actual number.
    pub nr_tx_slots: u32,
    /// Number of slots in each rx ring; requested and written like `nr_tx_slots`.
    pub nr_rx_slots: u32,
    /// Number of tx rings; requested and written like `nr_tx_slots`.
    pub nr_tx_rings: u16,
    /// Number of rx rings; requested and written like `nr_tx_slots`.
    pub nr_rx_rings: u16,
    /// Number of host tx rings; requested and written like `nr_tx_slots`.
    pub nr_host_tx_rings: u16,
    /// Number of host rx rings; requested and written like `nr_tx_slots`.
    pub nr_host_rx_rings: u16,
    /// Id of the memory region. Requested by the application (0: the host chooses), actual id written by the host.
    pub nr_mem_id: u16,
    /// Ring to bind with [`NR_REG_ONE_NIC`] or [`NR_REG_ONE_SW`]. Written by the application.
    pub nr_ringid: u16,
    /// `NR_REG_*`: which rings to bind. Written by the application.
    pub nr_mode: u32,
    /// Number of extra buffers. Requested by the application; the host writes the number granted.
    pub nr_extra_bufs: u32,
    /// Padding.
    pub pad1: u32,
    /// `NR_*` flags. Written by the application.
    pub nr_flags: u64,
}

assert_layout!(NmreqRegister, size 56, {
    nr_offset: 0, nr_memsize: 8, nr_tx_slots: 16, nr_rx_slots: 20, nr_tx_rings: 24, nr_rx_rings: 26,
    nr_host_tx_rings: 28, nr_host_rx_rings: 30, nr_mem_id: 32, nr_ringid: 34, nr_mode: 36, nr_extra_bufs: 40,
    nr_flags: 48,
});

/// `nr_mode`: legacy; `nr_ringid` selects the rings.
pub const NR_REG_DEFAULT: u32 = 0;
/// `nr_mode`: all NIC rings.
pub const NR_REG_ALL_NIC: u32 = 1;
/// `nr_mode`: all host rings.
pub const NR_REG_SW: u32 = 2;
/// `nr_mode`: all NIC rings and all host rings.
pub const NR_REG_NIC_SW: u32 = 3;
/// `nr_mode`: the NIC ring `nr_ringid` of each direction.
pub const NR_REG_ONE_NIC: u32 = 4;
/// `nr_mode`: master end of pipe `nr_ringid`; superseded by `name{id`.
pub const NR_REG_PIPE_MASTER: u32 = 5;
/// `nr_mode`: slave end of pipe `nr_ringid`; superseded by `name}id`.
pub const NR_REG_PIPE_SLAVE: u32 = 6;
/// `nr_mode`: no rings.
pub const NR_REG_NULL: u32 = 7;
/// `nr_mode`: the host ring `nr_ringid` of each direction.
pub const NR_REG_ONE_SW: u32 = 8;

/// `nr_flags`: copy frames sent on the selected rings.
pub const NR_MONITOR_TX: u64 = 0x100;
/// `nr_flags`: copy frames received on the selected rings.
pub const NR_MONITOR_RX: u64 = 0x200;
/// `nr_flags`: the monitor shares buffers instead of copying.
pub const NR_ZCOPY_MON: u64 = 0x400;
/// `nr_flags`: no other descriptor may bind these rings.
pub const NR_EXCLUSIVE: u64 = 0x800;
/// `nr_flags`: bind rx rings only.
pub const NR_RX_RINGS_ONLY: u64 = 0x2000;
/// `nr_flags`: bind tx rings only.
pub const NR_TX_RINGS_ONLY: u64 = 0x4000;
/// `nr_flags`: the application handles virtio-net headers. A port that uses such headers refuses a registration without
/// this flag (`EIO`).
pub const NR_ACCEPT_VNET_HDR: u64 = 0x8000;
/// `nr_flags`: `poll` syncs rx rings even if `POLLIN` is not requested.
pub const NR_DO_RX_POLL: u64 = 0x1_0000;
/// `nr_flags`: `poll` syncs tx rings only if `POLLOUT` is requested.
pub const NR_NO_TX_POLL: u64 = 0x2_0000;

/// `struct nmreq_port_info_get`, 32 bytes: body of [`NETMAP_REQ_PORT_INFO_GET`]. Written by the host, except
/// `nr_mem_id`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqPortInfoGet {
    /// Size of the region, bytes.
    pub nr_memsize: u64,
    /// Number of slots in each tx ring.
    pub nr_tx_slots: u32,
    /// Number of slots in each rx ring.
    pub nr_rx_slots: u32,
    /// Number of tx rings.
    pub nr_tx_rings: u16,
    /// Number of rx rings.
    pub nr_rx_rings: u16,
    /// Number of host tx rings.
    pub nr_host_tx_rings: u16,
    /// Number of host rx rings.
    pub nr_host_rx_rings: u16,
    /// Id of the memory region. Requested by the application (0: the host chooses), actual id written by the host.
    pub nr_mem_id: u16,
    /// Padding.
    pub pad1: [u16; 3],
}

assert_layout!(NmreqPortInfoGet, size 32, {
    nr_memsize: 0, nr_tx_slots: 8, nr_rx_slots: 12, nr_tx_rings: 16, nr_rx_rings: 18, nr_host_tx_rings: 20,
    nr_host_rx_rings: 22, nr_mem_id: 24,
});

/// `struct nmreq_vale_attach`, 64 bytes: body of [`NETMAP_REQ_VALE_ATTACH`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqValeAttach {
    /// The registration of the port, for a port that is not registered yet. The host leaves `nr_mem_id` unchanged or
    /// writes an id above 1.
    pub reg: NmreqRegister,
    /// The port's index on the switch. Written by the host.
    pub port_index: u32,
    /// Padding.
    pub pad1: u32,
}

assert_layout!(NmreqValeAttach, size 64, { reg: 0, port_index: 56 });

/// `struct nmreq_vale_detach`, 8 bytes: body of [`NETMAP_REQ_VALE_DETACH`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqValeDetach {
    /// The index that the port had on the switch. Written by the host.
    pub port_index: u32,
    /// Padding.
    pub pad1: u32,
}

assert_layout!(NmreqValeDetach, size 8, { port_index: 0 });

/// `struct nmreq_vale_list`, 8 bytes: body of [`NETMAP_REQ_VALE_LIST`]; a cursor that the host advances.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqValeList {
    /// Index of the switch to continue from; the host writes the index of the switch of the port found.
    pub nr_bridge_idx: u16,
    /// Padding.
    pub pad1: u16,
    /// Index of the port to continue from; the host writes the index of the port found.
    pub nr_port_idx: u32,
}

assert_layout!(NmreqValeList, size 8, { nr_bridge_idx: 0, nr_port_idx: 4 });

/// `struct nmreq_port_hdr`, 8 bytes: body of [`NETMAP_REQ_PORT_HDR_SET`] and [`NETMAP_REQ_PORT_HDR_GET`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqPortHdr {
    /// Length of the virtio-net header in front of each frame: 0, 10 or 12 bytes. Written by the application in a set
    /// request, by the host in the answer to a get request.
    pub nr_hdr_len: u32,
    /// Padding.
    pub pad1: u32,
}

assert_layout!(NmreqPortHdr, size 8, { nr_hdr_len: 0 });

/// `struct nmreq_vale_newif`, 16 bytes: body of [`NETMAP_REQ_VALE_NEWIF`]. Written by the application.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqValeNewif {
    /// Number of slots in each tx ring, 0 for the default.
    pub nr_tx_slots: u32,
    /// Number of slots in each rx ring, 0 for the default.
    pub nr_rx_slots: u32,
    /// Number of tx rings, 0 for the default.
    pub nr_tx_rings: u16,
    /// Number of rx rings, 0 for the default.
    pub nr_rx_rings: u16,
    /// Id of the memory region, 0 for the host's choice.
    pub nr_mem_id: u16,
    /// Padding.
    pub pad1: u16,
}

assert_layout!(NmreqValeNewif, size 16, {
    nr_tx_slots: 0, nr_rx_slots: 4, nr_tx_rings: 8, nr_rx_rings: 10, nr_mem_id: 12,
});

/// `struct nmreq_vale_polling`, 16 bytes: body of [`NETMAP_REQ_VALE_POLLING_ENABLE`] and
/// [`NETMAP_REQ_VALE_POLLING_DISABLE`]. Written by the application.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqValePolling {
    /// [`NETMAP_POLLING_MODE_SINGLE_CPU`] or [`NETMAP_POLLING_MODE_MULTI_CPU`].
    pub nr_mode: u32,
    /// First CPU to poll on.
    pub nr_first_cpu_id: u32,
    /// Number of CPUs to poll on.
    pub nr_num_polling_cpus: u32,
    /// Padding.
    pub pad1: u32,
}

assert_layout!(NmreqValePolling, size 16, { nr_mode: 0, nr_first_cpu_id: 4, nr_num_polling_cpus: 8 });

/// `nr_mode`: one CPU polls all rings.
pub const NETMAP_POLLING_MODE_SINGLE_CPU: u32 = 1;
/// `nr_mode`: one CPU per ring.
pub const NETMAP_POLLING_MODE_MULTI_CPU: u32 = 2;

/// `struct nmreq_pools_info`, 64 bytes: body of [`NETMAP_REQ_POOLS_INFO_GET`], and part of [`NmreqOptExtmem`].
///
/// Offsets are in bytes from the start of the region; sizes are in bytes per object. Written by the host; with
/// [`NmreqOptExtmem`] the application requests numbers and sizes, and the host writes the actual values.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqPoolsInfo {
    /// Size of the region, bytes.
    pub nr_memsize: u64,
    /// Id of the memory region. Requested by the application (0: the host chooses), actual id written by the host.
    pub nr_mem_id: u16,
    /// Padding.
    pub pad1: [u16; 3],
    /// Offset of the pool of `netmap_if`s, bytes.
    pub nr_if_pool_offset: u64,
    /// Number of `netmap_if`s.
    pub nr_if_pool_objtotal: u32,
    /// Size of a `netmap_if`, bytes.
    pub nr_if_pool_objsize: u32,
    /// Offset of the pool of rings, bytes.
    pub nr_ring_pool_offset: u64,
    /// Number of rings.
    pub nr_ring_pool_objtotal: u32,
    /// Size of a ring with its slots, bytes.
    pub nr_ring_pool_objsize: u32,
    /// Offset of the pool of buffers, bytes.
    pub nr_buf_pool_offset: u64,
    /// Number of buffers.
    pub nr_buf_pool_objtotal: u32,
    /// Size of a buffer, bytes.
    pub nr_buf_pool_objsize: u32,
}

assert_layout!(NmreqPoolsInfo, size 64, {
    nr_memsize: 0, nr_mem_id: 8, nr_if_pool_offset: 16, nr_if_pool_objtotal: 24, nr_if_pool_objsize: 28,
    nr_ring_pool_offset: 32, nr_ring_pool_objtotal: 40, nr_ring_pool_objsize: 44, nr_buf_pool_offset: 48,
    nr_buf_pool_objtotal: 56, nr_buf_pool_objsize: 60,
});

/// `struct nmreq_sync_kloop_start`, 8 bytes: body of [`NETMAP_REQ_SYNC_KLOOP_START`]. Written by the application.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqSyncKloopStart {
    /// Time for which an idle loop sleeps if it has no eventfd to wait on, microseconds.
    pub sleep_us: u32,
    /// Padding.
    pub pad1: u32,
}

assert_layout!(NmreqSyncKloopStart, size 8, { sleep_us: 0 });
