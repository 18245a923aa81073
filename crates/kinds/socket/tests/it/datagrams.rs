//! Tests of datagrams to and from one other socket, and to and from a multicast group.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use netvale_port::DropReason;
use netvale_socket::exchange::{DatagramPair, MulticastGroup, PairAddresses};
use netvale_socket::{FrameFormat, FrameRules};

use crate::common::{SocketRig, at, folder, frame, site, until};

const EVERY: Duration = Duration::from_millis(20);

/// Returns a loopback address that no other test process uses.
fn address(number: u8, port: u16) -> SocketAddrV4 {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(127, high, low, number), port)
}

fn pair(addresses: &PairAddresses) -> SocketRig {
    let source = DatagramPair::open(addresses, EVERY).unwrap();
    SocketRig::new(source, FrameFormat::Messages, FrameRules::new(0, 1500), 0)
}

fn unix(local: &Path, remote: &Path) -> SocketRig {
    pair(&PairAddresses::Unix(site(local), remote.into()))
}

/// Objective: a port waits for its peer and ignores other senders. The first refused frame, which is counted as `idle`,
/// tells the port that the peer is gone; the port then finds the next peer.
#[test]
fn peers_come_and_go() {
    let folder = folder();
    let here = at(&folder, "here");
    let there = at(&folder, "there");
    let mut rig = unix(&here, &there);
    rig.serve();
    assert!(!rig.line(0).is_taken());
    assert!(rig.send(0, &frame(0, 60)));
    assert_eq!(rig.sent(0).drops(DropReason::Idle), 1);
    for round in 1..4 {
        let peer = UnixDatagram::bind(&there).unwrap();
        rig.until_taken(0, true);
        assert_eq!(rig.story(0).connections, u64::from(round));
        peer.send_to(&frame(round, 60), &here).unwrap();
        assert_eq!(rig.receives(0, 1), [frame(round, 60)]);
        let stranger = UnixDatagram::unbound().unwrap().send_to(&frame(9, 60), &here).unwrap_err();
        assert_eq!(stranger.kind(), ErrorKind::PermissionDenied);
        assert!(rig.send(0, &frame(round, 61)));
        let mut datagram = [0; 100];
        let len = peer.recv(&mut datagram).unwrap();
        assert_eq!(datagram[..len], frame(round, 61));
        drop(peer);
        let before = rig.sent(0).drops(DropReason::Idle);
        assert!(rig.send(0, &frame(round, 62)));
        assert_eq!(rig.sent(0).drops(DropReason::Idle), before + 1);
        rig.until_taken(0, false);
        std::fs::remove_file(&there).unwrap();
    }
}

/// Objective: the port detects that a silent peer is gone although nobody sends to it, and receives from the next peer
/// at the same path.
#[test]
fn replaced_without_a_word() {
    let folder = folder();
    let here = at(&folder, "here");
    let there = at(&folder, "there");
    let mut rig = unix(&here, &there);
    for round in 1..4 {
        let peer = UnixDatagram::bind(&there).unwrap();
        peer.set_nonblocking(true).unwrap();
        until("it is heard", || {
            rig.serve();
            let _ = peer.send_to(&frame(round, 60), &here);
            rig.receive(0).contains(&frame(round, 60))
        });
        drop(peer);
        std::fs::remove_file(&there).unwrap();
    }
}

/// Objective: a peer that does not read blocks nobody: once the peer's socket is full, frames are refused for lack of
/// room; accepted frames arrive when the peer reads.
#[test]
fn a_peer_that_is_stopped() {
    let folder = folder();
    let here = at(&folder, "here");
    let there = at(&folder, "there");
    let peer = UnixDatagram::bind(&there).unwrap();
    let mut rig = unix(&here, &there);
    rig.until_taken(0, true);
    let mut sent = 0;
    while rig.send(0, &frame(sent, 60)) {
        sent += 1;
        assert!(sent < 1_000_000, "there is always room");
    }
    assert!(sent > 0);
    for number in 0..sent {
        let mut datagram = [0; 100];
        let len = peer.recv(&mut datagram).unwrap();
        assert_eq!(datagram[..len], frame(number, 60));
    }
    until("there is room again", || rig.send(0, &frame(0, 60)));
    assert!(rig.line(0).is_taken());
}

/// Objective: over UDP, frames pass to and from the peer; frames from other senders are not received. An ICMP error
/// from the peer's host costs frames, but the peer stays connected.
#[test]
fn udp() {
    let here = address(1, 5000);
    let there = address(2, 5001);
    let peer = UdpSocket::bind(there).unwrap();
    let mut rig = pair(&PairAddresses::Inet(here.into(), there.into()));
    rig.until_taken(0, true);
    peer.send_to(&frame(1, 1514), here).unwrap();
    UdpSocket::bind(address(3, 5001)).unwrap().send_to(&frame(9, 60), here).unwrap();
    assert_eq!(rig.receives(0, 1), [frame(1, 1514)]);
    assert!(rig.send(0, &frame(2, 700)));
    let mut datagram = [0; 1000];
    let (len, from) = peer.recv_from(&mut datagram).unwrap();
    assert_eq!((&datagram[..len], from), (&frame(2, 700)[..], SocketAddr::from(here)));
    drop(peer);
    until("its host says that nobody is there", || {
        assert!(rig.send(0, &frame(3, 60)));
        rig.sent(0).drops(DropReason::Idle) > 0
    });
    let peer = UdpSocket::bind(there).unwrap();
    peer.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    until("the next one gets frames", || {
        rig.send(0, &frame(4, 60));
        peer.recv(&mut datagram).is_ok()
    });
    assert!(rig.line(0).is_taken() && rig.story(0).connections == 1);
}

/// Objective: the members of a group receive each other's frames, and no member receives its own frames.
#[test]
fn a_group() {
    let loopback = Ipv4Addr::LOCALHOST;
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let group = SocketAddrV4::new(Ipv4Addr::new(239, 77, high, low), 5002);
    let member = || MulticastGroup::join(group, Some(loopback));
    let (one, other) = match (member(), member()) {
        (Ok(one), Ok(other)) => (one, other),
        (one, other) => {
            let why = one.err().or(other.err()).map(|e| e.to_string());
            return netvale_harness::skip(&format!("no multicast here: {why:?}"));
        }
    };
    let [mut one, mut other] =
        [one, other].map(|source| SocketRig::new(source, FrameFormat::Messages, FrameRules::new(0, 1500), 0));
    one.until_taken(0, true);
    other.until_taken(0, true);
    for number in 0..5 {
        assert!(one.send(0, &frame(number, 60)));
        assert_eq!(other.receives(0, 1), [frame(number, 60)]);
        assert!(one.receives(0, 0).is_empty());
        std::mem::swap(&mut one, &mut other);
    }
}
