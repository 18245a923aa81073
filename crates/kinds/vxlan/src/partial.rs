//! Datagrams whose frame the sender's kernel has left incomplete ([`half_summed`](netvale_wire::half_summed)).

use netvale_wire::ethernet;

use crate::header;
use crate::sys::VxlanMessage;

/// Makes a message a single datagram again if its frame stands for several inner UDP datagrams. The kernel reports the
/// length of the inner datagrams in the same way as the length of merged outer datagrams, so that parts of the frame
/// would be taken for outer datagrams.
pub fn whole_again(message: &mut VxlanMessage) {
    let first = message.datagrams().next().and_then(|datagram| datagram.get(header::LEN..)).unwrap_or_default();
    let is_cut = message.each > 0 && packet_end(first).is_some_and(|end| end > first.len());
    if is_cut {
        message.inner = message.each;
        message.each = 0;
    }
}

/// Returns the end of the IP packet in a frame that begins with `head`, according to the packet's header; `None` if the
/// frame has no IP packet.
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
    use netvale_wire::checksum::pseudo;

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

    /// Objective: a datagram whose frame stands for several inner datagrams stays one datagram; separate datagrams stay
    /// separate.
    #[test]
    fn inner_lengths_keep_datagrams_together() {
        let message = |frames: &[Vec<u8>], each: usize| {
            let mut message = VxlanMessage::empty();
            let bytes: Vec<u8> = frames.iter().flat_map(|frame| [&header::encode(7)[..], frame].concat()).collect();
            message.data = bytes;
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
