//! ICMP echo (RFC 792, RFC 4443 §4) as bytes. A request and its reply share a key: an identifier and a sequence number.

use netvale_wire::checksum::Sum;

/// Size of an ICMP header in bytes.
pub const HEADER: usize = 8;

/// Message types of a request, for ICMPv6 and for ICMP.
const REQUEST: [u8; 2] = [128, 8];
/// Message types of a reply, for ICMPv6 and for ICMP.
const REPLY: [u8; 2] = [129, 0];

/// The key that matches a reply to its request: the socket's identifier, unless the kernel chooses it, and a sequence
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoKey {
    /// The identifier; `None` if the kernel chooses and inserts the identifier, and delivers only messages with that
    /// identifier.
    pub id: Option<u16>,
    /// The sequence number.
    pub sequence: u16,
}

/// Creates a request of `bytes` bytes, with zeros after its header. For IPv4, the checksum is complete; for IPv6, the
/// kernel fills it in.
pub fn request(is_v4: bool, key: EchoKey, bytes: usize) -> Vec<u8> {
    let mut message = vec![0; bytes.max(HEADER)];
    message[0] = REQUEST[usize::from(is_v4)];
    message[4..6].copy_from_slice(&key.id.unwrap_or(0).to_be_bytes());
    message[6..8].copy_from_slice(&key.sequence.to_be_bytes());
    if is_v4 {
        let sum = Sum::of(&message).checksum();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message
}

/// Returns whether a message is the reply to the request with this key.
pub fn is_reply(is_v4: bool, key: EchoKey, message: &[u8]) -> bool {
    message.first() == Some(&REPLY[usize::from(is_v4)]) && is_of(key, message)
}

/// Returns whether a message that an ICMP error quotes is the request with this key.
pub fn is_request(is_v4: bool, key: EchoKey, message: &[u8]) -> bool {
    message.first() == Some(&REQUEST[usize::from(is_v4)]) && is_of(key, message)
}

fn is_of(key: EchoKey, message: &[u8]) -> bool {
    let Some(&[_, _, _, _, a, b, c, d]) = message.first_chunk::<HEADER>() else { return false };
    key.id.is_none_or(|id| id == u16::from_be_bytes([a, b])) && key.sequence == u16::from_be_bytes([c, d])
}

/// Returns the bytes after the header of an IPv4 packet. A raw IPv4 socket receives packets with their headers.
pub fn behind_ipv4(packet: &[u8]) -> &[u8] {
    let header = packet.first().map_or(0, |first| usize::from(first & 0xf) * 4);
    packet.get(header.max(20)..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: requests follow RFC 792 and RFC 4443 with valid checksums, and replies are matched by identifier and
    /// sequence number.
    #[test]
    fn requests_follow_the_rfcs_and_replies_match() {
        let key = EchoKey { id: Some(0x1234), sequence: 7 };
        let four = request(true, key, 56);
        assert_eq!((four.len(), &four[..2], &four[4..8]), (56, &[8, 0][..], &[0x12, 0x34, 0, 7][..]));
        assert_eq!(Sum::of(&four).fold(), 0xffff);
        assert_eq!(request(false, key, 0)[..4], [128, 0, 0, 0]);
        for (is_v4, kind) in [(true, 0), (false, 129)] {
            let mut reply = request(is_v4, key, 8);
            assert!(!is_reply(is_v4, key, &reply) && is_request(is_v4, key, &reply));
            reply[0] = kind;
            assert!(is_reply(is_v4, key, &reply) && !is_request(is_v4, key, &reply));
            assert!(is_reply(is_v4, EchoKey { id: None, sequence: 7 }, &reply));
            assert!(!is_reply(is_v4, EchoKey { sequence: 8, ..key }, &reply));
            assert!(!is_reply(is_v4, EchoKey { id: Some(1), ..key }, &reply));
            assert!(!is_reply(is_v4, key, &reply[..7]));
        }
    }

    /// Objective: a header with options is skipped; a truncated packet has nothing after its header.
    #[test]
    fn headers_with_options_are_skipped() {
        let mut packet = [0; 30];
        packet[0] = 0x46;
        packet[24] = 9;
        assert_eq!(behind_ipv4(&packet), [9, 0, 0, 0, 0, 0]);
        assert!(behind_ipv4(&packet[..20]).is_empty() && behind_ipv4(&[]).is_empty());
    }
}
