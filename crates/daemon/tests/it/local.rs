//! Local ports and pipes.

use crate::common;

use std::os::fd::AsFd;
use std::time::Duration;

use common::ports::attach;
use common::{Daemon, LIMIT, crosses, frame, noise, receive, send, until};
use netvale::{Error, Interest, Options, Port};
use netvale_control::device::DeviceRequest;
use netvale_wire::vnet::VnetHdr;
use serde_json::json;

/// Objective: ports of two processes reach each other through the daemon, whether its worker is asleep or awake; frames
/// for learned addresses go to only one port.
#[test]
fn frames_cross_between_two_processes() {
    let d = Daemon::start("workers = 2");
    let [mut a, mut b, mut c] = d.opened(["vale0:a", "vale0:b", "vale0:c"]);
    for round in 0..50 {
        crosses(&mut a, &mut b, &frame(255, 1, round));
        assert_eq!(receive(&mut c), frame(255, 1, round));
        crosses(&mut b, &mut a, &frame(1, 2, round));
    }
    c.sync();
    assert_eq!(c.rx()[0].space(), 0, "unicast reached a third port");
    let table = d.call("switch.table", json!({"switch": "vale0"}));
    let entries = table["result"].as_array().unwrap();
    let ports: Vec<_> = entries.iter().map(|entry| entry["port"].as_str().unwrap()).collect();
    assert_eq!(ports, ["vale0:a", "vale0:b"]);
    let shown = d.show("vale0:b");
    let rings = shown["rings"].as_array().unwrap();
    assert_eq!((rings[0]["frames"].as_u64(), rings[1]["frames"].as_u64()), (Some(50), Some(50)));
}

/// Returns a virtio-net header, and a TCP segment that is to be cut into pieces of 1,000 bytes.
fn large_segment() -> Vec<u8> {
    let payload: Vec<u8> = (0..3500u32).map(|i| i as u8).collect();
    let header = VnetHdr {
        flags: 1,
        gso_type: 1,
        hdr_len: 54,
        gso_size: 1000,
        csum_start: 34,
        csum_offset: 16,
        ..VnetHdr::default()
    };
    let mut ip = [0; 20];
    ip[..4].copy_from_slice(&[0x45, 0, 0x0d, 0xd4]);
    ip[8..10].copy_from_slice(&[64, 6]);
    ip[12..].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let mut tcp = [0; 20];
    tcp[..4].copy_from_slice(&[0, 7, 0, 9]);
    tcp[12..14].copy_from_slice(&[0x50, 0x10]);
    let ethernet = [&[255; 6][..], &[2, 0, 0, 0, 0, 1, 8, 0]].concat();
    [&header.to_bytes_mrg()[..], &ethernet, &ip, &tcp, &payload].concat()
}

/// Objective: large segments for a port that is attached with `no_segments` are cut, even after the daemon was killed,
/// because the device of the port's program can only complete checksums; other ports get large segments whole.
#[test]
fn segments_that_are_cut() {
    let d = Daemon::managed("");
    for (name, no_segments) in [("cut", true), ("whole", false)] {
        let options = json!({"vnet_hdr": 12, "no_segments": no_segments});
        attach(&d, name, options);
    }
    let [mut cut, mut whole] = ["vale0:cut", "vale0:whole"].map(|name| d.open(name).unwrap());
    let mut a = Port::open_with("vale0:a", &Options { hdr_len: 12, buf_size: 4096, ..d.options() }).unwrap();
    let sent = large_segment();
    for _ in 0..2 {
        crosses(&mut a, &mut whole, &sent);
        for (at, len) in [(0, 1000), (1000, 1000), (2000, 1000), (3000, 500)] {
            let piece = receive(&mut cut);
            assert_eq!((piece.len(), &piece[..12]), (12 + 54 + len, &[0; 12][..]));
            assert_eq!(piece[12 + 54..], sent[12 + 54 + at..][..len]);
        }
        d.is_killed();
    }
}

/// Objective: taken, invalid and impossible names are refused with netmap's errno and helpful advice.
#[test]
fn bad_names_are_refused_with_helpful_advice() {
    let d = Daemon::start("");
    let _a = d.open("vale0:a").unwrap();
    let refused = |name: &str, options: &Options| match Port::open_with(name, options) {
        Err(Error::Refused { errno, text }) => (errno, text),
        Err(e) => panic!("{name}: {e}"),
        Ok(_) => panic!("{name} was opened"),
    };
    let o = d.options();
    let (errno, text) = refused("vale0:a", &o);
    assert_eq!((errno, text.contains("vale0:a is already open")), (libc::EBUSY, true), "{text}");
    assert_eq!(refused("netmap:nosuch0", &o).0, libc::ENXIO);
    assert_eq!(refused("vale0:b@77", &o).0, libc::EINVAL);
    assert_eq!(refused("vale0:nobody/r", &o).0, libc::EINVAL);
    assert_eq!(refused("vale0:b", &Options { slots: 1 << 20, ..o.clone() }).0, libc::EINVAL);
    assert_eq!(refused("vale0:b", &Options { rings: 17, ..o.clone() }).0, libc::EINVAL);
    assert_eq!(refused("vale0:b", &Options { buf_size: 100, ..o.clone() }).0, libc::EINVAL);
    assert!(matches!(d.open("vale0:"), Err(Error::Name(_))));
    assert_eq!(d.ports(), ["vale0:a"], "nothing is left of refused ports");
    let missing = Options { run_dir: Some("/nonexistent".into()), ..o };
    let e = Port::open_with("vale0:a", &missing).err().unwrap().to_string();
    assert!(e.contains("netvale up"), "{e}");
}

/// Objective: both directions of a pipe carry frames in order and without loss, even if the receiving end sleeps; each
/// end can be opened only once at a time.
#[test]
fn pipes_carry_frames_in_order_both_ways() {
    let d = Daemon::start("");
    let [mut a, mut b] = d.opened(["netmap:p{1", "netmap:p}1"]);
    assert!(matches!(d.open("netmap:p{1"), Err(Error::Refused { errno: libc::EBUSY, .. })));
    let echo = std::thread::spawn(move || {
        for _ in 0..5000 {
            let f = receive(&mut b);
            while !b.tx()[0].send(&f) {
                b.wait(Interest::Tx, Some(LIMIT)).unwrap();
            }
            b.tx()[0].sync();
        }
        b
    });
    let mut sent = 0u32;
    let mut got = 0u32;
    while got < 5000 {
        while sent < 5000 && a.tx()[0].send(&sent.to_be_bytes()) {
            sent += 1;
        }
        a.tx()[0].sync();
        a.wait(Interest::Rx, Some(LIMIT)).unwrap();
        let mut f = [0; 64];
        while let Some(n) = a.rx()[0].recv(&mut f) {
            assert_eq!(f[..n], got.to_be_bytes());
            got += 1;
        }
        let _ = a.rx()[0].sync();
    }
    drop(echo.join().unwrap());
    // One end can be reopened while the other end is still open.
    let mut b = d.open("netmap:p}1").unwrap();
    send(&mut a, b"again");
    assert_eq!(receive(&mut b), b"again");
}

/// Objective: a port's pipe is in the port's region, so that buffers can be swapped between the port and the pipe.
#[test]
fn pipes_share_their_parents_region() {
    let d = Daemon::start("");
    let [mut parent, mut pipe] = d.opened(["vale0:a", "vale0:a{x"]);
    assert_eq!(parent.info().mem_id, pipe.info().mem_id);
    let other = d.open("vale0:b").unwrap();
    assert_ne!(parent.info().mem_id, other.info().mem_id, "ports are isolated from each other");
    let rx = &parent.rx()[0];
    let tx = &pipe.tx()[0];
    let places = (rx.mem().place(), tx.mem().place());
    assert_eq!((places.0.bufs, places.0.num_bufs), (places.1.bufs, places.1.num_bufs));
}

/// Objective: different clients can hold different rings of one port.
#[test]
fn different_clients_can_hold_rings_of_one_port() {
    let d = Daemon::start("");
    let o = Options { rings: 2, ..d.options() };
    let mut first = Port::open_with("vale0:m-0", &o).unwrap();
    let mut second = d.open("vale0:m-1").unwrap();
    assert!(matches!(d.open("vale0:m"), Err(Error::Refused { errno: libc::EBUSY, .. })));
    assert!(matches!(d.open("vale0:m-2"), Err(Error::Refused { errno: libc::EINVAL, .. })));
    let mut peer = d.open("vale0:peer").unwrap();
    crosses(&mut first, &mut peer, &frame(255, 1, 1));
    crosses(&mut second, &mut peer, &frame(255, 2, 2));
    drop(first);
    until("ring 0 is free again", || d.open("vale0:m-0").is_ok());
}

/// Objective: a monitor sees both directions of its target, and ends when its client ends.
#[test]
fn a_monitor_sees_both_directions_of_its_target() {
    let d = Daemon::start("");
    let [mut a, mut b, mut both, mut sent] = d.opened(["vale0:a", "vale0:b", "vale0:a/z", "vale0:a/t"]);
    crosses(&mut a, &mut b, &frame(255, 1, 7));
    crosses(&mut b, &mut a, &frame(1, 2, 8));
    assert_eq!((receive(&mut both), receive(&mut both)), (frame(255, 1, 7).to_vec(), frame(1, 2, 8).to_vec()));
    assert_eq!(receive(&mut sent), frame(255, 1, 7));
    assert!(!sent.wait(Interest::Rx, Some(Duration::from_millis(20))).unwrap());
    drop((both, sent));
    until("the monitors are gone", || d.ports() == ["vale0:a", "vale0:b"]);
}

/// Objective: an attached port remains when it has no clients; if it is detached while a client has it open, the client
/// is notified.
#[test]
fn persistent_ports_stay_without_clients() {
    let d = Daemon::start("[[port]]\nswitch = 'vale1'\nport = 'x'\nslots = 32\n");
    assert_eq!(d.ports(), ["vale1:x"]);
    for _ in 0..3 {
        let [mut x, mut y] = d.opened(["vale1:x", "vale1:y"]);
        assert_eq!(x.tx()[0].num_slots(), 32);
        crosses(&mut x, &mut y, &frame(255, 1, 1));
        drop((x, y));
        until("only the persistent port is left", || d.ports() == ["vale1:x"] && d.open("vale1:x").is_ok());
    }
    let again = d.call("port.attach", json!({"switch": "vale1", "port": "x"}));
    assert_eq!(again["error"]["data"]["errno"], libc::EEXIST, "{again}");
    let mut x = d.open("vale1:x").unwrap();
    assert!(d.call("port.detach", json!({"switch": "vale1", "port": "x"}))["result"].is_object());
    assert!(matches!(x.wait(Interest::Rx, Some(LIMIT)), Err(Error::Closed)));
    assert!(d.ports().is_empty());
    let missing = d.call("port.detach", json!({"switch": "vale1", "port": "x"}));
    assert!(missing["error"]["data"]["hint"].as_str().unwrap().contains("netvale list"), "{missing}");
}

/// Objective: for any input on the attach socket, the daemon reports the fault or hangs up, and serves the next client.
#[test]
fn malformed_attach_messages_stop_no_daemon() {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};
    let d = Daemon::start("");
    let mut good = netvale_control::attach::AttachRequest { name: "vale0:a".into(), ..Default::default() }.encode();
    let mut messages: Vec<Vec<u8>> = vec![vec![1], vec![0; 256], vec![0xff; 256], vec![0; 4000], good[..255].to_vec()];
    good[4] = 9;
    messages.push(good.to_vec());
    for m in messages {
        let s = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::connect(&s, &SocketAddrUnix::new(d.path("attach.sock")).unwrap()).unwrap();
        rustix::net::send(&s, &m, SendFlags::NOSIGNAL).unwrap();
        let mut reply = [0; 1024];
        let (_, n) = rustix::net::recv(&s, &mut reply, RecvFlags::empty()).unwrap();
        let reply = netvale_control::attach::AttachReply::decode(&reply[..n]).unwrap();
        assert_eq!(reply.status, libc::EPROTO);
        assert!(!reply.text.is_empty());
    }
    assert!(d.open("vale0:a").is_ok());
}

/// Objective: a receiver that never reads, and a sender that never stops, do not prevent other ports from exchanging
/// frames.
#[test]
fn a_port_that_stops_reading() {
    let d = Daemon::start("");
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    let _deaf = Port::open_with("vale0:deaf", &Options { lossless: true, ..d.options() }).unwrap();
    for round in 0..200 {
        crosses(&mut a, &mut b, &frame(255, 1, round as u8));
    }
    let dropped = || d.show("vale0:deaf")["rings"][1]["drops"]["no-room"].as_u64();
    // The drop of the last frame is counted after the frame's other copy has arrived.
    until("the deaf port's drops are counted by name", || dropped() == Some(200 - 63));
}

/// Objective: ports of a program in one region can swap buffers: a frame moves from a port's ring into the port's pipe
/// without being copied.
#[test]
fn buffers_change_places() {
    let d = Daemon::start("");
    let options = Options { pipes: 1, ..d.options() };
    let mut x = Port::open_with("vale0:x", &options).unwrap();
    let mut master = Port::open_with("vale0:x{1", &options).unwrap();
    let mut slave = Port::open_with("vale0:x}1", &options).unwrap();
    let mut a = d.open("vale0:a").unwrap();
    send(&mut a, &frame(255, 1, 42));
    assert!(x.wait(Interest::Rx, Some(LIMIT)).unwrap());
    let rx = &mut x.rx()[0];
    let tx = &mut master.tx()[0];
    let buffer = rx.slot(rx.at(0)).buf_idx;
    assert!(netvale::swap_buffers(rx, rx.at(0), tx, tx.at(0)), "two mappings of one region");
    assert_eq!(tx.slot(tx.at(0)).buf_idx, buffer);
    assert!(!netvale::swap_buffers(&a.rx()[0], 0, tx, tx.at(1)), "two regions");
    tx.advance(1);
    tx.sync();
    rx.advance(1);
    let _ = rx.sync();
    assert_eq!(receive(&mut slave), frame(255, 1, 42));
}

/// Objective: a program's last frames arrive even if the program closes its port before the daemon has taken the
/// frames.
#[test]
fn the_last_frames_of_a_program_arrive() {
    let d = Daemon::start("workers = 2");
    let mut to = d.open("vale0:to").unwrap();
    for _ in 0..50 {
        let mut from = d.open("vale0:from").unwrap();
        for seq in 0..60 {
            assert!(from.tx()[0].send(&frame(255, 1, seq)));
        }
        from.tx()[0].sync();
        drop(from);
        for seq in 0..60 {
            assert_eq!(receive(&mut to), frame(255, 1, seq));
        }
    }
}

/// Objective: control requests of any type with any body are answered or refused, and the daemon continues.
#[test]
fn any_device_request_is_answered_or_refused() {
    let d = Daemon::start("");
    let _port = d.open("vale0:a").unwrap();
    let conn = netvale::raw::connect_to(Some(d.dir())).unwrap();
    // These pseudo-random numbers are the same in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for reqtype in 0..40 {
        for name in ["", "vale0:a", "vale0:b", "vale0", "netmap:x", "x{1", "\u{7f}"] {
            for filling in 0..4 {
                let body = std::array::from_fn(|_| if filling == 0 { 0 } else { noise(&mut state) as u8 });
                let request = DeviceRequest { reqtype, name: name.into(), body, ..DeviceRequest::default() };
                let reply = netvale::raw::request(conn.as_fd(), &request).unwrap();
                assert_eq!(reply.reqtype, reqtype);
            }
        }
    }
    let mut b = d.open("vale0:still").unwrap();
    send(&mut b, &frame(255, 1, 1));
}

/// Objective: a port whose memory exceeds the daemon's file size limit is refused; the daemon and other ports continue.
#[test]
fn a_file_size_limit() {
    let d = Daemon::start_with_file_limit(8 << 20);
    let mut small = d.open("vale0:small").unwrap();
    let options = json!({"slots": 8192, "rings": 4});
    let reply = d.call("port.attach", json!({"switch": "vale0", "port": "large", "options": options}));
    let text = reply["error"].to_string();
    assert!(text.contains("File too large") && text.contains("limit"), "{reply}");
    let mut other = d.open("vale0:other").unwrap();
    send(&mut small, &frame(255, 1, 3));
    assert_eq!(receive(&mut other)[59], 3);
}
