//! Programs that open a port, and clients of the control socket.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netvale::{Error, Options, Port, raw};
use netvale_control::attach::AttachRequest;
use rustix::net::SendFlags;

use super::engine::{Peer, State, frames_at, offer, say, socket_in, traffic};
use crate::common::LIMIT;

/// A program that opens a port.
pub struct Program {
    dir: PathBuf,
    line: Option<OwnedFd>,
    attached: Option<raw::AttachedRings>,
    port: Option<Port>,
}

impl Peer for Program {
    const NAME: &'static str = "program";
    const SERVED: &'static str = "rings run";
    const STATES: &'static [State<Self>] = &[
        ("connected", "", |p| p.line = Some(raw::connect_to(Some(&p.dir)).unwrap())),
        ("a byte sent", "connected", |p| p.say(b"x")),
        ("an empty message sent", "connected", |p| p.say(b"")),
        ("a port asked", "connected", |p| p.say(&p.request("vale0:victim").encode())),
        ("a port asked twice", "a port asked", |p| p.say(&p.request("vale0:victim").encode())),
        ("a pipe's end asked", "connected", |p| p.say(&p.request("netmap:v{1").encode())),
        ("a port that cannot be asked", "connected", |p| p.say(&p.request("vale0:a").encode())),
        ("attached", "connected", |p| p.attach("vale0:victim")),
        ("what it has asked", "attached", |p| _ = raw::resume(p.line()).unwrap()),
        ("the port let go", "attached", |p| raw::release(p.line()).unwrap()),
        ("another port attached", "the port let go", |p| p.attach("vale0:other")),
        ("a pipe's end attached", "connected", |p| p.attach("netmap:v{1")),
        ("rings run", "", |p| p.port = Some(open(&p.dir, "vale0:victim"))),
        ("asleep", "rings run", |p| _ = p.port().rx()[0].arm()),
        ("traffic under way", "rings run", |p| (0..100).for_each(|i| p.send(&traffic(i)))),
        ("a monitor", "rings run", |p| p.attach_too("vale0:local/t")),
        ("two ports", "rings run", |p| p.attach_too("vale0:other")),
    ];

    fn new(dir: &Path) -> Self {
        Program { dir: dir.into(), line: None, attached: None, port: None }
    }

    fn send(&mut self, frame: &[u8]) {
        offer(self.port(), frame);
    }

    fn frames(&mut self) -> Vec<Vec<u8>> {
        frames_at(self.port())
    }
}

/// Opens the port. If a former holder still has it, waits until that holder has lost it.
fn open(dir: &Path, name: &str) -> Port {
    let options = Options { run_dir: Some(dir.into()), slots: 64, ..Options::default() };
    let start = Instant::now();
    loop {
        match Port::open_with(name, &options) {
            Ok(port) => return port,
            Err(Error::Refused { .. }) if start.elapsed() < LIMIT => {
                std::thread::park_timeout(Duration::from_millis(1))
            }
            Err(other) => panic!("{other}"),
        }
    }
}

impl Program {
    fn line(&self) -> std::os::fd::BorrowedFd<'_> {
        self.line.as_ref().unwrap().as_fd()
    }

    fn port(&mut self) -> &mut Port {
        self.port.as_mut().unwrap()
    }

    fn request(&self, name: &str) -> AttachRequest {
        AttachRequest { name: name.to_owned(), ..AttachRequest::default() }
    }

    fn say(&self, bytes: &[u8]) {
        rustix::net::send(self.line(), bytes, SendFlags::NOSIGNAL).unwrap();
    }

    fn attach(&mut self, name: &str) {
        self.attached = Some(raw::attach(self.line(), &self.request(name)).unwrap());
    }

    fn attach_too(&mut self, name: &str) {
        self.line = Some(raw::connect_to(Some(&self.dir)).unwrap());
        self.attach(name);
    }
}

/// A client of the control socket.
pub struct Asking(UnixStream);

const LIST: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"port.list\"}\n";
const VERSION: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"version\"}\n";
const REFUSED: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"port.attach\",\
    \"params\":{\"switch\":\"vale0\",\"port\":\"vhost:/proc/x\"}}\n";

impl Peer for Asking {
    const NAME: &'static str = "control";
    const SERVED: &'static str = "connected";
    const STATES: &'static [State<Self>] = &[
        ("connected", "", |_| ()),
        ("half a line sent", "connected", |p| say(&p.0, &LIST[..20])),
        ("half a batch sent", "connected", |p| say(&p.0, &[b"[", &LIST[..LIST.len() - 1], b","].concat())),
        ("no JSON sent", "connected", |p| say(&p.0, b"GET / HTTP/1.1\r\n\r\n")),
        ("asked", "connected", |p| say(&p.0, LIST)),
        ("the answer half read", "asked", |p| p.0.read_exact(&mut [0; 10]).unwrap()),
        ("asked for what is refused", "connected", |p| say(&p.0, REFUSED)),
        ("asked without an id", "connected", |p| say(&p.0, b"{\"jsonrpc\":\"2.0\",\"method\":\"stats.all\"}\n")),
        ("more asked than is read", "connected", |p| (0..500).for_each(|_| p.say_if_room(LIST))),
        ("a line without an end", "connected", |p| (0..20).for_each(|_| p.say_if_room(&[b' '; 4096]))),
    ];

    fn new(dir: &Path) -> Self {
        Asking(UnixStream::connect(socket_in(dir, "control")).unwrap())
    }

    fn exchange(self, _local: &mut Port) {
        say(&self.0, VERSION);
        let mut line = String::new();
        BufReader::new(&self.0).read_line(&mut line).unwrap();
        assert!(line.contains("netvale"), "{line}");
    }
}

impl Asking {
    /// Sends bytes if there is room. Ignores errors, because the daemon may have stopped reading.
    fn say_if_room(&self, bytes: &[u8]) {
        let _ = rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}
