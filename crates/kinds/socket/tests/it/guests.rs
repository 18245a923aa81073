//! Guests that say themselves where they are: libkrun's and vfkit's way.

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

/// A guest whose own socket is at `own`.
pub fn guest(own: &Path, port: &Path) -> UnixDatagram {
    let guest = UnixDatagram::bind(own).unwrap();
    guest.connect(port).unwrap();
    guest
}

/// Objective: the first who sends has the port, with four bytes of greeting before its first frame or without; nobody
/// else is heard. When its socket is gone, so is it, and the next guest has the port.
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

/// Objective: a guest that is killed, and sent nothing, is found to be gone.
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

/// Objective: who has no address is not answered, and said to have none; others have their turn.
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
    assert!(rig.refused.iter().all(|why| why.contains("it has no address")) && !rig.refused.is_empty());
}

/// Objective: descriptors cost a guest the port, with the first datagram or later.
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
