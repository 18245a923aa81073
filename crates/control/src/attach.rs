//! The attach handshake: fixed-size binary messages on a `SOCK_SEQPACKET` socket (`<run-dir>/attach.sock`).
//!
//! A client sends one [`AttachRequest`]; the daemon answers one [`AttachReply`] with the region's memfd and, for each ring, two
//! eventfds as `SCM_RIGHTS`. From then on the two sides talk through the region alone. The port lives as long as the
//! connection: when the last copy of the client's socket is closed, for whatever reason, the port goes.
//!
//! More goes over the same connection: what somebody who got the descriptor from another process asks of the port on it
//! ([`Holding`](crate::device::Holding)), and netmap's requests that are not an open ([`crate::device`]). A request may carry a socket of
//! its own as `SCM_RIGHTS`: the answer goes there, so that several processes that share the connection do not read each other's answers.
//! A request with [`FLAG_FILE`] carries two: that socket, then the client's file that a new region is to lie in ([`FileAsked`]).
//! Bytes that are no message are answered by a refusal (`EPROTO`), and change nothing: the connection keeps what it holds.
//!
//! Integers are little-endian, unused bytes zero. Every message begins with magic and version, so that either side can say what is
//! wrong with the other.

mod device;
mod message;
#[cfg(test)]
mod tests;
mod wire;

use std::ops::Range;

pub use wire::BadMessage;
pub(crate) use wire::{Head, Text, read};

/// Length of an [`AttachRequest`] in bytes.
pub const REQUEST_LEN: usize = size_of::<wire::Request>();
/// Length of an [`AttachReply`] in bytes.
pub const REPLY_LEN: usize = size_of::<wire::Reply>();
/// Version of these messages.
pub const ATTACH_VERSION: u16 = 1;
/// Most rings that one client is bound to, in both directions together: with two descriptors each, the memory and the CSB arrays they fit one message (Linux: 253).
pub const MAX_RINGS: usize = 125;
/// Most descriptors that come with a reply.
pub const MAX_FDS: usize = 2 + 2 * MAX_RINGS;
/// Most rings of a port in both directions together.
pub const MAX_PORT_RINGS: u32 = 1024;

pub(crate) const REQUEST_MAGIC: u32 = u32::from_le_bytes(*b"NVrq");
const REPLY_MAGIC: u32 = u32::from_le_bytes(*b"NVrp");

/// The sockets are bound already.
pub const NIC_BOUND: u32 = 1;
/// The second descriptor of an rx ring is the TAP behind the host rings, with virtio-net headers of 12 bytes.
pub const NIC_FORWARDS: u32 = 2;
/// An earlier holder has given the kernel the rings' buffers.
pub const NIC_RESUMED: u32 = 4;
/// Frames may take several buffers; said of sockets that are bound.
pub const NIC_MULTI_BUFFER: u32 = 8;

/// The rings are those of a switch's port: the client copies what its indirect slots point to.
pub const PORT_OF_SWITCH: u32 = 1;
/// In a refusal: what is wrong is what the request says of offsets.
pub const OFFSETS_AT_FAULT: u32 = 2;
/// The region lies in a file of the user's ([`FLAG_FILE`]), at [`AttachReply::file_offset`]; the CSB arrays lie in a memfd of their own, whose
/// descriptor follows that file's.
pub const IN_FILE: u32 = 4;
/// In a refusal: what is wrong is the file. Without it the port could be had.
pub const FILE_AT_FAULT: u32 = 8;

/// The request wants the port to hold its senders back instead of dropping (a lossless receiver).
pub const FLAG_LOSSLESS: u32 = 1;
/// The request prefers huge pages for a new region.
pub const FLAG_HUGE: u32 = 2;

/// The client shares the port's rings with others that said so too, as netmap allows.
pub const FLAG_SHARED: u32 = 4;
/// The client cannot take virtio-net headers: `EIO` if the port has them.
pub const FLAG_NO_HEADER: u32 = 8;
/// Rings in a region and nothing behind them (netmap's `NR_REG_NULL`).
pub const FLAG_NULL: u32 = 16;
/// The request came through netmap's API: netmap's defaults hold for numbers that are 0, and numbers out of range become the nearest.
pub const FLAG_NETMAP: u32 = 256;
/// The client's file comes with the request: see [`FileAsked`].
pub const FLAG_FILE: u32 = 512;
const FLAGS: u32 = FLAG_LOSSLESS | FLAG_HUGE | FLAG_SHARED | FLAG_NO_HEADER | FLAG_NULL | FLAG_NETMAP | FLAG_FILE;

/// Bytes a client may leave with the daemon for whoever gets the connection after it, see [`AttachReply::note`].
pub const NOTE_LEN: usize = 32;

/// Number and size of the objects of a region the client lays out itself (netmap's extmem). All zero: the daemon lays it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    /// `netmap_if`s.
    pub ifs: (u32, u32),
    /// Rings.
    pub rings: (u32, u32),
    /// Buffers.
    pub bufs: (u32, u32),
}

/// Where in a file of the client's a region is to lie: whole pages. A region of the same user's that lies there already is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAsked {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// That frames begin at an offset in their buffers, kept in the slots' `ptr` (netmap.h, `nmreq_opt_offsets`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetsAsked {
    /// So many low bits of `ptr`; 0 for all 64.
    pub bits: u32,
    /// Largest offset, bytes.
    pub max: u32,
    /// Offset that all slots begin with, bytes.
    pub initial: u32,
}

/// What a client asks for. Zero in a number means the daemon's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachRequest {
    /// Port in netmap's grammar, e.g. `vale0:a` or `netmap:p{1`; at most 127 bytes.
    pub name: String,
    /// `FLAG_*`.
    pub flags: u32,
    /// Rings to send on.
    pub tx_rings: u32,
    /// Rings to receive on.
    pub rx_rings: u32,
    /// Slots of a tx ring.
    pub tx_slots: u32,
    /// Slots of an rx ring.
    pub rx_slots: u32,
    /// Bytes a buffer.
    pub buf_size: u32,
    /// Extra buffers.
    pub extra_bufs: u32,
    /// Bytes of virtio-net header before each frame: 0, 10 or 12.
    pub hdr_len: u32,
    /// Pipes that are to find room in a new region.
    pub pipes: u32,
    /// Host rings of an interface to send on, if nobody has it open.
    pub host_tx_rings: u32,
    /// Host rings of an interface to receive on, if nobody has it open.
    pub host_rx_rings: u32,
    /// Number of the region to use; 0 leaves it to the name and the daemon.
    pub mem_id: u32,
    /// The pools of a new region.
    pub pools: Pools,
    /// Comes back in [`AttachReply::note`].
    pub note: [u8; NOTE_LEN],
    /// Frames at offsets in their buffers.
    pub offsets: Option<OffsetsAsked>,
    /// The region is to lie in the file that comes with the request.
    pub file: Option<FileAsked>,
}

/// What stands behind the rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A worker of the daemon: ordinary rings.
    #[default]
    Switch,
    /// The other end of a pipe: the client moves slots itself. The peer's rings are at [`AttachReply::peer_csb_first`].
    Pipe,
    /// A monitor: its rx rings are filled like a switch's port's, its tx rings take nothing.
    Monitor,
}

/// Where the client finds its port in the region, or why it gets none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachReply {
    /// 0, or the errno netmap would give.
    pub status: i32,
    /// With a status other than 0: what went wrong and what to do next, one line.
    pub text: String,
    /// What stands behind the rings.
    pub role: Role,
    /// Bytes of the region.
    pub memsize: u64,
    /// Offset of the `netmap_if`.
    pub nifp: u64,
    /// Offset of the application's CSB array.
    pub csb_atok: u64,
    /// Offset of the host's CSB array.
    pub csb_ktoa: u64,
    /// Ring object and CSB entry of the port's first ring; the others follow, tx rings first.
    pub csb_first: u32,
    /// The same for the other end of a pipe.
    pub peer_csb_first: u32,
    /// Offset of the ring pool.
    pub ring_pool: u64,
    /// Bytes a ring object.
    pub ring_size: u32,
    /// Offset of buffer 0.
    pub buf_pool: u64,
    /// Buffers, the reserved two included.
    pub num_bufs: u32,
    /// Bytes a buffer.
    pub buf_size: u32,
    /// Tx rings of the port, host rings included.
    pub tx_rings: u32,
    /// Rx rings of the port, host rings included.
    pub rx_rings: u32,
    /// How many of the last tx rings are host rings.
    pub host_tx_rings: u32,
    /// How many of the last rx rings are host rings.
    pub host_rx_rings: u32,
    /// Not 0: rings other than host rings are an interface's queues. Their two descriptors are the queue's AF_XDP socket, which has so many
    /// entries in each ring, and for rx rings where forwarded frames go, if [`NIC_FORWARDS`] says so.
    pub nic_entries: u32,
    /// [`NIC_BOUND`], [`NIC_FORWARDS`], [`NIC_RESUMED`], [`NIC_MULTI_BUFFER`].
    pub nic_flags: u32,
    /// The interface that the client binds sockets to that are not bound, each to the queue of its ring's number, once it has mapped their rings.
    pub nic_ifindex: u32,
    /// The interface's MTU, bytes.
    pub nic_mtu: u32,
    /// Slots of a tx ring.
    pub tx_slots: u32,
    /// Slots of an rx ring.
    pub rx_slots: u32,
    /// Extra buffers the client got; their list begins at `ni_bufs_head`.
    pub extra_bufs: u32,
    /// Bytes of virtio-net header before each frame.
    pub hdr_len: u32,
    /// Number of the region.
    pub mem_id: u32,
    /// Tx rings this client is bound to. Only their descriptors are passed.
    pub tx_bound: Range<u32>,
    /// Rx rings this client is bound to.
    pub rx_bound: Range<u32>,
    /// What the client that opened the port left here.
    pub note: [u8; NOTE_LEN],
    /// Offset of the first `netmap_if`.
    pub if_pool: u64,
    /// Bytes a `netmap_if`.
    pub if_size: u32,
    /// Number of `netmap_if`s.
    pub num_ifs: u32,
    /// Number of rings of the region.
    pub num_rings: u32,
    /// Largest offset of the rings, if offsets were asked for.
    pub max_offset: u32,
    /// [`PORT_OF_SWITCH`], [`OFFSETS_AT_FAULT`], [`IN_FILE`], [`FILE_AT_FAULT`].
    pub port_flags: u32,
    /// With [`IN_FILE`]: where in the file the region begins.
    pub file_offset: u64,
    /// Nobody else holds these rings: what an earlier holder left in them may be tidied.
    pub alone: bool,
}

impl AttachReply {
    /// A refusal.
    pub fn refusal(status: i32, text: impl Into<String>) -> Self {
        AttachReply { status, text: text.into(), ..Self::default() }
    }

    /// Descriptors that come with it: the region, the CSB arrays if they lie apart ([`IN_FILE`]), then doorbell and wake-up of each bound ring, tx rings first.
    pub fn num_fds(&self) -> usize {
        if self.status != 0 {
            0
        } else {
            1 + usize::from(self.port_flags & IN_FILE != 0) + 2 * (self.tx_bound.len() + self.rx_bound.len())
        }
    }
}
