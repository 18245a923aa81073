//! A hash of a frame's flow, to spread flows over rings and pipes. The hash is the same for both directions.
//!
//! The hash covers the IP addresses and, of unfragmented TCP, UDP and SCTP, the ports. The hash of a fragment covers
//! only the addresses, so that all fragments of a packet take the same path. The hash of a frame that is not IP covers
//! its Ethernet addresses and EtherType.

use core::net::IpAddr;

use crate::layers::{IpLayer, Layers, SCTP, TCP, UDP};
use crate::{MacAddr, ethernet, field};

/// The key of the hash. With a random key, a sender cannot choose frames that all have the same hash; with a fixed key,
/// runs are repeatable.
#[derive(Clone, Copy)]
pub struct FlowKey {
    low: u64,
    high: u64,
}

/// Offsets of a [`PlainFlow`]'s words in a frame.
pub const WORDS: [usize; 5] = [0, 8, 16, 24, 30];

/// The bytes that all frames of a flow of plain IPv4 have in common, including both Ethernet addresses. Plain IPv4, the
/// usual kind, is unfragmented TCP, UDP or SCTP without VLAN tags or IP options. A decision that depends only on these
/// bytes holds for every frame of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainFlow([u64; 5]);

impl PlainFlow {
    /// Returns the flow of a frame with these bytes at [`WORDS`], in little-endian order; `None` if the frame is not
    /// plain IPv4.
    #[inline]
    #[must_use]
    pub fn of(words: [u64; 5]) -> Option<PlainFlow> {
        let plain = PlainFlow::masked(words);
        let protocol = (plain.0[2] >> 56) as u8;
        let is_plain = plain.0[1] & TYPE == IPV4_20 && plain.0[2] & FRAGMENT == 0;
        (is_plain && matches!(protocol, TCP | UDP | SCTP)).then_some(plain)
    }

    /// Whether a frame with these bytes at [`WORDS`] belongs to the flow.
    #[inline]
    #[must_use]
    pub fn has(&self, words: [u64; 5]) -> bool {
        // This form compiles without a branch for each word, and without a call.
        let other = PlainFlow::masked(words);
        self.0.iter().zip(other.0).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
    }

    /// Clears the bytes that may differ between frames of a flow: type of service, length, identification, flag "don't
    /// fragment", time to live, checksum.
    #[inline]
    fn masked([a, b, c, d, e]: [u64; 5]) -> PlainFlow {
        PlainFlow([a, b & !(0xff << 56), c & (FRAGMENT | 0xff << 56), d & !0xffff, e])
    }
}

/// Mask in the second word: EtherType, version and header length.
const TYPE: u64 = 0x00ff_ffff << 32;
/// Values of the fields under [`TYPE`] in IPv4 packets without options.
const IPV4_20: u64 = 0x0045_0008 << 32;
/// Mask in the third word: flag "more fragments" and fragment offset.
const FRAGMENT: u64 = 0xff3f << 32;

/// One end of a flow: its address, and its port, or zero if the protocol has no ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FlowEnd {
    high: u64,
    low: u64,
    port: u16,
}

impl FlowKey {
    /// Creates a key of 128 bits.
    pub const fn new(key: [u64; 2]) -> Self {
        Self { low: key[0], high: key[1] }
    }

    /// Returns the hash of a frame's flow, in bounded time; zero for a frame that is too short for an Ethernet header.
    /// `frame` is the whole frame, or at least its bytes up to and including the ports.
    #[inline]
    pub fn hash(&self, frame: &[u8]) -> u32 {
        match Layers::parse(frame) {
            Ok(Layers { ip: Some(ip), .. }) => self.hash_ip(&ip, frame),
            Ok(Layers { ethertype, .. }) => self.hash_ethernet(frame, ethertype),
            // The IP header is malformed, but the Ethernet header may be complete.
            Err(_) => self.hash_ethernet(frame, 0),
        }
    }

    /// Returns the hash of an IP packet's flow; `None` for other frames.
    #[inline]
    pub fn hash_of_packet(&self, frame: &[u8]) -> Option<u32> {
        Layers::parse(frame).ok()?.ip.map(|ip| self.hash_ip(&ip, frame))
    }

    /// Returns the hash of a plain flow, which equals [`FlowKey::hash`] of the flow's frames if their headers are
    /// complete.
    #[inline]
    #[must_use]
    pub fn hash_plain(&self, &PlainFlow([_, _, c, d, e]): &PlainFlow) -> u32 {
        let end = |addr: u32, port: u16| FlowEnd { high: 0, low: addr.swap_bytes().into(), port: port.swap_bytes() };
        let from = end((d >> 16) as u32, (e >> 32) as u16);
        let to = end(e as u32, (e >> 48) as u16);
        self.hash_ends(from, to, (c >> 56) as u16)
    }

    #[inline]
    fn hash_ip(&self, ip: &IpLayer, frame: &[u8]) -> u32 {
        if ip.fragment {
            return self.hash_ends(FlowEnd::ip(ip.src, 0), FlowEnd::ip(ip.dst, 0), 0);
        }
        let (from, to) = ports(ip, frame);
        self.hash_ends(FlowEnd::ip(ip.src, from), FlowEnd::ip(ip.dst, to), ip.protocol.into())
    }

    fn hash_ethernet(&self, frame: &[u8], ethertype: u16) -> u32 {
        let Ok(header) = ethernet::Header::parse(frame) else {
            return 0;
        };
        self.hash_ends(FlowEnd::mac(header.src()), FlowEnd::mac(header.dst()), ethertype)
    }

    /// Returns the hash of a flow with these two ends. The ends are sorted, so that both directions have the same hash.
    #[inline]
    fn hash_ends(&self, one: FlowEnd, other: FlowEnd, protocol: u16) -> u32 {
        let (first, second) = if one <= other { (one, other) } else { (other, one) };
        let tail = u64::from(first.port) << 32 | u64::from(second.port) << 16 | u64::from(protocol);
        let mut state = mix(first.low ^ self.low, second.low ^ self.high);
        if (first.high, second.high) != (0, 0) {
            state ^= mix(first.high ^ self.high, second.high ^ self.low.rotate_left(32));
        }
        // One product is not enough: if a factor happens to be small or even, each half of the product depends on few
        // bits of a port.
        (mix(mix(state ^ self.low, tail ^ self.high), ODD) >> 32) as u32
    }
}

/// The bits of the golden ratio: an odd factor, which loses no information, with half of its bits set.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

impl core::fmt::Debug for FlowKey {
    /// Does not print the key, which senders must not learn.
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str("FlowKey(..)")
    }
}

impl FlowEnd {
    #[inline]
    fn ip(addr: IpAddr, port: u16) -> Self {
        match addr {
            IpAddr::V4(addr) => Self { high: 0, low: addr.to_bits().into(), port },
            IpAddr::V6(addr) => {
                let bits = addr.to_bits();
                Self { high: (bits >> 64) as u64, low: bits as u64, port }
            }
        }
    }

    #[inline]
    fn mac(addr: MacAddr) -> Self {
        Self { high: 0, low: addr.to_u64(), port: 0 }
    }
}

/// Returns the source and destination port, or zeros if the protocol has no ports.
#[inline]
fn ports(ip: &IpLayer, frame: &[u8]) -> (u16, u16) {
    if !matches!(ip.protocol, TCP | UDP | SCTP) {
        return (0, 0);
    }
    // The headers of all three protocols begin with the two ports.
    match frame.get(ip.l4..).and_then(<[u8]>::first_chunk::<4>) {
        Some(ports) => (field::get16(ports, 0), field::get16(ports, 2)),
        None => (0, 0),
    }
}

/// Multiplies, and combines the two halves of the product, so that each bit of the result depends on all bits of both
/// factors.
#[inline]
fn mix(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

/// Maps a hash evenly to one of `n` rings: 0 to `n - 1`, or 0 if `n` is zero.
#[inline]
pub fn spread(hash: u32, n: u32) -> u32 {
    ((u64::from(hash) * u64::from(n)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use std::vec::Vec;

    const KEY: FlowKey = FlowKey::new([0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03]);

    fn udp4(src: [u8; 4], dst: [u8; 4], from: u16, to: u16) -> Vec<u8> {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4(src, dst, 64)
            .udp(from, to)
            .write(&mut frame, b"payload")
            .unwrap();
        frame
    }

    #[test]
    fn both_directions_hash_alike() {
        let there = udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 53);
        let back = udp4([10, 0, 0, 2], [10, 0, 0, 1], 53, 1000);
        assert_eq!(KEY.hash(&there), KEY.hash(&back));
        let crossed = udp4([10, 0, 0, 1], [10, 0, 0, 2], 53, 1000);
        assert_ne!(KEY.hash(&there), KEY.hash(&crossed), "ports belong to their addresses");
    }

    /// Objective: words identify a flow of plain IPv4 as its headers do, whatever other fields differ between its
    /// frames; other frames are not plain.
    #[test]
    fn words_identify_a_plain_flow_as_headers_do() {
        let words = |frame: &[u8]| WORDS.map(|at| u64::from_le_bytes(*frame[at..].first_chunk().unwrap()));
        let frame = udp4([10, 200, 0, 1], [192, 168, 255, 2], 1000, 53);
        let flow = PlainFlow::of(words(&frame)).unwrap();
        assert_eq!(KEY.hash_plain(&flow), KEY.hash(&frame));
        let changed = |at: usize, to: u8| {
            let mut frame = frame.clone();
            frame[at] = to;
            frame
        };
        for at in (0..14).chain(26..38) {
            let other = changed(at, frame[at] ^ 1);
            assert!(!flow.has(words(&other)), "byte {at}");
            assert_eq!(PlainFlow::of(words(&other)).is_some(), at != 12 && at != 13);
        }
        for at in [15, 16, 17, 18, 19, 22, 24, 25] {
            assert!(flow.has(words(&changed(at, 0x5a))), "byte {at}");
        }
        assert!(flow.has(words(&changed(20, 0x40))), "may not be fragmented");
        for (at, to) in [(14, 0x46), (14, 0x65), (20, 0x20), (20, 1), (21, 1), (23, 1), (12, 0x81)] {
            assert_eq!(PlainFlow::of(words(&changed(at, to))), None, "byte {at}");
        }
        for protocol in [TCP, SCTP] {
            let other = changed(23, protocol);
            assert_eq!(KEY.hash_plain(&PlainFlow::of(words(&other)).unwrap()), KEY.hash(&other));
        }
    }

    #[test]
    fn the_key_matters_and_is_not_shown() {
        let frame = udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 53);
        assert_ne!(KEY.hash(&frame), FlowKey::new([1, 2]).hash(&frame));
        assert_eq!(std::format!("{KEY:?}"), "FlowKey(..)");
    }

    /// Objective: all fragments that are sent between two addresses have the same hash, whatever their ports.
    #[test]
    fn fragments_hash_on_addresses_only() {
        let fragment = |from, field| {
            let mut frame = udp4([10, 0, 0, 1], [10, 0, 0, 2], from, 53);
            crate::ipv4::Header::parse_mut(&mut frame[14..]).unwrap().set_fragment(field);
            KEY.hash(&frame)
        };
        assert_eq!(fragment(1000, 0x2000), fragment(2000, 100));
        assert_ne!(fragment(1000, 0x4000), fragment(2000, 0x4000));
    }

    #[test]
    fn other_protocols_hash_on_ethernet_addresses() {
        let arp = |dst: u8, src: u8| {
            let mut frame = [0; 42];
            frame[..12].copy_from_slice(&[[dst; 6], [src; 6]].concat());
            frame[12..14].copy_from_slice(&ethernet::ARP.to_be_bytes());
            KEY.hash(&frame)
        };
        assert_eq!(arp(2, 4), arp(4, 2));
        assert_ne!(arp(2, 4), arp(2, 6));
        assert_eq!(KEY.hash(&[0; 13]), 0);
    }

    /// Objective: flows that differ only in a port, or only in an address, are spread evenly over eight rings: each
    /// ring gets at least half and at most twice an eighth of the flows.
    #[test]
    #[cfg_attr(miri, ignore = "statistics of thousands of frames, and no memory to watch")]
    fn neighbouring_flows_spread_evenly() {
        const FLOWS: u16 = 2048;
        let port = |n: u16| udp4([10, 0, 0, 1], [10, 0, 0, 2], n, 53);
        let addr = |n: u16| udp4([10, 1, (n >> 8) as u8, n as u8], [10, 0, 0, 2], 1000, 53);
        for flow in [&port as &dyn Fn(u16) -> Vec<u8>, &addr] {
            let mut rings = [0; 8];
            for n in 0..FLOWS {
                rings[spread(KEY.hash(&flow(n)), 8) as usize] += 1;
            }
            let share = FLOWS / 8;
            assert!(rings.iter().all(|&n| n > share / 2 && n < share * 2), "{rings:?}");
        }
    }

    /// Objective: the flows of a sender with consecutive ports reach each ring, under thousands of keys, whether hashes
    /// are mapped to rings by remainder or by [`spread`].
    #[test]
    #[cfg_attr(miri, ignore = "statistics of thousands of frames, and no memory to watch")]
    fn consecutive_ports_reach_each_ring_under_any_key() {
        let frames: Vec<_> = (0..64).map(|port| udp4([10, 0, 0, 1], [10, 0, 0, 2], port, 7)).collect();
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            mix(state, ODD)
        };
        for _ in 0..5000 {
            let key = FlowKey::new([next(), next()]);
            let mut by_remainder = [0; 4];
            let mut by_share = [0; 4];
            for hash in frames.iter().map(|frame| key.hash(frame)) {
                by_remainder[hash as usize % 4] += 1;
                by_share[spread(hash, 4) as usize] += 1;
            }
            for rings in [by_remainder, by_share] {
                assert!(rings.iter().all(|&n| (1..40).contains(&n)), "{rings:?} with {:x} {:x}", key.low, key.high);
            }
        }
    }

    #[test]
    fn spread_covers_its_range() {
        assert_eq!((spread(0, 3), spread(u32::MAX, 3), spread(u32::MAX, 0)), (0, 2, 0));
    }
}
