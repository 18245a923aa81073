//! Hand-over of ports that may be on no switch: netmap's persistent ports, and rings that are connected to nothing.

use crate::common;

use std::os::fd::AsFd;
use std::time::Duration;

use common::ports::attach;
use common::{Daemon, crosses, frame, receive, request, send, until};
use netvale::{Interest, raw};
use netvale_abi::nmreq::{
    NETMAP_REQ_VALE_ATTACH, NETMAP_REQ_VALE_DELIF, NETMAP_REQ_VALE_DETACH, NETMAP_REQ_VALE_NEWIF, NR_REG_ALL_NIC,
    NmreqRegister,
};
use netvale_control::attach::{AttachRequest, FLAG_NULL};
use rustix::io::Errno;
use serde_json::json;

fn asked(d: &Daemon, reqtype: u16, name: &str) {
    let all = [(std::mem::offset_of!(NmreqRegister, nr_mode), NR_REG_ALL_NIC as u8)];
    let is_named = [NETMAP_REQ_VALE_ATTACH, NETMAP_REQ_VALE_DETACH].contains(&reqtype);
    let body: &[(usize, u8)] = if is_named { &all } else { &[] };
    // A process that another test starts has copies of this process's descriptors for a moment, so the daemon may see
    // the end of a connection only after that process has closed its copies as well.
    let mut status = 0;
    until("it is free", || {
        status = request(d, 0, reqtype, name, body).status;
        status != Errno::BUSY.raw_os_error()
    });
    assert_eq!(status, 0, "{reqtype} {name}");
}

/// Objective: a persistent port keeps its rings, holders and switches across several daemons, and can afterwards be
/// removed from its second switch, detached and removed as usual.
#[test]
fn a_persistent_port_keeps_its_rings_across_daemons() {
    let d = Daemon::start("");
    asked(&d, NETMAP_REQ_VALE_NEWIF, "p0");
    let mut port = d.open("netmap:p0").unwrap();
    let succeeded = |d: &Daemon| {
        d.is_robbed();
        d.is_succeeded();
    };
    succeeded(&d);
    drop(port);
    asked(&d, NETMAP_REQ_VALE_ATTACH, "vale0:p0");
    port = d.open("netmap:p0").unwrap();
    let mut a = d.open("vale0:a").unwrap();
    succeeded(&d);
    crosses(&mut a, &mut port, &frame(255, 1, 7));
    crosses(&mut port, &mut a, &frame(1, 2, 8));
    drop(port);
    asked(&d, NETMAP_REQ_VALE_ATTACH, "vale1:p0");
    let mut b = d.open("vale1:b").unwrap();
    succeeded(&d);
    crosses(&mut a, &mut b, &frame(255, 1, 9));
    crosses(&mut b, &mut a, &frame(255, 3, 10));
    for (reqtype, name) in
        [(NETMAP_REQ_VALE_DETACH, "vale1:p0"), (NETMAP_REQ_VALE_DETACH, "vale0:p0"), (NETMAP_REQ_VALE_DELIF, "p0")]
    {
        asked(&d, reqtype, name);
    }
    assert_eq!(d.ports(), ["vale0:a", "vale1:b"]);
}

/// Objective: policies of a persistent port can be changed while frames pass; frames on its link (a queue that delays
/// frames) arrive before the port leaves its switch; on the next switch, and across several daemons, it has the same
/// policies.
#[test]
fn policies_of_a_persistent_port_stay_across_daemons() {
    let d = Daemon::start("");
    let policy = |d: &Daemon, port: &str| d.show(port)["policies"].take();
    asked(&d, NETMAP_REQ_VALE_NEWIF, "p0");
    asked(&d, NETMAP_REQ_VALE_ATTACH, "vale0:p0");
    let [mut port, mut a] = d.opened(["netmap:p0", "vale0:a"]);
    d.set("vale0:p0", json!({"isolated": true}));
    crosses(&mut a, &mut port, &frame(255, 1, 1));
    d.set("vale0:p0", json!({"isolated": null, "link_in": "delay 100s", "link_out": "delay 1ms"}));
    crosses(&mut a, &mut port, &frame(255, 1, 2));
    send(&mut port, &frame(255, 2, 3));
    asked(&d, NETMAP_REQ_VALE_DETACH, "vale0:p0");
    let mut b = d.open("vale0:b").unwrap();
    assert_eq!(receive(&mut a), frame(255, 2, 3));
    drop(port);
    asked(&d, NETMAP_REQ_VALE_ATTACH, "vale1:p0");
    let known = policy(&d, "vale1:p0");
    assert_eq!((&known["link_in"], &known["link_out"]), (&json!("delay 100s"), &json!("delay 1ms")));
    d.is_robbed();
    d.is_succeeded();
    assert_eq!(policy(&d, "vale1:p0"), known);
    let [mut port, mut c] = d.opened(["netmap:p0", "vale1:c"]);
    send(&mut port, &frame(255, 2, 4));
    crosses(&mut c, &mut port, &frame(255, 3, 5));
    assert!(!c.wait(Interest::Rx, Some(Duration::from_millis(200))).unwrap(), "its link was passed by");
    d.set("vale1:p0", json!({"link_in": null}));
    assert_eq!(receive(&mut c), frame(255, 2, 4));
    crosses(&mut a, &mut b, &frame(255, 1, 6));
    drop(port);
    asked(&d, NETMAP_REQ_VALE_ATTACH, "vale2:p0");
    d.set("vale2:p0", json!({"isolated": true}));
    d.is_robbed();
    d.is_succeeded();
    assert_eq!(policy(&d, "vale2:p0")["isolated"], true);
}

/// Objective: frames on a port's link (a queue that delays frames) that find no room at their destination during a
/// hand-over are counted as dropped.
#[test]
fn frames_behind_a_link() {
    let d = Daemon::start("");
    attach(&d, "a", json!({"link_in": "delay 500ms"}));
    attach(&d, "b", json!({"lossless": true, "slots": 64}));
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    for n in 0..150 {
        assert!(a.wait(Interest::Tx, None).unwrap());
        send(&mut a, &frame(255, 1, n));
    }
    d.is_succeeded();
    let mut got = 0;
    while b.wait(Interest::Rx, Some(Duration::from_secs(2))).unwrap() {
        receive(&mut b);
        got += 1;
    }
    let drops = |port: &str| {
        let drops = d.show(port)["drops"].take();
        drops.as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum::<u64>()
    };
    assert!((40..150).contains(&got), "{got}");
    assert_eq!(got + drops("vale0:a") + drops("vale0:b"), 150);
}

/// Objective: rings that are connected to nothing stay with their connection, at the same position in their region,
/// across several daemons; the position is not reused until the connection ends.
#[test]
fn rings_with_nothing_behind_them() {
    let d = Daemon::start("");
    let open = |d: &Daemon| {
        let conn = raw::connect_to(d.options().run_dir.as_deref()).unwrap();
        let flags = FLAG_NULL;
        let request = AttachRequest {
            name: "bare".into(),
            flags,
            mem_id: 1,
            tx_rings: 3,
            rx_rings: 2,
            ..AttachRequest::default()
        };
        let opened = raw::attach(conn.as_fd(), &request).unwrap();
        (conn, opened)
    };
    let place = |opened: &raw::AttachedRings| (opened.reply.nifp, opened.reply.csb_first, opened.reply.mem_id);
    let (conn, opened) = open(&d);
    for _ in 0..3 {
        d.is_robbed();
        d.is_succeeded();
        let again = raw::resume(conn.as_fd()).unwrap();
        assert_eq!((again.reply.tx_rings, again.reply.rx_rings, again.tx.len()), (3, 2, 3));
        assert_eq!(place(&again), place(&opened));
        let (other, elsewhere) = open(&d);
        assert_ne!(place(&elsewhere), place(&opened));
        drop(other);
    }
    let before = place(&opened);
    drop((conn, opened));
    until("its place is free", || place(&open(&d).1) == before);
}
