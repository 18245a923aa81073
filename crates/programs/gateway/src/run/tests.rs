//! Tests of a whole gateway: a netmap pipe connects it to a guest that the test plays; servers are on this host's
//! loopback.

mod private;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use netvale::Port;
use netvale_wire::layers::{ICMP, TCP, UDP};
use netvale_wire::tcp::{ACK, FIN, PSH, RST, SYN};
use netvale_wire::{MacAddr, ethernet, vnet};

use super::*;
use crate::frame::{GuestFrame, VNET_LEN};
use crate::guests::NetworkId;
use crate::policy::EgressRule;
use crate::tcp::segment;

const OWN: [u8; 4] = [10, 0, 0, 1];
const GUEST: [u8; 4] = [10, 0, 0, 9];
const GUEST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const OWN_MAC: [u8; 6] = [2, 0x67, 10, 0, 0, 1];
const LIMIT: Duration = Duration::from_secs(20);

mod control;

/// An IP packet that the guest has received.
#[derive(Debug, Clone)]
struct GotPacket {
    src: IpAddr,
    l4: Vec<u8>,
}

/// A TCP segment that the guest has received.
#[derive(Debug, Clone)]
struct GotSegment {
    seq: u32,
    ack: u32,
    flags: u8,
    payload: Vec<u8>,
}

struct TestGuest {
    /// The guest's network; the guest's frames have the tag of this network.
    network: NetworkId,
    gateway: Gateway,
    link: GatewayLink,
    frame: Vec<u8>,
    ready: Vec<(WatchedThing, Readiness)>,
}

impl TestGuest {
    fn new(change: impl FnOnce(&mut GatewayOptions)) -> Self {
        let mut options = GatewayOptions::new("10.0.0.1/24,fd00::1/64".parse().unwrap());
        change(&mut options);
        let (outer, inner) = Port::pipe_pair(1024, 2112).unwrap();
        let gateway = Gateway::new(GatewayLink::of(outer), &options).unwrap();
        let network = NetworkId::UNTAGGED;
        TestGuest { network, gateway, link: GatewayLink::of(inner), frame: vec![0; MAX_FRAME], ready: Vec::new() }
    }

    fn send(&mut self, frame: &[u8]) {
        let (addresses, rest) = frame.split_at(ethernet::HEADER_LEN - 2);
        let tag = self.network.vlan().map(|vlan| [ethernet::VLAN.to_be_bytes(), vlan.to_be_bytes()].concat());
        assert!(self.link.send(&[&[0; VNET_LEN], addresses, &tag.unwrap_or_default(), rest]));
        self.link.sync();
    }

    fn say(&mut self, dst: [u8; 4], make: Make<'_>) {
        let ip = PacketBuilder::ethernet2(GUEST_MAC, OWN_MAC).ipv4(GUEST, dst, 64);
        let mut frame = Vec::new();
        match make {
            Make::Udp { ports, payload } => ip.udp(ports[0], ports[1]).write(&mut frame, payload),
            Make::Echo { seq } => ip.icmpv4_echo_request(7, seq).write(&mut frame, b"ping"),
            Make::Tcp { ports, seq, ack, flags, payload } => {
                let tcp = ip.tcp(ports[0], ports[1], seq, 60_000);
                let tcp = if flags & SYN != 0 { tcp.syn() } else { tcp };
                let tcp = if flags & FIN != 0 { tcp.fin() } else { tcp };
                let tcp = if flags & RST != 0 { tcp.rst() } else { tcp };
                let tcp = if flags & PSH != 0 { tcp.psh() } else { tcp };
                let tcp = if flags & ACK != 0 { tcp.ack(ack) } else { tcp };
                tcp.write(&mut frame, payload)
            }
        }
        .unwrap();
        self.send(&frame);
    }

    /// Runs the gateway until a guest of `self.network` receives a frame for which `wanted` returns `Some`. Other
    /// frames are dropped.
    fn wait<T>(&mut self, what: &str, mut wanted: impl FnMut(&[u8]) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            self.gateway.turn(&mut self.ready, Duration::from_millis(5)).unwrap();
            self.link.sync();
            while let Some(len) = self.link.receive(&mut self.frame) {
                let network = crate::frame::parse(&self.frame[..len]).map(|frame| frame.who().network);
                if network == Some(self.network)
                    && let Some(found) = wanted(&self.frame[..len])
                {
                    self.link.sync();
                    return found;
                }
            }
            self.link.sync();
            assert!(begun.elapsed() < LIMIT, "{what} does not come");
        }
    }

    fn wait_packet(&mut self, what: &str, protocol: u8) -> GotPacket {
        self.wait(what, |bytes| match crate::frame::parse(bytes)? {
            GuestFrame::Packet(got) if got.protocol == protocol => {
                Some(GotPacket { src: got.src, l4: got.l4.to_vec() })
            }
            _ => None,
        })
    }

    fn wait_segment(&mut self, what: &str) -> GotSegment {
        let packet = self.wait_packet(what, TCP);
        let got = segment::parse(&packet.l4).unwrap();
        GotSegment { seq: got.seq.0, ack: got.ack.0, flags: got.flags, payload: got.payload.to_vec() }
    }

    /// Opens a TCP connection. Returns the sequence number of the server's first byte.
    fn connect(&mut self, dst: [u8; 4], ports: [u16; 2]) -> u32 {
        self.say(dst, Make::Tcp { ports, seq: 999, ack: 0, flags: SYN, payload: b"" });
        let answer = self.wait_segment("the answer to a SYN");
        assert_eq!((answer.flags & (SYN | ACK | RST), answer.ack), (SYN | ACK, 1000));
        let first = answer.seq.wrapping_add(1);
        self.say(dst, Make::Tcp { ports, seq: 1000, ack: first, flags: ACK, payload: b"" });
        first
    }

    /// Runs the gateway until `holds` returns `true`.
    fn until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            self.gateway.turn(&mut self.ready, Duration::from_millis(5)).unwrap();
            self.link.sync();
            assert!(begun.elapsed() < LIMIT, "{what}");
        }
    }
}

enum Make<'a> {
    Udp { ports: [u16; 2], payload: &'a [u8] },
    Echo { seq: u16 },
    Tcp { ports: [u16; 2], seq: u32, ack: u32, flags: u8, payload: &'a [u8] },
}

fn allow_loopback(options: &mut GatewayOptions) {
    options.policy.add(EgressRule::parse("127.0.0.0/8", true).unwrap());
}

#[test]
fn the_gateway_answers_to_arp_and_echo() {
    let mut guest = TestGuest::new(|_| ());
    let mut arp = [0; 28];
    let mut packet = netvale_wire::arp::Packet::init(&mut arp).unwrap();
    packet.set_operation(netvale_wire::arp::REQUEST);
    packet.set_sender(MacAddr(GUEST_MAC), GUEST.into());
    packet.set_target(MacAddr::ZERO, OWN.into());
    let head = [&[0xff; 6][..], &GUEST_MAC, &ethernet::ARP.to_be_bytes()].concat();
    guest.send(&[&head[..], &arp].concat());
    let sender = guest.wait("the answer to ARP", |bytes| match crate::frame::parse(bytes)? {
        GuestFrame::Arp(_, packet) => Some(netvale_wire::arp::Packet::parse(packet).ok()?.sender()),
        _ => None,
    });
    assert_eq!(sender, (MacAddr(OWN_MAC), Ipv4Addr::from(OWN)));
    guest.say(OWN, Make::Echo { seq: 3 });
    let reply = guest.wait_packet("the answer to a ping", ICMP);
    assert_eq!((reply.src, &reply.l4[4..]), (IpAddr::from(OWN), &b"\0\x07\0\x03ping"[..]));
}

#[test]
fn a_guest_gets_a_lease_by_broadcast() {
    let mut guest = TestGuest::new(|_| ());
    let message =
        crate::dhcp::message::tests::client_bytes(crate::dhcp::message::DhcpKind::Discover, MacAddr(GUEST_MAC), &[]);
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(GUEST_MAC, [0xff; 6])
        .ipv4([0; 4], [255; 4], 64)
        .udp(68, 67)
        .write(&mut frame, &message)
        .unwrap();
    guest.send(&frame);
    let offer = guest.wait_packet("an offer", UDP);
    assert_eq!((offer.src, &offer.l4[8 + 16..8 + 20]), (IpAddr::from(OWN), &[10, 0, 0, 2][..]));
}

#[test]
fn a_guest_gets_an_ipv6_lease_from_the_group_of_servers() {
    let mut guest = TestGuest::new(|options| options.dhcp6 = crate::dhcp6::Dhcp6Mode::Addresses);
    let identity = crate::dhcp6::message::tests::identity_bytes(7, &[]);
    let options = [(1, &[0, 1, 9, 9][..]), (14, &[]), (3, &identity)];
    let message = crate::dhcp6::message::tests::client_bytes(1, &options);
    let source: [u8; 16] = "fe80::9".parse::<std::net::Ipv6Addr>().unwrap().octets();
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(GUEST_MAC, [0x33, 0x33, 0, 1, 0, 2])
        .ipv6(source, crate::dhcp6::ALL_SERVERS.octets(), 1)
        .udp(546, 547)
        .write(&mut frame, &message)
        .unwrap();
    guest.send(&frame);
    let reply = guest.wait_packet("a reply", UDP);
    assert_eq!((&reply.l4[..4], reply.l4[8]), (&[2, 35, 2, 34][..], 7));
    let leases = guest.gateway.obey(crate::control::message::ControlRequest::Leases).unwrap();
    assert_eq!(leases["leases"][0]["ip"], "fd00::1000");
    assert_eq!(leases["leases"][0]["mac"], "02:00:00:00:00:09");
}

#[test]
fn a_connection_carries_bytes_both_ways_and_ends_half_by_half() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let mut guest = TestGuest::new(allow_loopback);
    let ports = [4000, port];
    let first = guest.connect(OWN, ports);
    let (mut client, _) = server.accept().unwrap();
    guest.say(OWN, Make::Tcp { ports, seq: 1000, ack: first, flags: ACK | PSH | FIN, payload: b"question" });
    let acknowledged = guest.wait_segment("an acknowledgement");
    assert_eq!(acknowledged.ack, 1009);
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let mut question = String::new();
    client.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    client.write_all(b"answer").unwrap();
    drop(client);
    let mut got = Vec::new();
    let mut end = first;
    while end < first + 7 {
        let segment = guest.wait_segment("the answer");
        got.extend_from_slice(&segment.payload);
        end = end.max(segment.seq + segment.payload.len() as u32 + u32::from(segment.flags & FIN != 0));
    }
    assert_eq!(got, b"answer");
    guest.say(OWN, Make::Tcp { ports, seq: 1009, ack: end, flags: ACK, payload: b"" });
    guest.gateway.turn(&mut guest.ready, Duration::ZERO).unwrap();
    guest.say(OWN, Make::Tcp { ports, seq: 1009, ack: end, flags: ACK, payload: b"" });
    let after = guest.wait_segment("the connection is forgotten");
    assert_eq!(after.flags & RST, RST);
}

#[test]
fn a_closed_port_and_a_forbidden_address_are_refused() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut guest = TestGuest::new(allow_loopback);
    guest.say(OWN, Make::Tcp { ports: [4000, closed], seq: 999, ack: 0, flags: SYN, payload: b"" });
    let reset = guest.wait_segment("a reset");
    assert_eq!((reset.flags & RST, reset.ack), (RST, 1000));
    for dst in [[10, 9, 9, 9], [169, 254, 169, 254], [127, 0, 0, 1]] {
        guest.say(dst, Make::Tcp { ports: [4000, 80], seq: 999, ack: 0, flags: SYN, payload: b"" });
        assert_eq!(guest.wait_segment("a reset").flags & RST, RST, "{dst:?}");
        guest.say(dst, Make::Udp { ports: [4000, 80], payload: b"x" });
        assert_eq!(guest.wait_packet("an error", ICMP).l4[..2], [3, 13], "{dst:?}");
    }
}

#[test]
fn datagrams_pass_with_one_outer_port_and_only_from_whom_they_were_sent_to() {
    let servers: Vec<_> = (0..2).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut guest = TestGuest::new(allow_loopback);
    let mut seen = Vec::new();
    for server in &servers {
        server.set_nonblocking(true).unwrap();
        let port = server.local_addr().unwrap().port();
        guest.say(OWN, Make::Udp { ports: [4000, port], payload: b"" });
        let mut from = None;
        guest.until("a datagram", || {
            from = from.or_else(|| server.recv_from(&mut [0; 9]).ok());
            from.is_some()
        });
        seen.push(from.unwrap().1);
    }
    assert_eq!(seen[0], seen[1], "one outer port");
    stranger.send_to(b"stranger", seen[0]).unwrap();
    servers[0].send_to(&[7; 3000], seen[0]).unwrap();
    let mut reassembly = Reassembly::default();
    let whole = guest.wait("an answer in fragments", |bytes| match crate::frame::parse(bytes)? {
        GuestFrame::Fragment(piece) => Some(reassembly.add(&piece, Instant::now())?.packet()?.l4.to_vec()),
        GuestFrame::Packet(packet) if packet.protocol == UDP => panic!("a stranger's datagram"),
        _ => None,
    });
    assert_eq!((whole.len(), whole[8]), (3008, 7));
}

/// Objective: of a frame with many datagrams, a round sends no more than its share. The other datagrams follow in order
/// in the next rounds, before the next frame. The same holds for answers from a published port.
#[test]
fn datagrams_of_one_frame_take_several_rounds() {
    let [server, free] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let [port, published] = [&server, &free].map(|socket| socket.local_addr().unwrap().port());
    drop(free);
    let rule = format!("127.0.0.1:{published}:10.0.0.9:7/udp").parse().unwrap();
    let mut guest = TestGuest::new(|options| {
        allow_loopback(options);
        options.publish = vec![rule];
    });
    // From a ping, the gateway learns the guest's MAC address.
    guest.say(OWN, Make::Echo { seq: 1 });
    guest.wait_packet("the answer to a ping", ICMP);
    server.send_to(b"question", ("127.0.0.1", published)).unwrap();
    guest.wait_packet("a question", UDP);
    server.set_nonblocking(true).unwrap();
    for ports in [[4000, port], [7, port]] {
        let payload: Vec<u8> = (0..600u16).flat_map(u16::to_be_bytes).collect();
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(GUEST_MAC, OWN_MAC)
            .ipv4(GUEST, OWN, 64)
            .udp(ports[0], ports[1])
            .write(&mut frame, &payload)
            .unwrap();
        let mut header = [0; VNET_LEN];
        [header[0], header[1], header[4]] = [vnet::F_NEEDS_CSUM, vnet::GSO_UDP_L4, 2];
        assert!(guest.link.send(&[&header, &frame]));
        guest.say(OWN, Make::Udp { ports, payload: b"end" });
        let mut got = Vec::new();
        let mut senders = Vec::new();
        while !got.ends_with(b"end") {
            guest.gateway.turn(&mut guest.ready, Duration::from_millis(5)).unwrap();
            let before = senders.len();
            let mut room = [0; 9];
            while let Ok((len, from)) = server.recv_from(&mut room) {
                got.extend_from_slice(&room[..len]);
                senders.push(from);
            }
            assert!(senders.len() - before <= FRAMES, "{} in one round", senders.len() - before);
        }
        assert_eq!(got, [&payload[..], b"end"].concat());
        assert!(senders.iter().all(|from| *from == senders[0]));
        assert_eq!(senders[0].port() == published, ports[0] == 7);
    }
}

#[test]
fn a_closed_udp_port_is_said_to_be_closed() {
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut guest = TestGuest::new(allow_loopback);
    guest.say(OWN, Make::Udp { ports: [4000, closed], payload: b"x" });
    let error = guest.wait_packet("an error", ICMP);
    assert_eq!(error.l4[..2], [3, 3]);
    assert_eq!(error.l4[28..32], [&4000u16.to_be_bytes()[..], &closed.to_be_bytes()].concat(), "ports in the quote");
}

#[test]
fn names_are_asked_by_udp_and_tcp() {
    let mut guest = TestGuest::new(|options| options.leases = vec!["02:00:00:00:00:09=10.0.0.9,vm9".parse().unwrap()]);
    let question = crate::dns::message::tests::query_bytes(5, "vm9.lan", 1);
    guest.say(OWN, Make::Udp { ports: [4000, 53], payload: &question });
    let answer = guest.wait_packet("an answer", UDP);
    assert!(answer.l4.ends_with(&GUEST) && answer.l4[8..10] == [0, 5]);
    let first = guest.connect(OWN, [4001, 53]);
    let framed = [&(question.len() as u16).to_be_bytes()[..], &question].concat();
    guest.say(OWN, Make::Tcp { ports: [4001, 53], seq: 1000, ack: first, flags: ACK | PSH, payload: &framed });
    let mut got = Vec::new();
    while got.len() < 2 + question.len() + 16 {
        got.extend_from_slice(&guest.wait_segment("an answer by TCP").payload);
    }
    assert_eq!(got[2..], answer.l4[8..]);
}

#[test]
fn a_published_port_reaches_the_guest_or_is_reset() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let rule = format!("127.0.0.1:{port}:10.0.0.9:22").parse().unwrap();
    let mut guest = TestGuest::new(|options| options.publish = vec![rule]);
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let asked = guest.wait("a question for the guest", |bytes| match crate::frame::parse(bytes)? {
        GuestFrame::Arp(_, packet) => Some(netvale_wire::arp::Packet::parse(packet).ok()?.target().1),
        _ => None,
    });
    assert_eq!(asked, Ipv4Addr::from(GUEST));
    // From a ping, the gateway learns the guest's MAC address.
    guest.say(OWN, Make::Echo { seq: 1 });
    let syn = guest.wait_segment("a call");
    assert_eq!(syn.flags & (SYN | ACK), SYN);
    let ports = [22, client.local_addr().unwrap().port()];
    guest.say(OWN, Make::Tcp { ports, seq: 499, ack: syn.seq + 1, flags: SYN | ACK, payload: b"" });
    guest.say(OWN, Make::Tcp { ports, seq: 500, ack: syn.seq + 1, flags: ACK | PSH, payload: b"hello" });
    guest.say(OWN, Make::Tcp { ports, seq: 505, ack: syn.seq + 1, flags: ACK | FIN, payload: b"" });
    client.set_nonblocking(true).unwrap();
    let mut got = Vec::new();
    guest.until("the guest's words", || client.read_to_end(&mut got).is_ok());
    assert_eq!(got, b"hello");
    drop(client);
    let second = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let call = guest.wait_segment("another call");
    let ports = [22, second.local_addr().unwrap().port()];
    let call = if call.flags & SYN == 0 { guest.wait_segment("another call") } else { call };
    guest.say(OWN, Make::Tcp { ports, seq: 0, ack: call.seq + 1, flags: RST | ACK, payload: b"" });
    second.set_nonblocking(true).unwrap();
    let mut end = None;
    guest.until("a reset", || {
        end = (&second).read(&mut [0; 1]).err().filter(|error| error.kind() != std::io::ErrorKind::WouldBlock);
        end.is_some()
    });
    assert_eq!(end.map(|error| error.kind()), Some(std::io::ErrorKind::ConnectionReset));
}

/// Objective: a valid frame in which one byte is changed, or that is cut at any length, does not make the gateway panic
/// or end.
#[test]
fn spoilt_frames_are_survived() {
    let mut guest = TestGuest::new(allow_loopback);
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(GUEST_MAC, OWN_MAC)
        .ipv4(GUEST, [192, 0, 2, 1], 64)
        .udp(4000, 53)
        .write(&mut frame, &crate::dns::message::tests::query_bytes(5, "example.com", 1))
        .unwrap();
    for at in 0..frame.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut spoilt = vec![1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            spoilt.extend_from_slice(&frame);
            spoilt[VNET_LEN + at] = value;
            guest.gateway.take_frame(&spoilt);
            guest.gateway.take_frame(&spoilt[..VNET_LEN + at]);
        }
        guest.gateway.turn(&mut guest.ready, Duration::ZERO).unwrap();
        guest.link.sync();
        while guest.link.receive(&mut guest.frame).is_some() {}
        guest.link.sync();
    }
    guest.say(OWN, Make::Echo { seq: 9 });
    guest.wait("the answer to a ping", |bytes| match crate::frame::parse(bytes)? {
        GuestFrame::Packet(packet) => (packet.protocol == ICMP && packet.l4[0] == 0).then_some(()),
        _ => None,
    });
}
