//! TAP ports; each test has its own network namespace.
//!
//! Each test runs itself again under unshare(1), with separate interfaces. If the right to create a namespace is
//! missing, the test reports *skipped*.

use crate::common;

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use common::heirs::{PEER, address, answer};
use common::ports::{attach, beside_slow_frames};
use common::{Daemon, LIMIT, crosses, frame, ip, receive, send, stats, sum, until};
use netvale::{Interest, Port};
use netvale_harness::attacks::filters::Listeners;
use serde_json::{Value, json};

/// Attaches a TAP, brings its interface up, and gives the interface an address and a neighbour behind the switch.
fn tap(d: &Daemon, name: &str, options: Value) {
    assert_eq!(attach(d, &format!("tap:{name}"), options)["kind"], "tap");
    address(name);
}

/// Starts a daemon with a program's port and the TAP `nvt0`; `None` in the process outside the namespace.
fn beside_tap(more: &str, options: Value) -> Option<(Daemon, Port)> {
    let d = Daemon::inside_as_user(more)?;
    let a = d.open("vale0:a").unwrap();
    tap(&d, "nvt0", options);
    Some((d, a))
}

fn socket() -> UdpSocket {
    socket_at(0)
}

fn socket_at(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind(("10.9.0.1", port)).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

/// Receives a port's next frame, which may have up to 64 KiB.
fn receive_long(port: &mut Port) -> Vec<u8> {
    assert!(port.wait(Interest::Rx, Some(LIMIT)).unwrap(), "no frame came");
    let mut frame = vec![0; 65_550];
    let n = port.rx()[0].recv(&mut frame).expect("a whole frame");
    let _ = port.rx()[0].sync();
    frame.truncate(n);
    frame
}

/// Objective: a jumbo datagram leaves the stack as one frame of several slots, unchanged, and the answer enters the
/// stack.
#[test]
fn a_jumbo_datagram_crosses_as_one_frame() {
    let Some((_d, mut a)) = beside_tap("", json!({"mtu": 9000})) else { return };
    let payload: Vec<u8> = (0..8000u32).map(|i| (i % 251) as u8).collect();
    let socket = socket();
    socket.send_to(&payload, (PEER, 9)).unwrap();
    let frame = receive_long(&mut a);
    assert_eq!(frame.len(), 14 + 20 + 8 + 8000);
    assert_eq!(frame[42..], payload);
    assert_ne!(frame[40..42], [0, 0], "the checksum was not filled in");
    send(&mut a, &answer(&frame));
    let mut back = vec![0; 9000];
    let (n, from) = socket.recv_from(&mut back).unwrap();
    assert_eq!((&back[..n], from.to_string()), (&payload[..], format!("{PEER}:9")));
}

/// Objective: with several queues, the frames of all flows arrive, and more than one queue carries frames.
#[test]
fn several_queues_carry_all_flows() {
    let Some((d, mut a)) = beside_tap("workers = 2", json!({"rings": 4})) else { return };
    for flow in 0..64u8 {
        socket().send_to(&[flow; 20], (PEER, 9)).unwrap();
        assert_eq!(receive(&mut a)[42..62], [flow; 20]);
    }
    let shown = d.show("vale0:nvt0");
    let rings = shown["rings"].as_array().unwrap();
    let frames: Vec<u64> =
        rings.iter().filter(|ring| ring["dir"] == "in").map(|ring| ring["frames"].as_u64().unwrap()).collect();
    assert_eq!((frames.len(), frames.iter().sum::<u64>()), (4, 64));
    assert!(frames.iter().filter(|&&n| n > 0).count() > 1, "one queue had all: {frames:?}");
}

/// Objective: if an interface is deleted, only its own port loses frames, which are counted by reason; the port reports
/// the deletion; the interface's name can be used again.
#[test]
fn a_deleted_interface_costs_only_its_own_ports_frames() {
    let Some(d) = Daemon::inside_as_user("") else { return };
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    tap(&d, "nvt0", json!({}));
    ip("link del nvt0");
    for tag in 0..20 {
        crosses(&mut a, &mut b, &frame(255, 1, tag));
    }
    until("the drops have a name", || d.show("vale0:nvt0")["drops"]["device"].as_u64() == Some(20));
    until("it says why", || d.show("vale0:nvt0")["notes"].to_string().contains(netvale_tap::link::GONE));
    d.detach("nvt0");
    tap(&d, "nvt0", json!({}));
    socket().send_to(b"again", (PEER, 9)).unwrap();
    assert_eq!(&receive(&mut a)[42..47], b"again");
}

/// Objective: a TAP's MTU can be changed while frames pass, alone and together with policies; if one of the changes
/// fails, nothing changes. The MTU is exported. Ports without an MTU refuse it.
#[test]
fn mtu_while_frames_pass() {
    let Some((d, mut a)) = beside_tap("", json!({})) else { return };
    let mtu = || {
        let shown = Command::new("ip").args(["-o", "link", "show", "nvt0"]).output().unwrap().stdout;
        let shown = String::from_utf8(shown).unwrap();
        shown.split_once(" mtu ").unwrap().1.split(' ').next().unwrap().parse::<u32>().unwrap()
    };
    let set = |port: &str, set: Value| {
        let reply = d.call("port.set", json!({"port": port, "set": set}));
        reply["error"]["message"].as_str().unwrap_or_default().to_owned()
    };
    let exported = || d.call("config.export", json!({}))["result"].to_string();
    assert_eq!((set("vale0:nvt0", json!({"mtu": 9000})), mtu()), (String::new(), 9000));
    assert!(exported().contains("9000"), "{}", exported());
    socket().send_to(&[7; 8000], (PEER, 9)).unwrap();
    assert_eq!(receive_long(&mut a)[42..], [7; 8000]);
    assert_eq!((set("vale0:nvt0", json!({"mtu": 2000, "isolated": true})), mtu()), (String::new(), 2000));
    assert!(set("vale0:nvt0", json!({"mtu": 3000, "access": 5, "trunk": "7"})).contains("trunk"));
    assert!(set("vale0:nvt0", json!({"mtu": 67})).contains("mtu"));
    assert_eq!(mtu(), 2000);
    assert_eq!((set("vale0:nvt0", json!({"mtu": null})), mtu()), (String::new(), 1500));
    assert!(!exported().contains("mtu"), "{}", exported());
    assert!(set("vale0:a", json!({"mtu": 9000})).contains("cannot change"));
    let path = d.path("v.sock");
    let port = format!("vhost:{}", path.display());
    d.call("port.attach", json!({"switch": "vale0", "port": port, "options": {"name": "v"}}));
    assert_eq!(set("vale0:v", json!({"mtu": 4000})), "");
    assert_eq!(d.show("vale0:v")["vhost"]["mtu"], 4000);
}

/// Objective: addresses learned behind a TAP are forgotten with the first frame that finds the TAP's interface down or
/// deleted; frames then go to the port that now has the address. Sticky addresses stay. Addresses behind an interface
/// that comes up again are learned again.
#[test]
fn links_that_go_down() {
    let Some(d) = Daemon::inside_as_user("") else { return };
    let mut a = d.open("vale0:a").unwrap();
    // Whether the switch has learned the address behind the port with this name.
    let is_known = |port: &str| {
        let table = d.call("switch.table", json!({"switch": "vale0"}))["result"].to_string();
        table.contains(&format!("\"vale0:{port}\""))
    };
    for (command, keeps) in [("set nvt0 down", false), ("del nvt0", false), ("set nvt0 down", true)] {
        let options = if keeps { json!({"sticky": true}) } else { json!({}) };
        tap(&d, "nvt0", options);
        for round in 0..2 {
            ip("link set nvt0 up");
            ip(&format!("neigh replace {PEER} lladdr 02:00:00:00:00:02 dev nvt0"));
            socket().send_to(b"x", (PEER, 9)).unwrap();
            let heard = receive(&mut a);
            assert!(is_known("nvt0"), "{command}");
            ip(&format!("link {command}"));
            send(&mut a, &answer(&heard));
            if keeps {
                until("it was dropped", || sum(&d.show("vale0:nvt0"), "out", "idle") > 0);
                assert!(is_known("nvt0"));
                break;
            }
            until("it is forgotten", || !is_known("nvt0"));
            let mut b = d.open(&format!("vale0:b{round}")).unwrap();
            send(&mut a, &answer(&heard));
            assert_eq!(receive(&mut b), answer(&heard), "{command}");
            if command.starts_with("del") {
                break;
            }
        }
        d.detach("nvt0");
    }
}

/// Objective: a TAP without traffic leaves the daemon asleep, and a frame wakes it.
#[test]
fn a_frame_wakes_an_idle_tap() {
    let Some((d, mut a)) = beside_tap("workers = 1\nspin_us = 0", json!({})) else { return };
    let slept = || stats(&d)["workers"][0]["slept_ns"].as_u64().unwrap();
    for round in 0..5u8 {
        let before = slept();
        // In this time, nothing happens that could wake the worker.
        std::thread::sleep(Duration::from_millis(20));
        socket().send_to(&[round; 20], (PEER, 9)).unwrap();
        assert_eq!(receive(&mut a)[42..62], [round; 20]);
        until("it slept", || slept() >= before + 10_000_000);
    }
}

/// A TCP segment with 1,000 bytes of payload, the `i`th of its flow.
fn segment(i: u32) -> Vec<u8> {
    let tcp = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [0xff; 6])
        .ipv4([10, 9, 0, 2], [10, 9, 0, 1], 64)
        .tcp(1, 2, i * 1000, 1000)
        .ack(5);
    let mut frame = Vec::new();
    tcp.write(&mut frame, &[i as u8; 1000]).unwrap();
    frame
}

/// Objective: consecutive segments from a program reach the stack of an interface that supports this as one frame,
/// which the kernel accepts.
#[test]
fn merged_segments_reach_the_stack_as_one_frame() {
    let Some((d, mut a)) = beside_tap("", json!({"gro": true})) else { return };
    for i in 0..40 {
        assert!(a.tx()[0].send(&segment(i)));
    }
    a.tx()[0].sync();
    let received = || {
        let devices = std::fs::read_to_string("/proc/net/dev").unwrap();
        let line = devices.lines().find_map(|line| line.trim().strip_prefix("nvt0:").map(str::to_owned)).unwrap();
        line.split_whitespace().next() == Some("40054")
    };
    until("the frame", received);
    let shown = d.show("vale0:nvt0");
    assert_eq!((sum(&shown, "out", "frames"), sum(&shown, "out", "bytes")), (1, 40_054), "{shown}");
}

/// Returns a UDP datagram of `len` bytes of payload, all of them `i`.
fn datagram(i: u8, len: usize) -> Vec<u8> {
    let udp = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [0xff; 6])
        .ipv4([10, 9, 0, 2], [10, 9, 0, 1], 64)
        .udp(1, 2);
    let mut frame = Vec::new();
    udp.write(&mut frame, &vec![i; len]).unwrap();
    // Don't fragment: the identification is of no importance. The checksum is that of these bytes.
    frame[20] = 0x40;
    let sum = etherparse::Ipv4HeaderSlice::from_slice(&frame[14..34]).unwrap().to_header().calc_header_checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Objective: consecutive datagrams from a program reach the stack as one frame, and an application one by one.
#[test]
fn merged_datagrams_reach_an_application_one_by_one() {
    let Some((d, mut a)) = beside_tap("", json!({"gro": true})) else { return };
    let socket = socket_at(2);
    let lengths: Vec<usize> = (0..30).map(|i| if i == 29 { 77 } else { 500 }).collect();
    for (i, len) in lengths.iter().enumerate() {
        assert!(a.tx()[0].send(&datagram(i as u8, *len)));
    }
    a.tx()[0].sync();
    for (i, len) in lengths.iter().enumerate() {
        let mut bytes = [0; 2048];
        assert_eq!(socket.recv(&mut bytes).unwrap(), *len);
        assert!(bytes[..*len].iter().all(|&b| b == i as u8));
    }
    let shown = d.show("vale0:nvt0");
    assert_eq!(sum(&shown, "out", "frames"), 1, "{shown}");
}

/// Objective: an existing interface is used if it is suitable, even if the port uses only one queue of a multi-queue
/// interface; otherwise, the refusal names the obstacle.
#[test]
fn those_that_are_there() {
    let Some(d) = Daemon::inside_as_user("") else { return };
    ip("tuntap add several mode tap multi_queue");
    ip("tuntap add single mode tap");
    ip("tuntap add routed mode tun");
    for (name, rings) in [("several", 1), ("single", 1)] {
        tap(&d, name, json!({"rings": rings}));
        ip(&format!("addr flush dev {name}"));
        d.call("port.detach", json!({"switch": "vale0", "port": name}));
    }
    let refused = |name: &str, rings: u32| {
        let asked = json!({"switch": "vale0", "port": format!("tap:{name}"), "options": {"rings": rings}});
        d.call("port.attach", asked)["error"]["message"].to_string()
    };
    for (name, rings, why) in [
        ("single", 2, "created without multi_queue"),
        ("routed", 1, "is a TUN"),
        ("routed", 2, "is a TUN"),
        ("lo", 1, "is not a TAP"),
        ("lo", 2, "is not a TAP"),
    ] {
        let text = refused(name, rings);
        assert!(text.contains(why), "{name} {rings}: {text}");
    }
}

/// Objective: frames for a TAP that is down do not count as drops; after the TAP is brought up, frames reach it.
#[test]
fn frames_for_a_down_tap_are_not_drops() {
    let Some(d) = Daemon::inside_as_user("") else { return };
    attach(&d, "tap:nv0", json!({}));
    std::fs::write("/proc/sys/net/ipv6/conf/nv0/disable_ipv6", "1").unwrap();
    let out = || {
        let shown = d.show("vale0:nv0");
        assert_eq!(shown["drops"].as_object().map_or(0, |drops| drops.len()), 0, "{shown}");
        ["frames", "idle"].map(|counter| sum(&shown, "out", counter))
    };
    let mut sender = d.open("vale0:sender").unwrap();
    for (state, idle) in [("down", 3), ("up", 3), ("down", 6)] {
        ip(&format!("link set nv0 {state}"));
        let [before, _] = out();
        (0..3).for_each(|_| send(&mut sender, &frame(255, 1, 0)));
        until("all have been offered", || {
            let [passed, now] = out();
            now == idle && (state == "down" || passed == before + 3)
        });
    }
}

/// Objective: a host behind a TAP that has very many sockets filter each frame with the longest filters takes a part of
/// the worker's time, but not almost all of it; after the sockets are closed, the TAP accepts all frames again.
#[test]
fn filtering_sockets_take_only_a_part_of_the_time() {
    let Some(d) = Daemon::inside_as_user("workers = 1") else { return };
    tap(&d, "t0", json!({}));
    beside_slow_frames(&d, "vale0:t0", || Listeners::at("t0", 100).unwrap());
}
