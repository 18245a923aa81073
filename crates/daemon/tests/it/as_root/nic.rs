//! Network interfaces through AF_XDP: veth pairs and the loopback interface; each test has its own network namespace.
//!
//! Each test runs itself again under unshare(1). XDP programs need root, even in namespaces: if the tests do not run as
//! root, they report *skipped*.

use crate::common;

use std::os::fd::AsFd;
use std::process::Command;

use common::ports::{attach, beside_slow_frames};
use common::{Daemon, cable, carry, crosses, falls_asleep, frame, frames, inside_with_xdp, ip, receive, until};
use netvale::{Error, Interest, Options, Port};
use netvale_afxdp::iface::Interface;
use netvale_control::attach::{AttachRequest, OffsetsRequest};
use netvale_harness::attacks::filters::Listeners;
use netvale_harness::net::NamespaceHost;
use netvale_mem::csb::Csb;
use serde_json::json;

/// Opens a port with the interface's default number of slots.
fn open(d: &Daemon, name: &str) -> Result<Port, Error> {
    let options = Options { slots: 0, ..d.options() };
    Port::open_with(name, &options)
}

fn refused(result: Result<Port, Error>) -> String {
    match result {
        Ok(_) => panic!("not refused"),
        Err(e) => e.to_string(),
    }
}

/// Objective: frames cross from a ring at one end to a ring at the other end, unchanged and in order, in both
/// directions; after the ports are closed, the interfaces are in their original state.
#[test]
fn frames_cross_unchanged_both_ways() {
    let Some(d) = Daemon::with_cable("", 1) else { return };
    let [mut a, mut b] = ["netmap:nva", "netmap:nvb"].map(|name| open(&d, name).unwrap());
    assert_eq!(a.info().mem_id, b.info().mem_id, "both in one region");
    assert!(d.notes("netmap:nva").contains("in the driver"), "{}", d.notes("netmap:nva"));
    let frames = frames();
    assert!(carry(&mut a, &mut b, &frames) == frames);
    assert!(carry(&mut b, &mut a, &frames) == frames);
    assert!(Interface::find("nva").unwrap().program().is_some());
    drop((a, b));
    until("no program", || Interface::find("nva").unwrap().program().is_none());
}

/// Objective: if a whole ring of frames is handed over with one sync, all frames are sent without another call,
/// although the kernel's ring accepts only parts of them at a time.
#[test]
fn a_ring_at_once() {
    let Some(d) = Daemon::with_cable("", 1) else { return };
    let [mut a, mut b] = ["netmap:nva", "netmap:nvb"].map(|name| open(&d, name).unwrap());
    let count = a.tx()[0].space();
    for i in 0..count {
        assert!(a.tx()[0].send(&frame(1, 2, i as u8)));
    }
    a.tx()[0].sync();
    for i in 0..count {
        assert_eq!(receive(&mut b), frame(1, 2, i as u8), "frame {i} of {count}");
    }
}

/// Moves the next received frame of `from` into the next slot to send of `to`, by swapping buffers.
fn swap(from: &mut Port, to: &mut Port) {
    assert!(from.wait(Interest::Rx, Some(common::LIMIT)).unwrap());
    assert!(to.wait(Interest::Tx, Some(common::LIMIT)).unwrap());
    let rx = &from.rx()[0];
    let tx = &to.tx()[0];
    assert!(netvale::swap_buffers(rx, rx.at(0), tx, tx.at(0)));
    from.rx()[0].advance(1);
    to.tx()[0].advance(1);
    from.sync();
    to.sync();
}

/// Objective: a buffer received on one interface is sent on another interface by swapping buffers, without a copy.
#[test]
fn a_swap_sends_a_received_buffer_without_a_copy() {
    let Some(d) = Daemon::with_cable("", 1) else { return };
    cable("nvc", "nvd", 1);
    let [mut a, mut b, mut c, mut e] = ["nva", "nvb", "nvc", "nvd"].map(|n| open(&d, &format!("netmap:{n}")).unwrap());
    for i in 0..5000u32 {
        assert!(a.tx()[0].send(&frame(1, 2, i as u8)));
        a.tx()[0].sync();
        swap(&mut b, &mut c);
        assert_eq!(receive(&mut e), frame(1, 2, i as u8), "frame {i}");
    }
}

/// Objective: interfaces that are opened without a daemon are also in region 1, and their buffers can be swapped; an
/// interface with a different buffer size is in another region.
#[test]
fn interfaces_without_a_daemon_swap_buffers() {
    if !inside_with_xdp() {
        return;
    }
    cable("nva", "nvb", 1);
    cable("nvc", "nvd", 1);
    let dir = tempfile::tempdir().unwrap();
    let options = Options { run_dir: Some(dir.path().into()), ..Options::default() };
    let open = |name: &str| Port::open_with(&format!("netmap:{name}"), &options).unwrap();
    let [mut a, mut b, mut c] = ["nva", "nvb", "nvc"].map(open);
    let large = Options { buf_size: 4096, ..options.clone() };
    let mut d = Port::open_with("netmap:nvd", &large).unwrap();
    assert_eq!([&a, &b, &c].map(|port| port.info().mem_id), [1, 1, 1]);
    assert!(d.info().mem_id > 1 && d.info().buf_size == 4096);
    for tag in 0..200 {
        common::send(&mut a, &frame(1, 2, tag));
        swap(&mut b, &mut c);
        assert_eq!(receive(&mut d), frame(1, 2, tag), "frame {tag}");
    }
}

/// Objective: each queue can belong to a separate program; a queue that is taken or does not exist is refused with its
/// number.
#[test]
fn each_queue_can_belong_to_a_separate_program() {
    let Some(d) = Daemon::with_cable("", 2) else { return };
    let first = open(&d, "netmap:nva-0").unwrap();
    let _second = open(&d, "netmap:nva-1").unwrap();
    assert!(refused(open(&d, "netmap:nva-1")).contains("queue 1 of nva is in use"));
    assert!(refused(open(&d, "netmap:nva")).contains("is in use"));
    assert!(refused(open(&d, "netmap:nva-2")).contains("has 2, numbered from 0"));
    drop(first);
    until("the first queue is free", || open(&d, "netmap:nva-0").is_ok());
}

/// Objective: on a switch, an interface learns and forwards like any other port, and pending offloads of frames for it
/// are completed.
#[test]
fn an_interface_forwards_like_any_port_of_a_switch() {
    let Some(d) = Daemon::with_cable("", 1) else { return };
    assert_eq!(attach(&d, "netmap:nva", json!({}))["kind"], "nic");
    let mut a = d.open("vale0:a").unwrap();
    let mut b = open(&d, "netmap:nvb").unwrap();
    crosses(&mut a, &mut b, &frame(255, 1, 1));
    for tag in 0..200 {
        crosses(&mut b, &mut a, &frame(1, 2, tag));
        crosses(&mut a, &mut b, &frame(2, 1, tag));
    }
    // Send more frames than the kernel takes in one call, and after that no frame that would cause another call.
    let mut burst = open(&d, "vale0:burst").unwrap();
    (0..400).for_each(|tag| assert!(burst.tx()[0].send(&frame(2, 3, tag as u8))));
    burst.tx()[0].sync();
    (0..400).for_each(|tag| assert_eq!(receive(&mut b), frame(2, 3, tag as u8), "frame {tag}"));
    d.call("port.detach", json!({"switch": "vale0", "port": "nva"}));
    until("no program", || Interface::find("nva").unwrap().program().is_none());
}

/// Objective: an interface without XDP in its driver is served in the stack: the loopback interface returns sent frames
/// to a program; it cannot be a port on a switch, because the switch would learn all addresses behind it.
#[test]
fn an_interface_without_xdp_is_served_in_the_stack() {
    if !inside_with_xdp() {
        return;
    }
    let d = Daemon::start("");
    ip("link set lo up");
    let reply = d.call("port.attach", json!({"switch": "vale0", "port": "netmap:lo", "options": {}}));
    assert!(reply["error"]["message"].to_string().contains("is a loopback"), "{reply}");
    let mut lo = open(&d, "netmap:lo").unwrap();
    assert!(d.notes("netmap:lo").contains("in the stack"), "{}", d.notes("netmap:lo"));
    for tag in 0..50 {
        common::send(&mut lo, &frame(1, 2, tag));
        assert_eq!(receive(&mut lo), frame(1, 2, tag));
    }
}

/// Objective: a frame of 9,000 bytes takes several slots in each direction.
#[test]
fn a_jumbo_frame_takes_several_slots_each_way() {
    let Some(d) = Daemon::with_cable("", 1) else { return };
    ip("link set nva mtu 9000");
    ip("link set nvb mtu 9000");
    let [mut a, mut b] = ["netmap:nva", "netmap:nvb"].map(|name| open(&d, name).unwrap());
    let frames: Vec<Vec<u8>> = (0..100u32)
        .map(|i| {
            let mut frame: Vec<u8> = (0..9014 - i * 50).map(|k| (k * 3 + i) as u8).collect();
            frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
            frame
        })
        .collect();
    assert!(carry(&mut a, &mut b, &frames) == frames);
}

/// Objective: refusals name the obstacle: a missing interface, another program, or a limit of the kernel; a refusal
/// leaves nothing behind.
#[test]
fn obstacles_are_named_and_leave_nothing_behind() {
    if !inside_with_xdp() {
        return;
    }
    let d = Daemon::start("");
    let other = Daemon::start("");
    cable("nva", "nvb", 1);
    assert!(refused(open(&d, "netmap:nosuch0")).contains("interface nosuch0 does not exist"));
    let _held = open(&other, "netmap:nva").unwrap();
    let text = refused(open(&d, "netmap:nva"));
    assert!(text.contains("already has an XDP program") && text.contains("\"netvale\""), "{text}");
    assert!(refused(open(&d, "netmap:nvb^1")).contains("host ring 1 does not exist"), "host rings");
    let small = Options { buf_size: 1024, slots: 0, ..d.options() };
    let text = refused(Port::open_with("netmap:nvb", &small));
    assert!(text.contains("2048"), "{text}");
    let many = Options { slots: 1 << 31, ..d.options() };
    let text = refused(Port::open_with("netmap:nvb", &many));
    assert!(text.contains("the region would take"), "{text}");
    let many = json!({"switch": "vale0", "port": "netmap:nvb", "options": {"slots": u32::MAX}});
    assert!(d.call("port.attach", many)["error"].to_string().contains("at most 16384 per ring"));
    until("no program", || Interface::find("nvb").unwrap().program().is_none());
}

/// Objective: a program that writes nonsense into its host rings loses its own frames, counted by reason, and keeps no
/// worker awake; after it writes valid values again, its rings work.
#[test]
fn nonsense_in_host_rings() {
    let Some(d) = Daemon::with_cable("workers = 1", 1) else { return };
    let mut host = open(&d, "netmap:nva^").unwrap();
    let [mut x, mut y] = d.opened(["vale0:x", "vale0:y"]);
    let dropped = |why: &str| {
        let shown = d.show("netmap:nva^");
        let rings = shown["rings"].as_array().unwrap().clone();
        rings.iter().filter_map(|ring| ring["drops"][why].as_u64()).sum::<u64>()
    };
    let slots = |host: &mut Port, n: u32, buf: Option<u32>, len: u16, flags: u16| {
        for _ in 0..n {
            let tx = &mut host.tx()[0];
            let i = tx.at(0);
            let own = tx.slot(i).buf_idx;
            tx.mem().set_slot_word(i, buf.unwrap_or(own), len, flags);
            tx.advance(1);
        }
        host.tx()[0].sync();
    };
    slots(&mut host, 1, Some(u32::MAX), 60, 0);
    until("bad-buffer", || dropped("bad-buffer") == 1);
    slots(&mut host, 1, None, u16::MAX, 0);
    until("a length", || dropped("bad-buffer") == 2);
    // As in netmap, the flag `NS_INDIRECT` has no effect in host rings.
    slots(&mut host, 1, None, 60, netvale_abi::slot::NS_INDIRECT);
    slots(&mut host, 200, None, 60, netvale_abi::slot::NS_MOREFRAG);
    until("endless", || dropped("endless-frame") >= 1);
    // The remaining slots contain an incomplete frame. After that, the test sets `head` to impossible values.
    falls_asleep(&d);
    // The CSB entry of the host tx ring follows the entry of the only queue's tx ring.
    let at = |base: u64| base + 64 * u64::from(host.info().csb_first + 1);
    let csb = Csb::new(host.mapping(), at(host.info().csb_atok), at(host.info().csb_ktoa)).unwrap();
    let head = csb.head();
    for bad in [1 << 20, u32::MAX] {
        csb.publish_head(bad, bad);
        crosses(&mut x, &mut y, &frame(255, 1, 1));
        falls_asleep(&d);
    }
    csb.publish_head(head, head);
    slots(&mut host, 1, None, 60, 0);
    until("all is given back", || {
        host.tx()[0].sync();
        host.tx()[0].space() == host.tx()[0].num_slots() - 1
    });
    assert_eq!(dropped("indirect"), 0);
}

/// Objective: an interface does not support offsets, and refuses a request for them with netmap's errno; without that
/// request, it can be opened.
#[test]
fn offsets_are_refused() {
    let Some(d) = Daemon::with_cable("", 1) else { return };
    let conn = netvale::raw::connect_to(Some(d.dir())).unwrap();
    let offsets = Some(OffsetsRequest { bits: 0, max: 64, initial: 64 });
    for name in ["netmap:nva", "netmap:nva^"] {
        let request = AttachRequest { name: name.into(), offsets, ..AttachRequest::default() };
        let refused = netvale::raw::attach(conn.as_fd(), &request);
        assert!(matches!(refused, Err(Error::Offsets { errno: libc::EOPNOTSUPP, .. })), "{name}");
    }
    open(&d, "netmap:nva").unwrap();
}

/// Objective: if an interface is deleted while a program has it open, the program loses its frames, but takes no
/// additional CPU time.
#[test]
fn a_deleted_interface_costs_only_frames() {
    let Some(d) = Daemon::with_cable("workers = 1", 1) else { return };
    let mut a = open(&d, "netmap:nva").unwrap();
    let [mut x, mut y] = d.opened(["vale0:x", "vale0:y"]);
    ip("link del nva");
    for tag in 0..20 {
        a.tx()[0].send(&frame(1, 2, tag));
        a.tx()[0].sync();
        crosses(&mut x, &mut y, &frame(255, 1, tag));
    }
    falls_asleep(&d);
}

/// Objective: if the link goes up and down at either end, only frames are lost.
#[test]
fn a_link_that_flaps_costs_only_frames() {
    let Some(d) = Daemon::with_cable("", 1) else { return };
    let [mut a, mut b] = ["netmap:nva", "netmap:nvb"].map(|name| open(&d, name).unwrap());
    let frames = &frames()[..1000];
    for end in ["nva", "nvb", "nva"] {
        assert!(carry(&mut a, &mut b, frames) == frames);
        ip(&format!("link set {end} down"));
        for tag in 0..20 {
            a.tx()[0].send(&frame(1, 2, tag));
            a.tx()[0].sync();
        }
        ip(&format!("link set {end} up"));
        // Earlier frames may have been lost, or may still be in flight.
        until("a clean wire", || {
            let mut place = [0; 2048];
            a.tx()[0].sync();
            let _ = b.rx()[0].sync();
            while b.rx()[0].recv(&mut place).is_some() {}
            let probe = frame(1, 2, 255);
            a.tx()[0].send(&probe);
            a.tx()[0].sync();
            let _ = b.rx()[0].sync();
            let mut last = None;
            while let Some(n) = b.rx()[0].recv(&mut place) {
                last = Some(place[..n].to_vec());
            }
            last.as_deref() == Some(&probe[..])
        });
    }
    assert!(carry(&mut b, &mut a, frames) == frames);
}

/// Objective: if queues are removed while a program has them open, the program loses frames, and no other program is
/// affected.
#[test]
fn removed_queues_cost_frames_of_no_other() {
    let Some(d) = Daemon::with_cable("", 2) else { return };
    let mut first = open(&d, "netmap:nva-0").unwrap();
    let mut second = open(&d, "netmap:nva-1").unwrap();
    let mut b = open(&d, "netmap:nvb-0").unwrap();
    let changed = Command::new("ethtool").args(["-L", "nva", "rx", "1", "tx", "1"]).output().unwrap();
    for tag in 0..100 {
        second.tx()[0].send(&frame(1, 2, tag));
        second.tx()[0].sync();
        let _ = second.rx()[0].sync();
    }
    if changed.status.success() {
        assert_eq!(Interface::find("nva").unwrap().queues, 1);
    }
    drop(second);
    crosses(&mut b, &mut first, &frame(1, 2, 7));
}

/// Objective: a program that sets `NS_FORWARD` on frames and releases them is transparent: the frames pass from the
/// interface to the stack, and in the other direction; frames without the flag are lost.
#[test]
fn marked_frames_pass_transparently() {
    let Some(d) = Daemon::with_cable("", 1) else { return };
    let there = NamespaceHost::new().unwrap();
    ip(&format!("link set nvb netns {}", there.pid()));
    for line in ["addr add 10.6.0.2/24 dev nvb", "link set nvb up"] {
        assert!(there.command("ip", &line.split(' ').collect::<Vec<_>>()).status().unwrap().success());
    }
    ip("addr add 10.6.0.1/24 dev nva");
    let mut port = open(&d, "netmap:nva*").unwrap();
    assert_eq!((port.tx().len(), port.rx().len(), port.info().host_rx_rings), (2, 2, 1));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mark = std::sync::atomic::AtomicBool::new(true);
    let reached = || {
        let ping = Command::new("busybox").args(["ping", "-c", "1", "-W", "1", "10.6.0.2"]).output();
        ping.unwrap().status.success()
    };
    std::thread::scope(|scope| {
        use std::sync::atomic::Ordering::Relaxed;
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                port.wait(Interest::Rx, Some(std::time::Duration::from_millis(10))).unwrap();
                for ring in port.rx() {
                    let mem = ring.mem();
                    mem.set_flags(mem.flags() | netvale_abi::ring::NR_FORWARD);
                    for k in 0..ring.space() {
                        let i = ring.at(k);
                        let slot = ring.slot(ring.at(k));
                        let forward = if mark.load(Relaxed) { netvale_abi::slot::NS_FORWARD } else { 0 };
                        ring.mem().set_len_flags(i, slot.len, slot.flags | forward);
                    }
                    ring.advance(ring.space());
                }
                port.sync();
            }
        });
        until("an answer", reached);
        mark.store(false, Relaxed);
        let lost = !reached();
        stop.store(true, Relaxed);
        assert!(lost, "frames that are not marked got through");
    });
}

/// Objective: a host at the far end of a veth that has very many sockets filter each frame with the longest filters
/// takes a part of the worker's time, but not almost all of it; without the sockets, the interface accepts all frames
/// again.
#[test]
fn filtering_sockets_take_only_a_part_of_the_time() {
    let Some(d) = Daemon::with_cable("workers = 1", 1) else { return };
    attach(&d, "netmap:nva", json!({}));
    beside_slow_frames(&d, "vale0:nva", || Listeners::at("nvb", 100).unwrap());
}

/// Returns the properties of an interface, as ip(8) prints them.
fn link(name: &str) -> serde_json::Value {
    let out = Command::new("ip").args(["-json", "-statistics", "link", "show", name]).output().unwrap();
    serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap()[0].take()
}

/// Objective: filtering sockets behind a tunnel over the veth also take only a part of the worker's time. The other
/// VTEPs get all of their frames.
#[test]
fn filtering_sockets_behind_a_tunnel() {
    let Some(d) = Daemon::with_cable("workers = 1", 1) else { return };
    cable("nvc", "nvd", 1);
    for (name, far, net) in [("nva", "nvb", 77), ("nvc", "nvd", 78)] {
        let mac = link(far)["address"].as_str().unwrap().to_owned();
        ip(&format!("address add 10.{net}.0.1/24 dev {name}"));
        ip(&format!("neighbor replace 10.{net}.0.2 lladdr {mac} dev {name} nud permanent"));
    }
    ip("address add 10.79.0.1/32 dev lo");
    attach(&d, "vxlan:7,local=10.79.0.1,remote=10.77.0.2,remote=10.78.0.2", json!({"name": "vx"}));
    // A message of 64 datagrams passes the filters once, and counts as slow if it takes at least 0.9 ms.
    beside_slow_frames(&d, "vale0:vx", || Listeners::at("nvb", 300).unwrap());
    let shown = d.show("vale0:vx");
    let rings = shown["rings"].as_array().unwrap();
    let sent = rings.iter().map(|ring| ring["frames"].as_u64().unwrap()).max().unwrap();
    // The number is computed from bytes, because the interface counts many datagrams as one packet. Each datagram has a
    // header of 8 bytes and contains a frame.
    let came = link("nvd")["stats64"]["rx"]["bytes"].as_u64().unwrap() / (8 + frame(0, 0, 0).len() as u64);
    println!("{came} datagrams came at the other VTEP, of {sent} to both");
    assert!(came * 3 > sent, "{came} datagrams came at the other VTEP, of {sent} to both");
}
