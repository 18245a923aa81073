//! Tests of frames in streams: cut at any byte, of any length, and hostile lengths.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use netvale_port::DropReason;
use netvale_socket::exchange::{DialTarget, Dialing};
use netvale_socket::{FrameFormat, FrameRules};
use rustix::net::SendFlags;

use crate::common::{SocketRig, at, folder, frame, framed, frames_of, until};

/// A port and its first peer.
fn connected() -> (tempfile::TempDir, SocketRig, UnixStream) {
    let folder = folder();
    let path = at(&folder, "a.sock");
    let mut rig = SocketRig::listening(&path);
    let peer = UnixStream::connect(&path).unwrap();
    rig.until_taken(0, true);
    (folder, rig, peer)
}

/// Objective: frames arrive whole and in order wherever their stream is cut, however often the reader peeks before the
/// rest arrives.
#[test]
fn cut_at_every_byte() {
    let (_folder, mut rig, mut peer) = connected();
    let frames: Vec<_> = [14, 60, 15].iter().zip(1..).map(|(len, number)| frame(number, *len)).collect();
    let wire: Vec<u8> = frames.iter().flat_map(|frame| framed(frame)).collect();
    for looks in [1, 2, 5] {
        for cut in 0..=wire.len() {
            let (first, rest) = wire.split_at(cut);
            peer.write_all(first).unwrap();
            let mut came: Vec<_> = (0..looks).flat_map(|_| rig.receive(0)).collect();
            let (whole, _) = frames_of(first);
            if looks > 1 {
                assert_eq!(came, whole, "{cut}");
            }
            peer.write_all(rest).unwrap();
            came.extend(rig.receives(0, frames.len() - came.len()));
            assert_eq!(came, frames, "{cut}, {looks} looks");
        }
    }
    assert_eq!(rig.story(0).last_error, None);
}

/// Objective: a frame whose bytes arrive one by one, with a peek after each byte, is received whole, although its bytes
/// fill the socket's buffer early.
#[test]
fn byte_by_byte() {
    let (_folder, mut rig, mut peer) = connected();
    peer.set_nonblocking(true).unwrap();
    let sent = frame(1, 1514);
    let mut came = Vec::new();
    for byte in framed(&sent) {
        until("there is room", || {
            let written = peer.write(&[byte]);
            came.extend(rig.receive(0));
            written.is_ok()
        });
    }
    came.extend(rig.receives(0, 1 - came.len()));
    assert_eq!(came, [sent]);
}

/// Objective: an empty frame, or one shorter than an Ethernet header, is only dropped; a length above the maximum ends
/// the connection with a reason; the frames before it arrive. The next peer is not affected.
#[test]
fn lengths() {
    let (folder, mut rig, mut peer) = connected();
    for (len, dropped) in [(0, 1), (13, 2)] {
        peer.write_all(&framed(&vec![1; len])).unwrap();
        peer.write_all(&framed(&frame(7, 60))).unwrap();
        assert_eq!(rig.receives(0, 1), [frame(7, 60)]);
        assert_eq!(rig.lost(0, DropReason::Runt), dropped);
    }
    for (bad, begins) in [(65_551u32, 2), (u32::MAX, 3), (1 << 31, 4)] {
        peer.write_all(&[framed(&frame(1, 60)), bad.to_be_bytes().to_vec(), vec![0; 100]].concat()).unwrap();
        assert_eq!(rig.receives(0, 1), [frame(1, 60)]);
        rig.until_taken(0, false);
        let why = rig.story(0).last_error.unwrap();
        assert!(why.contains(&format!("a frame of {bad} bytes: expected at most 65550")), "{why}");
        assert!(peer.read(&mut [0; 1]).is_ok_and(|count| count == 0) || peer.write_all(&[0; 4]).is_err());
        peer = UnixStream::connect(at(&folder, "a.sock")).unwrap();
        rig.until_taken(0, true);
        assert_eq!(rig.story(0).connections, begins);
    }
}

/// Objective: on a port with virtio-net headers, a frame of the maximum length arrives, although it exceeds many
/// sockets' buffers; on a port without headers, it is dropped as too long.
#[test]
fn longest() {
    let (_folder, mut rig, mut peer) = connected();
    let long = vec![3; 65_550];
    let sender = std::thread::spawn(move || {
        peer.write_all(&[framed(&long), framed(&frame(2, 60))].concat()).unwrap();
        peer
    });
    assert_eq!(rig.receives(0, 1), [frame(2, 60)]);
    assert_eq!(rig.lost(0, DropReason::TooLong), 1);
    drop(sender.join().unwrap());
    rig.until_taken(0, false);
    assert_eq!(rig.story(0).last_error, None);
}

/// Objective: half a frame is not delivered, and the hang-up of the peer that sent it is noticed.
#[test]
fn half_a_frame() {
    let (_folder, mut rig, mut peer) = connected();
    let wire = framed(&frame(1, 60));
    peer.write_all(&wire[..40]).unwrap();
    rig.receives(0, 0);
    drop(peer);
    rig.until_taken(0, false);
    assert_eq!((rig.receives(0, 0).len(), rig.story(0).last_error), (0, None));
}

/// Objective: a peer that passes descriptors in a stream loses the connection; frames sent before the descriptors
/// arrive.
#[test]
fn descriptors() {
    let (_folder, mut rig, mut peer) = connected();
    peer.write_all(&framed(&frame(1, 60))).unwrap();
    assert_eq!(rig.receives(0, 1), [frame(1, 60)]);
    let passed = std::fs::File::open("/dev/null").unwrap();
    netvale_fdio::send(&peer, &framed(&frame(2, 60)), &[passed], SendFlags::empty()).unwrap();
    rig.until_taken(0, false);
    let why = rig.story(0).last_error.unwrap();
    assert!(why.contains("descriptors"), "{why}");
}

/// Objective: a port that connects to its peer does so when the peer appears, and reconnects after the peer has hung
/// up; over TCP, frames pass in both directions.
#[test]
fn connects_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = DialTarget::Inet(listener.local_addr().unwrap());
    let source = Dialing::new(target, FrameFormat::Stream, Duration::from_millis(20));
    let mut rig = SocketRig::new(source, FrameFormat::Stream, FrameRules::new(0, 1500), 0);
    for round in 1..4 {
        rig.until_taken(0, true);
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(&framed(&frame(round, 100))).unwrap();
        assert_eq!(rig.receives(0, 1), [frame(round, 100)]);
        until("there is room", || rig.send(0, &frame(round, 61)));
        let mut wire = vec![0; 65];
        peer.read_exact(&mut wire).unwrap();
        assert_eq!(frames_of(&wire), (vec![frame(round, 61)], 0));
        drop(peer);
        rig.until_taken(0, false);
        assert_eq!(rig.story(0).connections, u64::from(round));
    }
}

/// Objective: with a virtio-net header, frames have one in both directions.
#[test]
fn headers() {
    let folder = folder();
    let path = at(&folder, "h.sock");
    let target = DialTarget::Unix(path.clone().into());
    let source = Dialing::new(target, FrameFormat::Stream, Duration::from_millis(20));
    let mut rig = SocketRig::new(source, FrameFormat::Stream, FrameRules::new(12, 1500), 0);
    rig.serve();
    assert!(!rig.line(0).is_taken());
    let listener = UnixListener::bind(&path).unwrap();
    rig.until_taken(0, true);
    let (mut peer, _) = listener.accept().unwrap();
    let long = frame(1, 60_000);
    peer.write_all(&framed(&[&[0; 12][..], &long].concat())).unwrap();
    assert_eq!(rig.receives(0, 1), [long]);
    assert!(rig.send(0, &frame(2, 9000)));
    let mut wire = vec![0; 4 + 12 + 9000];
    peer.read_exact(&mut wire).unwrap();
    let (frames, _) = frames_of(&wire);
    assert_eq!(frames, [[&[0; 12][..], &frame(2, 9000)].concat()]);
}
