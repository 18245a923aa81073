//! Killed clients. These tests run alone in their process, because they count the daemon's descriptors.

use crate::common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::ports::{attach, number, numbered, open};
use common::{Daemon, LIMIT, crosses, frame, receive, send, until};
use netvale::{Options, Port};
use netvale_harness::Pretender;
use rustix::process::Signal;
use serde_json::json;

/// Objective: clients that are killed at any point leave no ports, descriptors or memory behind; other clients are not
/// affected.
#[test]
fn killed_clients_are_reaped() {
    let d = Daemon::start("");
    let mut stay = d.open("vale0:stay").unwrap();
    let fds = || std::fs::read_dir(format!("/proc/{}/fd", d.id())).unwrap().count();
    // The first rounds are not counted, because the daemon creates some objects only once, at their first use.
    let mut before = 0;
    for round in 0..12u64 {
        let mut child = netvale_harness::role("killed::role_of_a_victim")
            .unwrap()
            .env("VICTIM_DIR", d.dir())
            .env("VICTIM_PORT", if round % 3 == 2 { "netmap:v{1" } else { "vale0:victim" })
            .spawn()
            .unwrap();
        until("the victim's port is there", || d.ports().len() == 2);
        // In each round, the kill happens at a different moment.
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(700 * round) {
            stay.sync();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        until("the victim's port is gone", || d.ports() == ["vale0:stay"]);
        if round == 2 {
            before = fds();
        }
    }
    until("all descriptors are closed", || fds() <= before);
    let mut other = d.open("vale0:other").unwrap();
    stay.rx()[0].advance(u32::MAX >> 1);
    stay.sync();
    send(&mut other, &frame(255, 9, 9));
    until("the survivor still receives", || {
        stay.sync();
        stay.rx()[0].space() > 0
    });
}

/// Objective: counters and learned addresses survive restarts and kills, even without frames in between.
#[test]
fn counters_and_addresses_survive_kills() {
    let d = Daemon::managed("");
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    for tag in 0..20 {
        crosses(&mut a, &mut b, &frame(255, 1, tag));
    }
    let counted = || {
        let shown = d.show("vale0:b")["rings"].take();
        let frames = shown.as_array().unwrap().iter().map(|ring| ring["frames"].as_u64().unwrap()).sum::<u64>();
        let mut table = d.call("switch.table", json!({"switch": "vale0"}))["result"].take();
        (frames, table[0]["port"].take())
    };
    for signal in [Signal::TERM, Signal::KILL, Signal::KILL, Signal::TERM, Signal::KILL] {
        d.is_restarted(signal, || ());
        assert_eq!(counted(), (20, json!("vale0:a")), "{signal:?}");
    }
}

/// Objective: if a daemon is killed after any part of its hand-over, the next daemon restores it, from the state that
/// the service manager keeps.
#[test]
fn killed_while_it_hands_over() {
    let d = Daemon::managed("");
    let [mut a, mut b] = ["vale0:a", "vale0:b"].map(|name| d.open(name).unwrap());
    let mut most = 0;
    loop {
        let mut taken = 0;
        // The queue of the connection keeps alive the items that were not received, including the lock of the run
        // directory.
        d.is_killed_while(|| {
            let pretender = Pretender::admitted(d.dir()).unwrap();
            taken = pretender.take(most).unwrap();
            pretender
        });
        send(&mut a, &frame(255, 1, most as u8));
        assert_eq!(receive(&mut b), frame(255, 1, most as u8), "after {most}");
        if taken < most {
            break;
        }
        most += 1;
    }
    assert!(most > 3, "the process, a region, a switch, two ports");
}

/// Objective: all frames for a lossless port with a program that is sometimes slow arrive, even if the daemon is
/// restarted or killed; after a kill, some frames may arrive twice.
#[test]
fn frames_on_their_way_to_a_lossless_port() {
    let d = Daemon::managed("");
    attach(&d, "to", json!({"lossless": true, "slots": 1024}));
    let mut from = open(&d, "vale0:from");
    let mut to = open(&d, "vale0:to");
    let sent = AtomicU32::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send_numbers(&mut from, &sent, &is_over));
        let receiver = scope.spawn(|| receive_numbers(&mut to, &d));
        for signal in [Signal::TERM, Signal::KILL, Signal::TERM, Signal::KILL] {
            let before = sent.load(Ordering::Relaxed);
            until("more frames", || receiver.is_finished() || sent.load(Ordering::Relaxed) > before + 1700);
            d.is_restarted(signal, || ());
        }
        is_over.store(true, Ordering::Relaxed);
        sender.join().unwrap();
        assert_eq!(receiver.join().unwrap(), sent.load(Ordering::Relaxed));
    });
}

/// The number that marks the last frame.
const LAST: u32 = u32::MAX;

/// Receives numbered frames up to the last frame; the numbers must have no gaps. Returns the number of different
/// frames.
fn receive_numbers(port: &mut Port, d: &Daemon) -> u32 {
    let mut next = 0;
    loop {
        let got = number(&receive(port));
        if got == LAST {
            return next;
        }
        assert!(got <= next, "{got} after {next}: {}", d.show("vale0:to"));
        next = next.max(got + 1);
        // From time to time, the program stops reading until the ring is full.
        if next.is_multiple_of(1500) {
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

/// Sends several thousand numbered frames per second until `is_over` is set, and then the last frame.
fn send_numbers(port: &mut Port, sent: &AtomicU32, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        if port.tx()[0].send(&numbered(sent.load(Ordering::Relaxed))) {
            sent.fetch_add(1, Ordering::Relaxed);
        }
        port.tx()[0].sync();
        std::thread::sleep(Duration::from_micros(100));
    }
    until("room", || {
        port.tx()[0].sync();
        port.tx()[0].send(&numbered(LAST))
    });
    port.tx()[0].sync();
}

/// The victim in [`killed_clients_are_reaped`], which sends frames without pause until it is killed.
#[test]
#[ignore = "started by another test"]
fn role_of_a_victim() {
    let (Ok(dir), Ok(name)) = (std::env::var("VICTIM_DIR"), std::env::var("VICTIM_PORT")) else { return };
    let o = Options { run_dir: Some(Path::new(&dir).into()), ..Options::default() };
    let mut port = Port::open_with(&name, &o).unwrap();
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        port.tx()[0].send(&frame(255, 3, 3));
        port.tx()[0].sync();
    }
}
