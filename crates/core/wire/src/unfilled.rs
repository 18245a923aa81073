//! Finds missing checksums of frames that a device marks as verified, with the flag "data valid" (virtio 1.3 §5.1.6.4).
//! If the flag cannot be passed on to the receiver, the receiver would drop the frames.

use crate::checksum::pseudo;
use crate::offload::Offload;
use crate::{Layers, ethernet, layers, tcp, udp};

/// A checksum that must be filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnfilledChecksum {
    /// The offload that is pending after [`UnfilledChecksum::sum`] has been stored.
    pub offload: Offload,
    /// Offset of the checksum, in bytes from the start of the frame.
    pub at: usize,
    /// The sum of the pseudo header, which must first be stored at [`UnfilledChecksum::at`].
    pub sum: [u8; 2],
}

/// Returns the checksum to fill in for a frame of `len` bytes that begins with `prefix`, if the checksum is zero
/// although the transport (TCP, or UDP over IPv6) requires a checksum. `None` if no checksum is missing, or the frame
/// is a fragment, which has no checksum of its own.
pub fn unfilled(len: usize, prefix: &[u8]) -> Option<UnfilledChecksum> {
    let Layers { ethertype, l3, ip } = Layers::parse(prefix).ok()?;
    let ip = ip.filter(|ip| !ip.fragment && !ip.source_route)?;
    let offset = match (ip.protocol, ethertype) {
        (layers::TCP, _) => tcp::CHECKSUM_OFFSET,
        (layers::UDP, ethernet::IPV6) => udp::CHECKSUM_OFFSET,
        _ => return None,
    };
    let word = |at: usize| prefix.get(at..at + 2)?.first_chunk::<2>().copied();
    // The length field of IPv4 includes the IP header, the length field of IPv6 does not.
    let (length_at, begin) = if ethertype == ethernet::IPV6 { (l3 + 4, l3 + 40) } else { (l3 + 2, l3) };
    let end = begin + usize::from(u16::from_be_bytes(word(length_at)?));
    let at = ip.l4 + usize::from(offset);
    let is_padded_with_zeros = || prefix.get(end..len).is_some_and(|rest| rest.iter().all(|&byte| byte == 0));
    if word(at)? != [0; 2] || end < at + 2 || end > len || (end < len && !is_padded_with_zeros()) {
        return None;
    }
    let length = u16::try_from(end - ip.l4).ok()?;
    let sum = pseudo(ip.src, ip.dst, ip.protocol, length)?.fold().to_be_bytes();
    let start = u16::try_from(ip.l4).ok()?;
    Some(UnfilledChecksum { offload: Offload::CsumPartial { start, offset }, at, sum })
}
