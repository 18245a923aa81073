//! The attach handshake: fixed-size binary messages on a `SOCK_SEQPACKET` socket (`<run-dir>/attach.sock`).
//!
//! A client sends one [`AttachRequest`]. The daemon answers with one [`AttachReply`], which carries the region's memfd
//! and two eventfds for each ring as `SCM_RIGHTS`. From then on the client and the daemon communicate through the
//! region alone. The port is removed when the last copy of the client's socket is closed.
//!
//! The same connection carries further requests: requests about the connection's port
//! ([`HoldRequest`](crate::device::HoldRequest)), which may come from a process that inherited or received the
//! descriptor, and netmap's requests that do not open a port ([`crate::device`]). A request may carry a socket for its
//! answer as `SCM_RIGHTS`, so that processes that share the connection do not read each other's answers. A request with
//! [`FLAG_FILE`] carries that socket and the client's file for a new region ([`FilePlacement`]). A [`BringRequest`]
//! carries that socket and a device's queues. The daemon refuses bytes that are not a message with `EPROTO`; the
//! connection keeps its port. Integers are little-endian, unused bytes zero. Every message begins with a magic number
//! and a version, so that the receiver can report a mismatch.

mod bring;
mod device;
mod message;
#[cfg(test)]
mod tests;
mod wire;

use std::ops::Range;

pub(crate) use bring::BRING_MAGIC;
pub use bring::{BRING_LEN, BringRequest, MAX_BROUGHT};
pub use wire::BadMessage;
pub(crate) use wire::{MessageHead, PaddedText, read};

/// Length of an [`AttachRequest`] in bytes.
pub const REQUEST_LEN: usize = size_of::<wire::AttachRequestWire>();
/// Length of an [`AttachReply`] in bytes.
pub const REPLY_LEN: usize = size_of::<wire::AttachReplyWire>();
/// Version of these messages.
pub const ATTACH_VERSION: u16 = 1;
/// Maximum number of rings bound to one client, in both directions together. The descriptors (two for each ring, one
/// for the memory, one for the CSB arrays) must fit into one message, which Linux limits to 253 descriptors.
pub const MAX_RINGS: usize = 125;
/// Maximum number of descriptors in a reply.
pub const MAX_FDS: usize = 2 + 2 * MAX_RINGS;
/// Maximum number of rings of a port in both directions together.
pub const MAX_PORT_RINGS: u32 = 1024;

pub(crate) const REQUEST_MAGIC: u32 = u32::from_le_bytes(*b"NVrq");
const REPLY_MAGIC: u32 = u32::from_le_bytes(*b"NVrp");

/// In [`AttachReply::nic_flags`]: the AF_XDP sockets are already bound.
pub const NIC_BOUND: u32 = 1;
/// In [`AttachReply::nic_flags`]: the second descriptor of each rx ring is the TAP behind the interface's host rings,
/// to which the client forwards frames with virtio-net headers of 12 bytes.
pub const NIC_FORWARDS: u32 = 2;
/// In [`AttachReply::nic_flags`]: an earlier holder of the rings has already passed their buffers to the kernel; the
/// client must not pass them again.
pub const NIC_RESUMED: u32 = 4;
/// In [`AttachReply::nic_flags`], for bound sockets: frames may span several buffers.
pub const NIC_MULTI_BUFFER: u32 = 8;

/// In [`AttachReply::port_flags`]: the rings belong to a switch's port, so the client itself copies the data of
/// indirect slots (`NS_INDIRECT`) into buffers.
pub const PORT_OF_SWITCH: u32 = 1;
/// In [`AttachReply::port_flags`] of a refusal: the offsets in the request caused it.
pub const OFFSETS_AT_FAULT: u32 = 2;
/// In [`AttachReply::port_flags`]: the region is in the user's file ([`FLAG_FILE`]), at [`AttachReply::file_offset`].
/// The CSB arrays have their own memfd, whose descriptor follows the file's descriptor.
pub const IN_FILE: u32 = 4;
/// In [`AttachReply::port_flags`] of a refusal: the client's file ([`FLAG_FILE`]) caused it, and a request without the
/// file can succeed.
pub const FILE_AT_FAULT: u32 = 8;

/// While the port's rx rings are full, its senders wait instead of losing frames (a lossless port).
pub const FLAG_LOSSLESS: u32 = 1;
/// Prefer huge pages for a new region.
pub const FLAG_HUGE: u32 = 2;

/// The client shares the port's rings with other clients that also set this flag, as netmap allows.
pub const FLAG_SHARED: u32 = 4;
/// The client cannot handle virtio-net headers: `EIO` if the port has them.
pub const FLAG_NO_HEADER: u32 = 8;
/// The port consists of rings in a region and has no switch (netmap's `NR_REG_NULL`).
pub const FLAG_NULL: u32 = 16;
/// The switch segments GSO frames before it delivers them to the new port, although the port has a virtio-net header.
pub const FLAG_CUT: u32 = 32;
/// The request came through netmap's API: zeros select netmap's defaults, and out-of-range numbers are clamped.
pub const FLAG_NETMAP: u32 = 256;
/// The client's file for a new region comes with the request ([`FilePlacement`]).
pub const FLAG_FILE: u32 = 512;
const FLAGS: u32 =
    FLAG_LOSSLESS | FLAG_HUGE | FLAG_SHARED | FLAG_NO_HEADER | FLAG_NULL | FLAG_CUT | FLAG_NETMAP | FLAG_FILE;

/// Size in bytes of the note that a client leaves with the daemon for the next holder of the connection
/// ([`AttachReply::note`]).
pub const NOTE_LEN: usize = 32;

/// Number and size in bytes of the objects in a region that the client lays out itself (netmap's extmem). All zero: the
/// daemon chooses the layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSizes {
    /// Number and size of `netmap_if`s.
    pub ifs: (u32, u32),
    /// Number and size of rings.
    pub rings: (u32, u32),
    /// Number and size of buffers.
    pub bufs: (u32, u32),
}

/// Location of a region in the client's file; offset and length are multiples of the page size. If the same user
/// already has a region at this location, the daemon reuses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilePlacement {
    /// Offset in the file at which the region begins.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// netmap's offsets option: each frame begins at an offset in its buffer, and the slot's `ptr` holds that offset
/// (netmap.h, `nmreq_opt_offsets`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetsRequest {
    /// Number of low bits of `ptr` that hold the offset; 0 for all 64.
    pub bits: u32,
    /// Largest offset in bytes.
    pub max: u32,
    /// Initial offset of all slots in bytes.
    pub initial: u32,
}

/// A client's request for a port. A number or size of zero selects the daemon's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachRequest {
    /// Port name in netmap's grammar, e.g. `vale0:a` or `netmap:p{1`; at most 127 bytes.
    pub name: String,
    /// Flags of the request: `FLAG_*`.
    pub flags: u32,
    /// Number of tx rings.
    pub tx_rings: u32,
    /// Number of rx rings.
    pub rx_rings: u32,
    /// Slots per tx ring.
    pub tx_slots: u32,
    /// Slots per rx ring.
    pub rx_slots: u32,
    /// Buffer size in bytes.
    pub buf_size: u32,
    /// Number of extra buffers.
    pub extra_bufs: u32,
    /// Bytes of virtio-net header before each frame: 0, 10 or 12.
    pub hdr_len: u32,
    /// Number of pipes for which a new region reserves room.
    pub pipes: u32,
    /// Number of host tx rings of an interface; ignored if the interface is already open.
    pub host_tx_rings: u32,
    /// Number of host rx rings of an interface; ignored if the interface is already open.
    pub host_rx_rings: u32,
    /// Number of the region to use; 0: the region that belongs to the name, or else a region that the daemon chooses.
    pub mem_id: u32,
    /// Sizes of the object pools of a new region; all zero for the daemon's choice.
    pub pools: PoolSizes,
    /// The client's note for later holders of the connection, which find it in [`AttachReply::note`].
    pub note: [u8; NOTE_LEN],
    /// Offsets of frames in their buffers; `None` without netmap's offsets option.
    pub offsets: Option<OffsetsRequest>,
    /// The region's location in the file that comes with the request; `None` without a file.
    pub file: Option<FilePlacement>,
}

/// The party at the other side of the rings, which reads the client's tx rings and fills its rx rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A worker of the daemon: the ordinary rings of a switch port.
    #[default]
    Switch,
    /// The other end of a pipe: the client swaps slots with that end's rings itself. The rings of that end start at
    /// [`AttachReply::peer_csb_first`].
    Pipe,
    /// The client's port is a monitor: its rx rings are filled like the rx rings of a switch port; nothing reads its tx
    /// rings.
    Monitor,
}

/// The client's port in the region, or the reason for a refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachReply {
    /// 0, or the errno that netmap would return.
    pub status: i32,
    /// If the status is not 0: the error and what to do next, in one line.
    pub text: String,
    /// The party at the other side of the rings.
    pub role: Role,
    /// Size of the region in bytes.
    pub memsize: u64,
    /// Offset in bytes of the client's `netmap_if` from the start of the region.
    pub nifp: u64,
    /// Offset of the application's CSB array (communication status blocks) in bytes.
    pub csb_atok: u64,
    /// Offset of the host's CSB array in bytes.
    pub csb_ktoa: u64,
    /// Index of the ring object and CSB entry of the port's first ring; the indices of the other rings follow in
    /// sequence, tx rings first.
    pub csb_first: u32,
    /// With [`Role::Pipe`]: index of the ring object and CSB entry of the other end's first ring.
    pub peer_csb_first: u32,
    /// Offset of the ring pool in bytes.
    pub ring_pool: u64,
    /// Size of a ring object in bytes.
    pub ring_size: u32,
    /// Offset of buffer 0 in bytes.
    pub buf_pool: u64,
    /// Number of buffers, including the two reserved buffers.
    pub num_bufs: u32,
    /// Buffer size in bytes.
    pub buf_size: u32,
    /// Number of tx rings of the port, host rings included.
    pub tx_rings: u32,
    /// Number of rx rings of the port, host rings included.
    pub rx_rings: u32,
    /// Number of host tx rings, which are the last of the tx rings.
    pub host_tx_rings: u32,
    /// Number of host rx rings, which are the last of the rx rings.
    pub host_rx_rings: u32,
    /// Number of entries in each ring of the AF_XDP sockets; 0 if the port is not an interface. Each ring of an
    /// interface, except host rings, has two descriptors: the queue's AF_XDP socket, and, for rx rings with
    /// [`NIC_FORWARDS`], the destination of forwarded frames.
    pub nic_entries: u32,
    /// Flags: [`NIC_BOUND`], [`NIC_FORWARDS`], [`NIC_RESUMED`], [`NIC_MULTI_BUFFER`].
    pub nic_flags: u32,
    /// Index of the interface, if the sockets are not bound yet: the client maps their rings, and then binds each
    /// socket to the NIC queue that has the ring's number.
    pub nic_ifindex: u32,
    /// The interface's MTU in bytes.
    pub nic_mtu: u32,
    /// Slots per tx ring.
    pub tx_slots: u32,
    /// Slots per rx ring.
    pub rx_slots: u32,
    /// Number of extra buffers granted to the client; their list begins at `ni_bufs_head`.
    pub extra_bufs: u32,
    /// Bytes of virtio-net header before each frame.
    pub hdr_len: u32,
    /// Number of the region.
    pub mem_id: u32,
    /// The tx rings bound to this client. The reply has descriptors of bound rings only.
    pub tx_bound: Range<u32>,
    /// The rx rings bound to this client.
    pub rx_bound: Range<u32>,
    /// The note of the client that opened the port.
    pub note: [u8; NOTE_LEN],
    /// Offset of the first `netmap_if` in bytes.
    pub if_pool: u64,
    /// Size of a `netmap_if` in bytes.
    pub if_size: u32,
    /// Number of `netmap_if`s.
    pub num_ifs: u32,
    /// Number of ring objects in the region.
    pub num_rings: u32,
    /// Largest offset of a frame in its buffer, in bytes, if offsets were requested.
    pub max_offset: u32,
    /// Flags: [`PORT_OF_SWITCH`], [`OFFSETS_AT_FAULT`], [`IN_FILE`], [`FILE_AT_FAULT`].
    pub port_flags: u32,
    /// With [`IN_FILE`]: offset of the region in the file in bytes.
    pub file_offset: u64,
    /// Whether this client is the only holder of its bound rings, and may clean up after an earlier holder.
    pub alone: bool,
}

impl AttachReply {
    /// Creates a refusal.
    pub fn refusal(status: i32, text: impl Into<String>) -> Self {
        AttachReply { status, text: text.into(), ..Self::default() }
    }

    /// Number of descriptors in the reply: the region, the CSB arrays if separate ([`IN_FILE`]), then, for each bound
    /// ring, the doorbell that the client rings and the doorbell that wakes the client, tx rings first.
    pub fn num_fds(&self) -> usize {
        if self.status != 0 {
            0
        } else {
            1 + usize::from(self.port_flags & IN_FILE != 0) + 2 * (self.tx_bound.len() + self.rx_bound.len())
        }
    }
}
