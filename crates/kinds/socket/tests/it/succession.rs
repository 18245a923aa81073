//! Tests of ports that continue in another process, which takes over from a running or a killed predecessor.

use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::time::Duration;

use netvale_socket::exchange::{
    DatagramPair, GuestSocket, ListeningSource, OwnAddress, PairAddresses, PeerSource, PlugSwitch,
};
use netvale_socket::{FrameFormat, FrameRules};

use crate::common::{SocketRig, at, folder, frame, framed, frames_of, site, until};
use crate::guests::{guest, port};
use crate::plugs::{PluggedIn, switch};

/// Returns the successor of a port with one socket.
fn successor(old: SocketRig, is_parked: bool, format: FrameFormat, source: impl PeerSource + 'static) -> SocketRig {
    let states = old.states(is_parked);
    // The predecessor must not clean up, as if it were killed or had handed its sockets over.
    std::mem::forget(old);
    let mut new = SocketRig::new(source, format, FrameRules::new(0, 1500), 1);
    new.go_on(states);
    new.claim();
    new
}

fn stream_successor(old: SocketRig, is_parked: bool, path: &Path) -> SocketRig {
    let [socket] = old.sockets().try_into().unwrap();
    let source = ListeningSource::restore(&OwnAddress::Unix(site(path)), FrameFormat::Stream, socket).unwrap();
    successor(old, is_parked, FrameFormat::Stream, source)
}

/// Objective: a stream continues at any byte of a frame, whether the start of the frame is in the socket or in the
/// predecessor's memory. Nothing is lost or duplicated.
#[test]
fn streams_go_on() {
    let folder = folder();
    let path = at(&folder, "a.sock");
    let mut rig = SocketRig::listening(&path);
    let mut peer = UnixStream::connect(&path).unwrap();
    rig.until_taken(0, true);
    let wire = framed(&frame(5, 60));
    for cut in 0..wire.len() {
        for looks in [0, 1, 5] {
            peer.write_all(&framed(&frame(4, 20))).unwrap();
            peer.write_all(&wire[..cut]).unwrap();
            let mut came: Vec<_> = (0..looks).flat_map(|_| rig.receive(0)).collect();
            rig = stream_successor(rig, true, &path);
            peer.write_all(&wire[cut..]).unwrap();
            came.extend(rig.receives(0, 2 - came.len()));
            assert_eq!(came, [frame(4, 20), frame(5, 60)], "{cut}, {looks} looks");
        }
    }
    assert_eq!(rig.story(0).connections, 1);
    drop(rig);
    assert!(!path.exists());
}

/// Objective: frames that were accepted for a peer that does not read reach the peer once through the successor.
#[test]
fn what_was_accepted_goes_on() {
    let folder = folder();
    let path = at(&folder, "a.sock");
    let mut rig = SocketRig::listening(&path);
    let mut peer = UnixStream::connect(&path).unwrap();
    rig.until_taken(0, true);
    let mut count = 0;
    while rig.send(0, &frame(count, 1514)) {
        count += 1;
    }
    rig = stream_successor(rig, true, &path);
    peer.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut wire = Vec::new();
    until("all is there", || {
        let mut some = [0; 65_536];
        let read = peer.read(&mut some).unwrap_or(0);
        wire.extend_from_slice(&some[..read]);
        rig.receive(0);
        frames_of(&wire).0.len() >= count as usize
    });
    until("there is room", || rig.send(0, &frame(count, 60)));
    let mut last = [0; 64];
    peer.read_exact(&mut last).unwrap();
    wire.extend_from_slice(&last);
    let (frames, rest) = frames_of(&wire);
    assert_eq!(rest, 0);
    assert!(frames.iter().zip(0..count).all(|(came, number)| *came == frame(number, 1514)));
    assert_eq!(frames[count as usize..], [frame(count, 60)]);
}

/// Objective: if a process is killed between two frames, its stream continues, even if the socket contains the start of
/// a frame. If the process is killed with a part of a frame in its memory, the stream is ended with a reason.
#[test]
fn killed() {
    let folder = folder();
    let path = at(&folder, "a.sock");
    let mut rig = SocketRig::listening(&path);
    let mut peer = UnixStream::connect(&path).unwrap();
    rig.until_taken(0, true);
    let wire = framed(&frame(5, 60));
    for looks in [0, 1] {
        peer.write_all(&wire[..30]).unwrap();
        (0..looks).for_each(|_| drop(rig.receive(0)));
        rig = stream_successor(rig, false, &path);
        peer.write_all(&wire[30..]).unwrap();
        assert_eq!(rig.receives(0, 1), [frame(5, 60)]);
    }
    peer.write_all(&wire[..30]).unwrap();
    (0..5).for_each(|_| drop(rig.receive(0)));
    // Unlike a killed process, this one still has a copy of the socket.
    let rig = stream_successor(rig, false, &path);
    assert!(!rig.line(0).is_taken());
    let why = rig.story(0).last_error.unwrap();
    assert!(why.contains("in the middle of a frame"), "{why}");
}

/// Objective: a plug, its port, and the switch's socket for it continue, and the successor notices when the plug's
/// connection ends.
#[test]
fn plugs_go_on() {
    let folder = folder();
    let dir = folder.path();
    let mut rig = switch(dir);
    let plug = PluggedIn::new(&mut rig, dir, "a", 7);
    for (round, is_parked) in [(1, true), (2, false), (3, true)] {
        plug.send(&frame(round, 60));
        let [socket] = rig.sockets().try_into().unwrap();
        let source = PlugSwitch::restore(&site(&dir.join("ctl")), socket).unwrap();
        rig = successor(rig, is_parked, FrameFormat::Messages, source);
        assert_eq!(rig.receives(7, 1), [frame(round, 60)]);
        assert!(rig.send(7, &frame(round, 61)));
        assert_eq!(plug.receive(), frame(round, 61));
    }
    assert_eq!(rig.story(7).connections, 1);
    let other = PluggedIn::new(&mut rig, dir, "b", 0);
    assert_eq!(other.switch, dir.join("001.0"));
    drop(plug.control);
    rig.until_taken(7, false);
    assert!(!dir.join("007.0").exists());
    drop(rig);
    assert!(!dir.join("ctl").exists() && !dir.join("001.0").exists());
}

/// Objective: a guest and the peer of a pair keep their ports, and the successor notices when they end.
#[test]
fn datagrams_go_on() {
    let folder = folder();
    let path = at(&folder, "vm.sock");
    let own = at(&folder, "guest");
    let guests = |rig: &SocketRig| {
        let [socket] = rig.sockets().try_into().unwrap();
        GuestSocket::restore(&site(&path), socket).unwrap()
    };
    let rig = port(&path);
    let peer = guest(&own, &path);
    goes_on(rig, &peer, guests, |peer, bytes| peer.send(bytes));

    let here = at(&folder, "here");
    let there = at(&folder, "there");
    let addresses = PairAddresses::Unix(site(&here), there.clone().into());
    let every = Duration::from_millis(20);
    let pairs = |rig: &SocketRig| {
        let [socket] = rig.sockets().try_into().unwrap();
        DatagramPair::restore(&addresses, every, socket).unwrap()
    };
    let peer = UnixDatagram::bind(&there).unwrap();
    let source = DatagramPair::open(&addresses, every).unwrap();
    let rig = SocketRig::new(source, FrameFormat::Messages, FrameRules::new(0, 1500), 0);
    goes_on(rig, &peer, pairs, |peer, bytes| peer.send_to(bytes, &here));
}

fn goes_on<S: PeerSource + 'static>(
    mut rig: SocketRig,
    peer: &UnixDatagram,
    restored: impl Fn(&SocketRig) -> S,
    send: impl Fn(&UnixDatagram, &[u8]) -> std::io::Result<usize>,
) {
    peer.set_nonblocking(true).unwrap();
    until("it is heard", || {
        let _ = send(peer, &frame(0, 60));
        rig.serve();
        !rig.receive(0).is_empty()
    });
    while !rig.receive(0).is_empty() {}
    for round in 1..4 {
        send(peer, &frame(round, 60)).unwrap();
        let source = restored(&rig);
        rig = successor(rig, round % 2 == 0, FrameFormat::Messages, source);
        assert_eq!(rig.receives(0, 1), [frame(round, 60)]);
        assert!(rig.send(0, &frame(round, 61)));
        let mut datagram = [0; 100];
        let len = peer.recv(&mut datagram).unwrap();
        assert_eq!(datagram[..len], frame(round, 61));
        rig.serve();
        assert!(rig.line(0).is_taken());
    }
    assert_eq!(rig.story(0).connections, 1);
}
