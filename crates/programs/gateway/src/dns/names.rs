//! Forward and reverse look-ups of names of the switch's own network: names of guests with leases, and of the gateway.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::message::{DnsData, DnsOutcome, DnsQuery, record};
use super::zones::{DnsZones, ZoneAnswer};
use crate::dhcp::leases::LeaseTable;
use crate::guests::{GuestAddresses, NetworkId};
use crate::net::GatewayNet;

/// The DNS class IN.
const INTERNET: u16 = 1;
/// The gateway's host name within the domain.
const GATEWAY: &str = "gateway";

/// Time to live of answers from zones, in seconds: 0, so that a change of a zone takes effect immediately.
const ZONE_TTL: u32 = 0;

/// The sources of the names of the switch's network.
#[derive(Clone, Copy)]
pub struct LocalNames<'a> {
    /// The gateway's addresses and its domain.
    pub net: &'a GatewayNet,
    /// The DHCP leases with their names; `None` if the gateway runs no DHCP server.
    pub leases: Option<&'a LeaseTable>,
    /// The addresses that guests were seen to use, which include their IPv6 addresses.
    pub addresses: &'a GuestAddresses,
    /// The user's zones, which take precedence over the other sources.
    pub zones: &'a DnsZones,
    /// The network of the guest that asks.
    pub network: NetworkId,
}

impl LocalNames<'_> {
    /// Returns the answer to a question about this network or `localhost`; `None` if a server must be asked.
    pub fn answer(&self, query: &DnsQuery<'_>) -> Option<Vec<u8>> {
        if query.class != INTERNET {
            return None;
        }
        if let Some(answer) = self.zones.answer(&query.name, query.kind) {
            return Some(of_zone(query, answer));
        }
        if query.name == "localhost" || query.name.ends_with(".localhost") {
            return Some(of_addresses(query, &[Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]));
        }
        if let Some(address) = address_of_name(&query.name) {
            return self.net.is_inside(address).then(|| self.name_of(query, address));
        }
        let domain = self.net.domain.as_str();
        if query.name == domain {
            return Some(query.answer(DnsOutcome::Found, &[]));
        }
        let host = query.name.strip_suffix(domain)?.strip_suffix('.')?;
        Some(
            self.addresses(host)
                .map_or_else(|| query.answer(DnsOutcome::NoName, &[]), |addresses| of_addresses(query, &addresses)),
        )
    }

    fn addresses(&self, host: &str) -> Option<Vec<IpAddr>> {
        if host == GATEWAY {
            let v4 = self.net.addresses.v4.map(|own| IpAddr::V4(own.address));
            let v6 = self.net.addresses.v6.map(|own| IpAddr::V6(own.address));
            return Some(v4.into_iter().chain(v6).collect());
        }
        let (mac, address) = self.leases?.by_name(host)?;
        let of_station = self.addresses.addresses(self.network.station(mac)).into_iter().filter(IpAddr::is_ipv6);
        Some(std::iter::once(address.into()).chain(of_station).collect())
    }

    fn name_of(&self, query: &DnsQuery<'_>, address: IpAddr) -> Vec<u8> {
        let host = match address {
            _ if self.net.is_own(address) => Some(GATEWAY),
            IpAddr::V4(address) => self.leases.and_then(|leases| leases.by_address(address)),
            IpAddr::V6(_) => None,
        };
        let Some(host) = host else { return query.answer(DnsOutcome::NoName, &[]) };
        let wanted = matches!(query.kind, record::PTR | record::ANY);
        let data = DnsData::Name(format!("{host}.{}", self.net.domain));
        query.answer(DnsOutcome::Found, if wanted { std::slice::from_ref(&data) } else { &[] })
    }
}

fn of_zone(query: &DnsQuery<'_>, answer: ZoneAnswer) -> Vec<u8> {
    match answer {
        ZoneAnswer::NoName => query.answer_for(DnsOutcome::NoName, &[], ZONE_TTL),
        ZoneAnswer::Found(address) => {
            let data: Vec<_> = address.map(DnsData::Address).into_iter().collect();
            query.answer_for(DnsOutcome::Found, &data, ZONE_TTL)
        }
    }
}

/// Makes an answer with the addresses of the requested type. If there are none, the answer says that the name exists
/// without data of this type (NODATA).
fn of_addresses(query: &DnsQuery<'_>, addresses: &[IpAddr]) -> Vec<u8> {
    let wanted = |address: &&IpAddr| match query.kind {
        record::A => address.is_ipv4(),
        record::AAAA => address.is_ipv6(),
        record::ANY => true,
        _ => false,
    };
    let data: Vec<_> = addresses.iter().filter(wanted).map(|address| DnsData::Address(*address)).collect();
    query.answer(DnsOutcome::Found, &data)
}

/// Parses the address from a reverse name such as `9.0.0.10.in-addr.arpa`. Returns `None` for other names.
fn address_of_name(name: &str) -> Option<IpAddr> {
    if let Some(reversed) = name.strip_suffix(".in-addr.arpa") {
        let parts: Vec<u8> = reversed.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        let [d, c, b, a] = parts[..] else { return None };
        return Some(IpAddr::from([a, b, c, d]));
    }
    let digits: Vec<&str> = name.strip_suffix(".ip6.arpa")?.split('.').collect();
    if digits.len() != 32 || digits.iter().any(|digit| digit.len() != 1) {
        return None;
    }
    let text: String = digits.into_iter().rev().collect();
    u128::from_str_radix(&text, 16).ok().map(|bits| Ipv6Addr::from_bits(bits).into())
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::query_bytes;
    use super::super::message::{ParsedQuery, parse_query};
    use super::*;
    use crate::guests::GuestId;
    use crate::net::example;
    use netvale_wire::MacAddr;
    use std::time::Instant;

    const GUEST: GuestId = GuestId { network: NetworkId::UNTAGGED, mac: MacAddr([2, 0, 0, 0, 0, 9]) };

    /// Asks for a name. Returns the answer's response code, its number of records, and its last four bytes; `None` if
    /// the name is not a name of the switch's network.
    fn ask(name: &str, kind: u16) -> Option<(u8, u8, Vec<u8>)> {
        let net = example();
        let fixed = vec!["02:00:00:00:00:09=10.0.0.9,vm9".parse().unwrap()];
        let leases = LeaseTable::new(net.addresses.v4.unwrap(), fixed);
        let mut addresses = GuestAddresses::default();
        let mut zones = DnsZones::default();
        zones.set(serde_json::from_str(r#"{"name":"zone.lan.","default_ip":"10.0.0.7"}"#).unwrap()).unwrap();
        addresses.learn("fd00::9".parse().unwrap(), GUEST, Instant::now());
        addresses.learn("fe80::9".parse().unwrap(), GUEST, Instant::now());
        let leases = Some(&leases);
        let names = LocalNames { net: &net, leases, addresses: &addresses, zones: &zones, network: GUEST.network };
        let bytes = query_bytes(7, name, kind);
        let ParsedQuery::Query(query) = parse_query(&bytes) else { panic!("{name}") };
        let answer = names.answer(&query)?;
        Some((answer[3] & 0xf, answer[7], answer[answer.len().saturating_sub(4)..].to_vec()))
    }

    #[test]
    fn names_of_leases_and_of_the_gateway_are_known() {
        assert_eq!(ask("vm9.lan", record::A), Some((0, 1, vec![10, 0, 0, 9])));
        assert_eq!(ask("VM9.Lan", record::AAAA), Some((0, 1, vec![0, 0, 0, 9])));
        assert_eq!(ask("gateway.lan", record::A), Some((0, 1, vec![10, 0, 0, 1])));
        assert_eq!(ask("vm9.lan", record::ANY).map(|answer| answer.1), Some(2));
        assert_eq!(ask("9.0.0.10.in-addr.arpa", record::PTR).map(|answer| answer.2), Some(b"lan\0".to_vec()));
    }

    /// Objective: a name without data of the type (NODATA) and a name that does not exist (NXDOMAIN) get different
    /// answers.
    #[test]
    fn no_data_and_no_name_are_told_apart() {
        let outcome = |name: &str, kind: u16| ask(name, kind).map(|answer| (answer.0, answer.1));
        assert_eq!(outcome("vm9.lan", 15), Some((0, 0)));
        assert_eq!(outcome("lan", record::A), Some((0, 0)));
        assert_eq!(outcome("vm8.lan", record::A), Some((3, 0)));
        assert_eq!(outcome("a.vm9.lan", record::A), Some((3, 0)));
        assert_eq!(outcome("8.0.0.10.in-addr.arpa", record::PTR), Some((3, 0)));
    }

    #[test]
    fn zones_come_before_the_networks_own_names() {
        assert_eq!(ask("a.zone.lan", record::A), Some((0, 1, vec![10, 0, 0, 7])));
        assert_eq!(ask("a.zone.lan", record::AAAA).map(|answer| (answer.0, answer.1)), Some((0, 0)));
    }

    #[test]
    fn all_other_names_are_for_servers() {
        for name in ["example.com", "vm9", "vm9.lan.example", "mylan", "9.0.0.11.in-addr.arpa", "0.0.10.in-addr.arpa"] {
            assert_eq!(ask(name, record::A), None, "{name}");
        }
    }
}
