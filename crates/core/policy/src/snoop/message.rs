//! Messages of IGMP, MLD and PIM.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netvale_wire::layers::Ip;
use netvale_wire::{Layers, Malformed, Sum, checksum, ethernet, ipv4, ipv6};

use super::address::Family;

/// IP protocol numbers.
pub(super) const IGMP: u8 = 2;
pub(super) const ICMPV6: u8 = 58;
const PIM: u8 = 103;
/// The IPv6 hop-by-hop header, present in all of MLD for its router alert.
const HOP_BY_HOP: u8 = 0;

/// Types of IGMP (RFC 1112, RFC 2236, RFC 3376 §4) and of multicast router discovery (RFC 4286 §3.1).
mod igmp {
    pub const QUERY: u8 = 0x11;
    pub const REPORT_V1: u8 = 0x12;
    pub const REPORT_V2: u8 = 0x16;
    pub const LEAVE: u8 = 0x17;
    pub const REPORT_V3: u8 = 0x22;
    pub const ROUTER: u8 = 0x30;
}

/// The same of ICMPv6 (RFC 2710 §3, RFC 3810 §5.2, RFC 4286 §3.1).
mod mld {
    pub const QUERY: u8 = 130;
    pub const REPORT_V1: u8 = 131;
    pub const DONE: u8 = 132;
    pub const REPORT_V2: u8 = 143;
    pub const ROUTER: u8 = 151;
}

/// Version 2, type "hello" (RFC 7761 §4.9).
const PIM_HELLO: u8 = 0x20;
/// "Do not lower timers", among the flags of a query (RFC 3376 §4.1.5).
const SUPPRESS: u8 = 8;
/// The response time of an IGMPv1 query, which has no such field (RFC 2236 §4).
const V1_RESPONSE_NS: u64 = 10_000_000_000;

/// Whether the frame that starts with `head` may be a message for [`super::Snoop::observe`]: IGMP, MLD or a hello of
/// PIM, to a group. A cheap test for each frame: it reads at most the first 86 bytes and has false positives.
#[inline]
pub fn is_control(head: &[u8]) -> bool {
    // A message to one host tells the switch nothing.
    if head.first().is_none_or(|byte| byte & 1 == 0) {
        return false;
    }
    let Ok((ethertype, l3)) = ethernet::network(head) else {
        return false;
    };
    let packet = head.get(l3..).unwrap_or_default();
    match ethertype {
        ethernet::IPV4 => packet.get(9).is_some_and(|&protocol| protocol == IGMP || protocol == PIM),
        ethernet::IPV6 => is_control_v6(packet),
        _ => false,
    }
}

fn is_control_v6(packet: &[u8]) -> bool {
    match packet.get(6) {
        Some(&PIM) => true,
        Some(&HOP_BY_HOP) => packet.get(ipv6::HEADER_LEN) == Some(&ICMPV6),
        _ => false,
    }
}

/// A message.
pub(super) enum Control<'a> {
    Query(HeardQuery),
    Report(Report<'a>),
    /// A router's hello.
    Hello(Family),
    Other,
}

/// A query.
pub(super) struct HeardQuery {
    pub source: IpAddr,
    /// The queried group, or all.
    pub group: Option<IpAddr>,
    pub max_response_ns: u64,
    /// Whether members expire without an answer.
    pub lowers_timers: bool,
}

/// A host's message about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Join(IpAddr),
    Leave(IpAddr),
    /// It wants fewer sources, perhaps none.
    Ask(IpAddr),
}

/// A host's report, group by group.
pub(super) enum Report<'a> {
    One(Option<Change>),
    Records(Records<'a>),
}

impl Iterator for Report<'_> {
    type Item = Change;

    fn next(&mut self) -> Option<Change> {
        match self {
            Self::One(change) => change.take(),
            Self::Records(records) => records.by_ref().find_map(|record| record.change()),
        }
    }
}

/// Reads the frame. A message that is truncated, has a wrong checksum or an impossible value is malformed.
pub(super) fn parse(frame: &[u8]) -> Result<Control<'_>, Malformed> {
    let layers = Layers::parse(frame)?;
    let Some(ip) = layers.ip else {
        return Ok(Control::Other);
    };
    if !matches!(ip.protocol, IGMP | ICMPV6 | PIM) {
        return Ok(Control::Other);
    }
    let end = layers.l3 + packet_len(frame.get(layers.l3..).unwrap_or_default(), ip.src)?;
    let message = frame.get(ip.l4..end).ok_or(Malformed::Truncated)?;
    // No message is long enough for fragments, and a switch does not reassemble them.
    if ip.fragment || !ip.dst.is_multicast() {
        return Err(Malformed::BadField);
    }
    match (ip.protocol, ip.src) {
        (IGMP, IpAddr::V4(_)) => igmp(message, &ip),
        (ICMPV6, IpAddr::V6(_)) => mld(message, &ip),
        (PIM, _) => pim(message, &ip),
        _ => Ok(Control::Other),
    }
}

/// Length in bytes of the packet that starts with a valid IP header.
fn packet_len(packet: &[u8], src: IpAddr) -> Result<usize, Malformed> {
    if src.is_ipv6() {
        return Ok(ipv6::HEADER_LEN + usize::from(ipv6::Header::parse(packet)?.payload_len()));
    }
    let header = ipv4::Header::parse(packet)?;
    let sum = Sum::of(packet.get(..header.header_len()).ok_or(Malformed::Truncated)?);
    (sum.fold() == 0xffff).then_some(header.total_len().into()).ok_or(Malformed::BadField)
}

/// Checks the sum of `message`, including a pseudo header with IPv6.
fn check_sum(message: &[u8], ip: &Ip) -> Result<(), Malformed> {
    let before = match (ip.src, ip.dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => checksum::pseudo_v6(src, dst, ip.protocol, message.len() as u32),
        _ => Sum::ZERO,
    };
    (before.add_bytes(message).fold() == 0xffff).then_some(()).ok_or(Malformed::BadField)
}

fn pim<'a>(message: &[u8], ip: &Ip) -> Result<Control<'a>, Malformed> {
    if message.first() != Some(&PIM_HELLO) {
        return Ok(Control::Other);
    }
    check_sum(message, ip)?;
    Ok(Control::Hello(Family::of(ip.src)))
}

fn igmp<'a>(message: &'a [u8], ip: &Ip) -> Result<Control<'a>, Malformed> {
    check_sum(message, ip)?;
    // The shortest messages of all types have 8 bytes (RFC 2236 §2), also those of router discovery.
    let &[kind, _, _, _, a, b, c, d] = message.first_chunk().ok_or(Malformed::Truncated)?;
    let group = Ipv4Addr::from([a, b, c, d]);
    let one = |change: fn(IpAddr) -> Change| match group.is_multicast() {
        true => Ok(Control::Report(Report::One(Some(change(group.into()))))),
        false => Err(Malformed::BadField),
    };
    match kind {
        igmp::QUERY => igmp_query(message, group, ip),
        igmp::REPORT_V1 | igmp::REPORT_V2 => one(Change::Join),
        igmp::LEAVE => one(Change::Leave),
        igmp::REPORT_V3 => Records::parse(message, Family::V4).map(|records| Control::Report(Report::Records(records))),
        igmp::ROUTER => Ok(Control::Hello(Family::V4)),
        _ => Ok(Control::Other),
    }
}

/// A query of version 1 or 2 has 8 bytes, one of version 3 has 12 or more (RFC 3376 §7.1).
fn igmp_query<'a>(message: &[u8], group: Ipv4Addr, ip: &Ip) -> Result<Control<'a>, Malformed> {
    let code = message.get(1).copied().unwrap_or_default();
    let (tenths, flags, sources) = match *message {
        [_, _, _, _, _, _, _, _] => (u32::from(code), 0, 0),
        [_, _, _, _, _, _, _, _, flags, _, high, low, ..] => (decode8(code), flags, u16::from_be_bytes([high, low])),
        _ => return Err(Malformed::BadField),
    };
    let v1 = message.len() == 8 && code == 0;
    let max_response_ns = if v1 { V1_RESPONSE_NS } else { u64::from(tenths) * 100_000_000 };
    query(ip, group.into(), max_response_ns, flags, sources)
}

fn mld<'a>(message: &'a [u8], ip: &Ip) -> Result<Control<'a>, Malformed> {
    let kind = *message.first().ok_or(Malformed::Truncated)?;
    if !matches!(kind, mld::QUERY | mld::REPORT_V1 | mld::DONE | mld::REPORT_V2 | mld::ROUTER) {
        return Ok(Control::Other);
    }
    check_sum(message, ip)?;
    let group = || message.get(8..24).and_then(|group| group.first_chunk::<16>()).map(|&group| Ipv6Addr::from(group));
    let one = |change: fn(IpAddr) -> Change| match group().ok_or(Malformed::Truncated)? {
        group if group.is_multicast() => Ok(Control::Report(Report::One(Some(change(group.into()))))),
        _ => Err(Malformed::BadField),
    };
    match kind {
        mld::QUERY => mld_query(message, group().ok_or(Malformed::Truncated)?, ip),
        mld::REPORT_V1 => one(Change::Join),
        mld::DONE => one(Change::Leave),
        mld::REPORT_V2 => Records::parse(message, Family::V6).map(|records| Control::Report(Report::Records(records))),
        _ => Ok(Control::Hello(Family::V6)),
    }
}

/// A query of version 1 has 24 bytes, one of version 2 has 28 or more (RFC 3810 §8.1); both come from link-local
/// addresses.
fn mld_query<'a>(message: &[u8], group: Ipv6Addr, ip: &Ip) -> Result<Control<'a>, Malformed> {
    let local = matches!(ip.src, IpAddr::V6(src) if src.is_unicast_link_local());
    let code = match *message {
        [_, _, _, _, high, low, ..] if local => u16::from_be_bytes([high, low]),
        _ => return Err(Malformed::BadField),
    };
    let (milliseconds, flags, sources) = match message.get(24..).unwrap_or_default() {
        [] => (u32::from(code), 0, 0),
        [flags, _, high, low, ..] => (decode16(code), *flags, u16::from_be_bytes([*high, *low])),
        _ => return Err(Malformed::BadField),
    };
    query(ip, group.into(), u64::from(milliseconds) * 1_000_000, flags, sources)
}

/// A query for all groups must go to all hosts; a query that only some hear could keep others from sending theirs.
fn query<'a>(ip: &Ip, group: IpAddr, response: u64, flags: u8, sources: u16) -> Result<Control<'a>, Malformed> {
    let all_hosts = match ip.dst {
        IpAddr::V4(dst) => dst == Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(dst) => dst == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
    };
    let general = group.is_unspecified();
    if general && (!all_hosts || sources > 0) || !general && !group.is_multicast() {
        return Err(Malformed::BadField);
    }
    let lowers_timers = sources == 0 && flags & SUPPRESS == 0;
    let group = (!general).then_some(group);
    Ok(Control::Query(HeardQuery { source: ip.src, group, max_response_ns: response, lowers_timers }))
}

/// The number in a byte (RFC 3376 §4.1.1): the inverse of what queries encode.
pub(super) fn decode8(code: u8) -> u32 {
    let code = u32::from(code);
    if code < 0x80 { code } else { (code & 0xf | 0x10) << ((code >> 4 & 7) + 3) }
}

/// The number in 16 bits (RFC 3810 §5.1.3).
pub(super) fn decode16(code: u16) -> u32 {
    let code = u32::from(code);
    if code < 0x8000 { code } else { (code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3) }
}

/// The records of a report of IGMPv3 or MLDv2 (RFC 3376 §4.2, RFC 3810 §5.2), all complete.
#[derive(Clone)]
pub(super) struct Records<'a> {
    rest: &'a [u8],
    left: u16,
    family: Family,
}

/// One of them.
pub(super) struct Record {
    kind: u8,
    group: IpAddr,
    sources: u16,
}

impl<'a> Records<'a> {
    /// The records of `message`. A truncated record makes all of them malformed.
    fn parse(message: &'a [u8], family: Family) -> Result<Self, Malformed> {
        let &[_, _, _, _, _, _, high, low] = message.first_chunk().ok_or(Malformed::Truncated)?;
        let left = u16::from_be_bytes([high, low]);
        let records = Self { rest: message.get(8..).unwrap_or_default(), left, family };
        let whole = records.clone().count() == usize::from(left);
        let groups = records.clone().all(|record| record.group.is_multicast());
        (whole && groups).then_some(records).ok_or(Malformed::BadField)
    }
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        self.left = self.left.checked_sub(1)?;
        let (&[kind, aux, high, low], rest) = self.rest.split_first_chunk()?;
        let sources = u16::from_be_bytes([high, low]);
        let (group, rest, addr_len): (IpAddr, _, _) = match self.family {
            Family::V4 => {
                rest.split_first_chunk::<4>().map(|(&group, rest)| (Ipv4Addr::from(group).into(), rest, 4))?
            }
            Family::V6 => {
                rest.split_first_chunk::<16>().map(|(&group, rest)| (Ipv6Addr::from(group).into(), rest, 16))?
            }
        };
        self.rest = rest.get(usize::from(sources) * addr_len + usize::from(aux) * 4..)?;
        Some(Record { kind, group, sources })
    }
}

impl Record {
    /// Its meaning for the group as a whole. A host that names wanted sources wants the group; one that names none does
    /// not. A host that blocks sources may have none left, or may still want all others.
    fn change(&self) -> Option<Change> {
        match (self.kind, self.sources) {
            (1 | 3, 0) => Some(Change::Leave(self.group)),
            (1 | 3, _) | (2 | 4, _) => Some(Change::Join(self.group)),
            (5, 1..) => Some(Change::Join(self.group)),
            (6, _) => Some(Change::Ask(self.group)),
            _ => None,
        }
    }
}
