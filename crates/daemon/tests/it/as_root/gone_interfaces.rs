//! Interfaces in use by a switch or a program that go down, are deleted, or are recreated.

use crate::common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use common::ports::{self, open};
use common::{Daemon, cable, frame, inside_with_xdp, ip, receive, send, sum, until};
use netvale::{Interest, Port};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

fn attach(d: &Daemon) {
    assert_eq!(ports::attach(d, "netmap:nva", json!({}))["kind"], "nic");
}

fn is_gone(d: &Daemon, port: &str) {
    until("the port is gone", || !d.ports().iter().any(|name| name == port));
    let evicted = d.evicted();
    let mut all = evicted.as_array().unwrap().iter();
    let is_told = |one: &Value| one["port"] == port && one["reason"].to_string().contains("is gone");
    assert!(all.any(is_told), "{evicted}");
}

fn crosses(from: &mut Port, to: &mut Port, tag: u8) {
    send(from, &frame(2, 1, tag));
    while receive(to) != frame(2, 1, tag) {}
}

/// Starts a daemon whose switch has one end of a cable. Opens two ports for programs: one on that switch, and one at
/// the far end of the cable.
fn on_a_cable() -> (Daemon, Port, Port) {
    let d = Daemon::start("");
    cable("nva", "nvb", 1);
    attach(&d);
    let mut x = d.open("vale0:x").unwrap();
    let mut far = open(&d, "netmap:nvb");
    crosses(&mut x, &mut far, 1);
    (d, x, far)
}

/// Objective: frames from a switch to an interface that is down count as idle, and a note reports this; after the
/// interface is up again, frames are sent. When the interface is deleted, its port ends with the reason, and a new
/// interface of that name can be attached and works.
#[test]
fn frames_to_a_down_interface_count_as_idle() {
    if !inside_with_xdp() {
        return;
    }
    let (d, mut x, mut far) = on_a_cable();
    ip("link set nva down");
    assert!(d.notes("vale0:nva").contains("interface nva is down"), "{}", d.show("vale0:nva"));
    let delivered = sum(&d.show("vale0:nva"), "out", "frames");
    let mut sent = 0u64;
    until("frames that nobody can have", || {
        send(&mut x, &frame(2, 1, 2));
        sent += 1;
        sum(&d.show("vale0:nva"), "out", "idle") >= 50
    });
    let counted = || {
        let port = d.show("vale0:nva");
        sum(&port, "out", "idle") + sum(&port, "out", "frames") - delivered
    };
    until("all are counted", || counted() == sent);
    ip("link set nva up");
    crosses(&mut x, &mut far, 3);
    ip("link del nva");
    is_gone(&d, "vale0:nva");
    cable("nva", "nvb", 1);
    attach(&d);
    let mut far = open(&d, "netmap:nvb");
    crosses(&mut x, &mut far, 4);
}

/// Objective: a daemon out of descriptors, which cannot query interfaces, treats no interface as deleted or down.
#[test]
fn a_lack_of_descriptors_makes_no_interface_look_gone() {
    if !inside_with_xdp() {
        return;
    }
    let (d, mut x, mut far) = on_a_cable();
    let mut known = UnixStream::connect(d.path("control.sock")).unwrap();
    known.set_read_timeout(Some(common::LIMIT)).unwrap();
    let mut ask = || {
        writeln!(known, "{}", json!({"jsonrpc": "2.0", "id": 1, "method": "version"})).unwrap();
        assert!(known.read(&mut [0; 1024]).unwrap() > 0);
    };
    ask();
    let open: BTreeSet<u64> = std::fs::read_dir(format!("/proc/{}/fd", d.id())).unwrap().map(number_of).collect();
    let free = (0..).find(|number| !open.contains(number)).unwrap();
    limit_descriptors(&d, free);
    // A new interface causes a link notification. At such a notification, the daemon looks for interfaces that no
    // longer exist.
    cable("nvc", "nvd", 1);
    ask();
    ask();
    limit_descriptors(&d, 1024);
    ask();
    let evicted = d.evicted();
    assert_eq!((d.ports().contains(&"vale0:nva".to_owned()), &evicted), (true, &json!([])));
    crosses(&mut x, &mut far, 2);
}

fn number_of(entry: std::io::Result<std::fs::DirEntry>) -> u64 {
    entry.unwrap().file_name().to_str().unwrap().parse().unwrap()
}

fn limit_descriptors(d: &Daemon, most: u64) {
    let limit = Rlimit { current: Some(most), maximum: Some(4096) };
    prlimit(Pid::from_raw(d.id() as i32), Resource::Nofile, limit).unwrap();
}

/// Objective: a program that has opened an interface loses its port when the interface is deleted, and another program
/// can open a new interface of that name.
#[test]
fn a_program_with_a_deleted_interface_loses_its_port() {
    let Some(d) = Daemon::with_cable("", 1) else { return };
    let mut old = open(&d, "netmap:nva");
    ip("link del nva");
    cable("nva", "nvb", 1);
    let mut near = open(&d, "netmap:nva");
    let mut far = open(&d, "netmap:nvb");
    crosses(&mut near, &mut far, 1);
    until("the first program is told", || old.wait(Interest::Rx, Some(Duration::ZERO)).is_err());
    crosses(&mut far, &mut near, 2);
    ip("link del nva");
    is_gone(&d, "netmap:nva");
    is_gone(&d, "netmap:nvb");
}

/// Objective: a renamed interface is not treated as deleted.
#[test]
fn a_renamed_interface_still_exists() {
    let Some(d) = Daemon::with_cable("", 1) else { return };
    let mut near = open(&d, "netmap:nva");
    let mut far = open(&d, "netmap:nvb");
    ip("link set nva down");
    ip("link set nva name other0");
    ip("link set other0 up");
    crosses(&mut near, &mut far, 1);
    assert!(d.ports().contains(&"netmap:nva".to_owned()));
}
