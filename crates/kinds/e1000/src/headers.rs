//! Preparation of a packet's headers before it is sent: changes that descriptors request are made on a copy, or
//! described as an offload for the switch (§3.5, §3.6).

use std::net::{Ipv4Addr, Ipv6Addr};

use netvale_wire::checksum::{Sum as WireSum, pseudo_v4, pseudo_v6};
use netvale_wire::offload::{Gso, MAX_HEADERS, Offload};
use netvale_wire::vnet::{F_NEEDS_CSUM, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, VnetHdr};

use crate::tx::{ChecksumRequest, TxContext, TxOffload};

/// Length of a VLAN tag in bytes.
const TAG: usize = 4;
/// Offset of a VLAN tag in bytes, after the two addresses.
const BEFORE_TAG: usize = 12;
/// Maximum length in bytes of headers with a tag.
pub const ROOM: usize = MAX_HEADERS + TAG;

/// The prepared headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparedHeaders {
    /// Number of bytes of the copy that replace the packet's first bytes; zero if unchanged.
    pub head: usize,
    /// Number of the packet's first bytes that are replaced.
    pub skip: usize,
    /// The offload left to the switch.
    pub offload: Offload,
}

/// Error: an offload request does not fit its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImpossibleRequest;

/// Prepares a packet of `len` bytes. `head` contains the packet's first `have` bytes: all bytes, or [`MAX_HEADERS`]
/// bytes.
///
/// # Errors
/// [`ImpossibleRequest`] if segmentation is requested for a packet without the headers that its context describes.
pub fn prepare(
    offload: &TxOffload,
    vlan_type: u16,
    head: &mut [u8; ROOM],
    have: usize,
    len: usize,
) -> Result<PreparedHeaders, ImpossibleRequest> {
    let have = have.min(MAX_HEADERS);
    let mut done = PreparedHeaders { head: 0, skip: 0, offload: Offload::None };
    if let Some(context) = &offload.segments {
        let gso = segments(context, head.get_mut(..have).unwrap_or_default(), len).ok_or(ImpossibleRequest)?;
        done.skip = usize::from(gso.hdr_len);
        done.offload = Offload::Gso(gso);
    } else {
        if let Some(sum) = &offload.ip {
            done.skip = ip_checksum(sum, head.get_mut(..have).unwrap_or_default());
        }
        done.offload = offload.transport.map_or(Offload::None, |sum| left(&sum, len));
    }
    if let Some(tag) = offload.vlan.filter(|_| have >= BEFORE_TAG) {
        done.skip = done.skip.max(BEFORE_TAG);
        insert_tag(head, done.skip, [vlan_type, tag]);
        done.offload = behind_tag(done.offload);
        done.head = TAG;
    }
    done.head += done.skip;
    Ok(done)
}

/// Returns the transport checksum as an offload for the switch; no offload if it would be computed from the Ethernet
/// header, or stored outside the packet, where the controller does not write.
fn left(sum: &ChecksumRequest, len: usize) -> Offload {
    let start = u16::from(sum.start);
    let at = u16::from(sum.at);
    if start < 14 || at < start || usize::from(at) + 2 > len {
        return Offload::None;
    }
    Offload::CsumPartial { start, offset: at - start }
}

/// Stores the checksum of an IP header in `head`. Returns the end of the changed bytes.
fn ip_checksum(sum: &ChecksumRequest, head: &mut [u8]) -> usize {
    let (from, to, at) = (usize::from(sum.start), usize::from(sum.end) + 1, usize::from(sum.at));
    let Some(checksum) = head.get(from..to).map(|bytes| WireSum::of(bytes).checksum()) else { return 0 };
    let Some(place) = head.get_mut(at..at + 2) else { return 0 };
    place.copy_from_slice(&checksum.to_be_bytes());
    at + 2
}

/// Stores the IP length and the pseudo header's sum for a packet of `len` bytes, which drivers leave to the controller
/// (§3.5.4). Returns the segmentation as an offload; `None` if the packet lacks the headers that `context` describes.
fn segments(context: &TxContext, head: &mut [u8], len: usize) -> Option<Gso> {
    let l3 = usize::from(context.ip.start);
    let l4 = usize::from(context.transport.start);
    let ip_header = if context.is_v4 { 20 } else { 40 };
    if l4 < l3 + ip_header || head.len() < l4 + 8 || len <= l4 {
        return None;
    }
    // The length field of IPv6 does not include the header.
    let (at, length) = if context.is_v4 { (l3 + 2, len - l3) } else { (l3 + 4, len - l3 - 40) };
    head.get_mut(at..at + 2)?.copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
    if context.is_v4 {
        head.get_mut(l3 + 10..l3 + 12)?.fill(0);
        let checksum = WireSum::of(head.get(l3..l4)?).checksum();
        head.get_mut(l3 + 10..l3 + 12)?.copy_from_slice(&checksum.to_be_bytes());
    }
    let pseudo = pseudo(context, head, l3, len - l4)?;
    let check = usize::from(context.transport.at);
    head.get_mut(check..check + 2)?.copy_from_slice(&pseudo.to_be_bytes());
    let asked = VnetHdr {
        flags: F_NEEDS_CSUM,
        gso_type: match (context.is_tcp, context.is_v4) {
            (true, true) => GSO_TCPV4,
            (true, false) => GSO_TCPV6,
            (false, _) => GSO_UDP_L4,
        },
        gso_size: context.segment,
        csum_start: context.transport.start.into(),
        csum_offset: u16::from(context.transport.at).checked_sub(context.transport.start.into())?,
        ..VnetHdr::default()
    };
    match asked.check(len, head) {
        Ok(Offload::Gso(gso)) => Some(gso),
        _ => None,
    }
}

/// The pseudo header's sum for `len` bytes after the IP header at offset `l3`; `None` if `head` lacks the addresses, or
/// `len` is too large.
fn pseudo(context: &TxContext, head: &[u8], l3: usize, len: usize) -> Option<u16> {
    let protocol = if context.is_tcp { 6 } else { 17 };
    let sum = if context.is_v4 {
        let of = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(head.get(at..at + 4)?).ok()?));
        pseudo_v4(of(l3 + 12)?, of(l3 + 16)?, protocol, u16::try_from(len).ok()?)
    } else {
        let of = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(head.get(at..at + 16)?).ok()?));
        pseudo_v6(of(l3 + 8)?, of(l3 + 24)?, protocol, u32::try_from(len).ok()?)
    };
    Some(sum.fold())
}

/// Inserts a tag after the addresses, and moves the following bytes, up to offset `end`, to make room for it.
fn insert_tag(head: &mut [u8; ROOM], end: usize, [kind, tag]: [u16; 2]) {
    head.copy_within(BEFORE_TAG..end.min(ROOM - TAG), BEFORE_TAG + TAG);
    head[BEFORE_TAG..BEFORE_TAG + 2].copy_from_slice(&kind.to_be_bytes());
    head[BEFORE_TAG + 2..BEFORE_TAG + TAG].copy_from_slice(&tag.to_be_bytes());
}

/// Adjusts an offload's offsets for an inserted tag.
fn behind_tag(offload: Offload) -> Offload {
    let tag = TAG as u16;
    match offload {
        Offload::None => Offload::None,
        Offload::CsumPartial { start, offset } => Offload::CsumPartial { start: start + tag, offset },
        Offload::Gso(gso) => Offload::Gso(Gso { hdr_len: gso.hdr_len + tag, csum_start: gso.csum_start + tag, ..gso }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netvale_wire::offload::GsoKind;

    const TCP4: TxContext = TxContext {
        ip: ChecksumRequest { start: 14, at: 24, end: 33 },
        transport: ChecksumRequest { start: 34, at: 50, end: 0 },
        payload: 3000,
        headers: 54,
        segment: 1000,
        is_tcp: true,
        is_v4: true,
    };

    /// Ethernet, IPv4 and TCP headers as a driver leaves them for segmentation: without length and checksums.
    fn tcp4() -> [u8; ROOM] {
        let mut head = [0; ROOM];
        head[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0]);
        head[14..34].copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        head[34..54].copy_from_slice(&[0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0xde, 0xad, 0, 0]);
        head
    }

    fn offload(segments: Option<TxContext>) -> TxOffload {
        TxOffload { segments, ..TxOffload::default() }
    }

    /// Objective: a packet for segmentation gets its length, IP checksum, pseudo header's sum and offload, regardless
    /// of what the driver left in these fields.
    #[test]
    fn a_packet_for_segmentation_gets_its_headers_and_offload() {
        let mut head = tcp4();
        let done = prepare(&offload(Some(TCP4)), 0x8100, &mut head, MAX_HEADERS, 3054).unwrap();
        assert_eq!((done.head, done.skip), (54, 54));
        let Offload::Gso(gso) = done.offload else { panic!("{done:?}") };
        assert_eq!((gso.kind, gso.gso_size, gso.hdr_len, gso.csum_start), (GsoKind::Tcp4, 1000, 54, 34));
        assert_eq!(head[16..18], 3040u16.to_be_bytes());
        assert_eq!(WireSum::of(&head[14..34]).checksum(), 0, "the IP header's checksum must be correct");
        let pseudo = pseudo_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6, 3020).fold();
        assert_eq!(head[50..52], pseudo.to_be_bytes());
    }

    /// Objective: contexts that do not fit the packet are refused and have no effect.
    #[test]
    fn absurd_contexts_are_refused() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut noise = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut good = 0;
        for _ in 0..100_000 {
            let a = noise();
            let b = noise();
            let byte = |shift: u32| (a >> shift) as u8 & if b & 1 == 0 { 0x3f } else { 0xff };
            let sum = |at: u32| ChecksumRequest { start: byte(at), at: byte(at + 8), end: (a >> 48) as u16 & 0x1ff };
            let context = TxContext { ip: sum(0), transport: sum(16), segment: b as u16, is_tcp: b & 2 != 0, ..TCP4 };
            let all = TxOffload {
                ip: (b & 4 != 0).then_some(context.ip),
                transport: (b & 8 != 0).then_some(context.transport),
                segments: (b & 16 != 0).then_some(context),
                vlan: (b & 32 != 0).then_some(7),
            };
            let len = (b >> 40) as usize % 2000;
            let Ok(done) = prepare(&all, 0x8100, &mut tcp4(), len, len) else { continue };
            good += 1;
            assert!(done.skip <= len.min(MAX_HEADERS) && done.head <= ROOM && done.head >= done.skip);
            let sent = len - done.skip + done.head;
            match done.offload {
                Offload::None => {}
                Offload::CsumPartial { start, offset } => assert!(usize::from(start + offset) + 2 <= sent),
                Offload::Gso(gso) => assert!(usize::from(gso.hdr_len) < sent),
            }
        }
        assert!(good > 10_000);
    }

    /// Objective: the IP header's checksum is stored, and the transport checksum is left as an offload; a checksum
    /// outside the packet is ignored.
    #[test]
    fn only_the_ip_checksum_is_stored() {
        let mut head = tcp4();
        let both = TxOffload { ip: Some(TCP4.ip), transport: Some(TCP4.transport), ..TxOffload::default() };
        let done = prepare(&both, 0x8100, &mut head, 60, 60).unwrap();
        assert_eq!((done.head, done.skip), (26, 26));
        assert_eq!(done.offload, Offload::CsumPartial { start: 34, offset: 16 });
        assert_eq!(WireSum::of(&head[14..34]).checksum(), 0);
        let none = PreparedHeaders { head: 0, skip: 0, offload: Offload::None };
        assert_eq!(prepare(&both, 0x8100, &mut tcp4(), 20, 20), Ok(none));
        assert_eq!(prepare(&TxOffload::default(), 0x8100, &mut tcp4(), 60, 60), Ok(none));
    }

    /// Objective: a tag is inserted after the addresses, and the offload's offsets are adjusted.
    #[test]
    fn a_tag_moves_the_offsets_of_the_offload() {
        let mut head = tcp4();
        let tagged = TxOffload { transport: Some(TCP4.transport), vlan: Some(0x2064), ..TxOffload::default() };
        let done = prepare(&tagged, 0x88a8, &mut head, 60, 60).unwrap();
        assert_eq!((done.head, done.skip), (16, 12));
        assert_eq!(head[..16], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xa8, 0x20, 0x64]);
        assert_eq!(done.offload, Offload::CsumPartial { start: 38, offset: 16 });
        let mut head = tcp4();
        let mut plain = tcp4();
        let cut = TxOffload { vlan: Some(5), ..offload(Some(TCP4)) };
        let done = prepare(&cut, 0x8100, &mut head, MAX_HEADERS, 3054).unwrap();
        prepare(&offload(Some(TCP4)), 0x8100, &mut plain, MAX_HEADERS, 3054).unwrap();
        assert_eq!((done.head, done.skip), (58, 54));
        assert_eq!((&head[..12], &head[16..58]), (&plain[..12], &plain[12..54]));
        assert!(matches!(done.offload, Offload::Gso(gso) if gso.hdr_len == 58 && gso.csum_start == 38));
    }
}
