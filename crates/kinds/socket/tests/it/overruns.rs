//! Tests of peers that do not read.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use netvale_port::DropReason;
use netvale_socket::exchange::{ListeningSource, OwnAddress};
use netvale_socket::{FrameFormat, FrameRules};

use crate::common::{SocketRig, at, folder, frame, framed, frames_of, site, until};

/// Reads until nothing has arrived for a while.
fn read_all(peer: &mut UnixStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut some = [0; 65_536];
    peer.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    loop {
        match peer.read(&mut some) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&some[..count]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return all,
            Err(e) => panic!("{e}"),
        }
    }
}

/// Objective: two sides that write and do not read do not block each other: the port takes everything that its peer has
/// sent; frames for which there is no room are refused, and the accepted frames arrive whole, once and in order.
#[test]
fn both_write() {
    let folder = folder();
    let path = at(&folder, "a.sock");
    let mut rig = SocketRig::listening(&path);
    let mut peer = UnixStream::connect(&path).unwrap();
    rig.until_taken(0, true);
    let mut accepted = Vec::new();
    let mut number = 0;
    while rig.send(0, &frame(number, 14 + number as usize % 1500)) {
        accepted.push(number);
        number += 1;
        assert!(number < 1_000_000, "there is always room");
    }
    peer.set_nonblocking(true).unwrap();
    let mut written = 0;
    while let Ok(count) = peer.write(&framed(&frame(written, 60))) {
        assert_eq!(count, 64);
        written += 1;
        assert!(written < 1_000_000, "there is always room");
    }
    let came = rig.receives(0, written as usize);
    assert!(came.iter().zip(0..).all(|(came, number)| *came == frame(number, 60)));
    peer.set_nonblocking(false).unwrap();
    let (frames, rest) = frames_of(&read_all(&mut peer));
    let expected: Vec<_> = accepted.iter().map(|number| frame(*number, 14 + *number as usize % 1500)).collect();
    assert!(frames == expected && rest == 0, "{} of {}, {rest}", frames.len(), expected.len());
    until("there is room again", || rig.send(0, &frame(0, 60)));
    assert_eq!(rig.sent(0).frames(), accepted.len() as u64 + 1);
}

/// Returns a virtio-net header of 12 bytes and a TCP segment over IPv4, whose header asks for the checksum and for
/// segments of `size` bytes.
fn large_segment(payload: usize, size: u16, number: u32) -> Vec<u8> {
    let len = 40 + payload as u16;
    let mut frame = vec![1, 1];
    frame.extend(54u16.to_le_bytes());
    frame.extend(size.to_le_bytes());
    frame.extend([34, 0, 16, 0, 0, 0]);
    frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 0, 81]);
    frame.extend(number.to_be_bytes());
    frame.extend([0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    frame.extend((0..payload).map(|at| at as u8));
    frame
}

/// Returns the sequence number of a segment, and its payload size.
fn sequence_of(frame: &[u8]) -> (u32, usize) {
    let number = frame.get(38..).and_then(|rest| rest.first_chunk()).copied().map(u32::from_be_bytes);
    (number.unwrap(), frame.len() - 54)
}

/// Objective: frames with pending segmentation, from a port with virtio-net headers, arrive at a peer without such
/// headers in segments that fit the peer's MTU. A peer that does not read gets either all segments of a frame, once and
/// in order, or none, even if its socket fills up within the frame.
#[test]
fn segments_wait_for_room() {
    let folder = folder();
    let large = at(&folder, "large.sock");
    let source = ListeningSource::open(&OwnAddress::Unix(site(&large)), FrameFormat::Stream).unwrap();
    let mut from = SocketRig::new(source, FrameFormat::Stream, FrameRules::new(12, 1500), 0);
    let mut sender = UnixStream::connect(&large).unwrap();
    from.until_taken(0, true);
    let mut to = SocketRig::listening(&at(&folder, "small.sock"));
    let mut receiver = UnixStream::connect(at(&folder, "small.sock")).unwrap();
    to.until_taken(0, true);
    let mut accepted = Vec::new();
    for number in 0..1000u32 {
        sender.write_all(&framed(&large_segment(40_000, 1460, number << 16))).unwrap();
        let mut moved = (0, 0);
        until("it comes", || {
            moved = from.forward(0, &mut to);
            moved.0 == 1
        });
        if moved.1 == 0 {
            break;
        }
        accepted.push(number);
    }
    assert!((1..1000).contains(&accepted.len()), "{}", accepted.len());
    let mut wire = Vec::new();
    until("what was accepted is there", || {
        // Reading makes room in the socket, which wakes the worker.
        wire.extend(read_all(&mut receiver));
        to.receive(0);
        frames_of(&wire).0.len() >= accepted.len() * 40_000usize.div_ceil(1460)
    });
    let (frames, rest) = frames_of(&wire);
    assert_eq!((frames.len(), rest), (accepted.len() * 28, 0));
    let mut expected = accepted.iter().flat_map(|number| (0..28).map(move |i| (number << 16) + i * 1460));
    for frame in &frames {
        let (number, payload) = sequence_of(frame);
        assert_eq!(Some(number), expected.next());
        assert!(payload == 1460 || payload == 40_000 % 1460, "{payload}");
    }
    assert_eq!(to.sent(0).frames(), frames.len() as u64);
    assert_eq!(to.sent(0).drops(DropReason::NoRoom), 0);
}
