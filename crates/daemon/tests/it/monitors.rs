//! Monitors of every kind of port, hostile monitors, monitors of hostile programs, and the cleanup when a monitor or
//! its target ends. The tests of the moment at which copies are made are in crates/programs/capi/tests/c/monitor_*.c.

use crate::common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::ports::attach;
use common::{Daemon, LIMIT, cable, crosses, frame, inside, ip, receive, send, stats, until};
use netvale::slot::NS_TXMON;
use netvale::{Error, Interest, Options, Port};
use netvale_mem::mirror::Moment;
use netvale_mem::region::RingSide;
use netvale_mem::view::RegionLayout;
use netvale_wire::vnet::VnetHdr;
use netvale_wire::{MacAddr, build};
use serde_json::{Value, json};

/// Receives the next copy of a frame. Returns the frame, and whether it is marked as sent by the target.
fn watched(monitor: &mut Port) -> (Vec<u8>, bool) {
    assert!(monitor.wait(Interest::Rx, Some(LIMIT)).unwrap(), "no copy came");
    let ring = monitor.rx().iter_mut().find(|ring| ring.space() > 0).unwrap();
    let sent = ring.slot(ring.at(0)).flags & NS_TXMON != 0;
    let mut place = [0; 4096];
    let n = ring.recv(&mut place).unwrap();
    let _ = ring.sync();
    (place[..n].to_vec(), sent)
}

fn is_silent(monitor: &mut Port) -> bool {
    !monitor.wait(Interest::Rx, Some(Duration::from_millis(20))).unwrap()
}

fn tasks(d: &Daemon) -> u64 {
    stats(d)["workers"].as_array().unwrap().iter().map(|w| w["ingresses"].as_u64().unwrap()).sum()
}

fn refused(d: &Daemon, name: &str) -> i32 {
    match d.open(name) {
        Err(Error::Refused { errno, .. }) => errno,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{name} is not refused"),
    }
}

/// Returns ring `id` of a port's region.
fn ring_at(port: &Port, id: u32, slots: u32) -> RingSide {
    let r = port.info();
    let places = RegionLayout {
        csb_atok: r.csb_atok,
        csb_ktoa: r.csb_ktoa,
        ring_pool: r.ring_pool,
        ring_size: r.ring_size,
        buf_pool: r.buf_pool,
        num_bufs: r.num_bufs,
        buf_size: r.buf_size,
    };
    places.ring(port.mapping(), id, slots).unwrap()
}

/// Objective: monitors that do not read lose frames, which are counted; their targets and other monitors lose nothing.
#[test]
fn monitors_that_do_not_read() {
    let d = Daemon::start("workers = 2");
    for (a, b) in [("vale0:a", "vale0:b"), ("netmap:p{1", "netmap:p}1")] {
        let mut a = d.open(a).unwrap();
        let mut b = d.open(b).unwrap();
        let name = |port: &Port, flags| format!("{}/{flags}", port.name());
        let _deaf = [d.open(&name(&a, "t")).unwrap(), d.open(&name(&b, "r")).unwrap(), d.open(&name(&b, "z")).unwrap()];
        let mut reader = d.open(&name(&b, "r")).unwrap();
        for i in 0..500u32 {
            crosses(&mut a, &mut b, &frame(255, 1, i as u8));
            assert_eq!(watched(&mut reader), (frame(255, 1, i as u8).to_vec(), false));
        }
        // The daemon forwards copies that a program makes a moment later.
        let lost = |p: &&Value| p["kind"] == "monitor" && p["drops"]["no-room"].as_u64() == Some(500 - 63);
        until("three have lost what they had no room for", || {
            d.call("port.list", json!({}))["result"].as_array().unwrap().iter().filter(lost).count() == 3
        });
    }
    until("all is gone", || d.ports().is_empty() && tasks(&d) == 0);
}

/// Objective: whatever a program writes into the ring for copies, or into that ring's name, the daemon and other ports
/// continue, and when the program ends, all its objects are removed.
#[test]
fn hostile_mirrors_do_not_stop_other_ports() {
    let d = Daemon::start("workers = 1");
    let [mut x, mut y, mut a, mut b, mut sent, mut z] =
        d.opened(["vale0:x", "vale0:y", "netmap:h{1", "netmap:h}1", "netmap:h{1/t", "netmap:h}1/z"]);
    let own = ring_at(&a, a.info().csb_first, a.info().tx_slots);
    let name = own.csb.mirror(Moment::Passing).load(Ordering::Acquire);
    let mirror = ring_at(&a, name - 1, own.ring.num_slots());
    for i in 0..4000u32 {
        let wild = i.wrapping_mul(0x9e37_79b9);
        let index = if i % 3 == 0 { wild } else { wild % 65 };
        mirror.ring.set_slot_word(
            wild % 64,
            if i % 2 == 0 { wild } else { wild % 1000 },
            wild as u16,
            (wild >> 7) as u16,
        );
        mirror.csb.publish_head(index, wild);
        mirror.csb.publish_tail(wild % 70, wild);
        if i % 16 == 0 {
            own.csb.mirror(Moment::Passing).store([wild, name, 0][i as usize / 16 % 3], Ordering::Release);
        }
        send(&mut a, &frame(255, 1, 1));
        let _ = b.rx()[0].sync();
        b.rx()[0].advance(64);
        if i % 100 == 0 {
            crosses(&mut x, &mut y, &frame(255, 1, 2));
        }
        for monitor in [&mut sent, &mut z] {
            let _ = monitor.rx()[0].sync();
            monitor.rx()[0].advance(64);
        }
    }
    drop((a, b));
    assert!(matches!(sent.wait(Interest::Rx, Some(LIMIT)), Ok(true) | Err(Error::Closed)));
    drop((sent, z, x, y));
    until("all is gone", || d.ports().is_empty() && tasks(&d) == 0);
}

/// Objective: when a monitor's target of any kind ends, the monitor ends, and the monitor's program is notified; a
/// later monitor of the same name works.
#[test]
fn the_port_goes_first() {
    let d = Daemon::start("");
    for (a, b) in [("vale0:a", "vale0:b"), ("netmap:p{1", "netmap:p}1")] {
        for flags in ["r", "z"] {
            let mut a = d.open(a).unwrap();
            let mut b = d.open(b).unwrap();
            let mut m = d.open(&format!("{}/{flags}", b.name())).unwrap();
            crosses(&mut a, &mut b, &frame(255, 1, 1));
            assert_eq!(watched(&mut m), (frame(255, 1, 1).to_vec(), false));
            drop(b);
            assert!(matches!(m.wait(Interest::Rx, Some(LIMIT)), Err(Error::Closed)));
        }
        until("all is gone", || d.ports().is_empty() && tasks(&d) == 0);
        assert_eq!((refused(&d, &format!("{a}/r")), refused(&d, &format!("{b}/z"))), (libc::EINVAL, libc::EINVAL));
    }
}

/// Objective: if the region has no room for copies, a monitor is refused with the reason, and leaves nothing behind.
#[test]
fn no_room_for_copies() {
    let d = Daemon::start("");
    let parent = d.open("vale0:full").unwrap();
    let pipes: Vec<Port> = (1..=4).map(|i| d.open(&format!("vale0:full{{{i}")).unwrap()).collect();
    let before = (d.ports(), tasks(&d));
    assert_eq!(refused(&d, "vale0:full{1/t"), libc::ENOMEM);
    assert_eq!(refused(&d, "vale0:full/z"), libc::ENOMEM);
    assert_eq!((d.ports(), tasks(&d)), before);
    drop(d.open("vale0:full/rt").unwrap());
    drop(pipes);
    until("there is room again", || d.open("vale0:full/z").is_ok());
    drop(parent);
    until("all is gone", || d.ports().is_empty() && tasks(&d) == 0);
}

/// Objective: monitors, including zero-copy monitors, see frames of several slots whole, and after the port's
/// virtio-net header.
#[test]
fn long_frames_are_seen_whole() {
    let d = Daemon::start("");
    let options = |hdr_len| Options { buf_size: 256, hdr_len, ..d.options() };
    let body: Vec<u8> = [255; 6].into_iter().chain((0..1400u32).map(|i| i as u8)).collect();
    for (a, b) in [("vale0:a", "vale0:b"), ("netmap:p{1", "netmap:p}1")] {
        let mut a = Port::open_with(a, &options(0)).unwrap();
        let mut b = Port::open_with(b, &options(0)).unwrap();
        let mut copies = [format!("{}/r", b.name()), format!("{}/z", b.name()), format!("{}/t", a.name())]
            .map(|n| d.open(&n).unwrap());
        for _ in 0..50 {
            crosses(&mut a, &mut b, &body);
            for (m, sent) in copies.iter_mut().zip([false, false, true]) {
                assert_eq!(watched(m), (body.clone(), sent));
            }
        }
    }
    let mut a = Port::open_with("vale1:a", &options(12)).unwrap();
    let mut m = d.open("vale1:a/t").unwrap();
    assert_eq!(m.info().hdr_len, 12);
    let with_header: Vec<u8> = [0; 12].into_iter().chain(body.iter().copied()).collect();
    send(&mut a, &with_header);
    assert_eq!(watched(&mut m).0, with_header);
}

/// Objective: copies of sent and received frames have the same virtio-net header as the target's frames, with the
/// pending offload, with and without zero copy.
#[test]
fn copies_have_the_header_of_their_target() {
    let d = Daemon::start("");
    let options = |hdr_len| Options { hdr_len, ..d.options() };
    for hdr_len in [10, 12] {
        let name = |port: &str| format!("vale{hdr_len}:{port}");
        let [mut a, mut b] = ["a", "b"].map(|port| Port::open_with(&name(port), &options(hdr_len)).unwrap());
        let mut copies = ["a/t", "b/r", "b/z"].map(|monitor| d.open(&name(monitor)).unwrap());
        let params = build::Udp {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([255; 6]),
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            src_port: 7,
            dst_port: 9,
            ttl: 64,
            payload: b"monitored",
        };
        let mut bytes = [0; 200];
        build::udp4(&mut bytes, &params).unwrap();
        let header = VnetHdr { flags: 1, csum_start: 34, csum_offset: 6, ..VnetHdr::default() };
        let with_header = [&header.to_bytes_mrg()[..hdr_len as usize], &bytes].concat();
        for _ in 0..3 {
            send(&mut a, &with_header);
            let got = receive(&mut b);
            assert!(got == with_header, "{got:?}");
            for m in &mut copies {
                let copy = watched(m).0;
                assert!(copy == with_header, "{}: {:?}", m.name(), &copy[..40]);
            }
        }
    }
}

fn receive_on_any(port: &mut Port) -> Vec<u8> {
    watched(port).0
}

mod as_root {
    use super::*;

    /// Objective: a TAP on a switch can be monitored like any port, in all modes.
    #[test]
    fn a_switched_tap_is_watched_like_any_port() {
        if !inside(&["--net"]) {
            return;
        }
        let d = Daemon::start("");
        assert_eq!(attach(&d, "tap:nvm0", json!({}))["kind"], "tap");
        std::fs::write("/proc/sys/net/ipv6/conf/nvm0/disable_ipv6", "1").unwrap();
        ip("link set nvm0 up");
        let mut a = d.open("vale0:a").unwrap();
        for (flags, seen) in [("r", true), ("t", false), ("rt", true), ("z", true)] {
            let mut m = d.open(&format!("vale0:nvm0/{flags}")).unwrap();
            send(&mut a, &frame(255, 1, 7));
            if seen {
                assert_eq!(watched(&mut m), (frame(255, 1, 7).to_vec(), false), "{flags}");
            }
            assert!(is_silent(&mut m));
        }
        let mut m = d.open("vale0:nvm0/r").unwrap();
        d.detach("nvm0");
        assert!(matches!(m.wait(Interest::Rx, Some(LIMIT)), Err(Error::Closed)));
    }

    /// Objective: an interface with several queues is monitored queue by queue, including rings that are opened later.
    /// If it is on a switch, its own name shows sent and received frames as on the wire, and the port's name shows them
    /// as on the switch.
    #[test]
    fn an_interface_is_watched_queue_by_queue() {
        if !inside(&["--net"]) {
            return;
        }
        cable("mona", "monb", 2);
        let d = Daemon::start("");
        let open = |name: &str| Port::open_with(name, &Options { slots: 0, ..d.options() });
        let mut first = open("netmap:mona-0").unwrap();
        let mut all = open("netmap:mona/t").unwrap();
        let mut one = open("netmap:mona-1/rt").unwrap();
        assert_eq!((all.tx().len(), all.rx().len(), one.tx().len(), one.rx().len()), (1, 2, 1, 1));
        let mut second = open("netmap:mona-1").unwrap();
        send(&mut first, &frame(255, 1, 3));
        assert_eq!(watched(&mut all), (frame(255, 1, 3).to_vec(), true));
        assert!(is_silent(&mut one));
        send(&mut second, &frame(255, 1, 4));
        assert_eq!(watched(&mut all), (frame(255, 1, 4).to_vec(), true));
        assert_eq!(watched(&mut one), (frame(255, 1, 4).to_vec(), true));
        drop(first);
        assert!(is_silent(&mut all), "one of its rings is still open");
        drop(second);
        assert!(matches!(all.wait(Interest::Rx, Some(LIMIT)), Err(Error::Closed)));
        drop((all, one));
        until("it is closed", || d.ports().is_empty() && tasks(&d) == 0);
        assert_eq!((refused(&d, "netmap:mona/r"), refused(&d, "netmap:nosuch0/r")), (libc::EINVAL, libc::ENXIO));

        assert_eq!(attach(&d, "netmap:mona", json!({}))["kind"], "nic");
        let mut a = d.open("vale0:a").unwrap();
        let mut far = open("netmap:monb").unwrap();
        let [mut wire, mut port] = d.opened(["netmap:mona/rt", "vale0:mona/rt"]);
        send(&mut a, &frame(255, 1, 5));
        assert_eq!(receive_on_any(&mut far), frame(255, 1, 5));
        assert_eq!(watched(&mut wire), (frame(255, 1, 5).to_vec(), true), "sent on the wire");
        assert_eq!(watched(&mut port), (frame(255, 1, 5).to_vec(), false), "received from the switch");
        crosses(&mut far, &mut a, &frame(255, 2, 6));
        assert_eq!(watched(&mut wire), (frame(255, 2, 6).to_vec(), false));
        assert_eq!(watched(&mut port), (frame(255, 2, 6).to_vec(), true));
        d.detach("mona");
        for m in [&mut wire, &mut port] {
            assert!(matches!(m.wait(Interest::Rx, Some(LIMIT)), Err(Error::Closed)));
        }
    }
}
