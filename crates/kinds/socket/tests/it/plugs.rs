//! Tests of a VDE switch and its plugs.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netvale_socket::exchange::PlugSwitch;
use netvale_socket::{FrameFormat, FrameRules};
use rustix::net::SendFlags;

use crate::common::{SocketRig, at, folder, frame, site, until};

const MAGIC: u32 = 0xfeed_face;

/// Creates a switch with its sockets in `folder`.
pub fn switch(folder: &Path) -> SocketRig {
    let source = PlugSwitch::open(&site(&folder.join("ctl"))).unwrap();
    SocketRig::new(source, FrameFormat::Messages, FrameRules::new(0, 1500), 1)
}

/// Returns a request of a plug whose socket is at `own`.
fn request(magic: u32, version: u32, kind: u32, own: &Path) -> Vec<u8> {
    let mut bytes = [magic, version, kind].map(u32::to_ne_bytes).concat();
    bytes.extend(1u16.to_ne_bytes());
    bytes.extend(own.as_os_str().as_encoded_bytes());
    bytes.resize(122, 0);
    bytes.extend(b"a test\0");
    bytes
}

/// A plug: its connection, its socket, and the path to which it sends frames.
pub struct PluggedIn {
    pub control: UnixStream,
    pub data: UnixDatagram,
    pub switch: PathBuf,
}

impl PluggedIn {
    /// Connects a plug that requests the port with number `port`, or any port if `port` is 0.
    pub fn new(rig: &mut SocketRig, folder: &Path, name: &str, port: u32) -> PluggedIn {
        let own = folder.join(name);
        let data = UnixDatagram::bind(&own).unwrap();
        let mut control = UnixStream::connect(folder.join("ctl")).unwrap();
        control.write_all(&request(MAGIC, 3, port << 8, &own)).unwrap();
        let switch = answered(rig, &mut control).unwrap();
        PluggedIn { control, data, switch }
    }

    pub fn send(&self, frame: &[u8]) {
        self.data.send_to(frame, &self.switch).unwrap();
    }

    pub fn receive(&self) -> Vec<u8> {
        let mut datagram = vec![0; 2000];
        let len = self.data.recv(&mut datagram).unwrap();
        datagram.truncate(len);
        datagram
    }
}

/// Returns the path in the switch's answer; `None` if the switch has hung up.
fn answered(rig: &mut SocketRig, control: &mut UnixStream) -> Option<PathBuf> {
    control.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut answer = [0; 110];
    let mut count = 0;
    until("an answer, or the end", || {
        rig.serve();
        let read = control.read(&mut answer);
        let is_none = read.as_ref().is_err_and(|e| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
        // If the switch hung up before it read the whole request, the read fails.
        count = read.unwrap_or(0);
        !is_none
    });
    assert!(count == 0 || count == answer.len(), "{count}");
    let path = answer.get(2..count)?.split(|&byte| byte == 0).next()?;
    Some(String::from_utf8(path.to_vec()).unwrap().into())
}

/// Objective: a plug gets the port whose number it requests, or the first free port; frames pass in both directions.
/// The switch's socket exists as long as the plug, and frames that the plug sent before it left still arrive.
#[test]
fn plugs() {
    let folder = folder();
    let dir = folder.path();
    let mut rig = switch(dir);
    for round in 1..4 {
        let all = [("a", 7, 7), ("b", 0, 1), ("c", 0, 2)];
        let plugs = all.map(|(name, port, number)| (PluggedIn::new(&mut rig, dir, name, port), number));
        for (plug, number) in plugs {
            assert_eq!(plug.switch, dir.join(format!("{number:03}.0")));
            let story = rig.story(number);
            assert_eq!((story.connections, story.about.as_deref()), (round, Some("a test")));
            plug.send(&frame(number.into(), 60));
            assert_eq!(rig.receives(number, 1), [frame(number.into(), 60)]);
            assert!(rig.send(number, &frame(number.into(), 61)));
            assert_eq!(plug.receive(), frame(number.into(), 61));
            plug.send(&frame(9, 62));
            drop(plug.control);
            let mut last = Vec::new();
            until("it is gone", || {
                rig.serve();
                last.extend(rig.receive(number));
                !rig.line(number).is_taken()
            });
            assert_eq!(last, [frame(9, 62)]);
            assert!(!plug.switch.exists(), "{number}");
        }
        ["a", "b", "c"].iter().for_each(|name| std::fs::remove_file(dir.join(name)).unwrap());
    }
    assert_eq!(rig.refused, [""; 0]);
}

/// Objective: a plug cannot get a port that another plug has.
#[test]
fn a_port_that_is_taken() {
    let folder = folder();
    let dir = folder.path();
    let mut rig = switch(dir);
    let first = PluggedIn::new(&mut rig, dir, "a", 7);
    let _data = UnixDatagram::bind(dir.join("b")).unwrap();
    let mut control = UnixStream::connect(dir.join("ctl")).unwrap();
    control.write_all(&request(MAGIC, 3, 7 << 8, &dir.join("b"))).unwrap();
    assert_eq!(answered(&mut rig, &mut control), None);
    first.send(&frame(1, 60));
    assert_eq!(rig.receives(7, 1), [frame(1, 60)]);
}

/// Objective: the switch hangs up on requests of other versions or with an unusable socket, and the reason names the
/// expected value; a request that arrives in pieces is answered; a request with descriptors is not.
#[test]
fn requests() {
    let folder = folder();
    let dir = folder.path();
    let mut rig = switch(dir);
    let own = dir.join("a");
    let _data = UnixDatagram::bind(&own).unwrap();
    for (bytes, why) in [
        (request(0xfeed_beef, 3, 0, &own), "expected 0xfeedface"),
        (request(MAGIC, 1, 0, &own), "expected 3"),
        (request(MAGIC, 2, 0, &own), "expected 3"),
        (request(MAGIC, 4, 0, &own), "expected 3"),
        (request(MAGIC, 3, 5, &own), "type 5"),
        (request(MAGIC, 3, 1 << 24, &own), "port 65536"),
        (request(MAGIC, 3, 0, Path::new("a")), "usable address"),
        (request(MAGIC, 3, 0, &dir.join("nobody")), "cannot connect to"),
        (request(MAGIC, 3, 0, &dir.join("ctl")), "cannot connect to"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "expected 0xfeedface"),
    ] {
        let mut control = UnixStream::connect(dir.join("ctl")).unwrap();
        control.write_all(&bytes).unwrap();
        assert_eq!(answered(&mut rig, &mut control), None, "{why}");
        assert!(rig.refused.last().is_some_and(|last| last.contains(why)), "{why}: {:?}", rig.refused);
    }
    let control = UnixStream::connect(dir.join("ctl")).unwrap();
    let passed = std::fs::File::open("/dev/null").unwrap();
    netvale_fdio::send(&control, &request(MAGIC, 3, 0, &own), &[passed], SendFlags::empty()).unwrap();
    assert_eq!(answered(&mut rig, &mut control.try_clone().unwrap()), None);

    let mut control = UnixStream::connect(dir.join("ctl")).unwrap();
    for byte in request(MAGIC, 3, 3 << 8, &own) {
        control.write_all(&[byte]).unwrap();
        rig.serve();
    }
    assert_eq!(answered(&mut rig, &mut control), Some(dir.join("003.0")));
}

/// Objective: after a while, the switch hangs up on a plug that sends no request or an incomplete request; other plugs
/// need not wait until then.
#[test]
fn says_nothing() {
    let folder = folder();
    let dir = folder.path();
    let mut rig = switch(dir);
    let mut silent = UnixStream::connect(dir.join("ctl")).unwrap();
    let mut half = UnixStream::connect(dir.join("ctl")).unwrap();
    half.write_all(&request(MAGIC, 3, 0, &at(&folder, "a"))[..100]).unwrap();
    rig.serve();
    let plug = PluggedIn::new(&mut rig, dir, "b", 0);
    plug.send(&frame(1, 60));
    assert_eq!(rig.receives(1, 1), [frame(1, 60)]);
    rig.serve_at(Instant::now() + Duration::from_secs(6));
    assert_eq!((answered(&mut rig, &mut silent), answered(&mut rig, &mut half)), (None, None));
    assert_eq!(rig.refused.len(), 2);
}
