//! Clients that are killed. Alone in its process, since it counts the daemon's descriptors.

use crate::common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{Daemon, LIMIT, frame, receive, send, until};
use netvale::{Options, Port};
use rustix::process::Signal;
use serde_json::json;

/// Objective: clients killed at any point leave nothing: ports, descriptors and memory go, others do not notice.
#[test]
fn killed_clients_are_reaped() {
    let d = Daemon::start("");
    let mut stay = d.open("vale0:stay").unwrap();
    let fds = || std::fs::read_dir(format!("/proc/{}/fd", d.id())).unwrap().count();
    // One round first, so that everything lazily made is there.
    let mut before = 0;
    for round in 0..12u64 {
        let mut child = netvale_harness::role("killed::role_of_a_victim")
            .unwrap()
            .env("VICTIM_DIR", d.dir())
            .env("VICTIM_PORT", if round % 3 == 2 { "netmap:v{1" } else { "vale0:victim" })
            .spawn()
            .unwrap();
        until("the victim's port is there", || d.ports().len() == 2);
        // A different point of its life each time.
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

/// Objective: counters, and what a switch has learned, outlast restarts and kills, also where no frame passes in
/// between.
#[test]
fn restarted_and_killed() {
    let d = Daemon::managed("");
    let mut a = d.open("vale0:a").unwrap();
    let mut b = d.open("vale0:b").unwrap();
    for tag in 0..20 {
        send(&mut a, &frame(255, 1, tag));
        assert_eq!(receive(&mut b), frame(255, 1, tag));
    }
    let counted = || {
        let shown = d.call("port.show", json!({"port": "vale0:b"}))["result"]["rings"].take();
        let frames = shown.as_array().unwrap().iter().map(|ring| ring["frames"].as_u64().unwrap()).sum::<u64>();
        let mut table = d.call("switch.table", json!({"switch": "vale0"}))["result"].take();
        (frames, table[0]["port"].take())
    };
    for signal in [Signal::TERM, Signal::KILL, Signal::KILL, Signal::TERM, Signal::KILL] {
        d.is_restarted(signal, || ());
        assert_eq!(counted(), (20, json!("vale0:a")), "{signal:?}");
    }
}

/// The process that [`killed_clients_are_reaped`] kills: floods until it dies.
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
