//! Guests that choose their own socket path: libkrun and vfkit.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use netvale_port::DropReason;
use netvale_socket::exchange::GuestSocket;
use netvale_socket::{FrameFormat, FrameRules};
use rustix::net::SendFlags;

use crate::common::{SocketRig, at, folder, frame, site, until};

pub fn port(path: &Path) -> SocketRig {
    let source = GuestSocket::open(&site(path)).unwrap();
    SocketRig::new(source, FrameFormat::Messages, FrameRules::new(0, 1500), 0)
}

/// Creates a guest whose own socket is at `own`.
pub fn guest(own: &Path, port: &Path) -> UnixDatagram {
    let guest = UnixDatagram::bind(own).unwrap();
    guest.connect(port).unwrap();
    guest
}

/// Objective: the first sender gets the port, with or without a four-byte greeting before its first frame; other
/// senders are ignored. When a guest's socket is gone, the guest counts as gone, and the next guest gets the port.
#[test]
fn one_after_the_other() {
    let folder = folder();
    let path = at(&folder, "vm.sock");
    let mut rig = port(&path);
    for (round, greets) in [(1, true), (2, false), (3, true)] {
        let own = at(&folder, &format!("guest{round}"));
        let peer = guest(&own, &path);
        if greets {
            peer.send(b"VFKT").unwrap();
        }
        peer.send(&frame(round, 60)).unwrap();
        rig.until_taken_and(0, |rig| rig.receive(0) == [frame(round, 60)]);
        assert_eq!((rig.story(0).connections, rig.lost(0, DropReason::Runt)), (u64::from(round), 0));
        let stranger = at(&folder, "stranger");
        let refused = UnixDatagram::bind(&stranger).unwrap().send_to(&frame(9, 60), &path).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        std::fs::remove_file(&stranger).unwrap();
        assert!(rig.send(0, &frame(round, 61)));
        let mut datagram = [0; 100];
        let len = peer.recv(&mut datagram).unwrap();
        assert_eq!(datagram[..len], frame(round, 61));
        drop(peer);
        assert!(rig.send(0, &frame(round, 62)));
        rig.until_taken(0, false);
    }
}

/// Objective: the port detects a killed guest that sent nothing.
#[test]
fn gone_without_a_word() {
    let folder = folder();
    let path = at(&folder, "vm.sock");
    let mut rig = port(&path);
    let peer = guest(&at(&folder, "guest"), &path);
    peer.send(b"VFKT").unwrap();
    rig.until_taken(0, true);
    drop(peer);
    rig.until_taken(0, false);
}

/// Objective: a sender whose socket has no address is rejected for this reason; later senders are served.
#[test]
fn without_an_address() {
    let folder = folder();
    let path = at(&folder, "vm.sock");
    let mut rig = port(&path);
    let nobody = UnixDatagram::unbound().unwrap();
    (0..5).for_each(|number| drop(nobody.send_to(&frame(number, 60), &path)));
    let peer = guest(&at(&folder, "guest"), &path);
    peer.set_nonblocking(true).unwrap();
    until("it is heard", || {
        let _ = peer.send(&frame(7, 60));
        rig.serve();
        rig.receive(0).contains(&frame(7, 60))
    });
    assert!(rig.refused.iter().all(|why| why.contains("the peer has no address")) && !rig.refused.is_empty());
}

/// Objective: a guest that passes descriptors loses the port, whether it passes them with its first or with a later
/// datagram.
#[test]
fn descriptors() {
    let folder = folder();
    let path = at(&folder, "vm.sock");
    let mut rig = port(&path);
    for (number, is_first) in [(1, true), (2, false)] {
        let peer = guest(&at(&folder, &format!("guest{number}")), &path);
        if !is_first {
            peer.send(&frame(1, 60)).unwrap();
            rig.until_taken(0, true);
        }
        let passed = std::fs::File::open("/dev/null").unwrap();
        netvale_fdio::send(&peer, &frame(2, 60), &[passed], SendFlags::empty()).unwrap();
        until("it is disconnected", || {
            rig.serve();
            rig.receive(0);
            rig.story(0).connections == number && !rig.line(0).is_taken()
        });
        assert!(rig.story(0).last_error.is_some_and(|why| why.contains("descriptors")));
    }
}
