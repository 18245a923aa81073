//! Ports without a receiver: frames for such ports are counted separately, and are never delivered later.

use crate::common;

use common::ports::{attach, attach_guest, number, numbered, open};
use common::{Daemon, receive, send, stats, until};
use netvale::Port;
use serde_json::{Value, json};

/// Numbers of frames for a port: frames that were delivered, frames that were discarded because the port has no
/// receiver (`idle`), and dropped frames.
#[derive(Debug, PartialEq)]
struct Counts {
    passed: u64,
    idle: u64,
    lost: u64,
}

fn counts(d: &Daemon, port: &str) -> Counts {
    let shown = d.show(port);
    let rings = shown["rings"].as_array().unwrap().iter().filter(|ring| ring["dir"] == "out");
    let sum = |field: &str| rings.clone().map(|ring| ring[field].as_u64().unwrap()).sum();
    let lost = shown["drops"].as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum();
    Counts { passed: sum("frames"), idle: sum("idle"), lost }
}

/// Broadcasts frames with these numbers, and waits until the port has counted all of them. Returns how these frames
/// were counted.
fn offer(d: &Daemon, from: &mut Port, numbers: std::ops::Range<u32>, port: &str) -> Counts {
    let before = counts(d, port);
    let frames = numbers.len() as u64;
    numbers.for_each(|n| send(from, &numbered(n)));
    let mut since = Counts { passed: 0, idle: 0, lost: 0 };
    until("all have been offered", || {
        let now = counts(d, port);
        since.passed = now.passed - before.passed;
        since.idle = now.idle - before.idle;
        since.lost = now.lost - before.lost;
        since.passed + since.idle + since.lost == frames
    });
    since
}

const fn all_idle(idle: u64) -> Counts {
    Counts { passed: 0, idle, lost: 0 }
}

const fn all_passed(passed: u64) -> Counts {
    Counts { passed, idle: 0, lost: 0 }
}

fn waiting(port: &mut Port) -> u32 {
    let look = |ring: &mut netvale::RxRing| {
        let _ = ring.sync();
        ring.space()
    };
    port.rx().iter_mut().map(look).sum()
}

/// Objective: an attached port accepts no frames before the first program opens it, nor after the last program has
/// closed it. Each program finds its rings empty, whatever an earlier program left in them, even after the daemon was
/// replaced or killed.
#[test]
fn each_program_finds_its_rings_empty() {
    let d = Daemon::managed("");
    attach(&d, "kept", json!({"slots": 64}));
    let mut sender = open(&d, "vale0:sender");
    assert_eq!(offer(&d, &mut sender, 0..5, "vale0:kept"), all_idle(5));
    let again: [&dyn Fn(&Daemon); 3] = [&|_| (), &Daemon::is_succeeded, &Daemon::is_killed];
    for change in again {
        change(&d);
        let mut first = open(&d, "vale0:kept");
        assert_eq!(waiting(&mut first), 0);
        assert_eq!(offer(&d, &mut sender, 10..13, "vale0:kept"), all_passed(3));
        assert_eq!(number(&receive(&mut first)), 10);
        change(&d);
        // Two frames are not read.
        drop(first);
        until("the port is idle", || d.show("vale0:kept")["state"] == "idle");
        assert_eq!(offer(&d, &mut sender, 20..24, "vale0:kept"), all_idle(4));
        change(&d);
        let mut second = open(&d, "vale0:kept");
        assert_eq!(waiting(&mut second), 0);
        assert_eq!(offer(&d, &mut sender, 30..31, "vale0:kept"), all_passed(1));
        assert_eq!(number(&receive(&mut second)), 30);
        drop(second);
        until("the port is idle", || d.show("vale0:kept")["state"] == "idle");
    }
}

/// Objective: only those rings of a port get frames that a program has opened.
#[test]
fn only_open_rings_get_frames() {
    let d = Daemon::start("");
    attach(&d, "kept", json!({"rings": 4, "slots": 64}));
    let mut sender = open(&d, "vale0:sender");
    for ring in [2, 0] {
        let mut one = open(&d, &format!("vale0:kept-{ring}"));
        for n in 0..4 {
            send(&mut sender, &numbered(n));
            assert_eq!(number(&receive(&mut one)), n);
        }
        let only_sends = open(&d, "vale0:kept-1/T");
        send(&mut sender, &numbered(9));
        assert_eq!(number(&receive(&mut one)), 9);
        drop((one, only_sends));
        until("the port is idle", || d.show("vale0:kept")["state"] == "idle");
    }
    assert_eq!(counts(&d, "vale0:kept"), all_passed(10));
}

/// Objective: devices without a guest also drop no frames: frames for them count as idle.
#[test]
fn devices_without_a_guest_lose_no_frames() {
    for kind in ["vhost", "ptnet", "e1000"] {
        let d = Daemon::start("");
        attach_guest(&d, kind, json!({}));
        let mut sender = open(&d, "vale0:sender");
        assert_eq!(offer(&d, &mut sender, 0..5, "vale0:guest"), all_idle(5), "{kind}");
        let all = stats(&d);
        let is_whole = |port: &Value| port["in_drops"].is_null() && port["out_drops"].is_null();
        assert!(all["ports"].as_array().unwrap().iter().all(is_whole), "{all}");
    }
}
