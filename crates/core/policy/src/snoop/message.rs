//! Messages of IGMP, MLD and PIM.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netvale_wire::layers::IpLayer;
use netvale_wire::{Layers, MalformedPacket, Sum, checksum, ethernet, ipv4, ipv6};

use super::address::GroupFamily;

// IP protocol numbers.
pub(super) const IGMP: u8 = 2;
pub(super) const ICMPV6: u8 = 58;
const PIM: u8 = 103;
/// Protocol number of the IPv6 hop-by-hop header, which every MLD message has for its router alert.
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

/// Types of MLD (RFC 2710 §3, RFC 3810 §5.2) and of multicast router discovery (RFC 4286 §3.1).
mod mld {
    pub const QUERY: u8 = 130;
    pub const REPORT_V1: u8 = 131;
    pub const DONE: u8 = 132;
    pub const REPORT_V2: u8 = 143;
    pub const ROUTER: u8 = 151;
}

/// First byte of a PIM hello: version 2, type "hello" (RFC 7761 §4.9).
const PIM_HELLO: u8 = 0x20;
/// Flag of a query: routers that receive the query do not lower their timers (RFC 3376 §4.1.5).
const SUPPRESS: u8 = 8;
/// The maximum response time of an IGMPv1 query, which has no field for that time (RFC 2236 §4), in ns.
const V1_RESPONSE_NS: u64 = 10_000_000_000;

/// Whether the frame that starts with `head` may be a message for [`super::Snoop::observe`]: IGMP, MLD or PIM, to a
/// group. This is a cheap test for each frame, which reads at most the first 86 bytes and has false positives.
#[inline]
pub fn is_control(head: &[u8]) -> bool {
    // A message to a single host does not concern the switch.
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

/// A control message.
pub(super) enum ControlMessage<'a> {
    Query(HeardQuery),
    Report(HostReport<'a>),
    /// A router's hello.
    Hello(GroupFamily),
    Other,
}

/// A received query.
pub(super) struct HeardQuery {
    pub source: IpAddr,
    /// The queried group; `None` for all groups.
    pub group: Option<IpAddr>,
    pub max_response_ns: u64,
    /// Whether the query lowers the timers of memberships, which then expire soon unless a host answers.
    pub lowers_timers: bool,
}

/// A host's request concerning a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupChange {
    Join(IpAddr),
    Leave(IpAddr),
    /// The host blocks further sources, and may want no other sources: a query must find out whether the host still
    /// wants the group.
    Ask(IpAddr),
}

/// A host's report, as an iterator over its groups.
pub(super) enum HostReport<'a> {
    One(Option<GroupChange>),
    Records(ReportRecords<'a>),
}

impl Iterator for HostReport<'_> {
    type Item = GroupChange;

    fn next(&mut self) -> Option<GroupChange> {
        match self {
            Self::One(change) => change.take(),
            Self::Records(records) => records.by_ref().find_map(|record| record.change()),
        }
    }
}

/// Reads the message of a frame. A message that is truncated, or has a wrong checksum or an invalid value, is
/// malformed.
pub(super) fn parse(frame: &[u8]) -> Result<ControlMessage<'_>, MalformedPacket> {
    let layers = Layers::parse(frame)?;
    let Some(ip) = layers.ip else {
        return Ok(ControlMessage::Other);
    };
    if !matches!(ip.protocol, IGMP | ICMPV6 | PIM) {
        return Ok(ControlMessage::Other);
    }
    let end = layers.l3 + packet_len(frame.get(layers.l3..).unwrap_or_default(), ip.src)?;
    let message = frame.get(ip.l4..end).ok_or(MalformedPacket::Truncated)?;
    // No message is long enough to be fragmented, and a switch does not reassemble fragments.
    if ip.fragment || !ip.dst.is_multicast() {
        return Err(MalformedPacket::BadField);
    }
    match (ip.protocol, ip.src) {
        (IGMP, IpAddr::V4(_)) => igmp(message, &ip),
        (ICMPV6, IpAddr::V6(_)) => mld(message, &ip),
        (PIM, _) => pim(message, &ip),
        _ => Ok(ControlMessage::Other),
    }
}

/// Returns the length in bytes of a packet; an error if its IP header is invalid.
fn packet_len(packet: &[u8], src: IpAddr) -> Result<usize, MalformedPacket> {
    if src.is_ipv6() {
        return Ok(ipv6::HEADER_LEN + usize::from(ipv6::Header::parse(packet)?.payload_len()));
    }
    let header = ipv4::Header::parse(packet)?;
    let sum = Sum::of(packet.get(..header.header_len()).ok_or(MalformedPacket::Truncated)?);
    (sum.fold() == 0xffff).then_some(header.total_len().into()).ok_or(MalformedPacket::BadField)
}

/// Checks the checksum of `message`, which for IPv6 covers a pseudo header; an error if the checksum is wrong.
fn check_sum(message: &[u8], ip: &IpLayer) -> Result<(), MalformedPacket> {
    let before = match (ip.src, ip.dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => checksum::pseudo_v6(src, dst, ip.protocol, message.len() as u32),
        _ => Sum::ZERO,
    };
    (before.add_bytes(message).fold() == 0xffff).then_some(()).ok_or(MalformedPacket::BadField)
}

fn pim<'a>(message: &[u8], ip: &IpLayer) -> Result<ControlMessage<'a>, MalformedPacket> {
    if message.first() != Some(&PIM_HELLO) {
        return Ok(ControlMessage::Other);
    }
    check_sum(message, ip)?;
    Ok(ControlMessage::Hello(GroupFamily::of(ip.src)))
}

fn igmp<'a>(message: &'a [u8], ip: &IpLayer) -> Result<ControlMessage<'a>, MalformedPacket> {
    check_sum(message, ip)?;
    // Messages of all types have at least 8 bytes (RFC 2236 §2), including the messages of router discovery.
    let &[kind, _, _, _, a, b, c, d] = message.first_chunk().ok_or(MalformedPacket::Truncated)?;
    let group = Ipv4Addr::from([a, b, c, d]);
    let one = |change: fn(IpAddr) -> GroupChange| match group.is_multicast() {
        true => Ok(ControlMessage::Report(HostReport::One(Some(change(group.into()))))),
        false => Err(MalformedPacket::BadField),
    };
    match kind {
        igmp::QUERY => igmp_query(message, group, ip),
        igmp::REPORT_V1 | igmp::REPORT_V2 => one(GroupChange::Join),
        igmp::LEAVE => one(GroupChange::Leave),
        igmp::REPORT_V3 => ReportRecords::parse(message, GroupFamily::V4)
            .map(|records| ControlMessage::Report(HostReport::Records(records))),
        igmp::ROUTER => Ok(ControlMessage::Hello(GroupFamily::V4)),
        _ => Ok(ControlMessage::Other),
    }
}

/// Reads an IGMP query. A query of version 1 or 2 has 8 bytes, a query of version 3 has 12 or more (RFC 3376 §7.1).
fn igmp_query<'a>(message: &[u8], group: Ipv4Addr, ip: &IpLayer) -> Result<ControlMessage<'a>, MalformedPacket> {
    let code = message.get(1).copied().unwrap_or_default();
    let (tenths, flags, sources) = match *message {
        [_, _, _, _, _, _, _, _] => (u32::from(code), 0, 0),
        [_, _, _, _, _, _, _, _, flags, _, high, low, ..] => (decode8(code), flags, u16::from_be_bytes([high, low])),
        _ => return Err(MalformedPacket::BadField),
    };
    let v1 = message.len() == 8 && code == 0;
    let max_response_ns = if v1 { V1_RESPONSE_NS } else { u64::from(tenths) * 100_000_000 };
    query(ip, group.into(), max_response_ns, flags, sources)
}

fn mld<'a>(message: &'a [u8], ip: &IpLayer) -> Result<ControlMessage<'a>, MalformedPacket> {
    let kind = *message.first().ok_or(MalformedPacket::Truncated)?;
    if !matches!(kind, mld::QUERY | mld::REPORT_V1 | mld::DONE | mld::REPORT_V2 | mld::ROUTER) {
        return Ok(ControlMessage::Other);
    }
    check_sum(message, ip)?;
    let group = || message.get(8..24).and_then(|group| group.first_chunk::<16>()).map(|&group| Ipv6Addr::from(group));
    let one = |change: fn(IpAddr) -> GroupChange| match group().ok_or(MalformedPacket::Truncated)? {
        group if group.is_multicast() => Ok(ControlMessage::Report(HostReport::One(Some(change(group.into()))))),
        _ => Err(MalformedPacket::BadField),
    };
    match kind {
        mld::QUERY => mld_query(message, group().ok_or(MalformedPacket::Truncated)?, ip),
        mld::REPORT_V1 => one(GroupChange::Join),
        mld::DONE => one(GroupChange::Leave),
        mld::REPORT_V2 => ReportRecords::parse(message, GroupFamily::V6)
            .map(|records| ControlMessage::Report(HostReport::Records(records))),
        _ => Ok(ControlMessage::Hello(GroupFamily::V6)),
    }
}

/// Reads an MLD query. A query of version 1 has 24 bytes, a query of version 2 has 28 or more (RFC 3810 §8.1); queries
/// of both versions come from link-local addresses.
fn mld_query<'a>(message: &[u8], group: Ipv6Addr, ip: &IpLayer) -> Result<ControlMessage<'a>, MalformedPacket> {
    let local = matches!(ip.src, IpAddr::V6(src) if src.is_unicast_link_local());
    let code = match *message {
        [_, _, _, _, high, low, ..] if local => u16::from_be_bytes([high, low]),
        _ => return Err(MalformedPacket::BadField),
    };
    let (milliseconds, flags, sources) = match message.get(24..).unwrap_or_default() {
        [] => (u32::from(code), 0, 0),
        [flags, _, high, low, ..] => (decode16(code), *flags, u16::from_be_bytes([*high, *low])),
        _ => return Err(MalformedPacket::BadField),
    };
    query(ip, group.into(), u64::from(milliseconds) * 1_000_000, flags, sources)
}

/// Checks a query. A general query must be addressed to all hosts: a query that reached only some hosts could win the
/// querier election, and the memberships of the other hosts would then expire for lack of reports.
fn query<'a>(
    ip: &IpLayer,
    group: IpAddr,
    response: u64,
    flags: u8,
    sources: u16,
) -> Result<ControlMessage<'a>, MalformedPacket> {
    let all_hosts = match ip.dst {
        IpAddr::V4(dst) => dst == Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(dst) => dst == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
    };
    let general = group.is_unspecified();
    if general && (!all_hosts || sources > 0) || !general && !group.is_multicast() {
        return Err(MalformedPacket::BadField);
    }
    let lowers_timers = sources == 0 && flags & SUPPRESS == 0;
    let group = (!general).then_some(group);
    Ok(ControlMessage::Query(HeardQuery { source: ip.src, group, max_response_ns: response, lowers_timers }))
}

/// Decodes a number in a byte of a query (RFC 3376 §4.1.1).
pub(super) fn decode8(code: u8) -> u32 {
    let code = u32::from(code);
    if code < 0x80 { code } else { (code & 0xf | 0x10) << ((code >> 4 & 7) + 3) }
}

/// Decodes a number in 16 bits of a query (RFC 3810 §5.1.3).
pub(super) fn decode16(code: u16) -> u32 {
    let code = u32::from(code);
    if code < 0x8000 { code } else { (code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3) }
}

/// The records of an IGMPv3 or MLDv2 report (RFC 3376 §4.2, RFC 3810 §5.2), none of them truncated.
#[derive(Clone)]
pub(super) struct ReportRecords<'a> {
    rest: &'a [u8],
    left: u16,
    family: GroupFamily,
}

/// A record of a report.
pub(super) struct ReportRecord {
    kind: u8,
    group: IpAddr,
    sources: u16,
}

impl<'a> ReportRecords<'a> {
    /// Reads the records of `message`. If a record is truncated, the message is malformed.
    fn parse(message: &'a [u8], family: GroupFamily) -> Result<Self, MalformedPacket> {
        let &[_, _, _, _, _, _, high, low] = message.first_chunk().ok_or(MalformedPacket::Truncated)?;
        let left = u16::from_be_bytes([high, low]);
        let records = Self { rest: message.get(8..).unwrap_or_default(), left, family };
        let whole = records.clone().count() == usize::from(left);
        let groups = records.clone().all(|record| record.group.is_multicast());
        (whole && groups).then_some(records).ok_or(MalformedPacket::BadField)
    }
}

impl Iterator for ReportRecords<'_> {
    type Item = ReportRecord;

    fn next(&mut self) -> Option<ReportRecord> {
        self.left = self.left.checked_sub(1)?;
        let (&[kind, aux, high, low], rest) = self.rest.split_first_chunk()?;
        let sources = u16::from_be_bytes([high, low]);
        let (group, rest, addr_len): (IpAddr, _, _) = match self.family {
            GroupFamily::V4 => {
                rest.split_first_chunk::<4>().map(|(&group, rest)| (Ipv4Addr::from(group).into(), rest, 4))?
            }
            GroupFamily::V6 => {
                rest.split_first_chunk::<16>().map(|(&group, rest)| (Ipv6Addr::from(group).into(), rest, 16))?
            }
        };
        self.rest = rest.get(usize::from(sources) * addr_len + usize::from(aux) * 4..)?;
        Some(ReportRecord { kind, group, sources })
    }
}

impl ReportRecord {
    /// Returns the meaning of the record for the group as a whole; `None` if the record has no such meaning. A host
    /// that lists wanted sources wants the group; a host that lists no wanted sources does not. A host that blocks
    /// further sources may want none or all of the other sources.
    fn change(&self) -> Option<GroupChange> {
        match (self.kind, self.sources) {
            (1 | 3, 0) => Some(GroupChange::Leave(self.group)),
            (1 | 3, _) | (2 | 4, _) => Some(GroupChange::Join(self.group)),
            (5, 1..) => Some(GroupChange::Join(self.group)),
            (6, _) => Some(GroupChange::Ask(self.group)),
            _ => None,
        }
    }
}
