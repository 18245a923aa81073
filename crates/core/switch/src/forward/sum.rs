//! Checks where a pending checksum will be stored: the checksum must not overwrite bytes on which decisions of policies
//! are based.

use netvale_wire::layers::Layers;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// Protocols whose checksum is at the same offset as in UDP: UDP, DCCP, UDP-Lite.
const LIKE_UDP: [u8; 3] = [UDP, 33, 136];
/// Protocols that carry packets, which in turn may have a pending checksum: IPv4, IPv6, GRE, L2TP, and UDP with VXLAN
/// or Geneve.
const TUNNELS: [u8; 5] = [4, 41, 47, 115, UDP];
/// Minimum length of a tunnel's header in bytes.
const TUNNEL_HEADER: usize = 8;

/// Whether a checksum of the bytes from `start` on, stored at `start` + `offset`, is the checksum of the frame's
/// transport header or of a packet in a tunnel. A sender can choose a checksum's value through the payload, so a
/// checksum stored anywhere else could change addresses, tags or ports that were checked before.
pub(super) fn is_beside_headers(head: &[u8], start: u16, offset: u16) -> bool {
    let Ok(Layers { ip: Some(ip), .. }) = Layers::parse(head) else { return false };
    let start = usize::from(start);
    if start != ip.l4 {
        // `Filters::pass` handles filter rules that read the bytes of such a checksum.
        return TUNNELS.contains(&ip.protocol) && start >= ip.l4 + TUNNEL_HEADER;
    }
    match ip.protocol {
        TCP => offset == 16,
        ICMPV6 => offset == 2,
        protocol => LIKE_UDP.contains(&protocol) && offset == 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(tags: usize, protocol: u8) -> Vec<u8> {
        let mut head = vec![2; 12];
        head.extend([0x81, 0, 0, 10].repeat(tags));
        head.extend([8, 0, 0x45, 0, 0, 80, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        head.resize(120, 0);
        head
    }

    /// Objective: checksums of TCP and UDP are accepted at their offsets, after any tags, or in a tunnel; all other
    /// offsets are refused.
    #[test]
    fn checksums_are_accepted_only_at_their_places() {
        for tags in 0..3 {
            let l4 = 34 + 4 * tags as u16;
            for (protocol, right) in [(TCP, 16), (UDP, 6), (33, 6), (ICMPV6, 2)] {
                for offset in 0..40 {
                    let is_right = is_beside_headers(&head(tags, protocol), l4, offset);
                    assert_eq!(is_right, offset == right, "{protocol} {offset}");
                }
                let others = (0..l4).chain(l4 + 1..l4 + 8);
                assert!(others.clone().all(|start| !is_beside_headers(&head(tags, protocol), start, right)));
            }
            assert!(is_beside_headers(&head(tags, UDP), l4 + 50, 16) && is_beside_headers(&head(tags, 47), l4 + 24, 6));
            assert!(!is_beside_headers(&head(tags, TCP), l4 + 50, 16) && !is_beside_headers(&head(tags, 47), l4, 6));
        }
        let mut arp = head(0, UDP);
        arp[13] = 6;
        assert!(!is_beside_headers(&arp, 34, 6) && !is_beside_headers(&arp[..20], 34, 6));
    }
}
