//! Traces for clients of the control socket: contents and recipients; clients that do not read; limits; removal of
//! ports; replacement of the daemon.

use crate::common;

use common::users::as_user;
use common::{Daemon, frame, send, until};
use netvale::Port;
use netvale_control::ErrorCode;
use netvale_control::client::{Client, ClientError};
use netvale_control::types::{TraceBeginParams, TraceStep, TracedFrame};
use serde_json::json;

const ALICE: u32 = 70_001;
const BOB: u32 = 70_002;
const USERS: &str = "[switch]\nshared = ['vale0']\n[sockets]\nmode = '0666'\n";

fn client(d: &Daemon, uid: u32) -> Client {
    as_user(uid, || Client::connect(d.dir()).unwrap())
}

fn of(place: &str) -> TraceBeginParams {
    TraceBeginParams { of: vec![place.into()], one_of: 1, ..TraceBeginParams::default() }
}

fn open(d: &Daemon, uid: u32, name: &str) -> Port {
    as_user(uid, || Port::open_with(name, &d.options()).unwrap())
}

/// Receives exactly `count` traced frames.
fn told(client: &mut Client, count: usize) -> Vec<TracedFrame> {
    let mut frames = Vec::new();
    until("frames are told of", || {
        frames.extend(client.trace_read().unwrap().frames);
        frames.len() >= count
    });
    assert_eq!(frames.len(), count);
    frames
}

fn to(port: &str) -> TraceStep {
    TraceStep::To(port.into())
}

/// Objective: users see only frames of their own ports, and names of other users' ports are hidden from them; if a
/// request names a switch, all of the user's ports on that switch are traced.
#[test]
fn users_see_frames_of_their_own_ports_only() {
    let d = Daemon::start(USERS);
    let mut a = open(&d, ALICE, "vale0:a");
    let mut b = open(&d, BOB, "vale0:b");
    let mut alice = client(&d, ALICE);
    let mut bob = client(&d, BOB);
    let mut root = client(&d, 0);
    assert_eq!(alice.trace_begin(of("vale0")).unwrap().ports, ["vale0:a"]);
    assert_eq!(bob.trace_begin(of("vale0:b")).unwrap().ports, ["vale0:b"]);
    assert_eq!(root.trace_begin(of("vale0")).unwrap().ports, ["vale0:a", "vale0:b"]);
    let denied = client(&d, BOB).trace_begin(of("vale0:a"));
    assert!(matches!(denied, Err(ClientError::Refused(why)) if why.is(ErrorCode::NotPermitted)));
    send(&mut a, &frame(255, 1, 1));
    let steps = |to| [TraceStep::Learned, TraceStep::Floods, to];
    let [of_alice] = told(&mut alice, 1).try_into().unwrap();
    assert_eq!((of_alice.port.as_str(), of_alice.ring, of_alice.len), ("vale0:a", 0, 60));
    assert_eq!(of_alice.steps, steps(to("another user's port/0")));
    assert!(of_alice.head.starts_with("ffffffffffff02"));
    assert_eq!(told(&mut root, 1)[0].steps, steps(to("vale0:b/0")));
    send(&mut b, &frame(1, 2, 1));
    assert_eq!(told(&mut bob, 1)[0].steps, [TraceStep::Learned, to("another user's port/0")]);
    assert_eq!(told(&mut root, 1)[0].port, "vale0:b");
    assert!(alice.trace_read().unwrap().frames.is_empty());
}

/// Objective: if a trace is not read, the records that find no room are counted, and are reported only once; frames
/// pass as usual, and another reader gets all records.
#[test]
fn one_that_does_not_read() {
    let d = Daemon::start("");
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    let mut stalled = client(&d, 0);
    let mut reading = client(&d, 0);
    for client in [&mut stalled, &mut reading] {
        client.trace_begin(of("vale0:a")).unwrap();
    }
    for n in 0..1500u32 {
        send(&mut a, &frame(255, 1, n as u8));
        assert_eq!(common::receive(&mut b), frame(255, 1, n as u8));
        if n % 100 == 99 {
            told(&mut reading, 100);
        }
    }
    let mut frames = 0;
    let mut lost = 0;
    loop {
        let read = stalled.trace_read().unwrap();
        assert!(read.frames.len() <= 256);
        frames += read.frames.len();
        lost += read.lost;
        if read.frames.is_empty() {
            break;
        }
    }
    assert_eq!((frames, lost), (1024, 1500 - 1024));
}

/// Objective: ten thousand requests on one connection leave one trace; a user can have four traces, all users together
/// cannot exceed the maximum, and root can still start another trace.
#[test]
fn too_many_traces_are_refused() {
    let d = Daemon::start(&format!("{USERS}[quota]\nconnections = 1000\n"));
    let mut a = open(&d, ALICE, "vale0:a");
    let mut clients: Vec<_> = (0..10).map(|_| client(&d, ALICE)).collect();
    for _ in 0..10_000 {
        clients[0].trace_begin(of("vale0:a")).unwrap();
    }
    send(&mut a, &frame(255, 1, 1));
    told(&mut clients[0], 1);
    let begun = clients.iter_mut().map(|client| client.trace_begin(of("vale0:a"))).filter(Result::is_ok).count();
    assert_eq!(begun, 4);
    let mut others = Vec::new();
    for uid in 71_000..71_020 {
        let port = open(&d, uid, &format!("vale0:p{uid}"));
        for _ in 0..4 {
            let mut other = client(&d, uid);
            match other.trace_begin(of(&format!("vale0:p{uid}"))) {
                Ok(_) => others.push((other, port.name().to_owned())),
                Err(ClientError::Refused(why)) => assert!(why.is(ErrorCode::NoRoom), "{why:?}"),
                Err(other) => panic!("{other}"),
            }
        }
        drop(port);
    }
    assert_eq!(others.len() + 4, 56);
    let mut root = client(&d, 0);
    root.trace_begin(of("vale0:a")).unwrap();
    drop((clients, others));
    until("there is room again", || client(&d, BOB).trace_begin(of("vale0:none")).is_err_and(|why| not_found(&why)));
    send(&mut a, &frame(255, 1, 2));
    told(&mut root, 1);
}

fn not_found(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(why) if why.is(ErrorCode::NotFound))
}

/// Objective: requests with invalid or endless filters, with missing ports, or with ports on several switches, and a
/// read without a trace, are refused and leave the connection's trace unchanged.
#[test]
fn bad_requests_leave_the_trace_unchanged() {
    let d = Daemon::start("");
    let [mut a, _b] = d.opened(["vale0:a", "vale1:b"]);
    let mut client = client(&d, 0);
    assert!(not_found(&client.trace_read().unwrap_err()));
    client.trace_begin(TraceBeginParams { filter: Some("1,6 0 0 1".into()), ..of("vale0:a") }).unwrap();
    // Filters that are empty, no program, endless, with a jump past the end, truncated, or too long.
    for filter in ["", "no", "1,0 0 0 0", "2,21 9 9 0,6 0 0 1", "2,6 0 0 1", &"9".repeat(5000)] {
        let params = TraceBeginParams { filter: Some((*filter).into()), ..of("vale0:a") };
        let refused = client.trace_begin(params);
        assert!(matches!(refused, Err(ClientError::Refused(why)) if why.is(ErrorCode::InvalidParams)), "{filter}");
    }
    assert!(not_found(&client.trace_begin(of("vale0:x")).unwrap_err()));
    let two = TraceBeginParams { of: vec!["vale0:a".into(), "vale1:b".into()], ..of("") };
    assert!(client.trace_begin(two).is_err());
    assert!(client.trace_begin(TraceBeginParams { of: Vec::new(), ..of("") }).is_err());
    send(&mut a, &frame(255, 1, 1));
    told(&mut client, 1);
    // A port that the request names twice is traced once.
    let twice = TraceBeginParams { of: vec!["vale0:a".into(), "vale0".into()], ..of("") };
    assert_eq!(client.trace_begin(twice).unwrap().ports, ["vale0:a"]);
    send(&mut a, &frame(255, 1, 1));
    told(&mut client, 1);
}

/// Objective: a trace reports the removal of its ports; a new port of the same name is another port, and is not traced.
#[test]
fn a_trace_reports_the_removal_of_its_ports() {
    let d = Daemon::start("");
    let [a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    let mut client = client(&d, 0);
    client.trace_begin(of("vale0")).unwrap();
    assert_eq!(client.trace_read().unwrap().ports, 2);
    drop(a);
    until("a port is gone", || client.trace_read().unwrap().ports == 1);
    let mut a = d.open("vale0:a").unwrap();
    send(&mut a, &frame(255, 1, 1));
    assert_eq!(common::receive(&mut b), frame(255, 1, 1));
    send(&mut b, &frame(255, 2, 1));
    assert_eq!(told(&mut client, 1)[0].port, "vale0:b");
    drop(b);
    until("all are gone", || client.trace_read().unwrap().ports == 0);
}

/// Objective: a successor has no traces, and says so when a trace is read; the same connection can start a new trace.
#[test]
fn a_successor_has_no_traces_and_reports_it() {
    let d = Daemon::start("");
    let mut a = d.open("vale0:a").unwrap();
    d.call("port.attach", json!({"switch": "vale0", "port": "null:", "options": {"name": "b"}}));
    let mut client = client(&d, 0);
    client.trace_begin(of("vale0:a")).unwrap();
    d.is_succeeded();
    assert!(not_found(&client.trace_read().unwrap_err()));
    client.trace_begin(of("vale0:a")).unwrap();
    send(&mut a, &frame(255, 1, 1));
    assert!(told(&mut client, 1)[0].steps.contains(&to("vale0:b/0")));
    assert!(client.trace_read().unwrap().frames.is_empty());
}

/// Objective: with `later`, a user's new ports on a switch, which may not exist yet, are traced from their first frame,
/// and again when the switch is recreated; another user's ports are never traced.
#[test]
fn later_ports_are_traced_from_their_first_frame() {
    let d = Daemon::start(USERS);
    let [mut alice, mut bob, mut one] = [ALICE, BOB, ALICE].map(|uid| client(&d, uid));
    let later = |place: &str| TraceBeginParams { later: true, ..of(place) };
    for client in [&mut alice, &mut bob] {
        assert!(client.trace_begin(later("vale0")).unwrap().ports.is_empty());
    }
    one.trace_begin(later("vale0:a")).unwrap();
    for round in 0..2 {
        let [mut other, mut a] = ["vale0:other", "vale0:a"].map(|name| open(&d, ALICE, name));
        send(&mut other, &frame(255, 2, round));
        send(&mut a, &frame(255, 1, round));
        assert_eq!(told(&mut one, 1)[0].port, "vale0:a");
        // The port's number is reused, but its name remains in the trace.
        drop(a);
        until("the port is gone", || client(&d, 0).show("vale0:a").is_err());
        let next = open(&d, ALICE, "vale0:next");
        let mut ports: Vec<_> = told(&mut alice, 2).into_iter().map(|frame| frame.port).collect();
        ports.sort();
        assert_eq!(ports, ["vale0:a", "vale0:other"]);
        drop((other, next));
        until("the ports are gone", || client(&d, 0).ports(None).unwrap().is_empty());
    }
    let read = bob.trace_read().unwrap();
    assert_eq!((read.ports, read.frames.len()), (0, 0));
    for place in [vec!["vale0", "vale1:x"], vec!["vale0:a b"], vec![]] {
        let of = place.iter().map(|name| (*name).to_owned()).collect();
        let refused = alice.trace_begin(TraceBeginParams { of, ..later("") });
        assert!(refused.is_err(), "{place:?}");
    }
}
