//! Ports whose peers are at sockets: peers connect, get ports, and leave, even while the daemon is replaced.

use crate::common;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use common::ends::End;
use common::ports::attach;
use common::{Daemon, LIMIT, falls_asleep, frame, receive, send, sum, until};
use netvale::Port;
use serde_json::{Value, json};

/// A peer that is connected to a stream port.
struct StreamCaller(UnixStream);

impl StreamCaller {
    fn new(path: &Path) -> StreamCaller {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        StreamCaller(stream)
    }
}

/// A plug of a VDE switch: its control connection, its own socket, and the path of the socket that the switch has for
/// this plug.
struct VdeEnd {
    /// The plug exists as long as this connection is open.
    _control: UnixStream,
    data: UnixDatagram,
    switch: PathBuf,
}

impl VdeEnd {
    fn new(folder: &Path, own: &Path, port: u32) -> VdeEnd {
        let data = UnixDatagram::bind(own).unwrap();
        data.set_read_timeout(Some(LIMIT)).unwrap();
        let mut control = UnixStream::connect(folder.join("ctl")).unwrap();
        let mut request = [0xfeed_face, 3, port << 8].map(u32::to_ne_bytes).concat();
        request.extend(1u16.to_ne_bytes());
        request.extend(own.as_os_str().as_encoded_bytes());
        request.resize(122, 0);
        control.write_all(&request).unwrap();
        let mut answer = [0; 110];
        control.read_exact(&mut answer).unwrap();
        let path = answer[2..].split(|byte| *byte == 0).next().unwrap();
        VdeEnd { _control: control, data, switch: String::from_utf8(path.to_vec()).unwrap().into() }
    }
}

impl End for StreamCaller {
    fn send(&mut self, frame: &[u8]) {
        self.0.write_all(&[&(frame.len() as u32).to_be_bytes()[..], frame].concat()).unwrap();
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut frame).unwrap();
        frame
    }
}

impl End for VdeEnd {
    fn send(&mut self, frame: &[u8]) {
        self.data.send_to(frame, &self.switch).unwrap();
    }

    fn receive(&mut self) -> Vec<u8> {
        received(&self.data)
    }
}

/// A peer with a datagram socket. The socket is connected to the port's socket before the peer sends.
impl End for UnixDatagram {
    fn send(&mut self, frame: &[u8]) {
        UnixDatagram::send(self, frame).unwrap();
    }

    fn receive(&mut self) -> Vec<u8> {
        received(self)
    }
}

fn received(socket: &UnixDatagram) -> Vec<u8> {
    let mut datagram = vec![0; 2000];
    let len = socket.recv(&mut datagram).unwrap();
    datagram.truncate(len);
    datagram
}

/// Passes a frame in each direction between a peer and a program's port. After a kill, earlier frames may arrive again,
/// and are skipped.
fn passes(peer: &mut dyn End, program: &mut Port, tag: u8) {
    peer.send(&frame(255, 9, tag));
    while receive(program) != frame(255, 9, tag) {}
    until("there is room to send", || {
        let is_sent = program.tx()[0].send(&frame(9, 1, tag));
        program.tx()[0].sync();
        is_sent
    });
    while peer.receive() != frame(9, 1, tag) {}
}

/// Returns the number of frames that were discarded because the port had no peer.
fn idle(d: &Daemon, port: &str) -> u64 {
    sum(&d.show(port), "out", "idle")
}

fn is_taken(d: &Daemon, port: &str) -> bool {
    d.notes(port).contains("peer connected")
}

/// Attaches `lab`, a stream port, with these options. Returns the path of its socket.
fn lab(d: &Daemon, mut options: Value) -> PathBuf {
    let path = d.path("lab.sock");
    options["name"] = json!("lab");
    attach(d, &format!("stream:{}", path.display()), options);
    path
}

/// Objective: a port shows its kind and its peer; frames pass in both directions; when a peer leaves, the addresses
/// behind it are forgotten, and from then on frames for the port count as idle; the socket is removed with the port.
#[test]
fn from_end_to_end() {
    let d = Daemon::start("");
    let path = lab(&d, json!({}));
    assert_eq!(d.show("vale0:lab")["kind"], "stream");
    assert!(d.notes("vale0:lab").contains("waits for a peer; connections: 0"));
    let mut a = d.open("vale0:a").unwrap();
    for tag in 1..4 {
        let mut peer = StreamCaller::new(&path);
        until("it has a port", || is_taken(&d, "vale0:lab"));
        let who = format!("process {} of user", std::process::id());
        assert!(d.notes("vale0:lab").contains(&who), "{}", d.notes("vale0:lab"));
        passes(&mut peer, &mut a, tag);
        drop(peer);
        until("it is gone", || d.notes("vale0:lab").contains(&format!("waits for a peer; connections: {tag}")));
        let table = || d.call("switch.table", json!({"switch": "vale0"}))["result"].to_string();
        until("its address is forgotten", || !table().contains("02:00:00:00:00:09"));
        send(&mut a, &frame(255, 1, 0));
        until("it is counted", || idle(&d, "vale0:lab") == u64::from(tag));
        assert!(d.show("vale0:lab")["drops"]["no-room"].is_null());
    }
    let detached = d.call("port.detach", json!({"switch": "vale0", "port": "lab"}));
    assert!(detached["error"].is_null() && !path.exists(), "{detached}");
}

/// Objective: each peer gets a separate port, with the options of the first port. When the peer leaves, its port
/// remains, with the policies that were set on it, and the same peer gets that port again. There are at most as many
/// ports as `peers` permits. When the first port ends, all of them end.
#[test]
fn a_port_each() {
    let d = Daemon::start("");
    let path = lab(&d, json!({"access": 5, "peers": 3}));
    let all = ["vale0:lab", "vale0:lab-1", "vale0:lab-2"];
    let mut peers: Vec<_> = all
        .iter()
        .map(|port| {
            let peer = StreamCaller::new(&path);
            until("it has a port", || d.ports().contains(&(*port).to_owned()) && is_taken(&d, port));
            peer
        })
        .collect();
    let vlan = |port: &str| d.show(port)["policies"]["access"].clone();
    assert!(all.iter().all(|port| vlan(port) == 5));
    d.set("vale0:lab-1", json!({"access": 7}));
    let mut fourth = StreamCaller::new(&path);
    let end = fourth.0.read(&mut [0; 1]);
    assert!(end.as_ref().is_ok_and(|count| *count == 0) || end.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));

    let (first, rest) = peers.split_at_mut(1);
    first[0].send(&frame(255, 9, 1));
    assert_eq!(rest[1].receive(), frame(255, 9, 1));
    let again = peers.remove(1);
    drop(again);
    until("it is gone", || !is_taken(&d, "vale0:lab-1"));
    let _again = StreamCaller::new(&path);
    until("it is back", || is_taken(&d, "vale0:lab-1"));
    assert_eq!((vlan("vale0:lab-1"), d.ports().len()), (json!(7), 3));

    d.call("port.detach", json!({"switch": "vale0", "port": "lab-2"}));
    assert_eq!(d.ports(), all[..2]);
    assert_eq!(peers.remove(1).0.read(&mut [0; 1]).unwrap_or_default(), 0);
    let _other = StreamCaller::new(&path);
    until("the next one has its place", || d.ports() == all && is_taken(&d, "vale0:lab-2"));
    assert_eq!(vlan("vale0:lab-2"), 5);
    d.call("port.detach", json!({"switch": "vale0", "port": "lab"}));
    assert!(d.ports().is_empty() && !path.exists());
}

/// Objective: 64 peers share a listening socket: each peer gets a port, its broadcast reaches all other peers, and its
/// frame to one peer reaches only that peer.
#[test]
fn sixty_four_peers_of_one_socket_reach_each_other() {
    let d = Daemon::start("");
    let path = lab(&d, json!({"peers": 64}));
    let mut peers: Vec<_> = (0..64).map(|_| StreamCaller::new(&path)).collect();
    until("each has a port", || d.ports().len() == 64 && d.ports().iter().all(|port| is_taken(&d, port)));
    for sender in 0..64 {
        let broadcast = frame(255, 100 + sender as u8, 1);
        peers[sender].send(&broadcast);
        let others = peers.iter_mut().enumerate().filter(|(other, _)| *other != sender);
        others.for_each(|(_, other)| assert_eq!(other.receive(), broadcast));
    }
    for (number, peer) in (100..).zip(&mut peers).skip(1) {
        peer.send(&frame(number - 1, number, 2));
    }
    for (number, peer) in (100..).zip(&mut peers).take(63) {
        assert_eq!(peer.receive(), frame(number, number + 1, 2));
    }
}

/// Objective: a peer that does not read loses only its own frames, even at a lossless port; other peers of the port,
/// and other ports on the switch, get all of their frames.
#[test]
fn one_that_does_not_read() {
    for lossless in [false, true] {
        let d = Daemon::start("");
        let path = lab(&d, json!({"lossless": lossless}));
        let mut slow = StreamCaller::new(&path);
        until("it has a port", || is_taken(&d, "vale0:lab"));
        let mut peer = StreamCaller::new(&path);
        until("it has a port", || d.ports().len() == 2 && is_taken(&d, "vale0:lab-1"));
        slow.send(&frame(255, 7, 0));
        assert_eq!(peer.receive(), frame(255, 7, 0));
        let mut a = d.open("vale0:a").unwrap();
        passes(&mut peer, &mut a, 1);
        let dropped = || {
            let drops = d.show("vale0:lab")["drops"].take();
            drops["no-room"].as_u64().unwrap_or(0) + drops["stalled"].as_u64().unwrap_or(0)
        };
        until("there is no room", || {
            while a.tx()[0].send(&frame(7, 1, 2)) {}
            a.tx()[0].sync();
            dropped() > 0
        });
        passes(&mut peer, &mut a, 3);
        // The frames that the slow peer has received are complete.
        assert_eq!(slow.receive()[14], 1);
        (0..100).for_each(|_| assert_eq!(slow.receive(), frame(7, 1, 2)));
    }
}

/// Attaches a port `p` of that kind to `vale0`. Returns a peer that is connected to the port.
fn peer_of(kind: &str, d: &Daemon) -> Box<dyn End> {
    let path = d.path("p.sock");
    let own = d.path("own.sock");
    let shown = path.display();
    let there = own.display();
    let named = |options: Value| {
        let mut options = options;
        options["name"] = json!("p");
        options
    };
    let bound = || {
        let socket = UnixDatagram::bind(&own).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    };
    match kind {
        "stream" => {
            attach(d, &format!("stream:{shown}"), named(json!({})));
            Box::new(StreamCaller::new(&path))
        }
        "dgram" => {
            attach(d, &format!("dgram:{shown},remote={there}"), named(json!({})));
            let socket = bound();
            socket.connect(&path).unwrap();
            until("it is there", || is_taken(d, "vale0:p"));
            Box::new(socket)
        }
        "unixgram" => {
            attach(d, &format!("unixgram:{shown}"), named(json!({})));
            let socket = bound();
            socket.connect(&path).unwrap();
            socket.send(b"VFKT").unwrap();
            until("it is there", || is_taken(d, "vale0:p"));
            Box::new(socket)
        }
        _ => {
            std::fs::create_dir(&path).unwrap();
            attach(d, &format!("vde:{shown}"), named(json!({})));
            Box::new(VdeEnd::new(&path, &own, 7))
        }
    }
}

const KINDS: [&str; 4] = ["stream", "dgram", "unixgram", "vde"];

/// Objective: frames pass in both directions for peers of all kinds, and idle peers take no CPU time.
#[test]
fn kinds() {
    for kind in KINDS {
        let d = Daemon::start("");
        let mut peer = peer_of(kind, &d);
        let mut a = d.open("vale0:a").unwrap();
        for tag in 0..3 {
            passes(&mut *peer, &mut a, tag);
            falls_asleep(&d);
        }
        let port = if kind == "vde" { "vale0:p0007" } else { "vale0:p" };
        until("its peer is shown", || is_taken(&d, port));
        assert_eq!(d.show(port)["kind"], kind);
    }
}

/// Objective: peers of all kinds are not affected when another daemon takes over, even after a kill; their ports keep
/// their names and policies.
#[test]
fn succession() {
    for kind in KINDS {
        let d = Daemon::managed("");
        let mut peer = peer_of(kind, &d);
        let mut a = d.open("vale0:a").unwrap();
        passes(&mut *peer, &mut a, 0);
        let port = if kind == "vde" { "vale0:p0007" } else { "vale0:p" };
        d.set(port, json!({"max_addresses": 3}));
        let ports = d.ports();
        for round in 1..7 {
            if round % 2 == 0 {
                d.is_succeeded()
            } else {
                d.is_killed()
            }
            passes(&mut *peer, &mut a, round);
            assert_eq!(d.ports(), ports, "{kind}");
            assert_eq!(d.show(port)["policies"]["max_addresses"], 3, "{kind}");
        }
    }
}

/// Objective: a leftover socket is replaced, but not a socket on which another program listens.
#[test]
fn stale_and_live() {
    let d = Daemon::start("");
    let path = d.path("lab.sock");
    drop(UnixListener::bind(&path).unwrap());
    lab(&d, json!({}));
    let mut peer = StreamCaller::new(&path);
    let mut a = d.open("vale0:a").unwrap();
    passes(&mut peer, &mut a, 1);
    let again = d.call("port.attach", json!({"switch": "vale1", "port": format!("stream:{}", path.display())}));
    assert!(again["error"].to_string().contains("listens"), "{again}");
    passes(&mut peer, &mut a, 2);
}

/// Objective: ports that were created for further peers are neither in an exported file nor in its list of omitted
/// objects; the exported file is applied again without a change.
#[test]
fn exported() {
    let d = Daemon::start("");
    let path = lab(&d, json!({"mtu": 9000, "peers": 2}));
    let _peers = [StreamCaller::new(&path), StreamCaller::new(&path)];
    until("both have ports", || d.ports().len() == 2);
    let text = d.exports(1);
    assert!(text.contains("stream:") && !text.contains("lab-1"), "{text}");
    assert_eq!(d.ports(), ["vale0:lab", "vale0:lab-1"]);
}

/// Objective: a port with `client` connects to a listener, and reconnects; impossible addresses are refused, with the
/// reason.
#[test]
fn clients_and_refusals() {
    let d = Daemon::start("");
    let path = d.path("guest.sock");
    attach(&d, &format!("stream:{}", path.display()), json!({"client": true, "name": "c"}));
    let listener = UnixListener::bind(&path).unwrap();
    let mut a = d.open("vale0:a").unwrap();
    for tag in 0..2 {
        let mut peer = StreamCaller(listener.accept().unwrap().0);
        peer.0.set_read_timeout(Some(LIMIT)).unwrap();
        until("it is connected", || is_taken(&d, "vale0:c"));
        passes(&mut peer, &mut a, tag);
        drop(peer);
    }
    for (port, options, why) in [
        ("stream:/x/y.sock", json!({"client": true, "peers": 3}), "exclude each other"),
        ("stream:/nowhere/y.sock", json!({}), "No such file"),
        ("vde:/nowhere", json!({}), "No such file"),
        ("unixgram:/y.sock", json!({"client": true}), "client"),
        ("dgram:/y.sock", json!({}), "remote"),
        ("stream:localhost:5000", json!({}), "192.0.2.1:5000"),
    ] {
        let reply = d.call("port.attach", json!({"switch": "vale0", "port": port, "options": options}));
        assert!(reply["error"].to_string().contains(why), "{port}: {reply}");
    }
}

/// Attaches a VDE switch as `vale0:p`, with a maximum number of plugs. Returns its folder.
fn vde_switch(d: &Daemon, peers: u32) -> PathBuf {
    let folder = d.path("p.sock");
    std::fs::create_dir(&folder).unwrap();
    attach(d, &format!("vde:{}", folder.display()), json!({"name": "p", "peers": peers, "access": 10}));
    folder
}

/// Objective: a line (the port of a single plug) that is created before its plug connects keeps the policies that are
/// set before the plug connects. While the line is reserved, even after an upgrade and a kill, only a plug that
/// requests its number gets it; after it is released, any plug gets it.
#[test]
fn lines_before_their_plugs() {
    let d = Daemon::managed("");
    let folder = vde_switch(&d, 4);
    let set = |params: Value| d.call("vde.set", params);
    assert_eq!(set(json!({"port": "vale0:p", "reserve": [7, 1]}))["result"], json!({}));
    assert_eq!(d.ports(), ["vale0:p", "vale0:p0001", "vale0:p0007"]);
    let shown = d.show("vale0:p0007");
    assert_eq!((&shown["policies"]["access"], &shown["vde"]), (&json!(10), &json!({"number": 7, "reserved": true})));
    assert!(d.notes("vale0:p0007").contains("reserved for plugs that request number 7"));
    d.call("port.set", json!({"port": "vale0:p0007", "set": {"access": 20}}));
    d.call("port.set", json!({"port": "vale0:p", "set": {"access": 30}}));
    for round in 0..2 {
        if round == 0 {
            d.is_succeeded()
        } else {
            d.is_killed()
        }
        let number = 2 + round;
        let first = VdeEnd::new(&folder, &d.path(&format!("any{round}.sock")), 0);
        let port = format!("vale0:p{number:04}");
        until("any plug has another port", || is_taken(&d, &port));
        assert_eq!(d.show(&port)["policies"]["access"], 30);
        let asking = VdeEnd::new(&folder, &d.path(&format!("own{round}.sock")), 7);
        until("who asks has the port", || is_taken(&d, "vale0:p0007"));
        let shown = d.show("vale0:p0007");
        assert_eq!((&shown["policies"]["access"], &shown["vde"]["plug"]["count"]), (&json!(20), &json!(round + 1)));
        assert_eq!(shown["vde"]["plug"]["user"], json!(rustix::process::getuid().as_raw()));
        drop(asking);
        until("it has left", || !is_taken(&d, "vale0:p0007"));
        // This reserves the line of `first`, so that the plug without a number gets another line in the next round.
        set(json!({"port": "vale0:p", "reserve": [number]}));
        drop(first);
        until("it has left, too", || !is_taken(&d, &port));
    }
    set(json!({"port": "vale0:p", "release": [1]}));
    let _any = VdeEnd::new(&folder, &d.path("released.sock"), 0);
    until("any plug has it", || is_taken(&d, "vale0:p0001"));
}

/// Objective: an impossible request is refused as a whole: for a port that is not a VDE switch, with the number 0, or
/// with more lines than the maximum, which a request can change.
#[test]
fn lines_that_cannot_be() {
    let d = Daemon::start("");
    vde_switch(&d, 2);
    lab(&d, json!({}));
    for (params, why) in [
        (json!({"port": "vale0:none"}), "does not exist"),
        (json!({"port": "vale0:lab", "reserve": [1]}), "is not a VDE switch"),
        (json!({"port": "vale0:p", "reserve": [1, 0]}), "invalid port number 0"),
        (json!({"port": "vale0:p", "reserve": [1, 2], "release": [3]}), "at most 2"),
        (json!({"port": "vale0:p", "reserve": [65536]}), "65536"),
        (json!({"port": "vale0:p", "lines": [1]}), "lines"),
    ] {
        let reply = d.call("vde.set", params);
        assert!(reply["error"].to_string().contains(why), "{reply}");
        assert_eq!(d.ports(), ["vale0:lab", "vale0:p"]);
    }
    assert_eq!(
        d.call("vde.set", json!({"port": "vale0:p", "peers": 3, "reserve": [1, 2], "release": [3]}))["result"],
        json!({})
    );
    let fewer = d.call("vde.set", json!({"port": "vale0:p", "peers": 2}));
    assert!(fewer["error"].to_string().contains("3 ports"), "{fewer}");
    let line = d.call("vde.set", json!({"port": "vale0:p0001", "reserve": [4]}));
    assert!(line["error"].to_string().contains("is not a VDE switch"), "{line}");
    d.call("port.detach", json!({"switch": "vale0", "port": "p0001"}));
    assert_eq!(d.call("vde.set", json!({"port": "vale0:p", "peers": 2}))["result"], json!({}));
    let text = d.call("config.export", json!({}))["result"]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("peers = 2") && !text.contains("p0002"), "{text}");
}
