//! Ports passed through to a guest without a switch: a pipe's end, a network interface.

use crate::common;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Daemon, cable, carry, crosses, falls_asleep, frame, frames, noise, receive, send, until};
use netvale::{Interest, Port};
use netvale_abi::ptnet::{COMMAND_START, COMMAND_STOP};
use netvale_afxdp::iface::Interface;
use netvale_guest::BareGuest;
use netvale_mem::notify::Doorbell;
use netvale_mem::words::Words;
use serde_json::{Value, json};

/// Attaches a ptnet device with the backend `backend`. Returns the answer, and the path of the device's socket.
fn pass(d: &Daemon, backend: &str, mut options: Value) -> (Value, PathBuf) {
    let path = d.path("guest.sock");
    options["backend"] = json!(backend);
    let port = format!("ptnet:{}", path.display());
    (d.call("port.attach", json!({"switch": "", "port": port, "options": options})), path)
}

fn passthrough(d: &Daemon, backend: &str, options: Value) -> PathBuf {
    let (reply, path) = pass(d, backend, options);
    assert_eq!(reply["result"]["name"], backend, "{reply}");
    path
}

/// Objective: frames cross a pipe unchanged and in order in both directions, more of them than the rings have room for;
/// guests and programs come and go independently; frames that find room are never lost.
#[test]
fn frames_cross_a_pipe_unchanged_both_ways() {
    let d = Daemon::start("workers = 2");
    let path = passthrough(&d, "netmap:p{1", json!({"slots": 64}));
    assert_eq!(d.ports(), ["netmap:p{1"]);
    let mut program = d.open("netmap:p}1").unwrap();
    // This frame waits until the first guest connects.
    send(&mut program, &frame(255, 1, 77));
    let frames: Vec<_> = frames().into_iter().map(|f| f[..f.len().min(1500)].to_vec()).collect();
    for round in 0..4 {
        let mut guest = Port::as_guest(&path, 0).unwrap();
        assert_eq!(receive(&mut guest), frame(255, 1, 77 + round));
        assert!(carry(&mut guest, &mut program, &frames) == frames);
        assert!(carry(&mut program, &mut guest, &frames) == frames);
        // This frame waits for the next program. The last frame of this round waits for the next guest.
        send(&mut guest, &frame(255, 2, round));
        drop(guest);
        until("the guest is gone", || d.notes("netmap:p{1").contains("waits"));
        drop(program);
        until("the end is free", || d.notes("netmap:p{1").contains("not open"));
        program = d.open("netmap:p}1").unwrap();
        assert_eq!(receive(&mut program), frame(255, 2, round));
        send(&mut program, &frame(255, 1, 78 + round));
    }
    let rings = d.show("netmap:p{1")["rings"].clone();
    assert_eq!(rings[0]["frames"], 4 * (frames.len() as u64 + 1), "{rings}");
    assert!(d.call("port.detach", json!({"switch": "netmap", "port": "p{1"}))["error"].is_null());
    until("the program's end is closed", || program.wait(Interest::Rx, Some(Duration::ZERO)).is_err());
    assert!(d.ports().is_empty() && !path.exists());
}

/// Objective: with a full pipe and no reader, the worker sleeps; each frame that is read wakes the worker and the
/// waiting sender.
#[test]
fn full_pipes_sleep() {
    let d = Daemon::start("workers = 1");
    let path = passthrough(&d, "netmap:p}1", json!({"slots": 16}));
    let mut program = d.open("netmap:p{1").unwrap();
    let mut guest = Port::as_guest(&path, 0).unwrap();
    // Send one frame fewer than a ring has slots. The worker forwards frames until the ring at the other end has no
    // room either.
    let fill = |port: &mut Port, from: u8| {
        for n in 0..15 {
            assert!(port.wait(Interest::Tx, Some(common::LIMIT)).unwrap(), "no room for frame {n}");
            send(port, &frame(255, from, n));
        }
        assert!(!port.wait(Interest::Tx, Some(Duration::from_millis(100))).unwrap(), "more than a ring's worth");
    };
    fill(&mut guest, 1);
    fill(&mut program, 2);
    falls_asleep(&d);
    // Each slot that a program releases wakes the worker, and the room that the slot provides wakes the sender at the
    // other end.
    for i in 15..30 {
        assert_eq!(receive(&mut program), frame(255, 1, i - 15));
        assert!(guest.wait(Interest::Tx, Some(common::LIMIT)).unwrap());
        send(&mut guest, &frame(255, 1, i));
        assert_eq!(receive(&mut guest), frame(255, 2, i - 15));
        assert!(program.wait(Interest::Tx, Some(common::LIMIT)).unwrap());
        send(&mut program, &frame(255, 2, i));
    }
    assert!(!guest.wait(Interest::Tx, Some(Duration::ZERO)).unwrap(), "as full as before");
    for i in 15..30 {
        assert_eq!(receive(&mut program), frame(255, 1, i));
        assert_eq!(receive(&mut guest), frame(255, 2, i));
    }
    falls_asleep(&d);
    for i in 0..200 {
        crosses(&mut guest, &mut program, &frame(255, 1, i));
        crosses(&mut program, &mut guest, &frame(255, 2, i));
    }
}

/// Objective: a guest that writes nonsense everywhere, rings its doorbells, and starts and stops its rings, harms
/// neither the daemon nor the program, and after that, the program receives frames of a later guest.
#[test]
fn nonsense_in_a_pipe() {
    let d = Daemon::start("workers = 1");
    let path = passthrough(&d, "netmap:p{1", json!({"slots": 64}));
    let mut program = d.open("netmap:p}1").unwrap();
    let mad = BareGuest::connect(&path).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let whole = Words::new(mad.memory(), 0, mad.memory().len() / 4).unwrap();
            let mut state = 0x9e37_79b9_7f4a_7c15;
            let mut noise = || noise(&mut state);
            while !over.load(Ordering::Relaxed) {
                for _ in 0..500 {
                    let value = noise();
                    let value = if value.is_multiple_of(3) { value >> 26 } else { value };
                    whole.store(noise() as usize % (16 * 1024), value);
                }
                mad.doorbells().iter().for_each(Doorbell::ring);
                if noise().is_multiple_of(16) {
                    let what = if noise().is_multiple_of(2) { COMMAND_START } else { COMMAND_STOP };
                    let _ = mad.command(what, 0, noise());
                }
            }
        });
        let mut place = [0; 4096];
        for i in 0..20_000u32 {
            // The program's rings are in the guest's memory: their contents are arbitrary, but the program accesses
            // nothing outside that memory.
            let _ = program.tx()[0].send(&frame(255, 1, i as u8));
            program.tx()[0].sync();
            let _ = program.rx()[0].sync();
            let _ = program.rx()[0].recv(&mut place);
        }
        over.store(true, Ordering::Relaxed);
    });
    drop((mad, program));
    until("both are gone", || {
        let notes = d.notes("netmap:p{1");
        notes.contains("waits") && notes.contains("not open")
    });
    d.call("port.detach", json!({"switch": "netmap", "port": "p{1"}));
    let path = passthrough(&d, "netmap:p{1", json!({}));
    let mut program = d.open("netmap:p}1").unwrap();
    let mut guest = Port::as_guest(&path, 0).unwrap();
    crosses(&mut guest, &mut program, &frame(255, 1, 1));
}

/// Objective: impossible requests are refused with an explanation.
#[test]
fn senseless_requests_are_refused_with_an_explanation() {
    let d = Daemon::start("");
    let refused = |backend: &str, options: Value| pass(&d, backend, options).0["error"].to_string();
    assert!(refused("netmap:p{1", json!({"rings": 2})).contains("one ring in each direction"));
    assert!(refused("netmap:p{1", json!({"vnet_hdr": 12})).contains("vnet_hdr"));
    assert!(refused("netmap:p{1", json!({"slots": 1})).contains("slots"));
    assert!(refused("netmap:no-such-if0", json!({})).contains("no-such-if0"));
    assert!(refused("netmap:p{1/R", json!({})).contains("all rings"));
    assert!(refused("netmap:", json!({})).contains("backend netmap"));
    let tap = json!({"switch": "", "port": "tap:nvx", "options": {"backend": "netmap:p{1"}});
    assert!(
        d.call("port.attach", tap)["error"].to_string().contains("backend applies only to ptnet ports, not to tap:nvx")
    );
    let open = d.open("netmap:q{1").unwrap();
    assert!(refused("netmap:q}1", json!({})).contains("is open"));
    drop(open);
    let path = passthrough(&d, "netmap:p{1", json!({}));
    assert!(refused("netmap:p{1", json!({})).contains("already passed through"));
    assert!(refused("netmap:p}1", json!({})).contains("is open"));
    assert!(matches!(d.open("netmap:p{1"), Err(e) if e.to_string().contains("virtual machine")));
    drop(BareGuest::connect(&path).unwrap());
    // A port of a switch keeps its own name.
    let (reply, _) = pass(&d, "vale0:g", json!({"name": "other"}));
    assert!(!reply["error"].is_null(), "the socket is taken: {reply}");
}

mod as_root {
    use super::*;

    /// Objective: frames pass between an interface and the guest's rings, unchanged and in order in both directions,
    /// for several guests one after another; without a guest, the stack gets the frames; idle guests and workers sleep.
    #[test]
    fn interface_frames_go_to_and_from_the_guest() {
        if !common::is_root("XDP programs need root") {
            return;
        }
        if !common::inside(&["--net"]) {
            return;
        }
        let d = Daemon::start("workers = 1");
        cable("nva", "nvb", 2);
        let path = passthrough(&d, "netmap:nva", json!({"slots": 1024}));
        let usual = netvale::Options { slots: 0, ..d.options() };
        let mut far = Port::open_with("netmap:nvb", &usual).unwrap();
        let frames = frames();
        for _ in 0..3 {
            let mut guest = Port::as_guest(&path, 0).unwrap();
            assert_eq!((guest.tx().len(), guest.rx().len()), (2, 2), "a ring a queue");
            assert!(carry(&mut guest, &mut far, &frames) == frames);
            assert!(carry(&mut far, &mut guest, &frames) == frames);
            falls_asleep(&d);
            // A frame from either side wakes the worker and the other side.
            for i in 0..100 {
                crosses(&mut far, &mut guest, &frame(1, 2, i));
                crosses(&mut guest, &mut far, &frame(2, 1, i));
            }
        }
        let shown = d.show("netmap:nva");
        assert_eq!(shown["rings"][0]["frames"], 3 * (frames.len() as u64 + 100), "{shown}");
        // No other program can get the queues while the port exists; after the port is removed, the queues are free.
        let _guest = Port::as_guest(&path, 0).unwrap();
        assert!(Port::open_with("netmap:nva", &usual).is_err());
        d.call("port.detach", json!({"switch": "netmap", "port": "nva"}));
        drop(Port::open_with("netmap:nva", &usual).unwrap());
        until("no program", || Interface::find("nva").unwrap().program().is_none());
    }
}
