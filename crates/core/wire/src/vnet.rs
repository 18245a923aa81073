//! The virtio-net header as bytes (virtio 1.3 §5.1.6).
//!
//! The header (`struct virtio_net_hdr`, all fields little-endian) precedes each frame on ports that exchange offloads.
//! [`crate::offload`] interprets its fields.

/// Length of the header without `num_buffers` (legacy interfaces, TAP), bytes.
pub const LEN: usize = 10;
/// Length of the header with `num_buffers` (virtio 1.0 and later, mergeable receive buffers), bytes.
pub const LEN_MRG: usize = 12;

/// Flag: the checksum of the bytes from `csum_start` on is left to the receiver.
pub const F_NEEDS_CSUM: u8 = 1;
/// Flag: the device or its driver has verified the checksum.
pub const F_DATA_VALID: u8 = 2;
/// Flag: `csum_start` and `csum_offset` hold receive-segment-coalescing counts.
pub const F_RSC_INFO: u8 = 4;

/// Segmentation: none.
pub const GSO_NONE: u8 = 0;
/// Segmentation: TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// Segmentation: UDP, into IP fragments (UFO).
pub const GSO_UDP: u8 = 3;
/// Segmentation: TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// Segmentation: UDP, into datagrams (USO), over either version of IP.
pub const GSO_UDP_L4: u8 = 5;
/// Additional bit of a TCP type: the frame carries congestion information (ECN).
pub const GSO_ECN: u8 = 0x80;

/// The form of the virtio-net header that precedes each of a port's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VnetForm {
    /// The form without `num_buffers`, of [`LEN`] bytes.
    Plain,
    /// The form with `num_buffers`, of [`LEN_MRG`] bytes.
    Mergeable,
}

impl VnetForm {
    /// Returns the form whose length is `len` bytes; `None` if neither form has that length.
    #[inline]
    pub const fn from_len(len: usize) -> Option<Self> {
        match len {
            LEN => Some(Self::Plain),
            LEN_MRG => Some(Self::Mergeable),
            _ => None,
        }
    }

    /// Length of the header, bytes: [`LEN`] or [`LEN_MRG`].
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "no form is empty")]
    pub const fn len(self) -> usize {
        match self {
            Self::Plain => LEN,
            Self::Mergeable => LEN_MRG,
        }
    }
}

/// The fields of the header. The default, all zero, is the header of a frame without offloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHdr {
    /// Flags, `F_*`.
    pub flags: u8,
    /// Type of segmentation, one of `GSO_*`.
    pub gso_type: u8,
    /// Length of all headers before the payload, bytes. A hint that must not be trusted.
    pub hdr_len: u16,
    /// Length of the payload of each segment except the last, bytes.
    pub gso_size: u16,
    /// Start of the bytes that the checksum covers, in bytes from the start of the frame.
    pub csum_start: u16,
    /// Offset of the checksum, in bytes from `csum_start`.
    pub csum_offset: u16,
    /// With mergeable receive buffers: number of buffers that the frame occupies. Zero in the 10-byte form.
    pub num_buffers: u16,
}

impl VnetHdr {
    /// Reads the 10-byte form.
    #[inline]
    pub fn from_bytes(bytes: &[u8; LEN]) -> Self {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
            num_buffers: 0,
        }
    }

    /// Reads the 12-byte form.
    #[inline]
    pub fn from_bytes_mrg(bytes: &[u8; LEN_MRG]) -> Self {
        let [rest @ .., low, high] = bytes;
        Self { num_buffers: u16::from_le_bytes([*low, *high]), ..Self::from_bytes(rest) }
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`BadVnet::HeaderShort`] if `bytes` is shorter than the header.
    #[inline]
    pub fn parse(bytes: &[u8], form: VnetForm) -> Result<Self, BadVnet> {
        let header = match form {
            VnetForm::Plain => bytes.first_chunk().map(Self::from_bytes),
            VnetForm::Mergeable => bytes.first_chunk().map(Self::from_bytes_mrg),
        };
        header.ok_or(BadVnet::HeaderShort)
    }

    /// Returns the 10-byte form, without `num_buffers`.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let [rest @ .., _, _] = self.to_bytes_mrg();
        rest
    }

    /// Returns the 12-byte form.
    #[inline]
    pub fn to_bytes_mrg(&self) -> [u8; LEN_MRG] {
        let [a, b] = self.hdr_len.to_le_bytes();
        let [c, d] = self.gso_size.to_le_bytes();
        let [e, f] = self.csum_start.to_le_bytes();
        let [g, h] = self.csum_offset.to_le_bytes();
        let [i, j] = self.num_buffers.to_le_bytes();
        [self.flags, self.gso_type, a, b, c, d, e, f, g, h, i, j]
    }

    /// Writes the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`BadVnet::HeaderShort`], with nothing written, if `bytes` is shorter than the header.
    #[inline]
    pub fn write(&self, bytes: &mut [u8], form: VnetForm) -> Result<(), BadVnet> {
        match form {
            VnetForm::Plain => *bytes.first_chunk_mut().ok_or(BadVnet::HeaderShort)? = self.to_bytes(),
            VnetForm::Mergeable => *bytes.first_chunk_mut().ok_or(BadVnet::HeaderShort)? = self.to_bytes_mrg(),
        }
        Ok(())
    }
}

/// The reason why a virtio-net header does not fit its frame. Each variant has a drop counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum BadVnet {
    /// The frame is shorter than the virtio-net header.
    #[error("the frame is shorter than its virtio-net header")]
    HeaderShort,
    /// `csum_start` is in the Ethernet header or outside the frame, or (for segmentation) is not the offset of the
    /// transport header.
    #[error("csum_start is outside the frame or not at its transport header")]
    CsumStart,
    /// The checksum is outside the frame, or (for segmentation) is not the transport header's checksum.
    #[error("csum_offset is outside the frame or not the transport's checksum")]
    CsumOffset,
    /// The type of segmentation is unknown or not supported (UFO), or has the ECN bit although the transport is not
    /// TCP.
    #[error("invalid gso_type: expected TCPV4, TCPV6 or UDP_L4, and ECN only with TCP")]
    GsoType,
    /// The length of the segments' payload is zero.
    #[error("gso_size is zero")]
    GsoSize,
    /// Segmentation is requested without `F_NEEDS_CSUM`, which a driver must set (§5.1.6.2.1).
    #[error("gso_type is set without the NEEDS_CSUM flag")]
    GsoWithoutCsum,
    /// The frame's protocols are not those that `gso_type` names, or its headers are malformed.
    #[error("the frame is not of the protocols that gso_type names")]
    GsoProtocol,
    /// The frame, or its prefix that was checked, ends within the headers.
    #[error("the frame ends within its headers")]
    HeadersCut,
    /// The headers have more than [`crate::offload::MAX_HEADERS`] bytes.
    #[error("the frame's headers are longer than 256 bytes")]
    HeadersLong,
    /// A fragment cannot be segmented.
    #[error("segmentation of a fragment is not possible")]
    Fragment,
    /// A packet with a source route cannot be segmented: its checksum covers the last destination of the route.
    #[error("segmentation of a packet with a source route is not possible")]
    SourceRoute,
    /// The packet is longer than the maximum of its length fields, 64 KiB.
    #[error("the packet is longer than 64 KiB")]
    TooLong,
    /// There would be more than [`crate::offload::MAX_SEGMENTS`] segments.
    #[error("gso_size is too small: there would be more than 2048 segments")]
    TooManySegments,
}

impl BadVnet {
    /// All variants. The position of each variant is its [`BadVnet::index`].
    pub const ALL: [BadVnet; 13] = [
        Self::HeaderShort,
        Self::CsumStart,
        Self::CsumOffset,
        Self::GsoType,
        Self::GsoSize,
        Self::GsoWithoutCsum,
        Self::GsoProtocol,
        Self::HeadersCut,
        Self::HeadersLong,
        Self::Fragment,
        Self::SourceRoute,
        Self::TooLong,
        Self::TooManySegments,
    ];

    /// Returns the variant's index in an array that has a counter for each variant.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Name of the drop counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HeaderShort => "vnet_header_short",
            Self::CsumStart => "vnet_csum_start",
            Self::CsumOffset => "vnet_csum_offset",
            Self::GsoType => "vnet_gso_type",
            Self::GsoSize => "vnet_gso_size",
            Self::GsoWithoutCsum => "vnet_gso_without_csum",
            Self::GsoProtocol => "vnet_gso_protocol",
            Self::HeadersCut => "vnet_headers_cut",
            Self::HeadersLong => "vnet_headers_long",
            Self::Fragment => "vnet_fragment",
            Self::SourceRoute => "vnet_source_route",
            Self::TooLong => "vnet_too_long",
            Self::TooManySegments => "vnet_too_many_segments",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HDR: VnetHdr = VnetHdr {
        flags: F_NEEDS_CSUM,
        gso_type: GSO_TCPV4 | GSO_ECN,
        hdr_len: 0x0102,
        gso_size: 0x0304,
        csum_start: 0x0506,
        csum_offset: 0x0708,
        num_buffers: 0x090a,
    };
    const BYTES: [u8; LEN_MRG] = [1, 0x81, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9];

    #[test]
    fn both_forms_are_little_endian_in_the_order_of_the_standard() {
        assert_eq!(HDR.to_bytes_mrg(), BYTES);
        assert_eq!(HDR.to_bytes(), BYTES[..LEN]);
        assert_eq!(VnetHdr::parse(&BYTES, VnetForm::Mergeable), Ok(HDR));
        assert_eq!(VnetHdr::parse(&BYTES, VnetForm::Plain), Ok(VnetHdr { num_buffers: 0, ..HDR }));
    }

    #[test]
    fn a_form_has_its_length_and_no_other() {
        for form in [VnetForm::Plain, VnetForm::Mergeable] {
            assert_eq!(VnetForm::from_len(form.len()), Some(form));
        }
        assert_eq!((VnetForm::from_len(0), VnetForm::from_len(11)), (None, None));
    }

    #[test]
    fn too_few_bytes_are_refused() {
        for form in [VnetForm::Plain, VnetForm::Mergeable] {
            let short = form.len() - 1;
            let mut room = [0xee; LEN_MRG];
            assert_eq!(VnetHdr::parse(&BYTES[..short], form), Err(BadVnet::HeaderShort));
            assert_eq!(HDR.write(&mut room[..short], form), Err(BadVnet::HeaderShort));
            assert_eq!(room, [0xee; LEN_MRG], "nothing is written");
            assert_eq!(HDR.write(&mut room, form), Ok(()));
            assert_eq!(room[..form.len()], BYTES[..form.len()]);
            assert_eq!(room[form.len()..], [0xee; LEN_MRG][form.len()..]);
        }
    }
}
