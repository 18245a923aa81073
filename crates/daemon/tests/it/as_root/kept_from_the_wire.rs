//! While programs hold all tx rings of an interface, the host's own frames do not reach the wire.

use crate::common;

use std::net::UdpSocket;

use common::heirs::{PEER, address, number};
use common::ports::{attach, open};
use common::{Daemon, cable, frame, inside_as_root, ip, receive, send, until};
use netvale::{Options, Port};
use serde_json::json;

/// The host's stack behind an interface: a socket that sends numbered datagrams to a peer, and the number of the last
/// datagram.
struct Host(UdpSocket, u64);

impl Host {
    fn behind_a_cable() -> Host {
        cable("nva", "nvb", 1);
        Host::behind("nva")
    }

    fn behind(interface: &str) -> Host {
        address(interface);
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        socket.connect((PEER, 9)).unwrap();
        Host(socket, 0)
    }

    /// Sends the next datagram. The socket reports no error if the datagram is dropped on the way.
    fn sends(&mut self) -> u64 {
        self.1 += 1;
        let _ = self.0.send(&self.1.to_le_bytes());
        self.1
    }

    /// Sends a datagram, which must reach `port`.
    fn reaches(&mut self, port: &mut Port) {
        let sent = self.sends();
        while number(&receive(port)) != Some(sent) {}
    }

    /// Sends a datagram, which must not reach `far`: the next frame that `program` sends arrives at `far`, and the
    /// datagram does not.
    fn is_kept_from(&mut self, far: &mut Port, program: &mut Port) {
        let sent = self.sends();
        let mark = frame(1, 2, self.1 as u8);
        send(program, &mark);
        loop {
            let came = receive(far);
            assert_ne!(number(&came), Some(sent), "the stack's frame got to the wire");
            if came == mark {
                return;
            }
        }
    }
}

/// Objective: while a program holds all tx rings of an interface, the stack's frames are kept off the wire, whatever
/// other rings are open, even across an upgrade. The frames are counted, or go to host rings if these are open. After
/// the program has closed its rings, the stack's frames are sent.
#[test]
fn while_a_program_sends() {
    let Some(d) = Daemon::inside_as_root("") else { return };
    let mut host = Host::behind_a_cable();
    let mut far = open(&d, "netmap:nvb");
    host.reaches(&mut far);
    let rx = open(&d, "netmap:nva/R");
    host.reaches(&mut far);
    let mut tx = open(&d, "netmap:nva/T");
    host.is_kept_from(&mut far, &mut tx);
    let notes = || d.notes("netmap:nva/T");
    assert!(notes().contains("kept from the wire unless a program has the host rings open; 1 so far"), "{}", notes());
    let mut stack = open(&d, "netmap:nva^");
    host.reaches(&mut stack);
    host.is_kept_from(&mut far, &mut tx);
    drop(stack);
    until("no host rings", || !d.ports().contains(&"netmap:nva^".to_owned()));
    host.is_kept_from(&mut far, &mut tx);
    d.is_succeeded();
    host.is_kept_from(&mut far, &mut tx);
    drop(rx);
    host.is_kept_from(&mut far, &mut tx);
    drop(tx);
    until("the program is gone", || !d.ports().contains(&"netmap:nva/T".to_owned()));
    host.reaches(&mut far);
}

/// Objective: a program that holds one of several queues shares the interface with the stack; programs that together
/// hold all queues do not.
#[test]
fn while_all_queues_are_open() {
    let Some(d) = Daemon::inside_as_root("") else { return };
    ip("link add nva numtxqueues 2 numrxqueues 2 type veth peer name nvb numtxqueues 1 numrxqueues 1");
    ip("link set nvb up");
    let mut host = Host::behind("nva");
    let mut far = open(&d, "netmap:nvb");
    let mut first = open(&d, "netmap:nva-0");
    host.reaches(&mut far);
    let second = open(&d, "netmap:nva-1");
    host.is_kept_from(&mut far, &mut first);
    drop(second);
    until("one program is gone", || !d.ports().contains(&"netmap:nva-1".to_owned()));
    host.reaches(&mut far);
}

/// Objective: a program that opens an interface without a daemon also keeps the stack's frames off the wire.
#[test]
fn hosts_are_kept_off_the_wire_without_a_daemon() {
    if !inside_as_root() {
        return;
    }
    let mut host = Host::behind_a_cable();
    let dir = tempfile::tempdir().unwrap();
    let options = Options { run_dir: Some(dir.path().into()), ..Options::default() };
    let mut far = Port::open_with("netmap:nvb", &options).unwrap();
    let mut near = Port::open_with("netmap:nva", &options).unwrap();
    host.is_kept_from(&mut far, &mut near);
    drop(near);
    host.reaches(&mut far);
}

/// Objective: if an interface is on a switch, the host can still use it, as documented.
#[test]
fn not_on_a_switch() {
    let Some(d) = Daemon::inside_as_root("") else { return };
    let mut host = Host::behind_a_cable();
    let mut far = open(&d, "netmap:nvb");
    assert_eq!(attach(&d, "netmap:nva", json!({}))["kind"], "nic");
    host.reaches(&mut far);
}
