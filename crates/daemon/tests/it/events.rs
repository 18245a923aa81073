//! Events for clients of the control socket: contents, order, recipients; clients that do not read; limits; replacement
//! of the daemon.

use crate::common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::users::as_user;
use common::{Daemon, LIMIT, frame, send, until};
use netvale::Port;
use netvale_control::ErrorCode;
use netvale_control::Request;
use netvale_control::client::{Client, ClientError};
use netvale_control::types::{AttachParams, Event, SubscribeParams};
use serde_json::{Value, json};

const ALICE: u32 = 70_001;
const BOB: u32 = 70_002;
const USERS: &str = "[switch]\nshared = ['vale0']\n[sockets]\nmode = '0666'\n";
/// Time within which events that are not caused by a request, such as polled events, arrive.
const QUIET: Duration = Duration::from_millis(700);

fn client(d: &Daemon) -> Client {
    Client::connect(d.dir()).unwrap()
}

/// Subscribes a client to the events with these names; to all events if there are no names.
fn subscribed(d: &Daemon, names: &[&str]) -> Client {
    let mut client = client(d);
    client.subscribe(named(names)).unwrap();
    client
}

fn named(names: &[&str]) -> SubscribeParams {
    SubscribeParams { names: names.iter().map(|&name| name.to_owned()).collect(), ..SubscribeParams::default() }
}

fn next(client: &mut Client) -> Event {
    client.next_event(LIMIT).unwrap().expect("no event came")
}

/// Receives the next event, which must have that name and that port or switch.
fn expect(client: &mut Client, name: &str, place: &str) -> Event {
    let event = next(client);
    let found = event.port.as_deref().or(event.switch.as_deref()).unwrap_or("");
    assert_eq!((event.name.as_str(), found), (name, place), "{event:?}");
    event
}

fn nothing(client: &mut Client) {
    assert_eq!(client.next_event(QUIET).unwrap(), None);
}

fn call(d: &Daemon, method: &str, params: Value) -> Value {
    let reply = d.call(method, params);
    assert!(reply["error"].is_null(), "{reply}");
    reply["result"].clone()
}

/// Objective: events of a program's port and of an attached port arrive in order, with author and reason.
#[test]
fn events_of_ports_arrive_in_order_with_author() {
    let d = Daemon::start("");
    let mut told = subscribed(&d, &[]);
    let own = std::process::id().cast_signed();
    let port = d.open("vale0:a").unwrap();
    expect(&mut told, "switch.made", "vale0");
    let attached = expect(&mut told, "port.attached", "vale0:a");
    assert_eq!((attached.by.unwrap().pid, &attached.details["kind"]), (own, &json!("local")));
    assert_eq!(attached.switch.as_deref(), Some("vale0"));
    assert_eq!(expect(&mut told, "port.open", "vale0:a").by.unwrap().pid, own);
    let monitor = d.open("vale0:a/r").unwrap();
    let seen = next(&mut told);
    assert!(seen.name == "port.attached" && seen.port.unwrap().starts_with("vale0:a/monitor-"));
    drop(monitor);
    let ends = [next(&mut told).name, next(&mut told).name];
    assert_eq!(ends, ["port.idle", "port.detached"]);
    call(&d, "port.set", json!({"port": "vale0:a", "set": {"isolated": true, "access": null}}));
    let set = expect(&mut told, "port.policies", "vale0:a");
    assert_eq!((&set.details["set"], set.by.unwrap().uid), (&json!({"isolated": true, "access": null}), 0));
    drop(port);
    expect(&mut told, "port.idle", "vale0:a");
    assert_eq!(expect(&mut told, "port.detached", "vale0:a").why.as_deref(), Some("its program has closed the port"));
    let last = expect(&mut told, "switch.gone", "vale0");
    // A persistent port exists before and after programs open it.
    call(&d, "port.attach", json!({"switch": "vale1", "port": "b"}));
    expect(&mut told, "switch.made", "vale1");
    expect(&mut told, "port.attached", "vale1:b");
    for _ in 0..2 {
        let port = d.open("vale1:b").unwrap();
        expect(&mut told, "port.open", "vale1:b");
        drop(port);
        expect(&mut told, "port.idle", "vale1:b");
    }
    let ends = [d.open("netmap:p{1").unwrap(), d.open("netmap:p}1").unwrap()];
    assert_eq!(expect(&mut told, "port.attached", "netmap:p{1").details["kind"], "pipe");
    expect(&mut told, "port.open", "netmap:p{1");
    expect(&mut told, "port.open", "netmap:p}1");
    drop(ends);
    let names: Vec<_> = (0..3).map(|_| next(&mut told).name).collect();
    assert_eq!(names, ["port.idle", "port.idle", "port.detached"]);
    d.call("port.show", json!({"port": "vale1:nothing"}));
    let refused = next(&mut told);
    assert_eq!(
        (refused.name.as_str(), refused.why.as_deref()),
        ("request.refused", Some("port vale1:nothing does not exist"))
    );
    call(&d, "config.apply", json!({"text": "[[port]]\nswitch = 'vale2'\nport = 'null:'\nname = 'n'\n"}));
    expect(&mut told, "switch.made", "vale2");
    expect(&mut told, "port.attached", "vale2:n");
    let applied = next(&mut told);
    // The settings that the daemon has from its command line count as changes.
    assert!(applied.name == "daemon.configured" && applied.details["changes"].as_u64() >= Some(1), "{applied:?}");
    assert!(applied.now_ns > last.now_ns && applied.time > last.time && applied.sequence > last.sequence);
    nothing(&mut told);
}

/// Objective: only requested ports, switches and names are reported; a later `subscribe` replaces the filters, and
/// `unsubscribe` ends the subscription. Events and answers are in order: the answer to a list request reflects all
/// earlier events.
#[test]
fn only_requested_events_are_reported_in_order() {
    let d = Daemon::start("");
    let mut told = client(&d);
    let params = |only: &[&str], names: &[&str], snapshot| SubscribeParams {
        only: only.iter().map(|&name| name.to_owned()).collect(),
        snapshot,
        ..named(names)
    };
    call(&d, "port.attach", json!({"switch": "vale0", "port": "null:", "options": {"name": "x"}}));
    let now = told.subscribe(params(&["vale0:a", "vale1"], &["port.attached", "switch"], true)).unwrap();
    let ports: Vec<_> = now.ports.unwrap().into_iter().map(|port| port.name).collect();
    let switches: Vec<_> = now.switches.unwrap().into_iter().map(|switch| switch.name).collect();
    assert_eq!((ports, switches, now.sequence), (vec!["vale0:x".to_owned()], vec!["vale0".to_owned()], 0));
    for at in [("vale0", "a"), ("vale0", "b"), ("vale1", "c")] {
        call(&d, "port.attach", json!({"switch": at.0, "port": at.1}));
        call(&d, "port.detach", json!({"switch": at.0, "port": at.1}));
    }
    for (sequence, name, place) in [
        (1, "port.attached", "vale0:a"),
        (2, "switch.made", "vale1"),
        (3, "port.attached", "vale1:c"),
        (4, "switch.gone", "vale1"),
    ] {
        assert_eq!(expect(&mut told, name, place).sequence, sequence);
    }
    let again = told.subscribe(params(&[], &["port.detached"], false)).unwrap();
    assert_eq!((again.sequence, again.ports), (4, None));
    // A client first gets the answer to its own request, then the event that the request caused, and then the next
    // answer.
    told.attach(AttachParams { switch: "vale0".into(), port: "d".into(), ..Default::default() }).unwrap();
    told.detach("vale0", "d").unwrap();
    assert!(told.ports(None).unwrap().iter().all(|port| port.name != "vale0:d"));
    assert_eq!(told.next_event(Duration::from_millis(1)).unwrap().unwrap().sequence, 5);
    // Events that an answer reflects arrive before that answer, even if the client reads them late.
    for i in 0..50 {
        let name = format!("n{i}");
        call(&d, "port.attach", json!({"switch": "vale0", "port": name}));
        call(&d, "port.detach", json!({"switch": "vale0", "port": name}));
        let there: Vec<_> = told.ports(None).unwrap().into_iter().map(|port| port.name).collect();
        assert_eq!(there, ["vale0:x"]);
        assert_eq!(next(&mut told).sequence, 6 + i);
    }
    let done: Value = told.call(&Request::Unsubscribe).unwrap();
    assert_eq!(done, json!({}));
    call(&d, "port.detach", json!({"switch": "vale0", "port": "x"}));
    nothing(&mut told);
    for (bad, word) in
        [(named(&["port."]), "port."), (named(&["nothing"]), "nothing"), (params(&["a"; 65], &[], false), "64")]
    {
        match told.subscribe(bad) {
            Err(ClientError::Refused(why)) => {
                assert!(why.is(ErrorCode::InvalidParams) && why.message.contains(word), "{why}")
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Objective: users get the events of their own ports, refusals and switches; root gets all events.
#[test]
fn users_get_only_their_own_events() {
    let d = Daemon::start(USERS);
    let mut told: Vec<_> = [ALICE, BOB, 0].map(|uid| as_user(uid, || subscribed(&d, &[]))).into();
    let options = d.options();
    let port = as_user(BOB, || Port::open_with("vale0:bob", &options).unwrap());
    as_user(BOB, || d.call("shutdown", json!({})));
    drop(port);
    let names =
        ["switch.made", "port.attached", "port.open", "request.refused", "port.idle", "port.detached", "switch.gone"];
    for client in &mut told[1..] {
        for name in names {
            assert_eq!(next(client).name, name);
        }
    }
    told.iter_mut().for_each(nothing);
}

/// Objective: events report when peers of devices connect and leave, with the reason after a protocol violation.
#[test]
fn arrivals_and_departures_of_guests_are_reported() {
    let d = Daemon::start("");
    let mut told = subscribed(&d, &["guest", "link"]);
    for kind in ["vhost", "ptnet", "e1000"] {
        let path = d.path(kind);
        let port = format!("{kind}:{}", path.display());
        let mut options = json!({"name": kind});
        if kind == "ptnet" {
            // An ivshmem device would send its description to a guest that has already left, and report the failure.
            options["vfio_user"] = json!(true);
        }
        call(&d, "port.attach", json!({"switch": "vale0", "port": port, "options": options}));
        let full = format!("vale0:{kind}");
        for connections in 1..=2 {
            let guest = UnixStream::connect(&path).unwrap();
            let event = expect(&mut told, "guest.connected", &full);
            assert_eq!(event.details["connections"], connections);
            drop(guest);
            assert_eq!(expect(&mut told, "guest.left", &full).why, None);
        }
        let mut guest = UnixStream::connect(&path).unwrap();
        expect(&mut told, "guest.connected", &full);
        guest.write_all(&[0xff; 64]).unwrap();
        assert!(expect(&mut told, "guest.left", &full).why.is_some_and(|why| !why.is_empty()));
    }
    nothing(&mut told);
}

/// Objective: events report a program's eviction and its reason, endpoints of a tunnel that are added and removed, and
/// a port blocked by the loop guard.
#[test]
fn evictions_tunnels_and_loops_are_reported() {
    let d = Daemon::start("");
    let mut told = subscribed(&d, &["port.evicted", "tunnel", "loop", "address"]);
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    assert!(!b.rx()[0].arm());
    rustix::io::ioctl_fionbio(b.rx()[0].wake_fd().as_fd(), false).unwrap();
    rustix::io::write(b.rx()[0].wake_fd().as_fd(), &(u64::MAX - 1).to_ne_bytes()).unwrap();
    send(&mut a, &frame(255, 1, 7));
    let evicted = expect(&mut told, "port.evicted", "vale0:b");
    assert!(evicted.why.as_deref().is_some_and(|why| why.contains("blocks")), "{evicted:?}");

    call(
        &d,
        "port.attach",
        json!({"switch": "vale1", "port": "vxlan:7,local=127.0.0.1,port=14790", "options": {"name": "t"}}),
    );
    let set = |add: &[u8], remove: &[u8], replace: bool| {
        let ips =
            |of: &[u8]| of.iter().map(|&n| IpAddr::from(Ipv4Addr::new(127, 0, 0, n)).to_string()).collect::<Vec<_>>();
        call(
            &d,
            "vxlan.set",
            json!({"port": "vale1:t", "replace": replace, "flood": {"add": ips(add), "remove": ips(remove)}}),
        );
    };
    set(&[2, 3], &[], false);
    set(&[2], &[3], false);
    set(&[4], &[], true);
    let added = "tunnel.vtep-added";
    let removed = "tunnel.vtep-removed";
    for (name, n) in [(added, 2), (added, 3), (removed, 3), (added, 4), (removed, 2)] {
        assert_eq!(expect(&mut told, name, "vale1:t").details["vtep"], format!("127.0.0.{n}"));
    }

    let options = json!({"loop_guard": true});
    for name in ["c", "d"] {
        call(&d, "port.attach", json!({"switch": "vale2", "port": name, "options": options}));
    }
    let mut ends = [d.open("vale2:c").unwrap(), d.open("vale2:d").unwrap()];
    let mut blocked = None;
    until("a loop is seen", || {
        for end in &mut ends {
            send(end, &frame(255, 9, 1));
            // Wait until the address has moved, before the other port sends.
            until("it was taken", || {
                let ring = &mut end.tx()[0];
                ring.sync();
                ring.space() == ring.num_slots() - 1
            });
        }
        blocked = told.next_event(Duration::from_millis(1)).unwrap();
        blocked.is_some()
    });
    let blocked = blocked.unwrap();
    let place = blocked.port.clone().unwrap();
    assert!(
        blocked.name == "loop.blocked" && place.starts_with("vale2:") && blocked.details["loops"] == 1,
        "{blocked:?}"
    );
    // Removing the loop guard unblocks the port.
    call(&d, "port.set", json!({"port": place, "set": {"loop_guard": null}}));
    let after = (0..3).map(|_| next(&mut told)).find(|event| event.port.as_deref() == Some(&place));
    assert_eq!(after.unwrap().name, "loop.unblocked");
}

/// Reads the events on a raw connection up to `last`. Returns the number of events, and the number of events that are
/// reported as lost; the sequence numbers must agree with both.
fn read_to(stream: UnixStream, last: &str) -> (u64, u64) {
    let mut got = 0;
    let mut lost = 0;
    let mut sequence = 0;
    for line in BufReader::new(stream).lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let event: Event = serde_json::from_value(line["params"].clone()).unwrap();
        if event.name == "events.lost" {
            let more = event.details["lost"].as_u64().unwrap();
            lost += more;
            sequence += more;
        } else {
            got += 1;
            sequence += 1;
        }
        assert_eq!(event.sequence, sequence, "{event:?}");
        if event.port.as_deref() == Some(last) {
            break;
        }
    }
    (got, lost)
}

/// Returns a connection that has subscribed to events, and from which nobody reads.
fn silent(d: &Daemon, params: Value) -> UnixStream {
    let mut stream = UnixStream::connect(d.path("control.sock")).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "subscribe", "params": params});
    writeln!(stream, "{request}").unwrap();
    let mut byte = [0];
    let mut line = Vec::new();
    while byte != *b"\n" {
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    let answer: Value = serde_json::from_slice(&line).unwrap();
    assert!(answer["result"]["sequence"] == 0, "{answer}");
    stream
}

/// Objective: a client that does not read loses some events if there are many, and learns the number of lost events
/// when it reads again. It stays connected, the daemon answers all clients, and clients that read lose no events.
#[test]
fn one_that_does_not_read() {
    let d = Daemon::start(USERS);
    let stalled: Vec<_> = (0..10).map(|_| silent(&d, json!({}))).collect();
    let quiet = silent(&d, json!({"only": ["vale0:last"]}));
    let mut reading = subscribed(&d, &[]);
    let bob = as_user(BOB, || subscribed(&d, &[]));
    let flood = |i: usize| {
        let params = json!({"switch": "vale0", "port": format!("p{i}")});
        let attach = json!({"jsonrpc": "2.0", "id": 1, "method": "port.attach", "params": params});
        let detach = json!({"jsonrpc": "2.0", "id": 2, "method": "port.detach", "params": params});
        let refused = json!({"jsonrpc": "2.0", "id": 3, "method": "port.show", "params": {"port": "vale0:nothing"}});
        let mut batch = vec![attach, detach];
        batch.resize(60, refused);
        Value::from(batch).to_string()
    };
    const ROUNDS: usize = 100;
    const EACH: u64 = 58 + 4;
    let read = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            loop {
                let event = next(&mut reading);
                let count = read.fetch_add(1, Ordering::Relaxed) + 1;
                assert_eq!(event.sequence, count, "one that reads has lost some: {event:?}");
                if event.port.as_deref() == Some("vale0:last") {
                    break count;
                }
            }
        });
        let mut stream = UnixStream::connect(d.path("control.sock")).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        for i in 0..ROUNDS {
            writeln!(stream, "{}", flood(i)).unwrap();
            let mut line = String::new();
            answers.read_line(&mut line).unwrap();
            assert!(line.contains("\"id\":2") && line.contains("\"id\":3"), "{line}");
            // Wait for the reader thread, which may not get a CPU for a while.
            let expected = (i as u64 + 1) * EACH;
            until("the reader has all", || read.load(Ordering::Relaxed) >= expected || reader.is_finished());
        }
        call(&d, "port.attach", json!({"switch": "vale0", "port": "null:", "options": {"name": "last"}}));
        // The switch is created and removed once in each round, and once more after the last round.
        assert_eq!(reader.join().unwrap(), ROUNDS as u64 * EACH + 2);
    });
    for stream in stalled {
        // The last event may be lost; the next event is not.
        let handle = std::thread::spawn(move || {
            let (got, lost) = read_to(stream, "vale0:after");
            assert!(got >= 1000 && lost >= 1000, "{got} came, {lost} were lost");
            got + lost
        });
        until("it has read what there was", || {
            call(&d, "port.attach", json!({"switch": "vale0", "port": "null:", "options": {"name": "after"}}));
            call(&d, "port.detach", json!({"switch": "vale0", "port": "after"}));
            handle.is_finished()
        });
        handle.join().unwrap();
    }
    assert_eq!(read_to(quiet, "vale0:last"), (1, 0));
    drop(bob);
}

/// Objective: thousands of subscriptions over the limits are refused with the name of the limit, and have no effect on
/// other subscriptions. The limits are a user's quota, and the places reserved for root.
#[test]
fn subscriptions_over_the_limits_are_refused_by_name() {
    let d = Daemon::start(&format!("{USERS}[quota]\nsubscriptions = 5\nconnections = 1000\n"));
    let mut clients: Vec<_> = as_user(ALICE, || (0..50).map(|_| client(&d)).collect());
    let mut done = 0;
    let mut refused = 0;
    for _ in 0..200 {
        for client in &mut clients {
            match client.subscribe(named(&["port"])) {
                Ok(_) => done += 1,
                Err(ClientError::Refused(why)) => {
                    let names_it = why.hint().contains("'subscriptions' in [quota]");
                    assert!(why.is(ErrorCode::NoRoom) && names_it, "{why:?}");
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    // Five connections replace their filters repeatedly.
    assert_eq!((done, refused), (200 * 5, 200 * 45));
    let mut bob = as_user(BOB, || subscribed(&d, &["port"]));
    drop(as_user(BOB, || Port::open_with("vale0:b", &d.options()).unwrap()));
    expect(&mut bob, "port.attached", "vale0:b");
    let mut others: Vec<Client> = Vec::new();
    let mut uid = 71_000;
    let full = loop {
        uid += 1;
        let mut client = as_user(uid, || client(&d));
        match client.subscribe(SubscribeParams::default()) {
            Ok(_) => others.push(client),
            Err(ClientError::Refused(why)) => break why,
            Err(other) => panic!("{other}"),
        }
    };
    assert!(
        others.len() == 112 - 6 && full.is(ErrorCode::NoRoom) && full.message.contains("112 subscriptions"),
        "{full}"
    );
    let roots: Vec<_> = (0..16).map(|_| subscribed(&d, &[])).collect();
    let answer = client(&d).subscribe(SubscribeParams::default());
    assert!(matches!(answer, Err(ClientError::Refused(why)) if why.is(ErrorCode::NoRoom)));
    drop((clients, roots));
    until("there is room again", || client(&d).subscribe(SubscribeParams::default()).is_ok());
}

/// Objective: a subscription continues in a successor, with the next number and the unread events, even after a failed
/// successor. Finally, the end of the daemon is reported.
#[test]
fn a_subscription_continues_in_a_successor() {
    let d = Daemon::start("");
    let mut told = subscribed(&d, &[]);
    let late = silent(&d, json!({"names": ["port.attached", "port.detached", "daemon.continued"]}));
    call(&d, "port.attach", json!({"switch": "vale0", "port": "a"}));
    expect(&mut told, "switch.made", "vale0");
    expect(&mut told, "port.attached", "vale0:a");
    d.is_robbed();
    expect(&mut told, "daemon.handover", "");
    assert!(expect(&mut told, "daemon.handover-failed", "").why.is_some());
    d.is_succeeded();
    expect(&mut told, "daemon.handover", "");
    let continued = expect(&mut told, "daemon.continued", "");
    assert_eq!((continued.sequence, &continued.details["pid"]), (6, &json!(d.id())));
    call(&d, "port.detach", json!({"switch": "vale0", "port": "a"}));
    assert_eq!(expect(&mut told, "port.detached", "vale0:a").sequence, 7);
    assert_eq!(expect(&mut told, "switch.gone", "vale0").sequence, 8);
    call(&d, "port.attach", json!({"switch": "vale0", "port": "null:", "options": {"name": "last"}}));
    assert_eq!(read_to(late, "vale0:last"), (4, 0));
    expect(&mut told, "switch.made", "vale0");
    expect(&mut told, "port.attached", "vale0:last");
    drop(d);
    assert_eq!(expect(&mut told, "daemon.ending", "").why.as_deref(), Some("requested"));
    assert!(matches!(told.next_event(LIMIT), Err(ClientError::Lost { .. })));
}
