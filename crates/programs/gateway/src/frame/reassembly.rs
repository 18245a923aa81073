//! Reassembly of IP fragments (RFC 791 §3.2, RFC 8200 §4.5) into a [`WholePacket`], in bounded memory.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::{GuestPacket, IpFragment};
use crate::guests::{GuestId, NetworkId};

/// Maximum number of incomplete packets, of all guests together.
const MAX_PACKETS: usize = 64;
/// Maximum number of incomplete packets of one guest.
const MAX_OF_A_GUEST: usize = 16;
/// Maximum number of fragments per packet, which is enough for 64 KiB with an MTU of 1,280 bytes.
const MAX_PIECES: usize = 64;
/// Time for which an incomplete packet is kept after its first fragment has arrived.
const LIMIT: Duration = Duration::from_secs(15);
/// Maximum length of a packet's payload in bytes.
const MAX_PAYLOAD: usize = 65_535;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct PacketKey {
    who: GuestId,
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    ident: u32,
}

/// A packet of which some fragments are missing.
#[derive(Debug)]
struct PartialPacket {
    began: Instant,
    bytes: Vec<u8>,
    /// Byte ranges of the received fragments, in order and without overlap.
    pieces: Vec<std::ops::Range<usize>>,
    /// Length of the whole payload; `None` until the packet's last fragment is received, which determines the length.
    len: Option<usize>,
    /// The first fragment from its IP header on, for ICMP errors.
    first: Vec<u8>,
}

/// A packet that was reassembled from its fragments.
#[derive(Debug)]
pub struct WholePacket<'a> {
    /// The fragment that has completed the packet.
    last: GuestPacket<'a>,
    l4: Vec<u8>,
    first: Vec<u8>,
}

impl WholePacket<'_> {
    /// Returns the packet; `None` if its transport checksum is wrong.
    pub fn packet(&self) -> Option<GuestPacket<'_>> {
        let packet = GuestPacket { l4: &self.l4, packet: &self.first, dont_fragment: false, ..self.last };
        packet.is_intact().then_some(packet)
    }
}

/// The incomplete packets.
#[derive(Debug, Default)]
pub struct Reassembly {
    packets: HashMap<PacketKey, PartialPacket>,
}

impl Reassembly {
    /// Adds a fragment. Returns the packet if this fragment completes it, otherwise `None`.
    pub fn add<'a>(&mut self, piece: &IpFragment<'a>, now: Instant) -> Option<WholePacket<'a>> {
        let GuestPacket { who, src, dst, protocol, l4, .. } = piece.part;
        let end = piece.offset + l4.len();
        let cut = piece.more && !l4.len().is_multiple_of(8);
        if l4.is_empty() || end > MAX_PAYLOAD || cut {
            return None;
        }
        let key = PacketKey { who, src, dst, protocol, ident: piece.ident };
        self.make_room(&key, now);
        let partial = self.packets.entry(key).or_insert_with(|| PartialPacket::new(now));
        match partial.add(piece, end) {
            AddedPiece::Waits => None,
            AddedPiece::Bad => {
                self.packets.remove(&key);
                None
            }
            AddedPiece::Last => self.packets.remove(&key).map(|done| done.whole(piece)),
        }
    }

    /// Drops the incomplete packets of a network.
    pub fn forget(&mut self, network: NetworkId) {
        self.packets.retain(|key, _| key.who.network != network);
    }

    /// Makes room for a new packet: drops incomplete packets that are too old and then, if a limit is still reached,
    /// the guest's oldest incomplete packet or, if the guest has none, the oldest of all guests.
    fn make_room(&mut self, key: &PacketKey, now: Instant) {
        if self.packets.contains_key(key) {
            return;
        }
        self.packets.retain(|_, partial| now.saturating_duration_since(partial.began) < LIMIT);
        let of_guest = self.packets.keys().filter(|other| other.who.share() == key.who.share()).count();
        let full = self.packets.len() >= MAX_PACKETS;
        if of_guest >= MAX_OF_A_GUEST || full {
            let candidates =
                self.packets.iter().filter(|(other, _)| of_guest == 0 || other.who.share() == key.who.share());
            if let Some(oldest) = candidates.min_by_key(|(_, partial)| partial.began).map(|(key, _)| *key) {
                self.packets.remove(&oldest);
            }
        }
    }
}

enum AddedPiece {
    Waits,
    Last,
    Bad,
}

impl PartialPacket {
    fn new(began: Instant) -> Self {
        PartialPacket { began, bytes: Vec::new(), pieces: Vec::new(), len: None, first: Vec::new() }
    }

    fn add(&mut self, piece: &IpFragment<'_>, end: usize) -> AddedPiece {
        let range = piece.offset..end;
        if self.pieces.contains(&range) {
            return AddedPiece::Waits;
        }
        // Overlapping fragments indicate an attack, so the packet is dropped (RFC 5722 §3).
        let overlaps = self.pieces.iter().any(|other| range.start < other.end && other.start < range.end);
        let beyond = self.len.is_some_and(|len| end > len || !piece.more);
        let behind = !piece.more && self.pieces.last().is_some_and(|last| last.end > end);
        if overlaps || beyond || behind || self.pieces.len() >= MAX_PIECES {
            return AddedPiece::Bad;
        }
        if !piece.more {
            self.len = Some(end);
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[range.clone()].copy_from_slice(piece.part.l4);
        if piece.offset == 0 {
            self.first = piece.part.packet.to_vec();
        }
        let at = self.pieces.partition_point(|other| other.start < range.start);
        self.pieces.insert(at, range);
        if self.is_complete() { AddedPiece::Last } else { AddedPiece::Waits }
    }

    fn is_complete(&self) -> bool {
        let mut end = 0;
        let joined = self.pieces.iter().all(|piece| piece.start == std::mem::replace(&mut end, piece.end));
        joined && self.len == Some(end)
    }

    fn whole<'a>(self, last: &IpFragment<'a>) -> WholePacket<'a> {
        WholePacket { last: last.part, l4: self.bytes, first: self.first }
    }
}

#[cfg(test)]
mod tests {
    use netvale_wire::MacAddr;

    use super::*;

    fn guest(mac: [u8; 6]) -> GuestId {
        NetworkId::UNTAGGED.station(MacAddr(mac))
    }

    fn piece(offset: usize, more: bool, payload: &[u8]) -> IpFragment<'_> {
        let part = GuestPacket {
            who: guest([2, 0, 0, 0, 0, 9]),
            to: MacAddr([2, 0, 0, 0, 0, 1]),
            src: [10, 0, 0, 9].into(),
            dst: [192, 0, 2, 1].into(),
            // An unknown protocol, whose checksum is not verified.
            protocol: 200,
            ttl: 64,
            l4: payload,
            packet: payload,
            dont_fragment: true,
            segment: 0,
        };
        IpFragment { part, ident: 7, offset, more }
    }

    fn put_together(pieces: &[IpFragment<'_>]) -> Option<Vec<u8>> {
        let mut reassembly = Reassembly::default();
        let now = Instant::now();
        let whole = pieces.iter().filter_map(|piece| reassembly.add(piece, now)).last()?;
        whole.packet().map(|packet| packet.l4.to_vec())
    }

    #[test]
    fn pieces_in_any_order_make_the_packet() {
        let [a, b, c] = [piece(0, true, b"01234567"), piece(8, true, b"89abcdef"), piece(16, false, b"gh")];
        for order in [[a, b, c], [c, b, a], [b, a, c], [c, a, b]] {
            assert_eq!(put_together(&order).as_deref(), Some(&b"0123456789abcdefgh"[..]));
        }
        assert_eq!(put_together(&[a, a, b, c]).as_deref(), Some(&b"0123456789abcdefgh"[..]), "a copy of a piece");
    }

    #[test]
    fn overlaps_gaps_and_odd_lengths_make_nothing() {
        let first = piece(0, true, b"01234567");
        for bad in [
            vec![first, piece(8, true, b"odd"), piece(16, false, b"x")],
            vec![first, piece(16, false, b"x")],
            vec![first, piece(0, true, b"0123456789abcdef"), piece(16, false, b"x")],
            vec![piece(8, false, b"x"), piece(16, true, b"89abcdef"), first],
            vec![piece(8, false, b"x"), piece(16, false, b"y"), first],
            vec![first, piece(8, false, b"")],
            vec![piece(65_528, false, b"01234567")],
        ] {
            assert_eq!(put_together(&bad), None, "{bad:?}");
        }
    }

    /// Objective: fragments of packets that are never completed take bounded memory, and do not prevent the reassembly
    /// of other packets.
    #[test]
    fn a_flood_of_first_pieces_is_bounded() {
        let mut reassembly = Reassembly::default();
        let now = Instant::now();
        for number in 0..40u8 {
            for ident in 0..100 {
                let mut piece = piece(0, true, b"01234567");
                piece.part.who = guest([2, 0, 0, 0, 1, number]);
                reassembly.add(&IpFragment { ident, ..piece }, now);
            }
        }
        assert!(reassembly.packets.len() <= MAX_PACKETS);
        assert!(reassembly.add(&piece(0, true, b"01234567"), now).is_none());
        assert!(reassembly.add(&piece(8, false, b"8"), now).is_some());
        reassembly.add(&piece(0, true, b"01234567"), now + LIMIT);
        assert_eq!(reassembly.packets.len(), 1, "the others are too old");
    }
}
