//! Tests of listening sockets: files that already exist at the socket's path, and peers that arrive together.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

use netvale_port::DropReason;
use netvale_port::listener::{OpenError, socket_for};
use netvale_socket::exchange::{GuestSocket, ListeningSource, OwnAddress, PlugSwitch};
use netvale_socket::{FrameFormat, FrameRules};
use rustix::net::{RecvFlags, SendFlags, SocketAddrUnix, SocketType};

use crate::common::{SocketRig, at, folder, frame, framed, site, until};

fn listen(path: &Path, format: FrameFormat) -> Result<ListeningSource, OpenError> {
    ListeningSource::open(&OwnAddress::Unix(site(path)), format)
}

/// A function that creates a socket of some type and drops it.
type Opening<'a> = dyn Fn() -> Result<(), OpenError> + 'a;

/// Objective: a stale socket of any type at the path is replaced; any other file stays as it is, and the error names
/// it.
#[test]
fn what_is_in_the_place() {
    let folder = folder();
    let path = at(&folder, "a.sock");
    let open: [(&str, &Opening); 4] = [
        ("stream", &|| listen(&path, FrameFormat::Stream).map(drop)),
        ("messages", &|| listen(&path, FrameFormat::Messages).map(drop)),
        ("a guest's", &|| GuestSocket::open(&site(&path)).map(drop)),
        ("a switch's", &|| PlugSwitch::open(&site(&path)).map(drop)),
    ];
    for (what, open) in open {
        drop(UnixListener::bind(&path).unwrap());
        open().unwrap_or_else(|e| panic!("{what}, in place of a stale one: {e}"));
        assert!(!path.exists(), "{what}: its file is removed");
        drop(UnixDatagram::bind(&path).unwrap());
        open().unwrap_or_else(|e| panic!("{what}, in place of a stale one of datagrams: {e}"));

        let listener = UnixListener::bind(&path).unwrap();
        assert!(matches!(open(), Err(OpenError::InUse(_))), "{what}");
        drop(listener);
        fs::remove_file(&path).unwrap();
        let datagrams = UnixDatagram::bind(&path).unwrap();
        assert!(matches!(open(), Err(OpenError::InUse(_))), "{what}");
        drop(datagrams);
        fs::remove_file(&path).unwrap();

        fs::write(&path, "mine").unwrap();
        assert!(matches!(open(), Err(OpenError::NotASocket(_))), "{what}");
        assert_eq!(fs::read(&path).unwrap(), b"mine", "{what}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(open(), Err(OpenError::NotASocket(_))), "{what}");
        fs::remove_dir(&path).unwrap();
    }
}

/// Objective: of two ports that start together, at most one gets the path, and the socket at the path is then that
/// port's socket.
#[test]
fn two_starts_at_once() {
    let folder = folder();
    let path = at(&folder, "a.sock");
    for _ in 0..20 {
        drop(UnixListener::bind(&path));
        let begin = Barrier::new(2);
        let start = || {
            begin.wait();
            listen(&path, FrameFormat::Stream).ok()
        };
        let both = std::thread::scope(|s| {
            let other = s.spawn(start);
            [start(), other.join().unwrap()]
        });
        let all: Vec<_> = both.into_iter().flatten().collect();
        assert!(all.len() < 2);
        if !all.is_empty() {
            UnixStream::connect(&path).unwrap();
        }
        drop(all);
        let _ = fs::remove_file(&path);
    }
}

/// Objective: of many peers that arrive together, all get a line eventually, but not in one burst; a line serves one
/// peer, and takes the next peer once it is free.
#[test]
fn many_come() {
    let folder = folder();
    let path = at(&folder, "a.sock");
    let mut rig = SocketRig::listening(&path);
    let mut peers: Vec<_> = (0..40).map(|_| UnixStream::connect(&path).unwrap()).collect();
    rig.serve();
    assert!((1..=32).contains(&rig.lines()), "{}", rig.lines());
    until("all have lines", || {
        rig.serve();
        rig.lines() == peers.len() && (0..40).all(|number| rig.line(number).is_taken())
    });
    drop(peers.remove(7));
    rig.until_taken(7, false);
    let _peer = UnixStream::connect(&path).unwrap();
    rig.until_taken(7, true);
    assert_eq!((rig.lines(), rig.story(7).connections, rig.story(8).connections), (40, 2, 1));
}

/// Connects; `None` if the listener's backlog has no room.
fn come(path: &Path, kind: SocketType) -> Option<OwnedFd> {
    let socket = socket_for(kind).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).ok().map(|()| socket)
}

/// Objective: a peer that connects again and again is accepted at the limited rate; a peer that stays gets a line
/// eventually.
#[test]
fn a_storm() {
    let folder = folder();
    let path = at(&folder, "a.sock");
    let mut rig = SocketRig::listening(&path);
    let begun = Instant::now();
    let mut stormed = 0;
    until("a hundred connections", || {
        stormed += usize::from(come(&path, SocketType::STREAM).is_some());
        rig.serve();
        (0..rig.lines() as u16).for_each(|number| drop(rig.receive(number)));
        stormed >= 100
    });
    let accepted: u64 = (0..rig.lines() as u16).map(|number| rig.story(number).connections).sum();
    let may = 32 + begun.elapsed().as_millis() as u64 / 20 + 1;
    assert!(accepted <= may, "{accepted} in {:?}", begun.elapsed());
    let mut peer = None;
    until("it is heard", || {
        peer = peer.take().or_else(|| {
            let peer = come(&path, SocketType::STREAM)?;
            rustix::net::send(&peer, &framed(&frame(7, 60)), SendFlags::empty()).unwrap();
            Some(peer)
        });
        rig.serve();
        (0..rig.lines() as u16).any(|number| rig.receive(number).contains(&frame(7, 60)))
    });
}

/// Objective: on a connection that carries messages, each message is a frame, in both directions. A message that is too
/// long is dropped without ending the connection, which ends when the peer hangs up.
#[test]
fn messages() {
    let folder = folder();
    let path = at(&folder, "m.sock");
    let source = listen(&path, FrameFormat::Messages).unwrap();
    let mut rig = SocketRig::new(source, FrameFormat::Messages, FrameRules::new(0, 1500), 0);
    assert!(fs::metadata(&path).unwrap().file_type().is_socket());
    let peer = come(&path, SocketType::SEQPACKET).unwrap();
    rig.until_taken(0, true);
    for number in 0..50 {
        rustix::net::send(&peer, &frame(number, 60), SendFlags::empty()).unwrap();
    }
    let came = rig.receives(0, 50);
    assert!(came.iter().zip(0..).all(|(came, number)| *came == frame(number, 60)));
    rustix::net::send(&peer, &vec![0; 80_000], SendFlags::empty()).unwrap();
    rustix::net::send(&peer, &frame(51, 60), SendFlags::empty()).unwrap();
    assert_eq!(rig.receives(0, 1), [frame(51, 60)]);
    assert_eq!(rig.lost(0, DropReason::TooLong), 1);
    assert!(rig.send(0, &frame(1, 1514)) && rig.send(0, &frame(2, 1515)));
    assert_eq!(rig.sent(0).drops(DropReason::TooLong), 1);
    let mut message = [0; 2000];
    let (len, _) = rustix::net::recv(&peer, &mut message[..], RecvFlags::empty()).unwrap();
    assert_eq!(message[..len], frame(1, 1514));
    drop(peer);
    rig.until_taken(0, false);
    assert_eq!(rig.story(0).last_error, None);
}
