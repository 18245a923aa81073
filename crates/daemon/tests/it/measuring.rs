//! Ports for measurements and tests: `null:` discards every frame, `echo:` returns it.

use crate::common;

use common::{Daemon, frame, passed, receive, send, stats, until};
use netvale::{Options, Port};
use serde_json::{Value, json};

fn attach(d: &Daemon, port: &str, options: Value) -> Value {
    d.call("port.attach", json!({"switch": "vale0", "port": port, "options": options}))
}

/// Returns the numbers of forwarded and dropped frames of a port's ring in that direction.
fn counted(d: &Daemon, port: &str, dir: &str) -> (u64, u64) {
    let shown = d.show(port);
    let ring = shown["rings"].as_array().unwrap().iter().find(|ring| ring["dir"] == dir).unwrap();
    (ring["frames"].as_u64().unwrap(), ring["drops"]["no-room"].as_u64().unwrap_or(0))
}

/// Waits until there is room for a frame, and sends it.
fn send_on(port: &mut Port, frame: &[u8]) {
    until("there is room to send", || {
        let sent = port.tx()[0].send(frame);
        port.tx()[0].sync();
        sent
    });
}

/// Objective: every frame for a `null:` port is counted with its bytes and goes nowhere else; `list` and `stats` show
/// the port under its name.
#[test]
fn null_swallows_and_counts() {
    let d = Daemon::start("");
    assert_eq!(attach(&d, "null:sink", json!({}))["result"]["kind"], "null");
    let mut a = d.open("vale0:a").unwrap();
    for tag in 0..200 {
        send_on(&mut a, &frame(9, 1, tag));
    }
    until("all frames are swallowed", || counted(&d, "vale0:sink", "out") == (200, 0));
    assert_eq!(d.show("vale0:sink")["rings"][0]["bytes"], 200 * 60);
    assert_eq!(d.ports(), ["vale0:a", "vale0:sink"]);
    let all = stats(&d);
    let sink = all["ports"].as_array().unwrap().iter().find(|port| port["name"] == "vale0:sink").unwrap();
    assert_eq!((passed(sink, "out"), passed(sink, "in")), (200, 0));
    assert_eq!(a.rx()[0].space(), 0, "something came back");
    d.detach("sink");
}

/// Objective: `echo:` returns each frame to its sender, in order, with swapped addresses and otherwise unchanged,
/// whether the worker is asleep or awake.
#[test]
fn echo_sends_back() {
    let d = Daemon::start("workers = 2");
    assert_eq!(attach(&d, "echo:", json!({}))["result"]["name"], "vale0:echo");
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    for tag in 0..200 {
        let to = if tag % 2 == 0 { 255 } else { 9 };
        send(&mut a, &frame(to, 1, tag));
        let mut back = frame(1, 0, tag);
        back[6..12].copy_from_slice(&frame(to, 1, tag)[..6]);
        assert_eq!(receive(&mut a), back, "{tag}");
    }
    // Flooded frames reached both ports; the returned frames went only to the sender.
    until("all frames came back", || counted(&d, "vale0:echo", "in") == (200, 0));
    b.sync();
    let mut got = [0; 60];
    while b.rx()[0].recv(&mut got).is_some() {
        assert_eq!(got[6..12], frame(9, 1, 0)[6..12], "an echo for somebody else");
    }
}

/// Objective: an echo port whose ring is full drops frames as `no-room`, and loses no others.
#[test]
fn a_full_echo_counts() {
    const SENT: u64 = 1000;
    let d = Daemon::start("");
    // The echo waits for room at the sender's lossless port, which does not read.
    let options = Options { lossless: true, slots: 16, ..d.options() };
    let mut a = Port::open_with("vale0:a", &options).unwrap();
    attach(&d, "echo:e", json!({"slots": 8}));
    for tag in 0..SENT {
        send_on(&mut a, &frame(9, 1, tag as u8));
    }
    let out = || {
        let (frames, dropped) = counted(&d, "vale0:e", "out");
        (frames + dropped, dropped)
    };
    until("every frame is delivered or dropped", || out().0 == SENT);
    assert!(out().1 > 0);
}

/// Objective: the configuration attaches both kinds; taken names and impossible slots are refused.
#[test]
fn the_configuration_attaches_both_kinds() {
    let d = Daemon::start(
        "[[port]]\nswitch = 'vale0'\nport = 'null:'\n[[port]]\nswitch = 'vale1'\nport = 'echo:e'\nslots = 64\n",
    );
    assert_eq!(d.ports(), ["vale0:null", "vale1:e"]);
    assert!(d.notes("vale1:e").contains("a ring of 64 slots"));
    assert!(attach(&d, "null:", json!({}))["error"]["message"].to_string().contains("already"));
    assert!(attach(&d, "echo:x", json!({"slots": 1 << 30}))["error"].is_object());
    assert_eq!(d.ports().len(), 2);
}
