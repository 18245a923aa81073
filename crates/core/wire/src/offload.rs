//! Checks the offload that a frame's virtio-net header requests against the frame itself (virtio 1.3 §5.1.6.2).
//!
//! The sender is not trusted: header lengths are determined from the frame itself, and the virtio-net header must agree
//! with them. If the virtio-net header disagrees, the frame is dropped and counted under the name of the [`BadVnet`]
//! variant.

use crate::vnet::{self, BadVnet, VnetHdr};
use crate::{Layers, MalformedPacket, ethernet, ipv6, layers, tcp, udp};

/// Maximum length of the headers that segmentation supports, bytes: enough for two VLAN tags, IPv6 with extension
/// headers and TCP with options. Frames with longer headers are refused.
pub const MAX_HEADERS: usize = 256;
/// Maximum number of segments of one frame. The limit prevents a 64 KiB frame from requesting segments of one byte
/// each; segments of at least 32 bytes of payload are always accepted.
pub const MAX_SEGMENTS: usize = 2048;
/// Maximum of the length fields of IPv4, IPv6 and UDP.
const MAX_LENGTH_FIELD: usize = 0xffff;

/// The offload that is pending on a frame: work that the sender left to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// No offload: the frame is complete.
    None,
    /// The checksum of the bytes from `start` on must be stored at `start + offset`. Both are in bytes, and the two
    /// bytes of the checksum are within the frame.
    CsumPartial {
        /// Offset of the first byte that the checksum covers, after the Ethernet header.
        start: u16,
        /// Offset of the checksum from `start`.
        offset: u16,
    },
    /// The payload must be cut into segments, and each segment's checksum computed.
    Gso(Gso),
}

/// A frame that must be cut into segments. Lengths and offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Transport and IP version.
    pub kind: GsoKind,
    /// Length of the payload of each segment except the last; not zero.
    pub gso_size: u16,
    /// Length of all headers before the payload, as found in the frame; at most [`MAX_HEADERS`].
    pub hdr_len: u16,
    /// Offset of the transport header.
    pub csum_start: u16,
    /// Offset of the checksum in the transport header.
    pub csum_offset: u16,
    /// Whether the virtio-net header has the bit [`vnet::GSO_ECN`]: the frame carries congestion information (TCP
    /// only).
    pub ecn: bool,
}

/// Transport and IP version of a frame that must be segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4 (TSO4).
    Tcp4,
    /// TCP over IPv6 (TSO6).
    Tcp6,
    /// UDP over IPv4 (USO4).
    Udp4,
    /// UDP over IPv6 (USO6).
    Udp6,
}

impl GsoKind {
    /// Whether the transport is TCP; otherwise it is UDP.
    #[inline]
    pub const fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp4 | Self::Tcp6)
    }

    /// Whether the network protocol is IPv4; otherwise it is IPv6.
    #[inline]
    pub const fn is_v4(self) -> bool {
        matches!(self, Self::Tcp4 | Self::Udp4)
    }

    /// The value of `gso_type` in the virtio-net header (`VIRTIO_NET_HDR_GSO_*`), without the ECN bit.
    #[inline]
    pub const fn gso_type(self) -> u8 {
        match self {
            Self::Tcp4 => vnet::GSO_TCPV4,
            Self::Tcp6 => vnet::GSO_TCPV6,
            Self::Udp4 | Self::Udp6 => vnet::GSO_UDP_L4,
        }
    }

    /// IP protocol number of the transport.
    #[inline]
    pub const fn protocol(self) -> u8 {
        if self.is_tcp() { layers::TCP } else { layers::UDP }
    }

    /// Offset of the checksum in the transport header, in bytes.
    #[inline]
    pub const fn csum_offset(self) -> u16 {
        if self.is_tcp() { tcp::CHECKSUM_OFFSET } else { udp::CHECKSUM_OFFSET }
    }
}

impl VnetHdr {
    /// Checks this header against its frame.
    ///
    /// `frame_len` is the length of the frame without this header. `frame_prefix` is a private copy of the start of the
    /// frame, which must contain at least the frame's headers: [`MAX_HEADERS`] bytes, or the whole frame if the frame
    /// is shorter, always suffice. The copy is read only if `gso_type` is set. The time that the check takes does not
    /// depend on `frame_len`.
    ///
    /// `hdr_len`, `num_buffers` and unknown flags are ignored, as §5.1.6.2.2 requires, and so is `F_DATA_VALID`, which
    /// a driver must not set.
    #[inline]
    pub fn check(&self, frame_len: usize, frame_prefix: &[u8]) -> Result<Offload, BadVnet> {
        if (self.flags & vnet::F_NEEDS_CSUM) | self.gso_type == 0 {
            return Ok(Offload::None);
        }
        self.check_some(frame_len, frame_prefix)
    }

    /// Checks a header that requests an offload.
    fn check_some(&self, frame_len: usize, frame_prefix: &[u8]) -> Result<Offload, BadVnet> {
        if self.gso_type != vnet::GSO_NONE {
            return self.check_gso(frame_len, frame_prefix).map(Offload::Gso);
        }
        let start = self.csum_start;
        let offset = self.csum_offset;
        if usize::from(start) < ethernet::HEADER_LEN || usize::from(start) >= frame_len {
            return Err(BadVnet::CsumStart);
        }
        if usize::from(start) + usize::from(offset) + 2 > frame_len {
            return Err(BadVnet::CsumOffset);
        }
        Ok(Offload::CsumPartial { start, offset })
    }

    /// Checks a header that requests segmentation.
    fn check_gso(&self, frame_len: usize, frame_prefix: &[u8]) -> Result<Gso, BadVnet> {
        let ecn = self.gso_type & vnet::GSO_ECN != 0;
        let gso_type = self.gso_type & !vnet::GSO_ECN;
        if !is_supported(gso_type, ecn) {
            return Err(BadVnet::GsoType);
        }
        if self.flags & vnet::F_NEEDS_CSUM == 0 {
            return Err(BadVnet::GsoWithoutCsum);
        }
        let prefix = &frame_prefix[..frame_prefix.len().min(frame_len)];
        let headers = SegmentHeaders::find(prefix)?;
        if headers.kind.gso_type() != gso_type {
            return Err(BadVnet::GsoProtocol);
        }
        if usize::from(self.csum_start) != headers.l4 {
            return Err(BadVnet::CsumStart);
        }
        if self.csum_offset != headers.kind.csum_offset() {
            return Err(BadVnet::CsumOffset);
        }
        // `SegmentHeaders::find` read only the part of the frame within `frame_len`, so `headers.end` is at most
        // `frame_len`.
        headers.check_payload(frame_len - headers.end, self.gso_size)?;
        Ok(Gso {
            kind: headers.kind,
            gso_size: self.gso_size,
            hdr_len: headers.end as u16,
            csum_start: self.csum_start,
            csum_offset: self.csum_offset,
            ecn,
        })
    }
}

/// Whether this `gso_type` is supported; `ecn` is the ECN bit, which the caller has removed from `gso_type`.
fn is_supported(gso_type: u8, ecn: bool) -> bool {
    match gso_type {
        vnet::GSO_TCPV4 | vnet::GSO_TCPV6 => true,
        vnet::GSO_UDP_L4 => !ecn,
        _ => false,
    }
}

impl Offload {
    /// Returns the virtio-net header of this offload, for a receiver that gets the frame with the offload pending.
    /// `num_buffers` is zero.
    #[inline]
    pub fn to_header(&self) -> VnetHdr {
        match *self {
            Self::None => VnetHdr::default(),
            Self::CsumPartial { start, offset } => {
                VnetHdr { flags: vnet::F_NEEDS_CSUM, csum_start: start, csum_offset: offset, ..VnetHdr::default() }
            }
            Self::Gso(gso) => VnetHdr {
                flags: vnet::F_NEEDS_CSUM,
                gso_type: gso.kind.gso_type() | if gso.ecn { vnet::GSO_ECN } else { 0 },
                hdr_len: gso.hdr_len,
                gso_size: gso.gso_size,
                csum_start: gso.csum_start,
                csum_offset: gso.csum_offset,
                num_buffers: 0,
            },
        }
    }
}

/// The headers of a frame that can be segmented, as found in the frame. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeaders {
    pub kind: GsoKind,
    pub l3: usize,
    pub l4: usize,
    /// Offset of the payload; at most [`MAX_HEADERS`].
    pub end: usize,
}

impl SegmentHeaders {
    /// Finds the headers of the frame whose first bytes are `prefix`. All headers must be within `prefix`.
    pub fn find(prefix: &[u8]) -> Result<Self, BadVnet> {
        let layers = Layers::parse(prefix).map_err(bad_headers)?;
        let ip = layers.ip.ok_or(BadVnet::GsoProtocol)?;
        let kind = match (ip.protocol, ip.src.is_ipv4()) {
            _ if ip.fragment => return Err(BadVnet::Fragment),
            _ if ip.source_route => return Err(BadVnet::SourceRoute),
            (layers::TCP, true) => GsoKind::Tcp4,
            (layers::TCP, false) => GsoKind::Tcp6,
            (layers::UDP, true) => GsoKind::Udp4,
            (layers::UDP, false) => GsoKind::Udp6,
            _ => return Err(BadVnet::GsoProtocol),
        };
        let transport = prefix.get(ip.l4..).ok_or(BadVnet::HeadersCut)?;
        let len = if kind.is_tcp() {
            tcp::Header::parse(transport).map_err(bad_headers)?.header_len()
        } else {
            udp::Header::parse(transport).map_err(bad_headers)?;
            udp::HEADER_LEN
        };
        let end = ip.l4 + len;
        if end > MAX_HEADERS {
            return Err(BadVnet::HeadersLong);
        }
        Ok(Self { kind, l3: layers.l3, l4: ip.l4, end })
    }

    /// Checks that a payload of `payload_len` bytes can follow the headers and can be cut into segments of `gso_size`
    /// bytes.
    pub fn check_payload(&self, payload_len: usize, gso_size: u16) -> Result<(), BadVnet> {
        // The length field of IPv4 includes the IP header, the length field of IPv6 does not (RFC 791 §3.1, RFC 8200
        // §3).
        let uncounted = if self.kind.is_v4() { self.l3 } else { self.l3 + ipv6::HEADER_LEN };
        if payload_len > MAX_LENGTH_FIELD - (self.end - uncounted) {
            return Err(BadVnet::TooLong);
        }
        if gso_size == 0 {
            return Err(BadVnet::GsoSize);
        }
        if payload_len.div_ceil(gso_size.into()) > MAX_SEGMENTS {
            return Err(BadVnet::TooManySegments);
        }
        Ok(())
    }
}

/// Returns the error for malformed headers in a frame that requests segmentation.
fn bad_headers(error: MalformedPacket) -> BadVnet {
    match error {
        MalformedPacket::Truncated => BadVnet::HeadersCut,
        MalformedPacket::BadField => BadVnet::GsoProtocol,
    }
}
