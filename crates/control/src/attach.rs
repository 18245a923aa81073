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

use std::ops::Range;

/// Length of an [`AttachRequest`] in bytes.
pub const REQUEST_LEN: usize = 272;
/// Length of an [`AttachReply`] in bytes.
pub const REPLY_LEN: usize = 512;
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

/// Field places in an [`AttachRequest`].
mod request {
    use super::Range;
    pub const MAGIC: Range<usize> = 0..4;
    pub const VERSION: Range<usize> = 4..6;
    pub const FLAGS: Range<usize> = 8..12;
    pub const TX_RINGS: Range<usize> = 12..16;
    pub const RX_RINGS: Range<usize> = 16..20;
    pub const TX_SLOTS: Range<usize> = 20..24;
    pub const RX_SLOTS: Range<usize> = 24..28;
    pub const BUF_SIZE: Range<usize> = 28..32;
    pub const EXTRA_BUFS: Range<usize> = 32..36;
    pub const HDR_LEN: Range<usize> = 36..40;
    pub const PIPES: Range<usize> = 40..44;
    pub const POOLS: Range<usize> = 44..68;
    pub const NOTE: Range<usize> = 68..100;
    pub const HOST_TX_RINGS: Range<usize> = 100..104;
    pub const HOST_RX_RINGS: Range<usize> = 104..108;
    pub const MEM_ID: Range<usize> = 108..112;
    /// 0: no offsets; else one more than their bits.
    pub const OFFSET_BITS: Range<usize> = 112..116;
    pub const MAX_OFFSET: Range<usize> = 116..120;
    pub const INITIAL_OFFSET: Range<usize> = 120..124;
    pub const NAME: Range<usize> = 128..256;
    pub const FILE_OFFSET: Range<usize> = 256..264;
    pub const FILE_LEN: Range<usize> = 264..272;
}

/// Field places in an [`AttachReply`].
mod reply {
    use super::Range;
    pub const MAGIC: Range<usize> = 0..4;
    pub const VERSION: Range<usize> = 4..6;
    pub const ROLE: Range<usize> = 6..8;
    pub const STATUS: Range<usize> = 8..12;
    pub const MEMSIZE: Range<usize> = 16..24;
    pub const NIFP: Range<usize> = 24..32;
    pub const CSB_ATOK: Range<usize> = 32..40;
    pub const CSB_KTOA: Range<usize> = 40..48;
    pub const CSB_FIRST: Range<usize> = 48..52;
    pub const PEER_CSB_FIRST: Range<usize> = 52..56;
    pub const RING_POOL: Range<usize> = 56..64;
    pub const RING_SIZE: Range<usize> = 64..68;
    pub const BUF_POOL: Range<usize> = 72..80;
    pub const NUM_BUFS: Range<usize> = 80..84;
    pub const BUF_SIZE: Range<usize> = 84..88;
    pub const TX_RINGS: Range<usize> = 88..92;
    pub const RX_RINGS: Range<usize> = 92..96;
    pub const TX_SLOTS: Range<usize> = 96..100;
    pub const RX_SLOTS: Range<usize> = 100..104;
    pub const EXTRA_BUFS: Range<usize> = 104..108;
    pub const HDR_LEN: Range<usize> = 108..112;
    pub const MEM_ID: Range<usize> = 112..116;
    pub const TX_FIRST: Range<usize> = 116..120;
    pub const TX_BOUND: Range<usize> = 120..124;
    pub const RX_FIRST: Range<usize> = 124..128;
    pub const RX_BOUND: Range<usize> = 128..132;
    pub const NOTE: Range<usize> = 132..164;
    pub const IF_POOL: Range<usize> = 176..184;
    pub const IF_SIZE: Range<usize> = 184..188;
    pub const NUM_IFS: Range<usize> = 188..192;
    pub const NUM_RINGS: Range<usize> = 192..196;
    pub const ALONE: Range<usize> = 196..200;
    pub const NIC_ENTRIES: Range<usize> = 204..208;
    pub const NIC_FLAGS: Range<usize> = 208..212;
    pub const NIC_IFINDEX: Range<usize> = 212..216;
    pub const NIC_MTU: Range<usize> = 216..220;
    pub const MAX_OFFSET: Range<usize> = 220..224;
    pub const PORT_FLAGS: Range<usize> = 224..228;
    pub const HOST_TX_RINGS: Range<usize> = 236..240;
    pub const HOST_RX_RINGS: Range<usize> = 240..244;
    pub const FILE_OFFSET: Range<usize> = 244..252;
    pub const TEXT: Range<usize> = 256..512;
}

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

mod device;

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

/// Why bytes are not a message of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// Wrong length.
    #[error("attach message of {0} bytes: not netvale's protocol")]
    Length(usize),
    /// Wrong magic number.
    #[error("attach message without netvale's magic number")]
    Magic,
    /// Another version.
    #[error("attach protocol version {0}; this side speaks {ATTACH_VERSION}: use client and daemon of one release")]
    Version(u16),
    /// A name or text that is not NUL-terminated UTF-8.
    #[error("attach message with a name that is not text")]
    Text,
    /// A number outside its range.
    #[error("attach message with a bad {0}")]
    Field(&'static str),
}

pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn bytes<const N: usize>(&self, at: Range<usize>) -> [u8; N] {
        self.0.get(at).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
    }
    pub(crate) fn u16(&self, at: Range<usize>) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }
    pub(crate) fn u32(&self, at: Range<usize>) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }
    fn u64(&self, at: Range<usize>) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }
    pub(crate) fn text(&self, at: Range<usize>) -> Result<String, BadMessage> {
        let field = self.0.get(at).unwrap_or(&[]);
        let end = field.iter().position(|&b| b == 0).ok_or(BadMessage::Text)?;
        let text = field.get(..end).unwrap_or(&[]);
        std::str::from_utf8(text).map(str::to_owned).map_err(|_| BadMessage::Text)
    }
    pub(crate) fn head(&self, len: usize, magic: u32, at: (Range<usize>, Range<usize>)) -> Result<(), BadMessage> {
        if self.0.len() != len {
            return Err(BadMessage::Length(self.0.len()));
        }
        if self.u32(at.0) != magic {
            return Err(BadMessage::Magic);
        }
        match self.u16(at.1) {
            ATTACH_VERSION => Ok(()),
            other => Err(BadMessage::Version(other)),
        }
    }
}

pub(crate) struct Writer<'a>(pub(crate) &'a mut [u8]);

impl Writer<'_> {
    pub(crate) fn put(&mut self, at: Range<usize>, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at.start..at.start + bytes.len()).filter(|_| bytes.len() <= at.len()) {
            place.copy_from_slice(bytes);
        }
    }
    pub(crate) fn u32(&mut self, at: Range<usize>, v: u32) {
        self.put(at, &v.to_le_bytes());
    }
    fn u64(&mut self, at: Range<usize>, v: u64) {
        self.put(at, &v.to_le_bytes());
    }
    /// Cuts at a character boundary so that a final NUL stays.
    pub(crate) fn text(&mut self, at: Range<usize>, text: &str) {
        let most = text.len().min(at.len() - 1);
        let end = (0..=most).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        self.put(at, &text.as_bytes()[..end]);
    }
}

impl AttachRequest {
    /// The message.
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut m = [0; REQUEST_LEN];
        let mut w = Writer(&mut m);
        w.u32(request::MAGIC, REQUEST_MAGIC);
        w.put(request::VERSION, &ATTACH_VERSION.to_le_bytes());
        w.u32(request::FLAGS, self.flags);
        w.u32(request::TX_RINGS, self.tx_rings);
        w.u32(request::RX_RINGS, self.rx_rings);
        w.u32(request::TX_SLOTS, self.tx_slots);
        w.u32(request::RX_SLOTS, self.rx_slots);
        w.u32(request::BUF_SIZE, self.buf_size);
        w.u32(request::EXTRA_BUFS, self.extra_bufs);
        w.u32(request::HDR_LEN, self.hdr_len);
        w.u32(request::PIPES, self.pipes);
        let p = &self.pools;
        for (k, v) in [p.ifs.0, p.ifs.1, p.rings.0, p.rings.1, p.bufs.0, p.bufs.1].into_iter().enumerate() {
            let at = request::POOLS.start + 4 * k;
            w.u32(at..at + 4, v);
        }
        w.put(request::NOTE, &self.note);
        w.u32(request::HOST_TX_RINGS, self.host_tx_rings);
        w.u32(request::HOST_RX_RINGS, self.host_rx_rings);
        w.u32(request::MEM_ID, self.mem_id);
        if let Some(o) = &self.offsets {
            w.u32(request::OFFSET_BITS, o.bits.saturating_add(1));
            w.u32(request::MAX_OFFSET, o.max);
            w.u32(request::INITIAL_OFFSET, o.initial);
        }
        if let Some(file) = &self.file {
            w.u32(request::FLAGS, self.flags | FLAG_FILE);
            w.u64(request::FILE_OFFSET, file.offset);
            w.u64(request::FILE_LEN, file.len);
        }
        w.text(request::NAME, &self.name);
        m
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let r = Reader(bytes);
        r.head(REQUEST_LEN, REQUEST_MAGIC, (request::MAGIC, request::VERSION))?;
        let flags = r.u32(request::FLAGS);
        if flags & !FLAGS != 0 {
            return Err(BadMessage::Field("flags"));
        }
        let hdr_len = r.u32(request::HDR_LEN);
        if !matches!(hdr_len, 0 | 10 | 12) {
            return Err(BadMessage::Field("virtio-net header length: 0, 10 or 12"));
        }
        let pool = |k: usize| {
            let at = request::POOLS.start + 8 * k;
            (r.u32(at..at + 4), r.u32(at + 4..at + 8))
        };
        Ok(AttachRequest {
            name: r.text(request::NAME)?,
            flags: flags & !FLAG_FILE,
            tx_rings: r.u32(request::TX_RINGS),
            rx_rings: r.u32(request::RX_RINGS),
            tx_slots: r.u32(request::TX_SLOTS),
            rx_slots: r.u32(request::RX_SLOTS),
            buf_size: r.u32(request::BUF_SIZE),
            extra_bufs: r.u32(request::EXTRA_BUFS),
            hdr_len,
            pipes: r.u32(request::PIPES),
            pools: Pools { ifs: pool(0), rings: pool(1), bufs: pool(2) },
            host_tx_rings: r.u32(request::HOST_TX_RINGS),
            host_rx_rings: r.u32(request::HOST_RX_RINGS),
            mem_id: r.u32(request::MEM_ID),
            note: r.bytes(request::NOTE),
            file: (flags & FLAG_FILE != 0)
                .then(|| FileAsked { offset: r.u64(request::FILE_OFFSET), len: r.u64(request::FILE_LEN) }),
            offsets: r.u32(request::OFFSET_BITS).checked_sub(1).map(|bits| OffsetsAsked {
                bits,
                max: r.u32(request::MAX_OFFSET),
                initial: r.u32(request::INITIAL_OFFSET),
            }),
        })
    }
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

    /// The message.
    pub fn encode(&self) -> [u8; REPLY_LEN] {
        let mut m = [0; REPLY_LEN];
        let mut w = Writer(&mut m);
        w.u32(reply::MAGIC, REPLY_MAGIC);
        w.put(reply::VERSION, &ATTACH_VERSION.to_le_bytes());
        w.put(reply::ROLE, &(self.role as u16).to_le_bytes());
        w.put(reply::STATUS, &self.status.to_le_bytes());
        for (at, v) in [
            (reply::MEMSIZE, self.memsize),
            (reply::NIFP, self.nifp),
            (reply::CSB_ATOK, self.csb_atok),
            (reply::CSB_KTOA, self.csb_ktoa),
            (reply::RING_POOL, self.ring_pool),
            (reply::BUF_POOL, self.buf_pool),
            (reply::IF_POOL, self.if_pool),
            (reply::FILE_OFFSET, self.file_offset),
        ] {
            w.u64(at, v);
        }
        for (at, v) in [
            (reply::CSB_FIRST, self.csb_first),
            (reply::PEER_CSB_FIRST, self.peer_csb_first),
            (reply::RING_SIZE, self.ring_size),
            (reply::NUM_BUFS, self.num_bufs),
            (reply::BUF_SIZE, self.buf_size),
            (reply::TX_RINGS, self.tx_rings),
            (reply::RX_RINGS, self.rx_rings),
            (reply::TX_SLOTS, self.tx_slots),
            (reply::RX_SLOTS, self.rx_slots),
            (reply::EXTRA_BUFS, self.extra_bufs),
            (reply::HDR_LEN, self.hdr_len),
            (reply::MEM_ID, self.mem_id),
            (reply::TX_FIRST, self.tx_bound.start),
            (reply::TX_BOUND, self.tx_bound.len() as u32),
            (reply::RX_FIRST, self.rx_bound.start),
            (reply::RX_BOUND, self.rx_bound.len() as u32),
            (reply::IF_SIZE, self.if_size),
            (reply::NUM_IFS, self.num_ifs),
            (reply::NUM_RINGS, self.num_rings),
            (reply::ALONE, self.alone.into()),
            (reply::HOST_TX_RINGS, self.host_tx_rings),
            (reply::HOST_RX_RINGS, self.host_rx_rings),
            (reply::NIC_ENTRIES, self.nic_entries),
            (reply::NIC_FLAGS, self.nic_flags),
            (reply::NIC_IFINDEX, self.nic_ifindex),
            (reply::NIC_MTU, self.nic_mtu),
            (reply::MAX_OFFSET, self.max_offset),
            (reply::PORT_FLAGS, self.port_flags),
        ] {
            w.u32(at, v);
        }
        w.put(reply::NOTE, &self.note);
        w.text(reply::TEXT, &self.text);
        m
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`BadMessage`]. Offsets are checked where the region is mapped, against its size.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let r = Reader(bytes);
        r.head(REPLY_LEN, REPLY_MAGIC, (reply::MAGIC, reply::VERSION))?;
        let role = match r.u16(reply::ROLE) {
            0 => Role::Switch,
            1 => Role::Pipe,
            2 => Role::Monitor,
            _ => return Err(BadMessage::Field("role")),
        };
        let (tx_rings, rx_rings) = (r.u32(reply::TX_RINGS), r.u32(reply::RX_RINGS));
        if tx_rings.saturating_add(rx_rings) > MAX_PORT_RINGS {
            return Err(BadMessage::Field("number of rings"));
        }
        let bound = |first, count, rings| {
            let (first, count) = (r.u32(first), r.u32(count));
            first
                .checked_add(count)
                .filter(|&end| end <= rings)
                .map(|end| first..end)
                .ok_or(BadMessage::Field("bound rings"))
        };
        let (tx_bound, rx_bound) =
            (bound(reply::TX_FIRST, reply::TX_BOUND, tx_rings)?, bound(reply::RX_FIRST, reply::RX_BOUND, rx_rings)?);
        if tx_bound.len() + rx_bound.len() > MAX_RINGS {
            return Err(BadMessage::Field("number of bound rings"));
        }
        Ok(AttachReply {
            status: r.u32(reply::STATUS) as i32,
            text: r.text(reply::TEXT)?,
            role,
            memsize: r.u64(reply::MEMSIZE),
            nifp: r.u64(reply::NIFP),
            csb_atok: r.u64(reply::CSB_ATOK),
            csb_ktoa: r.u64(reply::CSB_KTOA),
            csb_first: r.u32(reply::CSB_FIRST),
            peer_csb_first: r.u32(reply::PEER_CSB_FIRST),
            ring_pool: r.u64(reply::RING_POOL),
            ring_size: r.u32(reply::RING_SIZE),
            buf_pool: r.u64(reply::BUF_POOL),
            num_bufs: r.u32(reply::NUM_BUFS),
            buf_size: r.u32(reply::BUF_SIZE),
            tx_rings,
            rx_rings,
            tx_slots: r.u32(reply::TX_SLOTS),
            rx_slots: r.u32(reply::RX_SLOTS),
            extra_bufs: r.u32(reply::EXTRA_BUFS),
            hdr_len: r.u32(reply::HDR_LEN),
            mem_id: r.u32(reply::MEM_ID),
            tx_bound,
            rx_bound,
            note: r.bytes(reply::NOTE),
            if_pool: r.u64(reply::IF_POOL),
            if_size: r.u32(reply::IF_SIZE),
            num_ifs: r.u32(reply::NUM_IFS),
            num_rings: r.u32(reply::NUM_RINGS),
            alone: r.u32(reply::ALONE) != 0,
            host_tx_rings: r.u32(reply::HOST_TX_RINGS).min(tx_rings),
            host_rx_rings: r.u32(reply::HOST_RX_RINGS).min(rx_rings),
            nic_entries: r.u32(reply::NIC_ENTRIES),
            nic_flags: r.u32(reply::NIC_FLAGS),
            nic_ifindex: r.u32(reply::NIC_IFINDEX),
            nic_mtu: r.u32(reply::NIC_MTU),
            max_offset: r.u32(reply::MAX_OFFSET),
            port_flags: r.u32(reply::PORT_FLAGS),
            file_offset: r.u64(reply::FILE_OFFSET),
        })
    }
}

#[cfg(test)]
mod tests;
