//! Explicit congestion notification across a tunnel (RFC 6040). A congested router between VTEPs marks an outer packet
//! if the inner packet may be marked; the receiving VTEP copies the mark to the inner packet.

use netvale_wire::{checksum, ethernet};

use crate::header;
use crate::sys::VxlanMessage;

/// ECN codepoint (RFC 3168 §5) of packets whose transport does not support ECN.
pub const NOT_ECT: u8 = 0;
/// Codepoint ECT(1), of packets whose transport supports ECN.
const ECT_1: u8 = 1;
/// Codepoint ECT(0), of packets whose transport supports ECN.
const ECT_0: u8 = 2;
/// Codepoint that a congested router sets.
pub const CE: u8 = 3;

/// Returns the offset of the byte with the codepoint in a frame, and the codepoint's shift in that byte; `None` if the
/// frame has no IP packet.
fn place(frame: &[u8]) -> Option<(usize, u8)> {
    let (ethertype, l3) = ethernet::network(frame).ok()?;
    let version = frame.get(l3)? >> 4;
    match (ethertype, version) {
        (ethernet::IPV4, 4) => Some((l3 + 1, 0)),
        (ethernet::IPV6, 6) => Some((l3 + 1, 4)),
        _ => None,
    }
}

/// Returns the codepoint of a frame's packet; `None` if the frame has no IP packet.
pub fn of(frame: &[u8]) -> Option<u8> {
    let (at, shift) = place(frame)?;
    Some(frame.get(at)? >> shift & 3)
}

/// Returns whether a packet must be dropped, because the outer packet is marked, and the inner transport does not
/// support marks (RFC 6040 §4.2).
pub fn is_lost(outer: u8, frame: &[u8]) -> bool {
    outer == CE && of(frame) == Some(NOT_ECT)
}

/// Copies the mark of a message's outer packets to the frames in the message.
pub fn mark(message: &mut VxlanMessage) {
    let outer = message.ecn;
    if outer != CE && outer != ECT_1 {
        return;
    }
    let each = if message.each == 0 { message.data.len() } else { message.each };
    for datagram in message.data.chunks_mut(each.max(1)) {
        datagram.get_mut(header::LEN..).and_then(|frame| mark_frame(outer, frame));
    }
}

fn mark_frame(outer: u8, frame: &mut [u8]) -> Option<()> {
    let (at, shift) = place(frame)?;
    let inner = frame.get(at)? >> shift & 3;
    let marked = match (inner, outer) {
        (ECT_0 | ECT_1, CE) => CE,
        (ECT_0, ECT_1) => ECT_1,
        _ => return None,
    };
    // The 16-bit word that contains the codepoint. In IPv4, the header checksum covers it.
    let word = |frame: &[u8], at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let before = word(frame, at - 1)?;
    let after = before ^ u16::from(inner ^ marked) << shift;
    if shift == 0 {
        let sum = checksum::update16(word(frame, at + 9)?, before, after);
        frame.get_mut(at + 9..at + 11)?.copy_from_slice(&sum.to_be_bytes());
    }
    frame.get_mut(at - 1..at + 1)?.copy_from_slice(&after.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use netvale_wire::Sum;

    use super::*;

    fn ipv4(ecn: u8, tag: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0xb8 | ecn, 0, 20, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let sum = Sum::of(&packet).checksum();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        [&[2; 12][..], tag, &[8, 0], &packet].concat()
    }

    fn ipv6(ecn: u8, tag: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x6b, 0x8f | ecn << 4, 0xab, 0xcd, 0, 0, 17, 64];
        packet.resize(40, 1);
        [&[2; 12][..], tag, &[0x86, 0xdd], &packet].concat()
    }

    fn out_of(outer: u8, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut message = VxlanMessage::empty();
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| [&header::encode(7)[..], frame].concat()).collect();
        message.data = bytes;
        message.ecn = outer;
        message.each = if frames.len() > 1 { header::LEN + frames[0].len() } else { 0 };
        mark(&mut message);
        message.datagrams().map(|datagram| datagram[header::LEN..].to_vec()).collect()
    }

    /// Objective: codepoints follow RFC 6040, figure 4, for IPv4 and IPv6, with and without a VLAN tag, in messages
    /// with one or several frames; only the codepoint changes, and the IPv4 header checksum stays valid.
    #[test]
    fn codepoints_follow_figure_4_of_rfc_6040() {
        for frame in [ipv4, ipv6] {
            for tag in [&[][..], &[0x81, 0, 0, 5]] {
                for (inner, row) in [[0, 0, 0, 0], [1, 1, 1, 3], [2, 1, 2, 3], [3, 3, 3, 3]].into_iter().enumerate() {
                    for (outer, &expected) in row.iter().enumerate() {
                        let inner = inner as u8;
                        let outer = outer as u8;
                        let before = frame(inner, tag);
                        let after = frame(expected, tag);
                        assert_eq!(of(&before), Some(inner));
                        assert_eq!(
                            out_of(outer, std::slice::from_ref(&before)),
                            std::slice::from_ref(&after),
                            "{inner} in {outer}"
                        );
                        assert_eq!(out_of(outer, &vec![before.clone(); 3]), vec![after; 3], "{inner} in {outer}");
                        assert_eq!(is_lost(outer, &before), inner == NOT_ECT && outer == CE);
                    }
                }
            }
        }
    }

    /// Objective: frames without an IP packet, or with only a part of one, stay unchanged.
    #[test]
    fn frames_without_a_whole_packet_are_unchanged() {
        let arp = [&[2; 12][..], &[8, 6], &[0; 28]].concat();
        let wrong_version = [&[2; 12][..], &[8, 0], &[0x65; 30]].concat();
        for frame in [arp, wrong_version] {
            assert_eq!((of(&frame), out_of(CE, std::slice::from_ref(&frame))), (None, vec![frame.clone()]));
            assert!(!is_lost(CE, &frame));
        }
        for frame in [ipv4(ECT_0, &[]), ipv6(ECT_0, &[])] {
            for len in 0..frame.len() {
                let short = frame[..len].to_vec();
                let got = out_of(CE, std::slice::from_ref(&short));
                let is_v4 = frame[12] == 8;
                if len < if is_v4 { 26 } else { 16 } {
                    assert_eq!(got, [short], "{len}");
                }
            }
        }
    }
}
