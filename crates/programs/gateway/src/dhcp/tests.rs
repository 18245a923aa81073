//! Tests with exchanges of messages for each state of a client (RFC 2131 §4.3).

use super::leases::StaticLease;
use super::message::tests::client_bytes;
use super::*;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 8]);
const C: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
const OWN: [u8; 4] = [10, 0, 0, 1];

fn server(fixed: &[&str]) -> DhcpServer {
    let own = InterfaceAddress { address: OWN.into(), prefix: 24 };
    let fixed: Vec<StaticLease> = fixed.iter().map(|text| text.parse().unwrap()).collect();
    let search = vec!["corp.example".to_owned(), "example".to_owned()];
    let settings = DhcpSettings { own, lease: Duration::from_secs(3600), mtu: 1500, domain: "lan".to_owned(), search };
    DhcpServer::new(settings, LeaseTable::new(own, fixed))
}

/// An answer as a client reads it: type, address, destination.
#[derive(Debug, PartialEq, Eq)]
struct ReadAnswer {
    kind: u8,
    yiaddr: [u8; 4],
    to: [u8; 4],
}

const OFFER: u8 = 2;
const ACK: u8 = 5;
const NAK: u8 = 6;

struct TestNet {
    server: DhcpServer,
    now: Instant,
    used: Vec<Ipv4Addr>,
}

impl TestNet {
    fn new(fixed: &[&str]) -> Self {
        TestNet { server: server(fixed), now: Instant::now(), used: Vec::new() }
    }

    fn say(&mut self, mac: MacAddr, bytes: &[u8]) -> Option<ReadAnswer> {
        let used = &self.used;
        let answer = self.server.take(mac, bytes, self.now, |address| used.contains(&address))?;
        let of_four = |bytes: &[u8]| -> [u8; 4] { bytes.try_into().unwrap() };
        Some(ReadAnswer { kind: answer.bytes[242], yiaddr: of_four(&answer.bytes[16..20]), to: answer.to.octets() })
    }

    fn discover(&mut self, mac: MacAddr) -> Option<ReadAnswer> {
        self.say(mac, &client_bytes(DhcpKind::Discover, mac, &[]))
    }

    fn select(&mut self, mac: MacAddr, address: [u8; 4], server: [u8; 4]) -> Option<ReadAnswer> {
        let options = [(option::REQUESTED, &address[..]), (option::SERVER, &server[..])];
        self.say(mac, &client_bytes(DhcpKind::Request, mac, &options))
    }

    fn reboot(&mut self, mac: MacAddr, address: [u8; 4]) -> Option<ReadAnswer> {
        self.say(mac, &client_bytes(DhcpKind::Request, mac, &[(option::REQUESTED, &address)]))
    }

    fn extend(&mut self, mac: MacAddr, address: [u8; 4]) -> Option<ReadAnswer> {
        let mut bytes = client_bytes(DhcpKind::Request, mac, &[]);
        bytes[12..16].copy_from_slice(&address);
        self.say(mac, &bytes)
    }

    /// Obtains a lease for a MAC address with DISCOVER and REQUEST. Returns the leased address.
    fn lease(&mut self, mac: MacAddr) -> [u8; 4] {
        let offered = self.discover(mac).expect("an offer").yiaddr;
        assert_eq!(self.select(mac, offered, OWN).map(|answer| answer.kind), Some(ACK));
        offered
    }
}

fn kind(answer: Option<ReadAnswer>) -> Option<u8> {
    answer.map(|answer| answer.kind)
}

#[test]
fn a_client_gets_what_it_is_offered() {
    let mut net = TestNet::new(&[]);
    let offer = net.discover(A).expect("an offer");
    assert_eq!((offer.kind, offer.to), (OFFER, offer.yiaddr), "to its station, at its future address");
    let ack = net.select(A, offer.yiaddr, OWN).expect("a confirmation");
    assert_eq!((ack.kind, ack.yiaddr), (ACK, offer.yiaddr));
    assert_ne!(net.discover(B).expect("an offer").yiaddr, offer.yiaddr);
    assert_eq!(net.discover(A).expect("an offer").yiaddr, offer.yiaddr, "the same again");
}

#[test]
fn a_client_that_asks_for_it_is_answered_at_the_address_of_all() {
    let mut net = TestNet::new(&[]);
    let mut bytes = client_bytes(DhcpKind::Discover, A, &[]);
    bytes[10] = 0x80;
    assert_eq!(net.say(A, &bytes).expect("an offer").to, [255; 4]);
}

#[test]
fn what_was_not_offered_is_denied_and_others_offers_are_left_alone() {
    let mut net = TestNet::new(&[]);
    let offered = net.discover(A).expect("an offer").yiaddr;
    let nak = net.select(A, [10, 0, 0, 77], OWN).expect("an answer");
    assert_eq!((nak.kind, nak.yiaddr, nak.to), (NAK, [0; 4], [255; 4]));
    assert_eq!(net.select(A, offered, [10, 0, 0, 2]), None, "another server's");
    assert_eq!(net.server.leases.choose(b"x", B, Some(offered.into()), net.now, |_| false), Some(offered.into()));
    assert_eq!(kind(net.select(B, offered, OWN)), Some(NAK), "nothing was offered to it");
}

#[test]
fn a_client_that_restarts_keeps_its_address() {
    let mut net = TestNet::new(&[]);
    assert_eq!(net.reboot(A, [10, 0, 0, 9]), None, "no record: silence");
    assert_eq!(kind(net.reboot(A, [192, 168, 0, 9])), Some(NAK), "another network");
    let address = net.lease(A);
    assert_eq!(kind(net.reboot(A, address)), Some(ACK));
    assert_eq!(kind(net.reboot(A, [10, 0, 0, 99])), Some(NAK));
}

#[test]
fn a_lease_is_extended_and_ends() {
    let mut net = TestNet::new(&[]);
    let address = net.lease(A);
    net.now += Duration::from_secs(3000);
    let ack = net.extend(A, address).expect("a confirmation");
    assert_eq!((ack.kind, ack.yiaddr, ack.to), (ACK, address, address));
    net.now += Duration::from_secs(3000);
    let wanted = [(option::REQUESTED, &address[..])];
    let other = net.say(B, &client_bytes(DhcpKind::Discover, B, &wanted)).expect("an offer");
    assert_ne!(other.yiaddr, address, "it was extended");
    net.now += Duration::from_secs(1000);
    let free = net.say(C, &client_bytes(DhcpKind::Discover, C, &wanted)).expect("an offer");
    assert_eq!(free.yiaddr, address, "it has ended");
    assert_eq!(kind(net.extend(A, address)), Some(NAK));
}

#[test]
fn a_server_that_has_forgotten_adopts_who_uses_an_address() {
    let mut net = TestNet::new(&[]);
    assert_eq!(kind(net.extend(A, [10, 0, 0, 40])), Some(ACK));
    assert_eq!(kind(net.extend(B, [10, 0, 0, 40])), Some(NAK), "it is somebody's now");
    net.used.push([10, 0, 0, 41].into());
    assert_eq!(kind(net.extend(B, [10, 0, 0, 41])), Some(NAK), "another station uses it");
    assert_eq!(kind(net.extend(B, OWN)), Some(NAK));
    assert_eq!(kind(net.extend(B, [10, 0, 0, 255])), Some(NAK));
}

#[test]
fn declined_and_released_addresses_are_free_again_in_time() {
    let mut net = TestNet::new(&[]);
    let address = net.lease(A);
    let decline = client_bytes(DhcpKind::Decline, A, &[(option::REQUESTED, &address), (option::SERVER, &OWN)]);
    assert_eq!(net.say(A, &decline), None);
    let next = net.lease(A);
    assert_ne!(next, address);
    let mut release = client_bytes(DhcpKind::Release, A, &[(option::SERVER, &OWN)]);
    release[12..16].copy_from_slice(&next);
    assert_eq!(net.say(A, &release), None);
    let wanted = [(option::REQUESTED, &next[..])];
    assert_eq!(net.say(B, &client_bytes(DhcpKind::Discover, B, &wanted)).expect("an offer").yiaddr, next);
}

#[test]
fn a_client_with_an_address_learns_the_rest() {
    let mut net = TestNet::new(&[]);
    let mut inform = client_bytes(DhcpKind::Inform, A, &[]);
    inform[12..16].copy_from_slice(&[10, 0, 0, 200]);
    let ack = net.say(A, &inform).expect("a confirmation");
    assert_eq!((ack.kind, ack.yiaddr, ack.to), (ACK, [0; 4], [10, 0, 0, 200]));
}

#[test]
fn written_leases_and_their_names_are_given_out() {
    let mut net = TestNet::new(&["02:00:00:00:00:09=10.0.0.50,web"]);
    assert_eq!(net.lease(A), [10, 0, 0, 50]);
    assert_eq!(net.server.leases.by_name("web").map(|(_, address)| address), Some([10, 0, 0, 50].into()));
}

#[test]
fn messages_in_anothers_name_are_ignored() {
    let mut net = TestNet::new(&[]);
    assert_eq!(net.say(B, &client_bytes(DhcpKind::Discover, A, &[])), None);
    let both = [(option::REQUESTED, &[10, 0, 0, 5][..])];
    let mut bytes = client_bytes(DhcpKind::Request, A, &both);
    bytes[12..16].copy_from_slice(&[10, 0, 0, 5]);
    assert_eq!(net.say(A, &bytes), None, "in two states together");
    for answer in [DhcpKind::Offer, DhcpKind::Ack, DhcpKind::Nak] {
        assert_eq!(net.say(A, &client_bytes(answer, A, &[])), None);
    }
}

#[test]
fn clones_with_one_identifier_get_addresses_of_their_own() {
    let mut net = TestNet::new(&[]);
    let id = [(option::CLIENT_ID, &[255, 1, 2, 3][..])];
    let offers = [A, B].map(|mac| net.say(mac, &client_bytes(DhcpKind::Discover, mac, &id)).expect("an offer").yiaddr);
    assert_ne!(offers[0], offers[1]);
}

/// Objective: a search list has as many whole names as one option has room for.
#[test]
fn a_search_list_is_cut_between_names() {
    let domains = |names: &[&str]| {
        crate::net::encoded_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), 255)
    };
    assert_eq!(domains(&["a.bc", "d"]), b"\x01a\x02bc\0\x01d\0");
    let long = format!("{}.x", "y".repeat(60));
    assert_eq!(domains(&[&long, &long, &long, &long, "z"]).len(), 3 * 64 + 3);
}
