//! Properties of checksums, parsers and the flow hash.

use crate::common;

use common::config;
use netvale_wire::checksum::{pseudo_v4, pseudo_v6, update16};
use netvale_wire::vnet::{VnetForm, VnetHdr};
use netvale_wire::{FlowKey, Layers, MacAddr, Sum, arp, build, ethernet, ipv4, ipv6, tcp, udp};
use proptest::prelude::*;

/// Returns the sum as RFC 1071 §1 defines it: words of two bytes, with each carry added back immediately.
fn naive(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0u16, |sum, word| {
        let word = u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]);
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

/// Generates bytes of which many are 0xff or 0, which makes carries likely.
fn any_bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), Just(0xff), Just(0)];
    prop::collection::vec(byte, 0..max)
}

/// Returns a frame of the other direction of the same flow: the frame with its addresses and ports exchanged.
fn reversed(frame: &[u8]) -> Vec<u8> {
    let mut back = frame.to_vec();
    ethernet::Header::parse_mut(&mut back).unwrap().swap_addrs();
    let (addrs, len) = if frame[14] >> 4 == 4 { (26, 4) } else { (22, 16) };
    back[addrs..addrs + 2 * len].rotate_left(len);
    let ports = addrs + 2 * len;
    back[ports..ports + 4].rotate_left(2);
    back
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sums_are_those_of_the_definition(bytes in any_bytes(if cfg!(miri) { 200 } else { 3000 })) {
        prop_assert_eq!(Sum::of(&bytes).fold(), naive(&bytes));
    }

    /// Objective: pieces of any lengths, including odd ones, have the same sum as the whole, whether they are added one
    /// after the other or as subtotals.
    #[test]
    fn pieces_sum_like_the_whole(pieces in prop::collection::vec(any_bytes(70), 0..6)) {
        let whole = naive(&pieces.concat());
        let in_turn = pieces.iter().fold(Sum::ZERO, |sum, piece| sum.add_bytes(piece));
        prop_assert_eq!(in_turn.fold(), whole);
        let (front, back) = pieces.split_at(pieces.len() / 2);
        let subtotal = |part: &[Vec<u8>]| part.iter().fold(Sum::ZERO, |sum, piece| sum.add_bytes(piece));
        prop_assert_eq!(subtotal(front).append(subtotal(back)).fold(), whole);
    }

    /// Objective: a checksum that is updated for a changed field is correct, like a newly computed checksum (RFC 1624
    /// §3).
    #[test]
    fn updated_checksums_verify(mut bytes in any_bytes(40), at in any::<prop::sample::Index>(), new in any::<u32>()) {
        bytes.resize(bytes.len() / 2 * 2 + 4, 1);
        let at = at.index(bytes.len() / 2 - 1) * 2;
        let before = Sum::of(&bytes).checksum();
        let old = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        bytes[at..at + 4].copy_from_slice(&new.to_be_bytes());
        let high = update16(before, (old >> 16) as u16, (new >> 16) as u16);
        let after = update16(high, old as u16, new as u16);
        // Zero and all ones are the same number; either may result.
        let verified = Sum::of(&bytes).add_u16(after).fold();
        prop_assert!(verified == 0xffff || (verified == 0 && bytes.iter().all(|&byte| byte == 0)));
    }

    #[test]
    fn pseudo_headers_sum_like_their_bytes(
        v4 in any::<[[u8; 4]; 2]>(),
        v6 in any::<[[u8; 16]; 2]>(),
        protocol in any::<u8>(),
        len in any::<u16>(),
        long in any::<u32>(),
    ) {
        let bytes = [&v4.concat()[..], &[0, protocol], &len.to_be_bytes()].concat();
        prop_assert_eq!(pseudo_v4(v4[0].into(), v4[1].into(), protocol, len).fold(), naive(&bytes));
        let bytes = [&v6.concat()[..], &long.to_be_bytes(), &[0, 0, 0, protocol]].concat();
        prop_assert_eq!(pseudo_v6(v6[0].into(), v6[1].into(), protocol, long).fold(), naive(&bytes));
    }

    /// Objective: no bytes make a parser panic, and the offsets that a parser returns are within the bytes.
    #[test]
    fn parsers_take_any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        letters in prop::collection::vec(prop::sample::select(&b"09afAFg:+-"[..]), 0..20),
    ) {
        if let Ok(header) = ipv4::Header::parse(&bytes) {
            prop_assert!(header.header_len() <= bytes.len());
        }
        if let Ok(header) = tcp::Header::parse(&bytes) {
            prop_assert!(header.header_len() <= bytes.len());
        }
        if let Ok(upper) = ipv6::upper(&bytes) {
            prop_assert!(upper.offset <= bytes.len());
        }
        if let Ok((_, offset)) = ethernet::network(&bytes) {
            prop_assert!(offset <= bytes.len());
        }
        ipv4::has_source_route(&bytes);
        let is_arp = bytes.starts_with(&[0, 1, 8, 0, 6, 4]) && bytes.len() >= 28;
        prop_assert_eq!(arp::Packet::parse(&bytes).is_ok(), is_arp);
        prop_assert_eq!(udp::Header::parse(&bytes).is_ok(), bytes.len() >= 8);
        prop_assert_eq!(VnetHdr::parse(&bytes, VnetForm::Plain).is_ok(), bytes.len() >= 10);
        let text = String::from_utf8(letters).unwrap();
        if let Ok(addr) = text.parse::<MacAddr>() {
            prop_assert_eq!(addr.to_string().parse(), Ok(addr));
        }
    }

    /// Objective: frames that begin like IP, and thus pass the first checks, cause no panic and no returned offset is
    /// outside the frame.
    #[test]
    fn damaged_ip_frames_are_parsed_or_refused(
        v6 in any::<bool>(),
        tags in 0usize..4,
        first in prop_oneof![Just(0x45u8), Just(0x60), Just(0x4f), any::<u8>()],
        next in prop::sample::select(vec![0u8, 6, 17, 43, 44, 51, 60, 132, 135]),
        mut rest in prop::collection::vec(prop_oneof![any::<u8>(), 0u8..3, Just(60)], 0..200),
    ) {
        let mut bytes = vec![2; 12];
        (0..tags).for_each(|_| bytes.extend([0x81, 0, 0, 7]));
        bytes.extend(if v6 { ethernet::IPV6 } else { ethernet::IPV4 }.to_be_bytes());
        for (at, value) in [(0, first), (if v6 { 6 } else { 9 }, next)] {
            if let Some(byte) = rest.get_mut(at) {
                *byte = value;
            }
        }
        bytes.extend(&rest);
        if let Ok(Layers { l3, ip, .. }) = Layers::parse(&bytes) {
            prop_assert!(l3 <= bytes.len());
            prop_assert!(ip.is_none_or(|ip| l3 < ip.l4 && ip.l4 <= bytes.len()));
        }
        FlowKey::new([1, 2]).hash(&bytes);
        // The refresh either fails, or leaves a datagram with a checksum.
        let mut refreshed = bytes.clone();
        if build::refresh_udp_checksum(&mut refreshed).is_ok() {
            let l4 = Layers::parse(&refreshed).unwrap().ip.unwrap().l4;
            prop_assert_ne!(udp::Header::parse(&refreshed[l4..]).unwrap().checksum(), 0);
        }
    }

    /// Objective: both directions of any UDP flow have the same hash under any key.
    #[test]
    fn the_flow_hash_is_symmetric(
        key in any::<[u64; 2]>(),
        v6 in any::<[[u8; 16]; 2]>(),
        src_port in any::<u16>(),
        dst_port in any::<u16>(),
    ) {
        let src_mac = MacAddr([2; 6]);
        let dst_mac = MacAddr([4; 6]);
        let mut frame = [0; 80];
        let [src, dst] = v6.map(Into::into);
        let udp = build::Udp { src_mac, dst_mac, src, dst, src_port, dst_port, ttl: 64, payload: &[] };
        build::udp6(&mut frame, &udp).unwrap();
        let key = FlowKey::new(key);
        prop_assert_eq!(key.hash(&frame), key.hash(&reversed(&frame)));
        let [src, dst] = v6.map(|addr| [addr[0], addr[1], addr[2], addr[3]].into());
        let udp = build::Udp { src_mac, dst_mac, src, dst, src_port, dst_port, ttl: 64, payload: &[] };
        build::udp4(&mut frame, &udp).unwrap();
        prop_assert_eq!(key.hash(&frame), key.hash(&reversed(&frame)));
    }
}
