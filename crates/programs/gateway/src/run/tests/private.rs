//! Guests of several networks with equal addresses.

use super::*;
use crate::ports::PortChange;

fn network(vlan: u16) -> NetworkId {
    NetworkId::of_vlan(vlan).unwrap()
}

fn private(options: &mut GatewayOptions) {
    allow_loopback(options);
    options.private = true;
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn named(name: &str, vlan: Option<u16>) -> PortChange {
    PortChange { name: name.to_owned(), network: vlan.map(network) }
}

/// Objective: clones that begin connections with equal addresses, ports and sequence numbers have separate connections;
/// each clone receives only the bytes of its own connection.
#[test]
fn equal_connections_of_clones_do_not_collide() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = [4000, server.local_addr().unwrap().port()];
    let mut guest = TestGuest::new(private);
    let mut clients = Vec::new();
    for vlan in [7, 8] {
        guest.network = network(vlan);
        let first = guest.connect(OWN, ports);
        clients.push((vlan, first, server.accept().unwrap().0));
    }
    for (vlan, first, client) in &mut clients {
        guest.network = network(*vlan);
        client.write_all(format!("for {vlan}").as_bytes()).unwrap();
        let mut got = Vec::new();
        while got.len() < 5 {
            got.extend_from_slice(&guest.wait_segment("the server's words").payload);
        }
        assert_eq!(got, format!("for {vlan}").as_bytes());
        let words = format!("from {vlan}");
        let ack = *first + got.len() as u32;
        guest.say(OWN, Make::Tcp { ports, seq: 1000, ack, flags: ACK | PSH, payload: words.as_bytes() });
        client.set_nonblocking(true).unwrap();
        let mut heard = [0; 16];
        let mut len = 0;
        guest.until("the guest's words", || {
            len = client.read(&mut heard).unwrap_or(0);
            len > 0
        });
        assert_eq!(&heard[..len], words.as_bytes());
    }
}

/// Objective: if a clone sends a segment of a connection that the guest it was cloned from has opened, the clone gets a
/// reset immediately, and the original guest's connection stays open.
#[test]
fn connections_from_before_a_snapshot_are_reset() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = [4000, server.local_addr().unwrap().port()];
    let mut guest = TestGuest::new(private);
    guest.network = network(7);
    let first = guest.connect(OWN, ports);
    let (mut client, _) = server.accept().unwrap();
    guest.network = network(8);
    guest.say(OWN, Make::Tcp { ports, seq: 1000, ack: first, flags: ACK | PSH, payload: b"from before" });
    let reset = guest.wait_segment("a reset");
    assert_eq!((reset.flags & RST, reset.seq), (RST, first));
    guest.network = network(7);
    client.write_all(b"still here").unwrap();
    assert_eq!(guest.wait_segment("the server's words").payload, b"still here");
}

/// Objective: each network has its own leases: clients in different networks get the same address.
#[test]
fn each_network_has_its_own_leases() {
    let mut guest = TestGuest::new(private);
    let kind = crate::dhcp::message::DhcpKind::Discover;
    for (vlan, last) in [(7, 1), (8, 2), (9, 1)] {
        guest.network = network(vlan);
        let mac = [2, 0, 0, 0, 0, last];
        let message = crate::dhcp::message::tests::client_bytes(kind, MacAddr(mac), &[]);
        let mut frame = Vec::new();
        let ip = PacketBuilder::ethernet2(mac, [0xff; 6]).ipv4([0; 4], [255; 4], 64);
        ip.udp(68, 67).write(&mut frame, &message).unwrap();
        guest.send(&frame);
        assert_eq!(guest.wait_packet("an offer", UDP).l4[8 + 16..8 + 20], [10, 0, 0, 2], "VLAN {vlan}");
    }
}

/// Objective: published ports lead to the guests behind the private ports that they name: to a guest that has sent
/// frames before, and to a guest at a given address, which the gateway resolves by ARP.
#[test]
fn published_ports_lead_to_private_ports() {
    let [first, second] = [free_port(), free_port()];
    let rules = [format!("{first}:@vm7:22"), format!("{second}:10.0.0.9@vm8:22")];
    let mut guest = TestGuest::new(|options| {
        private(options);
        options.publish = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    });
    guest.gateway.take_change(named("vm7", Some(7)));
    guest.gateway.take_change(named("vm8", Some(8)));
    guest.network = network(7);
    guest.say(OWN, Make::Echo { seq: 1 });
    guest.wait_packet("the answer to a ping", ICMP);
    let client = TcpStream::connect(("127.0.0.1", first)).unwrap();
    let call = guest.wait_segment("a call");
    let ports = [22, client.local_addr().unwrap().port()];
    guest.say(OWN, Make::Tcp { ports, seq: 499, ack: call.seq + 1, flags: SYN | ACK, payload: b"" });
    guest.wait_segment("an acknowledgement");
    guest.network = network(8);
    let _client = TcpStream::connect(("127.0.0.1", second)).unwrap();
    let asked = guest.wait("a question for the guest", |bytes| match crate::frame::parse(bytes)? {
        GuestFrame::Arp(_, packet) => Some(netvale_wire::arp::Packet::parse(packet).ok()?.target().1),
        _ => None,
    });
    assert_eq!(asked, Ipv4Addr::from(GUEST));
    guest.say(OWN, Make::Echo { seq: 1 });
    assert_eq!(guest.wait_segment("a call").flags & (SYN | ACK), SYN);
}

/// Objective: when a private port is removed, its guest's connections end, and its addresses and leases are forgotten;
/// segments of the next guest in the VLAN are answered by resets, and not attributed to the previous guest's
/// connections.
#[test]
fn a_guest_goes_with_its_port() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = [4000, server.local_addr().unwrap().port()];
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("flows");
    let mut guest = TestGuest::new(|options| {
        private(options);
        options.flows = Some(record.clone());
    });
    guest.gateway.take_change(named("vm7", Some(7)));
    guest.network = network(7);
    let first = guest.connect(OWN, ports);
    let (mut client, _) = server.accept().unwrap();
    guest.gateway.take_change(named("vm7", None));
    let end = client.read(&mut [0; 1]);
    assert_eq!(end.map_err(|error| error.kind()), Err(std::io::ErrorKind::ConnectionReset));
    assert_eq!(guest.gateway.core.neighbours.station(guest.network, GUEST.into()), None);
    guest.gateway.take_change(named("vm8", Some(7)));
    guest.say(OWN, Make::Tcp { ports, seq: 1000, ack: first, flags: ACK, payload: b"" });
    assert_eq!(guest.wait_segment("a reset").flags & RST, RST);
    let lines = std::fs::read_to_string(record).unwrap();
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines.iter().map(|line| (line["event"].as_str(), line["port"].as_str())).collect();
    assert_eq!(told, [(Some("opened"), Some("vm7")), (Some("closed"), Some("vm7"))]);
    assert_eq!(lines[1]["reason"], "port-gone");
}

/// Objective: without private ports, the gateway ignores frames with a VLAN tag.
#[test]
fn tagged_frames_are_ignored_without_private_ports() {
    let mut guest = TestGuest::new(allow_loopback);
    guest.network = network(7);
    guest.say(OWN, Make::Echo { seq: 1 });
    guest.network = NetworkId::UNTAGGED;
    guest.say(OWN, Make::Echo { seq: 2 });
    let reply = guest.wait_packet("the answer to the ping without a tag", ICMP);
    assert_eq!(reply.l4[6..8], [0, 2]);
    assert!(guest.gateway.core.networks.iter().eq([NetworkId::UNTAGGED]));
}

/// Objective: the router advertises itself to a guest that was restored on a private port and has not sent a frame yet.
#[test]
fn a_silent_clone_hears_the_router() {
    let mut guest = TestGuest::new(private);
    guest.gateway.take_change(named("vm7", Some(7)));
    guest.network = network(7);
    guest.gateway.core.now = Instant::now();
    let Gateway { core, adverts, .. } = &mut guest.gateway;
    adverts.as_mut().unwrap().begin(core);
    let advert = guest.wait_packet("a router advertisement", netvale_wire::layers::ICMP6);
    assert_eq!(advert.l4[0], 134);
}

/// Objective: a limit that names a private port applies to the port's guest under any MAC address, even if the rule was
/// added before the port had that name, and ends with the port.
#[test]
fn a_private_port_has_the_limit_of_its_name() {
    let mut guest = TestGuest::new(|options| {
        private(options);
        options.rates.add("@vm7 new 1/s".parse().unwrap());
    });
    let begun = |guest: &mut TestGuest, vlan: u16| {
        let who = |n: u8| network(vlan).station(MacAddr([2, 0, 0, 0, 0, n]));
        (0..5).filter(|n| guest.gateway.core.may_begin(who(*n), crate::flows::FlowDirection::Out)).count()
    };
    assert_eq!((begun(&mut guest, 7), begun(&mut guest, 8)), (1, 1), "either may be the port");
    guest.gateway.take_change(named("other8", Some(8)));
    guest.gateway.take_change(named("vm7", Some(7)));
    assert_eq!((begun(&mut guest, 7), begun(&mut guest, 8)), (0, 5));
    guest.gateway.take_change(named("vm7", None));
    guest.gateway.take_change(named("other", Some(7)));
    assert_eq!(begun(&mut guest, 7), 5);
}
