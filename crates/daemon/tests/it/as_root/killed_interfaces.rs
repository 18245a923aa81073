//! Daemons killed and restarted while frames pass network interfaces: the interfaces keep their sockets, buffers and
//! XDP programs.

use crate::common;

use common::heirs::{Came, PingPong, address, cable_to_the_stack};
use common::ports::{attach, open};
use common::{Daemon, cable, inside_as_root, until};
use netvale::Port;
use netvale_afxdp::iface::Interface;
use rustix::process::Signal;
use serde_json::json;

/// Number of kills in each test.
const KILLS: u64 = 4;
/// Maximum number of frames in a batch. After a kill, up to this number of frames of each ring may arrive a second
/// time.
const BATCH: u64 = 256;

/// Sends numbered datagrams from the stack to a port, which returns each datagram, while `d` is repeatedly killed, and
/// for a while afterwards. Returns the numbers of repeated and missing datagrams.
fn ping_pong(d: &Daemon, port: &mut Port) -> Came {
    let mut all = PingPong::new();
    for _ in 0..KILLS {
        let goal = all.back + 300;
        while all.back < goal {
            all.round(port, true);
        }
        std::thread::scope(|scope| {
            let kill = scope.spawn(|| d.is_killed());
            while !kill.is_finished() {
                all.round(port, true);
            }
        });
    }
    let goal = all.sent + 500;
    while all.back < goal {
        let more = all.sent < goal;
        all.round(port, more);
    }
    all.came
}

/// Checks that no datagram is missing. After each kill, a batch of each ring may arrive again, and the port then
/// returns these datagrams again.
fn is_complete(came: &Came, rings: u64) {
    assert_eq!(came.missing, 0, "{came:?}");
    at_most_batches(came, rings);
}

/// Like [`is_complete`], but after each kill, a batch of frames in transit from the stack may be missing in each
/// direction.
fn is_complete_but_for_the_stack(came: &Came, rings: u64) {
    assert!(came.missing <= 2 * KILLS * BATCH, "{came:?}");
    at_most_batches(came, rings);
}

fn at_most_batches(came: &Came, rings: u64) {
    assert!(came.there <= KILLS * BATCH && came.back <= came.there + rings * KILLS * BATCH, "{came:?}");
}

/// Objective: an interface on a switch continues with its sockets, buffers and program after kills of the daemon under
/// traffic: no frame is lost. After the interface is detached, it is in its original state.
#[test]
fn a_switched_interface_survives_kills_of_the_daemon() {
    if !inside_as_root() {
        return;
    }
    for queues in [1, 2] {
        let d = Daemon::managed("");
        cable_to_the_stack(queues);
        attach(&d, "netmap:nva", json!({}));
        let mut port = open(&d, "vale0:a");
        let program = Interface::find("nva").unwrap().program();
        is_complete(&ping_pong(&d, &mut port), 2 + 2 * u64::from(queues));
        assert_eq!(Interface::find("nva").unwrap().program(), program, "another program");
        d.call("port.detach", json!({"switch": "vale0", "port": "nva"}));
        until("no program", || Interface::find("nva").unwrap().program().is_none());
        common::ip("link del nva");
    }
}

/// Objective: an interface's host stack on a switch also survives kills; frames in transit from its TAP may be lost.
#[test]
fn stack_on_a_switch() {
    if !inside_as_root() {
        return;
    }
    let d = Daemon::managed("");
    cable("nva", "nvb", 1);
    attach(&d, "netmap:nva", json!({"host": true}));
    address("nva");
    let mut port = open(&d, "vale0:a");
    let tap = Interface::find("nvhost0").unwrap().index;
    is_complete_but_for_the_stack(&ping_pong(&d, &mut port), 4);
    assert_eq!(Interface::find("nvhost0").unwrap().index, tap);
    let names = d.ports();
    assert!(names.contains(&"vale0:nva".to_owned()) && names.contains(&"vale0:nva^".to_owned()), "{names:?}");
    d.call("port.detach", json!({"switch": "vale0", "port": "nva"}));
    until("no program", || Interface::find("nva").unwrap().program().is_none());
    until("no TAP", || Interface::find("nvhost0").is_err());
}

/// Objective: a program with an open interface does not notice kills of the daemon, neither at its queues nor at its
/// host rings; after the program ends, even while no daemon runs, the interface is in its original state.
#[test]
fn a_program_with_an_interface_does_not_notice_kills() {
    if !inside_as_root() {
        return;
    }
    let d = Daemon::managed("");
    cable_to_the_stack(1);
    let mut port = open(&d, "netmap:nva");
    let came = ping_pong(&d, &mut port);
    assert_eq!([came.there, came.back, came.missing], [0; 3], "the daemon is not on the way");
    let shown = d.show("netmap:nva");
    assert_eq!(shown["owner"]["pid"], std::process::id());
    drop(port);
    until("no program", || Interface::find("nva").unwrap().program().is_none());
    common::ip("addr del 10.9.0.1/24 dev nvb");
    address("nva");
    for name in ["netmap:nva^", "netmap:nva*"] {
        let mut port = open(&d, name);
        if name.ends_with('^') {
            is_complete_but_for_the_stack(&ping_pong(&d, &mut port), 2);
            counters_go_on(&d, &mut port);
        }
        // The program must end before the next daemon starts.
        d.is_restarted(Signal::KILL, || drop(port));
        until("no TAP", || Interface::find("nvhost0").is_err());
        until("no program", || Interface::find("nva").unwrap().program().is_none());
    }
}

fn counters_go_on(d: &Daemon, port: &mut Port) {
    // Wait for two saves, because only the second save is sure to have begun after the frames arrived.
    for _ in 0..2 {
        let before = d.manager().names();
        until("counters are kept", || {
            port.tx()[0].send(&common::frame(255, 1, 0));
            port.sync();
            d.manager().names() != before
        });
    }
    d.is_killed();
    let shown = d.show("netmap:nva^");
    let frames: Vec<_> = shown["rings"].as_array().unwrap().iter().map(|ring| ring["frames"].as_u64()).collect();
    assert!(frames.len() == 2 && frames.iter().all(|frames| *frames >= Some(300)), "{shown}");
}

/// Objective: the kept state of an interface that no longer exists, or whose queue another program has opened in the
/// meantime, does not prevent the start of the daemon; the port is attached anew where possible.
#[test]
fn a_vanished_interface_does_not_prevent_the_start() {
    if !inside_as_root() {
        return;
    }
    let d = Daemon::managed("");
    cable("nva", "nvb", 1);
    attach(&d, "netmap:nva", json!({}));
    d.is_restarted(Signal::KILL, || {
        common::ip("link del nva");
        // Create a new interface of that name.
        cable_to_the_stack(1);
    });
    until("attached anew", || Interface::find("nva").unwrap().program().is_some());
    let mut port = open(&d, "vale0:a");
    is_complete(&ping_pong(&d, &mut port), 4);
    d.is_restarted(Signal::KILL, || common::ip("link del nva"));
    assert_eq!(d.ports(), ["vale0:a"]);
}
