//! Frames with pending offloads, which the sender's kernel left to the network card. Virtual links (veth, TAP, a
//! guest's sockets) have no card, so a frame may be a TCP segment of 64 KiB, or have a partial checksum. The kernel
//! knows which of its own packets are in this state, but does not tell programs.
//!
//! A partial checksum is the sum of the pseudo header alone (linux/skbuff.h, `CHECKSUM_PARTIAL`). By chance, one in
//! 65,536 complete frames has a checksum equal to that sum; its checksum is computed again, with the same result.

use crate::checksum::pseudo;
use crate::layers::{TCP, UDP};
use crate::{Layers, VnetHdr, tcp, udp, vnet};

/// Maximum number of bytes that are read at the start of a frame.
const HEAD: usize = 256;

/// Returns the offload that is pending on a frame, as a virtio-net header; `None` if no offload is pending. A frame
/// longer than `whole` bytes must be cut into segments of at most `whole` bytes, with at most `inner` bytes of payload
/// each if `inner` is not 0.
#[must_use]
pub fn left_to_do(frame: &[u8], whole: usize, inner: usize) -> Option<VnetHdr> {
    let head = frame.get(..HEAD.min(frame.len()))?;
    let ip = Layers::parse(head).ok()?.ip.filter(|ip| !ip.fragment && !ip.source_route)?;
    let (offset, headers) = match ip.protocol {
        TCP => (tcp::CHECKSUM_OFFSET, ip.l4 + tcp::Header::parse(head.get(ip.l4..)?).ok()?.header_len()),
        UDP => (udp::CHECKSUM_OFFSET, ip.l4 + udp::HEADER_LEN),
        _ => return None,
    };
    let at = ip.l4 + usize::from(offset);
    let stored = u16::from_be_bytes(*head.get(at..)?.first_chunk()?);
    // The sum of the pseudo header, in which the length has 16 bits.
    let half = pseudo(ip.src, ip.dst, ip.protocol, (frame.len() - ip.l4) as u16)?.fold();
    if stored == 0 || stored != half {
        return None;
    }
    let csum =
        VnetHdr { flags: vnet::F_NEEDS_CSUM, csum_start: ip.l4 as u16, csum_offset: offset, ..VnetHdr::default() };
    if frame.len() <= whole || whole <= headers {
        return Some(csum);
    }
    let gso_type = match (ip.protocol, ip.src.is_ipv4()) {
        (TCP, true) => vnet::GSO_TCPV4,
        (TCP, false) => vnet::GSO_TCPV6,
        _ => vnet::GSO_UDP_L4,
    };
    let fits = whole - headers;
    let gso_size = if inner == 0 { fits } else { inner.min(fits) } as u16;
    Some(VnetHdr { gso_type, hdr_len: headers as u16, gso_size, ..csum })
}
