//! Parses arbitrary bytes as a guest's DNS query, and as a name server's answer to this query.
//!
//! Input: the query's length (two bytes), the query, the answer.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::net::IpAddr;
use std::time::Instant;

use netvale_fuzz::fuzz_target;
use netvale_gateway::dhcp::leases::LeaseTable;
use netvale_gateway::dns::answer::addresses;
use netvale_gateway::dns::message::{DnsOutcome, ParsedQuery, is_answer, is_no_help, parse_query, refusal};
use netvale_gateway::dns::names::LocalNames;
use netvale_gateway::dns::zones::DnsZones;
use netvale_gateway::guests::{GuestAddresses, NetworkId};
use netvale_gateway::net::GatewayNet;
use netvale_wire::MacAddr;

fuzz_target!(|data: &[u8]| {
    let Some((len, rest)) = data.split_first_chunk::<2>() else { return };
    let (question, answer) = rest.split_at(usize::from(u16::from_be_bytes(*len)).min(rest.len()));
    let refused = refusal(question, DnsOutcome::Failed);
    assert_eq!(refused.is_some(), question.len() >= 12);
    is_no_help(answer);
    let ParsedQuery::Query(query) = parse_query(question) else { return };
    assert!(query.end <= question.len() && query.name.len() <= 255);
    assert!(is_answer(question, query.end, &refused.expect("a header")));
    if is_answer(question, query.end, answer) {
        assert_eq!(answer[..2], question[..2]);
    }
    look_for_addresses(answer, query.kind);
    let net = GatewayNet {
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        addresses: "10.0.0.1/24,fd00::1/64".parse().expect("addresses"),
        mtu: 1500,
        domain: "lan".to_owned(),
        host: None,
    };
    let fixed = vec!["02:00:00:00:00:09=10.0.0.9,vm9".parse().expect("a lease")];
    let leases = net.addresses.v4.map(|own| LeaseTable::new(own, fixed));
    let mut addresses = GuestAddresses::default();
    let network = NetworkId::UNTAGGED;
    let guest = network.station(MacAddr([2, 0, 0, 0, 0, 9]));
    addresses.learn("fd00::9".parse().expect("an address"), guest, Instant::now());
    let zones = DnsZones::default();
    let leases = leases.as_ref();
    let names = LocalNames { net: &net, leases, addresses: &addresses, zones: &zones, network };
    if let Some(own) = names.answer(&query) {
        assert!(is_answer(question, query.end, &own), "an answer to another question");
        assert!(own.len() < 1232, "an answer that no guest takes");
    }
});

/// Checks that each address extracted from an answer occurs in the answer's bytes.
fn look_for_addresses(answer: &[u8], kind: u16) {
    let found = addresses(answer, kind);
    assert!(found.len() <= 64);
    for one in found {
        let is_there = match one.address {
            IpAddr::V4(address) => answer.windows(4).any(|bytes| bytes == address.octets()),
            IpAddr::V6(address) => answer.windows(16).any(|bytes| bytes == address.octets()),
        };
        assert!(is_there && one.ttl <= i32::MAX as u32);
    }
}
