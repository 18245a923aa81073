//! Daemons that are replaced while frames pass host devices: TAPs and network interfaces. No frame is lost, duplicated
//! or reordered.

use crate::common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::heirs::{address, cable_to_the_stack, ping_pong};
use common::ports::{attach, open};
use common::{Daemon, cable, inside_as_root, sum, until};
use etherparse::PacketBuilder;
use netvale::{Interest, Options, Port};
use netvale_afxdp::iface::Interface;
use netvale_control::client::BringConnection;
use netvale_control::types::{AttachParams, PortOptions};
use netvale_tap::{Tap, TapOptions};
use rustix::process::Signal;
use serde_json::json;

/// Number of take-overs in each test.
const TIMES: usize = 4;

fn taken_over(d: &Daemon) {
    for _ in 0..TIMES {
        d.is_robbed();
        d.is_succeeded();
    }
}

/// Objective: the next daemon continues the counters of an echo port and of a null port.
#[test]
fn counters_of_echo_and_null_ports_continue() {
    let d = Daemon::start("");
    attach(&d, "echo:", json!({}));
    attach(&d, "null:", json!({}));
    let mut port = open(&d, "vale0:a");
    let mut sent = 0u32;
    let mut back = 0u32;
    let mut place = vec![0; 2048];
    std::thread::scope(|scope| {
        let others = scope.spawn(|| taken_over(&d));
        while !others.is_finished() || back < sent {
            let mut frame = common::frame(255, 1, 0);
            frame[14..18].copy_from_slice(&sent.to_be_bytes());
            if !others.is_finished() && sent < back + 100 && port.tx()[0].send(&frame) {
                sent += 1;
            }
            port.tx()[0].sync();
            port.wait(Interest::Rx, Some(Duration::from_micros(300))).unwrap();
            while let Some(n) = port.rx()[0].recv(&mut place) {
                assert_eq!((&place[..6], &place[14..18]), (&[2, 0, 0, 0, 0, 1][..], &back.to_be_bytes()[..]), "{n}");
                back += 1;
            }
            let _ = port.rx()[0].sync();
        }
    });
    // The echo port sends its frames to an address that the switch knows, so that only frames that the test sends are
    // flooded to `null:`.
    let discarded = d.show("vale0:null")["rings"][0]["frames"].as_u64().unwrap();
    assert_eq!((sent > 0, discarded), (true, u64::from(sent)));
}

/// Objective: when the daemon is replaced, each flow stays on its queue, and thus in order.
#[test]
fn flows_stay_on_their_queues() {
    let managed = Daemon::managed("");
    queues_are_kept(&managed, || managed.is_restarted(Signal::TERM, || ()));
    queues_are_kept(&managed, || managed.is_killed());
    let d = Daemon::start("");
    queues_are_kept(&d, || d.is_succeeded());
}

fn queues_are_kept(d: &Daemon, ends: impl Fn()) {
    let mut from = open(d, "vale0:a");
    let mut to = Port::open_with("vale0:b", &Options { rings: 8, ..d.options() }).unwrap();
    let queues = flows(&mut from, &mut to);
    assert!(queues.iter().collect::<BTreeSet<_>>().len() > 3, "{queues:?}");
    ends();
    assert_eq!(flows(&mut from, &mut to), queues);
}

/// Sends a frame of each of several flows. Returns the queue on which each frame arrives.
fn flows(from: &mut Port, to: &mut Port) -> Vec<usize> {
    let queue = |port: u16| {
        let build = PacketBuilder::ethernet2([2; 6], [0xff; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        let mut frame = Vec::new();
        build.udp(port, 9).write(&mut frame, b"payload").unwrap();
        common::send(from, &frame);
        let mut place = vec![0; 2048];
        let mut found = None;
        until("the frame", || {
            to.sync();
            found = (0..to.rx().len()).find(|&queue| to.rx()[queue].recv(&mut place).is_some());
            found.is_some()
        });
        found.unwrap()
    };
    (5000..5032).map(queue).collect()
}

mod as_root {
    use super::*;

    /// Objective: when daemons with a TAP replace one another, even after failed successors, no frame is lost,
    /// duplicated or reordered, with one queue and with several queues; the counters continue.
    #[test]
    fn a_tap_loses_no_frame_across_daemons() {
        if !inside_as_root() {
            return;
        }
        for rings in [1, 2] {
            let d = Daemon::start("");
            attach(&d, "tap:nvt0", json!({"rings": rings}));
            address("nvt0");
            let mut port = open(&d, "vale0:a");
            let before = Interface::find("nvt0").unwrap().index;
            let frames = ping_pong(&mut port, || taken_over(&d));
            assert_eq!(Interface::find("nvt0").unwrap().index, before);
            let shown = d.show("vale0:nvt0");
            let of = |dir: &str| sum(&shown, dir, "frames");
            assert!(of("in") >= frames && of("out") >= frames, "{shown}");
        }
    }

    /// Objective: a TAP that a client has created continues in the successor even if the client has closed its
    /// descriptors, and ends when its interface is deleted.
    #[test]
    fn a_brought_tap_continues_in_the_next_daemon() {
        let Some(d) = Daemon::inside_as_root("") else { return };
        let tap = Tap::open(&TapOptions { name: "nvb0".into(), ..TapOptions::default() }).unwrap().into_queues();
        let params = AttachParams { switch: "vale0".into(), port: "tap:nvb0".into(), options: PortOptions::default() };
        BringConnection::connect(d.dir()).unwrap().attach(params, &tap).unwrap();
        drop(tap);
        address("nvb0");
        let mut port = open(&d, "vale0:a");
        ping_pong(&mut port, || taken_over(&d));
        assert!(d.notes("vale0:nvb0").contains("the client that attached the interface created it"));
        common::ip("link del nvb0");
        until("no port", || d.ports() == ["vale0:a"]);
    }

    /// Objective: an interface on a switch continues with its sockets, its buffers and its XDP program; after it is
    /// detached, it is in its original state.
    #[test]
    fn interface_on_a_switch() {
        if !inside_as_root() {
            return;
        }
        for queues in [1, 2] {
            let d = Daemon::start("");
            cable_to_the_stack(queues);
            attach(&d, "netmap:nva", json!({}));
            let mut port = open(&d, "vale0:a");
            let program = Interface::find("nva").unwrap().program();
            let frames = ping_pong(&mut port, || taken_over(&d));
            assert_eq!(Interface::find("nva").unwrap().program(), program, "another program");
            let shown = d.show("vale0:nva");
            let of = |dir: &str| sum(&shown, dir, "frames");
            assert!(of("in") >= frames && of("out") >= frames, "{shown}");
            d.call("port.detach", json!({"switch": "vale0", "port": "nva"}));
            until("no program", || Interface::find("nva").unwrap().program().is_none());
            common::ip("link del nva");
        }
    }

    /// Objective: an interface's host stack on a switch also continues: its frames reach the switch, and answers
    /// return.
    #[test]
    fn stack_behind_an_interface() {
        let Some(d) = Daemon::inside_as_root("") else { return };
        cable("nva", "nvb", 1);
        attach(&d, "netmap:nva", json!({"host": true}));
        address("nva");
        let mut port = open(&d, "vale0:a");
        ping_pong(&mut port, || taken_over(&d));
        let names = d.ports();
        assert!(names.contains(&"vale0:nva".to_owned()) && names.contains(&"vale0:nva^".to_owned()), "{names:?}");
        d.call("port.detach", json!({"switch": "vale0", "port": "nva"}));
        until("no program", || Interface::find("nva").unwrap().program().is_none());
        until("no TAP", || Interface::find("nvhost0").is_err());
    }

    /// Objective: a program with an open interface does not notice the replacement of the daemon, neither at its
    /// queues, which it shares with the kernel, nor at its host rings. After the program ends, the interface is in its
    /// original state.
    #[test]
    fn interface_of_a_program() {
        let Some(d) = Daemon::inside_as_root("") else { return };
        cable_to_the_stack(1);
        let mut port = open(&d, "netmap:nva");
        ping_pong(&mut port, || taken_over(&d));
        assert_eq!(d.show("netmap:nva")["owner"]["pid"], std::process::id());
        drop(port);
        until("no program", || Interface::find("nva").unwrap().program().is_none());
        common::ip("addr del 10.9.0.1/24 dev nvb");
        address("nva");
        let mut port = open(&d, "netmap:nva^");
        let frames = ping_pong(&mut port, || taken_over(&d));
        let shown = d.show("netmap:nva^");
        let counted = shown["rings"].as_array().unwrap().iter().all(|ring| ring["frames"].as_u64().unwrap() >= frames);
        assert!(counted && shown["rings"].as_array().unwrap().len() == 2, "{shown}");
        drop(port);
        until("no TAP", || Interface::find("nvhost0").is_err());
    }
}
