//! The queries that a switch sends: their times, and their contents as another parser reads them.

use etherparse::{IpNumber, NetSlice, SlicedPacket};
use netvale_policy::snoop::{GroupFamily, IgmpVersion, MldVersion, Query, Snoop, SnoopSettings};

use super::messages::*;
use super::{SECOND, SWITCH, hear};

/// The contents of a query: destination, source, and IGMP or MLD message.
struct Read {
    dst: String,
    src: String,
    message: Vec<u8>,
}

/// Reads a frame with etherparse, and checks lengths, checksums and the headers that routers require.
fn read(query: &Query) -> Read {
    let frame = query.frame();
    assert!(frame.len() >= 60);
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let link = packet.link.unwrap().to_header().unwrap().ethernet2().unwrap();
    assert_eq!(link.source, SWITCH.0);
    let read = match packet.net.unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            assert_eq!(
                (header.time_to_live, header.protocol, &header.options[..]),
                (1, IpNumber(2), &[0x94, 4, 0, 0][..])
            );
            let message = ip.payload().payload.to_vec();
            assert_eq!(internet_checksum(&message), 0);
            Read { dst: header.destination_addr_text(), src: header.source_addr_text(), message }
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            assert_eq!((header.hop_limit(), ip.payload().ip_number), (1, IpNumber::IPV6_ICMP));
            // A hop-by-hop header with a router alert for MLD (RFC 2711 §2.1).
            assert_eq!(frame[54..62], [58, 0, 5, 2, 0, 0, 1, 0]);
            let message = ip.payload().payload.to_vec();
            let len = (message.len() as u32).to_be_bytes();
            let pseudo = [&header.source()[..], &header.destination(), &len, &[0, 0, 0, 58], &message].concat();
            assert_eq!(internet_checksum(&pseudo), 0);
            Read { dst: header.destination_addr().to_string(), src: header.source_addr().to_string(), message }
        }
        _ => panic!("neither IPv4 nor IPv6"),
    };
    assert_eq!(link.destination, group_mac(ip(&read.dst)));
    read
}

trait Text {
    fn destination_addr_text(&self) -> String;
    fn source_addr_text(&self) -> String;
}

impl Text for etherparse::Ipv4Header {
    fn destination_addr_text(&self) -> String {
        std::net::Ipv4Addr::from(self.destination).to_string()
    }

    fn source_addr_text(&self) -> String {
        std::net::Ipv4Addr::from(self.source).to_string()
    }
}

fn due(snoop: &mut Snoop, now_ns: u64) -> Vec<Query> {
    std::iter::from_fn(|| snoop.next_query(now_ns)).collect()
}

/// Objective: general and group-specific queries of all versions match their RFCs, to all ports and to one port.
#[test]
fn queries_are_read_by_others() {
    for (igmp, mld) in [(IgmpVersion::V2, MldVersion::V1), (IgmpVersion::V3, MldVersion::V2)] {
        let mut snoop = Snoop::new(SnoopSettings { querier: true, igmp, mld, ..SnoopSettings::new(SWITCH) });
        snoop.watch(0, 7);
        let newer = igmp == IgmpVersion::V3;
        for group in ["239.1.1.1", "ff05::1:1"] {
            snoop.observe(0, 7, 3, &join(group));
            snoop.observe(0, 7, 3, &leave(group));
        }
        let sent = due(&mut snoop, 0);
        let places: Vec<_> = sent.iter().map(|query| (query.vlan, query.port)).collect();
        assert_eq!(places, [(7, None), (7, None), (7, Some(3)), (7, Some(3))]);
        // 125 s are below 128, the limit of the plain encoding; 10 s are 100 tenths of a second.
        let tail4: &[u8] = if newer { &[2, 125, 0, 0] } else { &[] };
        let v4 = |code, group: [u8; 4]| [&[0x11, code], &group[..], tail4].concat();
        for (query, dst, expected) in
            [(&sent[0], "224.0.0.1", v4(100, [0; 4])), (&sent[2], "239.1.1.1", v4(10, [239, 1, 1, 1]))]
        {
            let Read { dst: got, src, mut message } = read(query);
            message.drain(2..4);
            assert_eq!((got.as_str(), src.as_str(), message), (dst, "0.0.0.0", expected));
        }
        let v6 = |code: u16, group: &str| {
            let group: std::net::Ipv6Addr = group.parse().unwrap();
            [&[130, 0], &code.to_be_bytes()[..], &[0, 0], &group.octets(), tail4].concat()
        };
        for (query, dst, expected) in
            [(&sent[1], "ff02::1", v6(10_000, "::")), (&sent[3], "ff05::1:1", v6(1000, "ff05::1:1"))]
        {
            let Read { dst: got, src, mut message } = read(query);
            message.drain(2..4);
            assert_eq!((got.as_str(), src.as_str(), message), (dst, "fe80::ff:fe00:fe", expected));
        }
    }
}

/// Objective: another switch accepts the queries of this switch, and learns no router from a query without a source
/// address.
#[test]
fn queries_are_heard_by_another_switch() {
    let mut asking = Snoop::new(SnoopSettings { querier: true, igmp: IgmpVersion::V3, ..SnoopSettings::new(SWITCH) });
    asking.watch(0, 0);
    let mut hearing = Snoop::new(SnoopSettings::new(SWITCH));
    for query in due(&mut asking, 0) {
        hear(&mut hearing, 0, 4, query.frame());
    }
    hearing.tick(10 * SECOND);
    for family in [GroupFamily::V4, GroupFamily::V6] {
        assert!(hearing.is_active(0, family) && hearing.querier(0, family).is_some());
        assert_eq!(hearing.router_ports(0, family).len(), usize::from(family == GroupFamily::V6));
    }
}

/// Objective: the second general query is sent after the startup interval, and each further query after 125 s, as by
/// default in Linux.
#[test]
fn general_queries_keep_time() {
    let mut snoop = Snoop::new(SnoopSettings { querier: true, ..SnoopSettings::new(SWITCH) });
    snoop.watch(SECOND, 0);
    let mut times = Vec::new();
    let mut now = SECOND;
    while now < 500 * SECOND {
        times.extend(due(&mut snoop, now).iter().map(|_| now / (SECOND / 100)));
        let next = snoop.tick(now).next_ns;
        assert!(next > now);
        now = next;
    }
    assert_eq!(times, [100, 100, 3225, 3225, 15725, 15725, 28225, 28225, 40725, 40725]);
    let mut silent = Snoop::new(SnoopSettings::new(SWITCH));
    silent.watch(0, 0);
    assert_eq!((due(&mut silent, 900 * SECOND).len(), silent.tick(0).next_ns), (0, u64::MAX));
}

/// Objective: this switch does not query while another querier that takes precedence does, and queries again once the
/// other querier is silent. For IPv6 this switch has an address, and takes precedence over queriers with higher
/// addresses; for IPv4 it has no address, and yields to all queriers.
#[test]
fn a_better_querier_takes_over() {
    for (from, group, yields) in [
        ("10.0.0.1", "0.0.0.0", true),
        ("0.0.0.0", "0.0.0.0", true),
        ("fe80::1", "::", true),
        ("fe80::ffff:0:0:0", "::", false),
    ] {
        let family = GroupFamily::of(ip(from));
        let mut snoop = Snoop::new(SnoopSettings { querier: true, ..SnoopSettings::new(SWITCH) });
        snoop.watch(0, 0);
        due(&mut snoop, 0);
        hear(&mut snoop, SECOND, 4, &query(from, group, 100));
        assert_eq!(snoop.querier(0, family).is_some(), yields, "{from}");
        let sent = due(&mut snoop, 32 * SECOND)
            .iter()
            .filter(|query| read(query).dst.contains(':') == ip(from).is_ipv6())
            .count();
        assert_eq!(sent, usize::from(!yields), "{from}");
        hear(&mut snoop, 40 * SECOND, 1, &join("239.1.1.1"));
        snoop.tick(256 * SECOND);
        assert_eq!(snoop.querier(0, family), None);
        let again = due(&mut snoop, 256 * SECOND)
            .iter()
            .filter(|query| read(query).dst.contains(':') == ip(from).is_ipv6())
            .count();
        assert_eq!(again, 1);
        assert!(snoop.is_active(0, family));
    }
}

/// Objective: queries that are pending when another querier takes over are not sent.
#[test]
fn a_querier_that_gave_way_asks_nothing() {
    let mut snoop = super::querying();
    hear(&mut snoop, 20 * SECOND, 1, &join("239.1.1.1"));
    hear(&mut snoop, 20 * SECOND, 1, &leave("239.1.1.1"));
    hear(&mut snoop, 20 * SECOND, 4, &query("10.0.0.1", "0.0.0.0", 100));
    assert_eq!(due(&mut snoop, 20 * SECOND).len(), 0);
}
