//! Frames left unfinished by the sender's kernel, which expects a network card to finish them. Virtual links (veth,
//! TAP) have no card, so a datagram may carry a TCP segment of 64 KiB, or a partial checksum. The kernel knows this
//! about its own packets, but does not tell programs.
//!
//! A partial checksum is the sum of the pseudo header alone (linux/skbuff.h, `CHECKSUM_PARTIAL`). One of 65,536
//! complete frames has an equal checksum: it is computed again, to the same value.

use netvale_wire::checksum::pseudo;
use netvale_wire::layers::{TCP, UDP};
use netvale_wire::{Layers, VnetHdr, ethernet, tcp, udp, vnet};

use crate::header;
use crate::sys::Message;

/// Bytes of a frame that are read.
const HEAD: usize = 256;

/// The offload still pending on a frame, as a virtio-net header; `None` without one. Frames longer than `whole` bytes
/// are cut to fit, into segments of `inner` payload bytes each if that is not 0.
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
    // The sum of the pseudo header, with a 16-bit length.
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

/// Makes a message one datagram again if its frame stands for several UDP datagrams: the kernel reports their length
/// like that of datagrams to cut the message into. No part of a frame is then taken for a datagram.
pub fn whole_again(message: &mut Message) {
    let first = message.datagrams().next().and_then(|datagram| datagram.get(header::LEN..)).unwrap_or_default();
    let is_cut = message.each > 0 && packet_end(first).is_some_and(|end| end > first.len());
    if is_cut {
        message.inner = message.each;
        message.each = 0;
    }
}

/// End of the IP packet in a frame that begins with `head`, by its header.
fn packet_end(head: &[u8]) -> Option<usize> {
    let (ethertype, l3) = ethernet::network(head).ok()?;
    let length = |at: usize| Some(usize::from(u16::from_be_bytes(*head.get(l3 + at..)?.first_chunk()?)));
    match ethertype {
        ethernet::IPV4 => length(2).map(|len| l3 + len),
        ethernet::IPV6 => length(4).map(|len| l3 + 40 + len),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(payload: usize, checksum: Option<u16>) -> Vec<u8> {
        let len = 20 + 20 + payload;
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, (len >> 8) as u8, len as u8];
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        let half = pseudo([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6, (20 + payload) as u16).unwrap().fold();
        frame[50..52].copy_from_slice(&checksum.unwrap_or(half).to_be_bytes());
        frame.resize(14 + len, 3);
        frame
    }

    /// Objective: a partial checksum is found, long segments are marked to be cut, and complete frames of any length
    /// are unchanged.
    #[test]
    fn halves() {
        let left = left_to_do(&segment(100, None), 1464, 0).unwrap();
        assert_eq!((left.flags, left.csum_start, left.csum_offset, left.gso_type), (vnet::F_NEEDS_CSUM, 34, 16, 0));
        let left = left_to_do(&segment(60_000, None), 1464, 0).unwrap();
        assert_eq!((left.gso_type, left.hdr_len, left.gso_size), (vnet::GSO_TCPV4, 54, 1410));
        assert!(left.check(60_054, &segment(60_000, None)[..256]).is_ok());
        assert_eq!(left_to_do(&segment(100, Some(0x1234)), 1464, 0), None);
        assert_eq!(left_to_do(&segment(60_000, Some(0x1234)), 1464, 0), None);
        let mut fragment = segment(100, None);
        fragment[20] = 0x20;
        assert_eq!(left_to_do(&fragment, 1464, 0), None);
        assert_eq!(left_to_do(&segment(60_000, None), 1464, 1000).unwrap().gso_size, 1000);
        for len in 0..segment(0, None).len() {
            let _ = left_to_do(&segment(0, None)[..len], 1464, 0);
        }
    }

    /// Objective: a datagram that stands for several, with the kernel's inner length, stays one datagram; several
    /// datagrams stay several.
    #[test]
    fn inner_lengths() {
        let message = |frames: &[Vec<u8>], each: usize| {
            let mut message = Message::empty();
            let bytes: Vec<u8> = frames.iter().flat_map(|frame| [&header::encode(7)[..], frame].concat()).collect();
            message.data[..bytes.len()].copy_from_slice(&bytes);
            message.len = bytes.len();
            message.each = each;
            whole_again(&mut message);
            (message.datagrams().count(), message.each, message.inner)
        };
        assert_eq!(message(&[segment(5000, None)], 1000), (1, 0, 1000));
        let frame = segment(100, None);
        assert_eq!(message(&vec![frame.clone(); 3], 8 + frame.len()), (3, 8 + frame.len(), 0));
        assert_eq!(message(&[frame], 0), (1, 0, 0));
    }
}
