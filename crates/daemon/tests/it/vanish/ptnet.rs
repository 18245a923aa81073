//! Guests of a ptnet port by ivshmem.

use std::io::Read;
use std::mem::offset_of;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use netvale::Port;
use netvale_abi::ptnet::{COMMAND_START, COMMAND_STOP, PtnetHeader, word};
use netvale_guest::BareGuest;
use netvale_mem::words::Words;
use serde_json::json;

use super::engine::{Peer, State, frames_at, offer, say, socket_in, traffic};
use crate::common::{Daemon, ports};

/// A hypervisor with a ptnet guest.
pub struct Ivshmem {
    path: PathBuf,
    line: Option<UnixStream>,
    guest: Option<BareGuest>,
    port: Option<Port>,
}

impl Peer for Ivshmem {
    const NAME: &'static str = "ptnet";
    const SERVED: &'static str = "rings run";
    const STATES: &'static [State<Self>] = &[
        ("connected", "", |p| p.line = Some(UnixStream::connect(&p.path).unwrap())),
        ("half the greeting read", "connected", |p| p.line().read_exact(&mut [0; 12]).unwrap()),
        ("something said", "connected", |p| say(p.line(), b"x")),
        ("greeted", "", |p| p.guest = Some(BareGuest::connect(&p.path).unwrap())),
        ("a command written", "greeted", |p| p.write_command(COMMAND_START)),
        ("a command given", "a command written", |p| p.guest().doorbells().last().unwrap().ring()),
        ("an unknown command given", "greeted", |p| _ = p.guest().command(77, 0, 0).unwrap()),
        ("started", "greeted", |p| p.command(COMMAND_START)),
        ("all doorbells rung", "started", |p| p.guest().doorbells().iter().for_each(|bell| bell.ring())),
        ("nonsense everywhere", "started", Self::scribble),
        ("stopped", "started", |p| p.command(COMMAND_STOP)),
        ("started again", "stopped", |p| p.command(COMMAND_START)),
        ("stop given", "started", |p| {
            p.write_command(COMMAND_STOP);
            p.guest().doorbells().last().unwrap().ring();
        }),
        ("rings run", "greeted", |p| p.port = p.guest.take().map(|guest| Port::of_guest(guest, 0).unwrap())),
        ("asleep", "rings run", |p| _ = p.port().rx()[0].arm()),
        ("traffic under way", "rings run", |p| (0..100).for_each(|i| p.send(&traffic(i)))),
    ];

    fn attach(d: &Daemon) {
        attach(d, "ptnet", Self::NAME, json!({}));
    }

    fn new(dir: &Path) -> Self {
        Ivshmem { path: socket_in(dir, Self::NAME), line: None, guest: None, port: None }
    }

    fn send(&mut self, frame: &[u8]) {
        offer(self.port(), frame);
    }

    fn frames(&mut self) -> Vec<Vec<u8>> {
        frames_at(self.port())
    }
}

/// Attaches a port `victim` of kind `kind`, whose socket is `socket` in the daemon's run directory.
pub fn attach(d: &Daemon, kind: &str, socket: &str, mut options: serde_json::Value) {
    options["name"] = json!("victim");
    let port = format!("{kind}:{}", socket_in(d.dir(), socket).display());
    assert_eq!(ports::attach(d, &port, options)["kind"], kind);
}

impl Ivshmem {
    fn line(&mut self) -> &mut UnixStream {
        self.line.as_mut().unwrap()
    }

    fn guest(&self) -> &BareGuest {
        self.guest.as_ref().unwrap()
    }

    fn port(&mut self) -> &mut Port {
        self.port.as_mut().unwrap()
    }

    fn command(&self, what: u32) {
        assert_eq!(self.guest().command(what, 0, 0).unwrap(), 0);
    }

    /// Writes a command to the device's header, without ringing the doorbell.
    fn write_command(&self, what: u32) {
        let header = Words::new(self.guest().memory(), 0, size_of::<PtnetHeader>() / 4).unwrap();
        header.store(word(offset_of!(PtnetHeader, command)), what);
        let number = word(offset_of!(PtnetHeader, number));
        header.store(number, header.load(number).wrapping_add(1));
    }

    fn scribble(&mut self) {
        let len = self.guest().memory().len() / 4;
        let all = Words::new(self.guest().memory(), 0, len).unwrap();
        (0..len).for_each(|i| all.store(i, 0x5a5a_0000 | i as u32));
        self.guest().doorbells().iter().for_each(|bell| bell.ring());
    }
}
