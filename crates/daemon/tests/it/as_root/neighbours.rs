//! How users affect one another on a shared switch, and how much of the daemon's resources one user can take.

use crate::common;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use common::users::{as_user, folder_of};
use common::{Daemon, frame, receive, request, send, stats, until};
use netvale::{Options, Port};
use netvale_abi::nmreq::{NETMAP_REQ_VALE_ATTACH, NETMAP_REQ_VALE_NEWIF, NR_REG_ALL_NIC};
use netvale_harness::attacks::bells::{block, watch};
use serde_json::{Value, json};

const ALICE: u32 = 70_001;
const BOB: u32 = 70_002;

/// Starts a daemon for all users, with these lines of configuration; [`SHARED`] makes the switch `vale0` a shared
/// switch.
fn daemon(more: &str) -> Daemon {
    let more = format!("{more}\n[sockets]\nmode = '0666'");
    Daemon::start_as(0, folder_of(0, 0o755), &more)
}

const SHARED: &str = "[switch]\nshared = ['vale0']\n";

fn open(uid: u32, name: &str, options: &Options) -> Result<Port, netvale::Error> {
    as_user(uid, || Port::open_with(name, options))
}

fn opened(d: &Daemon, uid: u32, name: &str) -> Port {
    open(uid, name, &d.options()).unwrap()
}

fn drops(d: &Daemon, port: &str) -> Value {
    d.show(port)["drops"].clone()
}

fn refused_addresses(d: &Daemon) -> u64 {
    d.call("switch.list", json!({}))["result"][0]["refused_addresses"].as_u64().unwrap()
}

/// Objective: a lossless port that does not read holds back only its own user's senders: frames of other users are
/// dropped when the port is full, and arrive at other ports.
#[test]
fn lossless_within_one_user() {
    let d = daemon(SHARED);
    let lossless = Options { lossless: true, slots: 16, ..d.options() };
    let mut slow = open(ALICE, "vale0:slow", &lossless).unwrap();
    let mut sender = opened(&d, BOB, "vale0:sender");
    let mut other = opened(&d, BOB, "vale0:other");
    send(&mut slow, &frame(255, 1, 0));
    assert_eq!([receive(&mut sender), receive(&mut other)], [frame(255, 1, 0); 2]);
    send(&mut other, &frame(255, 2, 0));
    receive(&mut sender);
    for tag in 0..60 {
        send(&mut sender, &frame(1, 3, tag));
        send(&mut sender, &frame(2, 3, tag));
        assert_eq!(receive(&mut other), frame(2, 3, tag), "frame {tag}");
    }
    // The port's ring has room for 15 frames, and one of these is the other user's broadcast.
    until("the rest is dropped", || drops(&d, "vale0:slow") == json!({"no-room": 60 - 14}));
}

/// Objective: a learned source address of another user's port does not move to a forger's port; after the owner's port
/// is removed, the address is free.
#[test]
fn a_made_up_source_does_not_move_an_address() {
    let d = daemon(SHARED);
    let mut alice = opened(&d, ALICE, "vale0:a");
    let mut bob = opened(&d, BOB, "vale0:b");
    let mut root = opened(&d, 0, "vale0:c");
    let announce = |port: &mut Port, hears: &mut Port| {
        send(port, &frame(255, 1, 7));
        receive(hears);
    };
    announce(&mut alice, &mut root);
    announce(&mut bob, &mut root);
    assert_eq!(refused_addresses(&d), 1);
    send(&mut root, &frame(1, 9, 8));
    // Alice's two frames arrive in order, Bob's broadcast first.
    assert_eq!([receive(&mut alice), receive(&mut alice)], [frame(255, 1, 7).to_vec(), frame(1, 9, 8).to_vec()]);
    drop(alice);
    until("the port is gone", || d.ports().len() == 2);
    announce(&mut bob, &mut root);
    send(&mut root, &frame(1, 9, 10));
    until("it arrives", || receive(&mut bob) == frame(1, 9, 10));
}

/// Objective: persistent ports keep learned addresses in the same way, even if another user attaches them: addresses
/// and quota belong to the port's owner.
#[test]
fn persistent_ports_keep_their_addresses_too() {
    let d = daemon(&format!("[quota]\naddresses = 1\n{SHARED}"));
    let mut alice = opened(&d, ALICE, "vale0:a");
    send(&mut alice, &frame(255, 1, 0));
    // Byte 16 of the request's body is `nmreq_vale_attach.reg.nr_mode`.
    let all = [(16, NR_REG_ALL_NIC as u8)];
    assert_eq!(request(&d, BOB, NETMAP_REQ_VALE_NEWIF, "bob0", &[]).status, 0);
    assert_eq!(request(&d, 0, NETMAP_REQ_VALE_ATTACH, "vale0:bob0", &all).status, 0);
    let mut bob = opened(&d, BOB, "vale0:bob0");
    for source in [1, 2, 3] {
        send(&mut bob, &frame(255, source, source));
        receive(&mut alice);
    }
    assert_eq!(refused_addresses(&d), 2, "Alice's, and one too many");
}

/// Objective: a flood of forged sources from all ports of a user takes no more table entries than the quota permits.
#[test]
fn a_flood_of_sources_stays_within_the_quota() {
    let d = daemon(&format!("[quota]\naddresses = 100\n{SHARED}"));
    let mut alice = opened(&d, ALICE, "vale0:a");
    let mut flood = [opened(&d, BOB, "vale0:b"), opened(&d, BOB, "vale0:c")];
    send(&mut alice, &frame(255, 1, 0));
    receive(&mut flood[0]);
    let mut number = 0u16;
    // A batch reports only some of its addresses as learned or refused, so the test must send small batches, even if
    // the worker is busy.
    let mut send_on = |count: u16| {
        for _ in 0..count {
            number = number.wrapping_add(1);
            let mut made_up = frame(1, 1, 0);
            made_up[8..10].copy_from_slice(&number.to_be_bytes());
            let port = &mut flood[usize::from(number % 2)];
            until("there is room", || port.tx()[0].send(&made_up));
            port.tx()[0].sync();
        }
    };
    send_on(2000);
    let addresses = || d.call("switch.list", json!({}))["result"][0]["addresses"].as_u64().unwrap();
    until("it is refused", || {
        send_on(20);
        refused_addresses(&d) >= 1000
    });
    assert_eq!(addresses(), 101);
}

/// Objective: a user who would exceed the quota of descriptors, or whose device would exceed the quota of memory, is
/// refused, and the refusal names the quota.
#[test]
fn many_rings_and_large_devices() {
    let folder = folder_of(0, 0o777);
    let more = format!("allow_dirs = [{:?}]\n[quota]\ndescriptors = 100\nmemory_mib = 16", folder.path());
    let d = daemon(&more);
    let rings = Options { rings: 16, ..d.options() };
    match open(ALICE, "vale1:a", &rings) {
        Err(netvale::Error::Refused { errno, text }) => {
            assert!(errno == libc::ENOSPC && text.contains("'descriptors' in [quota]"), "{text}");
        }
        other => panic!("{:?}", other.map(|port| port.name().to_owned())),
    }
    let many = Options { extra_bufs: 40_000, ..d.options() };
    assert!(open(ALICE, "vale1:a", &many).is_err(), "to link them would take long");
    opened(&d, ALICE, "vale1:a");
    let attach = |name: &str, slots: u32| {
        let port = format!("ptnet:{}/{name}.sock", folder.path().display());
        let params = json!({"switch": "vale1", "port": port, "options": {"name": name, "slots": slots}});
        as_user(ALICE, || d.call("port.attach", params))
    };
    let large = attach("large", 16_384);
    assert!(large["error"]["data"]["hint"].as_str().is_some_and(|hint| hint.contains("'memory_mib'")), "{large}");
    assert!(attach("one", 2048)["result"].is_object());
    assert!(attach("two", 2048)["error"].is_object(), "what the first one has counts");
}

/// Objective: a user who leaves answers unread on many connections loses the connections that exceed the quota; other
/// users get their answers.
#[test]
fn unread_answers_cost_their_user_the_connections() {
    let d = daemon("[quota]\nunread_kib = 64");
    let ask = json!({"jsonrpc": "2.0", "id": 1, "method": "version"}).to_string() + "\n";
    let requests = ask.repeat(200);
    let mut held: Vec<UnixStream> =
        as_user(ALICE, || (0..40).map(|_| UnixStream::connect(d.path("control.sock")).unwrap()).collect());
    held.iter().for_each(|one| one.set_nonblocking(true).unwrap());
    let mut is_closed = |one: &mut UnixStream| match one.write(requests.as_bytes()) {
        Ok(_) => false,
        Err(e) => e.kind() != ErrorKind::WouldBlock,
    };
    until("one is closed", || held.iter_mut().any(&mut is_closed));
    let mut bob = as_user(BOB, || UnixStream::connect(d.path("control.sock")).unwrap());
    bob.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    bob.write_all(ask.as_bytes()).unwrap();
    assert!(bob.read(&mut [0; 256]).unwrap() > 0);
    assert!(stats(&d)["refused"].as_u64().unwrap() > 0);
}

/// Number of times that a wake-up descriptor is registered with epoll, so that ringing it takes milliseconds.
const WATCHED: usize = 225_000;

/// Objective: a user whose wake-up descriptor has very many watchers, so that ringing it takes a worker's time, loses
/// the port, with the reason; frames of other users keep arriving.
#[test]
fn a_wake_up_with_very_many_watchers_costs_its_port() {
    let d = daemon(SHARED);
    let mut alice = [opened(&d, ALICE, "vale0:a"), opened(&d, ALICE, "vale0:b")];
    let mut bob = opened(&d, BOB, "vale0:bob");
    let _watching = watch(bob.rx()[0].wake_fd(), WATCHED).unwrap();
    let mut tag = 0u8;
    until("it is gone", || {
        tag = tag.wrapping_add(1);
        // Bob takes the received frames, and each time requests a wake-up.
        let ring = &mut bob.rx()[0];
        while ring.recv(&mut [0; 4096]).is_some() {}
        let _ = ring.sync();
        let _ = ring.arm();
        send(&mut alice[0], &frame(255, 1, tag));
        assert_eq!(receive(&mut alice[1]), frame(255, 1, tag));
        d.ports() == ["vale0:a", "vale0:b"]
    });
    let evicted = d.evicted().to_string();
    assert!(evicted.contains("too many waiters"), "{evicted}");
}

/// Objective: a user with many ports cannot hold a worker up with one port after another: after a doorbell has blocked,
/// the user loses all ports and is locked out. Other users lose nothing.
#[test]
fn one_doorbell_costs_all() {
    let d = daemon(SHARED);
    let mut alice = [opened(&d, ALICE, "vale0:a"), opened(&d, ALICE, "vale0:b")];
    let mut bob: Vec<Port> = (0..6).map(|i| opened(&d, BOB, &format!("vale0:bob{i}"))).collect();
    for port in &mut bob {
        assert!(!port.rx()[0].arm());
        block(port.rx()[0].wake_fd()).unwrap();
    }
    send(&mut alice[0], &frame(255, 1, 7));
    assert_eq!(receive(&mut alice[1]), frame(255, 1, 7));
    until("all are gone", || d.ports() == ["vale0:a", "vale0:b"]);
    let refused = |name: &str| match open(BOB, name, &d.options()) {
        Err(netvale::Error::Refused { errno, text }) => {
            assert!(errno == libc::EAGAIN && text.contains("try again in"), "{text}")
        }
        other => panic!("{:?}", other.map(|port| port.name().to_owned())),
    };
    refused("vale0:bob0");
    until("the pause is over", || open(BOB, "vale0:bob0", &d.options()).is_ok());
    send(&mut alice[1], &frame(255, 2, 8));
    assert_eq!(receive(&mut alice[0]), frame(255, 2, 8));
}

/// Objective: a user whose requests are refused repeatedly does not fill the log: lines that exceed the limit are
/// counted, and the count is logged. Lines about other users appear, and all refusals are counted.
#[test]
fn lines_of_the_log() {
    let d = daemon("[quota]\nlog_lines = 5");
    let refused = |uid: u32| {
        as_user(uid, || d.call("port.detach", json!({"switch": "vale7", "port": "nothing"})));
    };
    let log = || std::fs::read_to_string(d.path("log")).unwrap();
    let lines = |uid: u32| {
        log().lines().filter(|line| line.contains("refused: ") && line.contains(&format!("uid={uid}"))).count()
    };
    (0..300).for_each(|_| refused(ALICE));
    refused(BOB);
    assert_eq!(lines(BOB), 1);
    until("what is left out is counted", || log().contains("lines about this user were left out"));
    let skipped = || log().lines().filter_map(left_out).sum::<usize>();
    let counted = skipped();
    let written = lines(ALICE);
    assert!(counted > 0 && written >= 5 && written + counted <= 300, "{written} written, {counted} left out");
    assert_eq!(as_user(ALICE, || stats(&d))["refused"], 300);
    until("all are accounted for", || skipped() + lines(ALICE) == 300);
}

/// Returns the number in a log line about lines that were left out.
fn left_out(line: &str) -> Option<usize> {
    let (before, _) = line.split_once(" lines about this user were left out")?;
    before.rsplit(' ').next()?.parse().ok()
}
