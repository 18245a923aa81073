use super::message::tests::{client_bytes, identity_bytes};
use super::*;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const DUID: &[u8] = &[0, 1, 9, 9];
const OWN_DUID: &[u8] = &[0, 3, 0, 1, 2, 0, 0, 0, 0, 9];
const SOLICIT: u8 = 1;
const ADVERTISE: u8 = 2;
const REQUEST: u8 = 3;
const CONFIRM: u8 = 4;
const RENEW: u8 = 5;
const REBIND: u8 = 6;
const REPLY: u8 = 7;
const RELEASE: u8 = 8;
const DECLINE: u8 = 9;
const INFORMATION: u8 = 11;

fn server(mode: Dhcp6Mode) -> Dhcp6Server {
    let own = InterfaceAddress { address: "fd00::1".parse().unwrap(), prefix: 64 };
    let mac = MacAddr([2, 0, 0, 0, 0, 9]);
    let domains = vec!["lan".to_owned(), "lab.test".to_owned()];
    let settings = Dhcp6Settings { mode, own, mac, lease: Duration::from_secs(1000), domains };
    Dhcp6Server::new(settings, LeaseTable6::new(own, MAX_LEASES))
}

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Returns a message with the client's DUID, an identity association and, if `ours`, the server's DUID.
fn message(kind: u8, ours: bool, addresses: &[Ipv6Addr]) -> Vec<u8> {
    let identity = identity_bytes(7, addresses);
    let server = [(2, OWN_DUID)];
    let options = [(1, DUID), (3, &identity[..])].into_iter().chain(server.into_iter().filter(|_| ours));
    client_bytes(kind, &options.collect::<Vec<_>>())
}

/// A reply as a test reads it.
#[derive(Debug, PartialEq)]
struct Read {
    kind: u8,
    /// Codes and contents of the options outside of identity associations.
    options: Vec<(u16, Vec<u8>)>,
    /// The addresses in the identity association, with their lifetimes.
    given: Vec<(Ipv6Addr, u32)>,
    /// The status in the identity association.
    status: Option<u16>,
}

impl Read {
    fn option(&self, code: u16) -> Option<&[u8]> {
        self.options.iter().find(|(known, _)| *known == code).map(|(_, data)| &data[..])
    }

    fn whole_status(&self) -> Option<u16> {
        self.option(13).map(|data| u16::from_be_bytes([data[0], data[1]]))
    }
}

fn split(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut all = Vec::new();
    while let [a, b, c, d, rest @ ..] = bytes {
        let (data, rest) = rest.split_at(u16::from_be_bytes([*c, *d]).into());
        all.push((u16::from_be_bytes([*a, *b]), data));
        bytes = rest;
    }
    all
}

fn read(bytes: &[u8]) -> Read {
    assert_eq!(bytes[1..4], [1, 2, 3], "the transaction");
    let mut read = Read { kind: bytes[0], options: Vec::new(), given: Vec::new(), status: None };
    for (code, data) in split(&bytes[4..]) {
        if code != 3 {
            read.options.push((code, data.to_vec()));
            continue;
        }
        assert_eq!(data[..4], [0, 0, 0, 7]);
        for (code, data) in split(&data[12..]) {
            match code {
                5 => {
                    let address = <[u8; 16]>::try_from(&data[..16]).unwrap();
                    let [preferred, valid] =
                        [16, 20].map(|at| u32::from_be_bytes(data[at..at + 4].try_into().unwrap()));
                    assert_eq!(preferred, valid);
                    read.given.push((address.into(), valid));
                }
                13 => read.status = Some(u16::from_be_bytes([data[0], data[1]])),
                _ => panic!("{code}"),
            }
        }
    }
    assert_eq!(read.option(2), Some(OWN_DUID), "each reply has the server's DUID");
    read
}

fn ask_as(server: &mut Dhcp6Server, mac: MacAddr, bytes: &[u8], now: Instant) -> Option<Read> {
    server.take(mac, bytes, true, now, |_| false).map(|bytes| read(&bytes))
}

fn ask(server: &mut Dhcp6Server, bytes: &[u8], now: Instant) -> Option<Read> {
    ask_as(server, A, bytes, now)
}

#[test]
fn four_messages_give_a_lease() {
    let mut server = server(Dhcp6Mode::Addresses);
    let now = Instant::now();
    let offer = ask(&mut server, &message(SOLICIT, false, &[]), now).unwrap();
    assert_eq!((offer.kind, &offer.given[..], offer.status), (ADVERTISE, &[(ip("fd00::1000"), 1000)][..], None));
    assert_eq!((offer.option(1), offer.option(7), offer.option(14)), (Some(DUID), Some(&[255][..]), None));
    assert_eq!(offer.option(23), Some(&ip("fd00::1").octets()[..]));
    assert_eq!(offer.option(24), Some(&b"\x03lan\0\x03lab\x04test\0"[..]));
    assert_eq!(server.leases.bound(now).count(), 0);
    let reply = ask(&mut server, &message(REQUEST, true, &[ip("fd00::1000")]), now).unwrap();
    assert_eq!((reply.kind, reply.given, reply.status), (REPLY, vec![(ip("fd00::1000"), 1000)], None));
    let bound: Vec<_> = server.leases.bound(now).collect();
    assert_eq!(bound, [BoundLease { address: ip("fd00::1000"), mac: A, name: None, left: Duration::from_secs(1000) }]);
    let other = ask_as(&mut server, B, &message(SOLICIT, false, &[ip("fd00::1000")]), now).unwrap();
    assert_eq!(other.given, [(ip("fd00::1001"), 1000)], "a station with the same DUID");
}

#[test]
fn two_messages_give_a_lease_to_who_takes_that() {
    let mut server = server(Dhcp6Mode::Addresses);
    let now = Instant::now();
    let solicit = client_bytes(SOLICIT, &[(1, DUID), (14, &[]), (3, &identity_bytes(7, &[ip("fd00::2000")]))]);
    let reply = ask(&mut server, &solicit, now).unwrap();
    assert_eq!((reply.kind, &reply.given[..]), (REPLY, &[(ip("fd00::2000"), 1000)][..]));
    assert_eq!((reply.option(14), server.leases.bound(now).count()), (Some(&[][..]), 1));
    let hint = identity_bytes(7, &[ip("fd01::1000")]);
    let solicit = client_bytes(SOLICIT, &[(1, DUID), (14, &[]), (3, &hint)]);
    let reply = ask_as(&mut server, B, &solicit, now).unwrap();
    assert_eq!((reply.given, reply.status), (vec![(ip("fd00::2001"), 1000)], None), "a hint of another network");
}

#[test]
fn leases_are_extended_and_found_again_after_a_restart() {
    let now = Instant::now();
    let address = ip("fd00::1000");
    for (kind, ours) in [(RENEW, true), (REBIND, false)] {
        let mut server = server(Dhcp6Mode::Addresses);
        let lost = ask(&mut server, &message(kind, ours, &[address]), now).unwrap();
        assert_eq!(lost.given, [(address, 1000)], "the server knows nothing of it, but it is free");
        let later = now + Duration::from_secs(900);
        let reply = ask(&mut server, &message(kind, ours, &[address, ip("fd00::1007"), ip("fd09::5")]), later).unwrap();
        assert_eq!(reply.given, [(address, 1000), (ip("fd00::1007"), 0), (ip("fd09::5"), 0)]);
        assert_eq!(server.leases.bound(later).next().unwrap().left, Duration::from_secs(1000));
        let other = ask_as(&mut server, B, &message(kind, ours, &[address]), later).unwrap();
        assert_eq!((other.given, other.status), (vec![], Some(3)), "another's address");
        let used = server.take(B, &message(kind, ours, &[ip("fd00::1009")]), true, later, |_| true);
        assert_eq!(read(&used.unwrap()).status, Some(3), "an address that another station uses");
    }
}

#[test]
fn a_lease_ends_with_its_time_release_or_decline() {
    let now = Instant::now();
    let address = ip("fd00::1000");
    for (kind, next) in [(RELEASE, address), (DECLINE, ip("fd00::1001"))] {
        let mut server = server(Dhcp6Mode::Addresses);
        ask(&mut server, &message(REQUEST, true, &[address]), now).unwrap();
        let other = ask_as(&mut server, B, &message(kind, true, &[address]), now).unwrap();
        assert_eq!((other.whole_status(), other.status), (Some(0), Some(3)), "another's lease goes on");
        assert_eq!(server.leases.bound(now).count(), 1);
        let reply = ask(&mut server, &message(kind, true, &[address]), now).unwrap();
        assert_eq!((reply.kind, reply.whole_status(), reply.status), (REPLY, Some(0), None));
        assert_eq!(server.leases.bound(now).count(), 0);
        let again = ask_as(&mut server, B, &message(SOLICIT, false, &[address]), now).unwrap();
        assert_eq!(again.given, [(next, 1000)]);
    }
    let mut server = server(Dhcp6Mode::Addresses);
    ask(&mut server, &message(REQUEST, true, &[address]), now).unwrap();
    let after = now + Duration::from_secs(1000);
    assert_eq!(server.leases.bound(after).count(), 0);
    assert_eq!(ask_as(&mut server, B, &message(REQUEST, true, &[address]), after).unwrap().given, [(address, 1000)]);
}

#[test]
fn a_client_learns_whether_it_has_moved() {
    let mut server = server(Dhcp6Mode::Addresses);
    let now = Instant::now();
    let status = |server: &mut Dhcp6Server, mac: MacAddr, addresses: &[Ipv6Addr]| {
        ask_as(server, mac, &message(CONFIRM, false, addresses), now).map(|reply| reply.whole_status().unwrap())
    };
    assert_eq!(status(&mut server, A, &[ip("fd00::1099")]), Some(0));
    assert_eq!(server.leases.bound(now).count(), 1, "a restart has lost the lease");
    assert_eq!(status(&mut server, B, &[ip("fd00::1099")]), Some(0), "another's address, but of this network");
    assert_eq!(server.leases.bound(now).next().map(|lease| lease.mac), Some(A), "it stays the other's");
    assert_eq!(status(&mut server, B, &[ip("fd00::2"), ip("fd00::99:0:0:1")]), Some(0), "none that can be leased");
    assert_eq!(status(&mut server, A, &[ip("fd00::1099"), ip("fd01::99")]), Some(4));
    assert_eq!(status(&mut server, A, &[]), None);
    let used = server.take(B, &message(CONFIRM, false, &[ip("fd00::1098")]), true, now, |_| true);
    assert_eq!(read(&used.unwrap()).whole_status(), Some(0), "an address that another station uses");
    let moved = ask(&mut server, &message(REQUEST, true, &[ip("fd01::99")]), now).unwrap();
    assert_eq!((moved.given, moved.status), (vec![], Some(4)));
}

#[test]
fn settings_are_given_without_a_lease() {
    let now = Instant::now();
    for mode in [Dhcp6Mode::Settings, Dhcp6Mode::Addresses] {
        let mut server = server(mode);
        let reply = ask(&mut server, &client_bytes(INFORMATION, &[(6, &[0, 23, 0, 32])]), now).unwrap();
        assert_eq!((reply.kind, reply.option(1), reply.option(24)), (REPLY, None, None));
        assert_eq!(reply.option(23), Some(&ip("fd00::1").octets()[..]));
        assert_eq!(reply.option(32), Some(&1000u32.to_be_bytes()[..]));
        let addresses = ask(&mut server, &message(SOLICIT, false, &[]), now);
        assert_eq!(addresses.is_some(), mode == Dhcp6Mode::Addresses);
    }
}

/// Objective: messages are discarded as RFC 8415 §16 requires: if a DUID is missing, forbidden or belongs to another
/// server, if the message has a forbidden identity association, or if the message is sent by unicast.
#[test]
fn messages_are_discarded_as_the_rfc_requires() {
    let now = Instant::now();
    let other: &[u8] = &[0, 3, 0, 1, 2, 0, 0, 0, 0, 8];
    let identity = identity_bytes(7, &[ip("fd00::1000")]);
    let association = (3, &identity[..]);
    let [client, own, others] = [(1, DUID), (2, OWN_DUID), (2, other)];
    // For each type: whether a message is answered if it has only the client's DUID, the DUIDs of the client and this
    // server, the DUIDs of the client and another server, or no DUID; and the status in the answer to a unicast
    // message.
    for (kind, answered, unicast) in [
        (SOLICIT, [true, false, false, false], None),
        (REQUEST, [false, true, false, false], Some(5)),
        (CONFIRM, [true, false, false, false], None),
        (RENEW, [false, true, false, false], Some(5)),
        (REBIND, [true, false, false, false], None),
        (RELEASE, [false, true, false, false], Some(5)),
        (DECLINE, [false, true, false, false], Some(5)),
        (INFORMATION, [false, false, false, false], None),
    ] {
        let mut server = server(Dhcp6Mode::Addresses);
        let options = [&[client][..], &[client, own], &[client, others], &[]];
        let got = options.map(|options| {
            let bytes = client_bytes(kind, &[options, &[association]].concat());
            ask(&mut server, &bytes, now).is_some()
        });
        assert_eq!(got, answered, "{kind}");
        let options = if answered[0] { options[0] } else { options[1] };
        let bytes = client_bytes(kind, &[options, &[association]].concat());
        let reply = server.take(A, &bytes, false, now, |_| false).map(|bytes| read(&bytes));
        assert_eq!(
            reply.map(|reply| (reply.whole_status().unwrap(), reply.given.len())),
            unicast.map(|code| (code, 0))
        );
    }
    let mut server = server(Dhcp6Mode::Addresses);
    let without = [&[client][..], &[client, own], &[client, others], &[]];
    let got = without.map(|options| ask(&mut server, &client_bytes(INFORMATION, options), now).is_some());
    assert_eq!(got, [true, true, false, true]);
    assert_eq!(server.take(A, &client_bytes(INFORMATION, &[]), false, now, |_| false), None);
}

#[test]
fn a_network_without_room_says_so() {
    let own = InterfaceAddress { address: ip("fd00::1"), prefix: 64 };
    let mut server = Dhcp6Server { leases: LeaseTable6::new(own, 0), ..server(Dhcp6Mode::Addresses) };
    let now = Instant::now();
    for (kind, ours) in [(SOLICIT, false), (REQUEST, true)] {
        let reply = ask(&mut server, &message(kind, ours, &[]), now).unwrap();
        assert_eq!((reply.given, reply.status), (vec![], Some(2)), "{kind}");
    }
}

#[test]
fn networks_have_leases_of_their_own() {
    let settings = server(Dhcp6Mode::Addresses).settings;
    let mut servers = Dhcp6Servers::new(settings);
    let now = Instant::now();
    let network = NetworkId::of_vlan(7).unwrap();
    for who in [NetworkId::UNTAGGED.station(A), network.station(A)] {
        let reply = servers.take(who, &message(REQUEST, true, &[ip("fd00::1000")]), true, now, |_| false);
        assert_eq!(read(&reply.unwrap()).given, [(ip("fd00::1000"), 1000)]);
    }
    assert_eq!(servers.bound(now).count(), 2);
    servers.forget(network);
    assert_eq!(servers.bound(now).count(), 1);
}
