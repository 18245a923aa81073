//! Tests of the client against the server side over a real socket, and against peers that misbehave.

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

use super::*;
use crate::error::ErrorCode;
use crate::request::Reply;
use crate::server::{ControlConnection, RequestHandler};
use crate::types::{EventName, KindReply, KindRequest, Mac, PortDetails, PortOptions, VxlanLocal};

/// Answers every method with values from its parameters.
struct Fake;

impl RequestHandler for Fake {
    fn call(&mut self, request: Request) -> Result<Reply, RpcError> {
        let port = |name| Box::new(PortInfo { name, ..PortInfo::default() });
        Ok(match request {
            Request::Version => Reply::Version(Version::current()),
            Request::SwitchList => Reply::Switches(vec![SwitchInfo { name: "vale0".into(), ..SwitchInfo::default() }]),
            Request::SwitchTable(p) => Reply::Table(vec![TableEntry {
                mac: Mac([2, 0, 0, 0, 0, 10]),
                vlan: None,
                port: p.switch,
                age_seconds: 3,
                ..TableEntry::default()
            }]),
            Request::SwitchGroups(_) => Reply::Groups(GroupsInfo { snooping: true, ..GroupsInfo::default() }),
            Request::PortAttach(p) => Reply::Port(port(format!("{}:{}:{}", p.switch, p.port, p.options.rings))),
            Request::PortDetach(p) if p.port == "none" => {
                return Err(RpcError::from_errno(6, "port none does not exist", "list"));
            }
            Request::PortDetach(_)
            | Request::Unsubscribe
            | Request::OfKind(KindRequest::VxlanSet(_) | KindRequest::VdeSet(_))
            | Request::Shutdown => Reply::Done(Confirmation {}),
            Request::OfKind(KindRequest::VxlanLocal(_)) => Reply::OfKind(KindReply::VxlanLocal(VxlanLocal::default())),
            Request::PortSet(p) => {
                Reply::Port(Box::new(PortInfo { name: p.port, policies: p.set, ..PortInfo::default() }))
            }
            // A reply large enough to arrive in many pieces.
            Request::PortList(p) => Reply::Ports(vec![*port(format!("{:?}", p.switch)); 5000]),
            Request::PortShow(p) => Reply::Port(port(p.port)),
            Request::PortEvicted => {
                Reply::Evicted(vec![EvictionInfo { port: "vale0:a".into(), ..EvictionInfo::default() }])
            }
            Request::ConfigApply(p) => Reply::Applied(ApplyResult {
                dry_run: p.dry_run,
                unchanged: p.text.len() as u32,
                ..ApplyResult::default()
            }),
            Request::ConfigExport => {
                Reply::Exported(Box::new(ExportReply { text: "x".into(), ..ExportReply::default() }))
            }
            // The counters come in two replies, which the client joins.
            Request::StatsAll(p) => {
                let (name, next) = if p.after.is_some() { ("b", None) } else { ("a", Some("a".to_owned())) };
                let port = PortDetails { name: name.into(), ..PortDetails::default() };
                Reply::AllStats(Box::new(AllStats { ports: vec![port], next, ..AllStats::default() }))
            }
            Request::Subscribe(_) => Reply::Subscribed(Box::default()),
            Request::TraceBegin(p) => Reply::TraceBegun(TraceBeginReply { ports: p.of }),
            Request::TraceRead => Reply::Traced(TraceRead { lost: 7, ..TraceRead::default() }),
        })
    }
}

/// Runs `serve` on the first connection to a control socket in a new directory, which is removed when the result is
/// dropped.
fn daemon(serve: impl FnOnce(UnixStream) + Send + 'static) -> (tempfile::TempDir, JoinHandle<()>) {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join(CONTROL_SOCKET)).unwrap();
    let thread = std::thread::spawn(move || serve(listener.accept().unwrap().0));
    (dir, thread)
}

fn serve_fake(mut stream: UnixStream) {
    let mut connection = ControlConnection::default();
    let mut bytes = [0; 100];
    while let Ok(n @ 1..) = stream.read(&mut bytes) {
        let out = connection.feed(&bytes[..n], &mut Fake);
        if stream.write_all(&out.bytes).is_err() || out.close {
            return;
        }
    }
}

/// Answers the first request with `bytes`, then closes.
fn answering(bytes: &'static [u8]) -> (tempfile::TempDir, JoinHandle<()>) {
    daemon(move |mut stream| {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(bytes);
    })
}

/// Objective: `daemon_pid` returns the process that listens.
#[test]
fn the_daemons_process_is_the_listening_one() {
    let (dir, thread) = daemon(serve_fake);
    let mut client = Client::connect(dir.path()).unwrap();
    assert_eq!(client.daemon_pid(), Some(std::process::id()));
    drop(client);
    thread.join().unwrap();
}

/// Objective: every method reaches the daemon with its parameters and returns its result; a refusal leaves the
/// connection usable.
#[test]
fn every_method_reaches_the_daemon() {
    let (dir, thread) = daemon(serve_fake);
    let mut client = Client::connect(dir.path()).unwrap();
    assert_eq!(client.version().unwrap().api, 14);
    assert_eq!(client.switches().unwrap()[0].name, "vale0");
    assert_eq!(client.table("vale3").unwrap()[0].port, "vale3");
    let options = PortOptions { rings: 3, ..PortOptions::default() };
    let params = AttachParams { switch: "vale0".into(), port: "tap:x".into(), options };
    assert_eq!(client.attach(params).unwrap().name, "vale0:tap:x:3");
    let refused = client.detach("vale0", "none").unwrap_err();
    assert!(matches!(&refused, ClientError::Refused(e) if e.is(ErrorCode::NotFound)), "{refused}");
    assert_eq!(
        (refused.failure(), refused.to_string().as_str()),
        (ClientErrorKind::Refused, "port none does not exist; list")
    );
    client.detach("vale0", "a").unwrap();
    let ports = client.ports(Some("vale0")).unwrap();
    assert_eq!((ports.len(), ports[4999].name.as_str()), (5000, "Some(\"vale0\")"));
    assert_eq!(client.show("vale0:a").unwrap().name, "vale0:a");
    assert_eq!(client.evicted().unwrap()[0].port, "vale0:a");
    let names = client.all_stats().unwrap().ports.into_iter().map(|port| port.name);
    assert_eq!(names.collect::<Vec<_>>(), ["a", "b"]);
    let asked = ApplyParams { text: "workers = 1".into(), dry_run: true, ..ApplyParams::default() };
    let applied = client.apply(asked).unwrap();
    assert_eq!((applied.dry_run, applied.unchanged, client.export().unwrap().text.as_str()), (true, 11, "x"));
    let of = vec!["vale0:a".to_owned()];
    let traced = TraceBeginParams { of: of.clone(), one_of: 1, ..TraceBeginParams::default() };
    assert_eq!((client.trace_begin(traced).unwrap().ports, client.trace_read().unwrap().lost), (of, 7));
    client.shutdown().unwrap();
    drop(client);
    thread.join().unwrap();
}

/// Objective: without a listener, the error states how to start a daemon, whether the socket is missing or stale.
#[test]
fn a_missing_daemon_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let check = || {
        let error = Client::connect(dir.path()).unwrap_err();
        assert_eq!(error.failure(), ClientErrorKind::Unreachable);
        let wanted = format!("netvale up --run-dir {}", dir.path().display());
        assert!(matches!(error, ClientError::NotRunning { .. }) && error.to_string().contains(&wanted), "{error}");
    };
    check();
    drop(UnixListener::bind(dir.path().join(CONTROL_SOCKET)).unwrap());
    check();
}

/// Objective: a path that is too long for a socket is an error.
#[test]
fn a_path_too_long_for_sockets_is_an_error() {
    let error = Client::connect(Path::new(&format!("/tmp/{}", "x".repeat(200)))).unwrap_err();
    assert!(matches!(error, ClientError::Socket { .. }), "{error}");
}

/// Objective: an answer that does not match the request is distinguished from the end of the daemon.
#[test]
fn a_bad_answer_differs_from_a_gone_daemon() {
    for (bytes, failure) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], ClientErrorKind::Protocol),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{\"name\":\"n\",\"version\":\"v\",\"api\":14}}\n",
            ClientErrorKind::Protocol,
        ),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"name\":7}}\n", ClientErrorKind::Protocol),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1}\n", ClientErrorKind::Protocol),
        (b"\xff\n", ClientErrorKind::Protocol),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"no\"}}\n",
            ClientErrorKind::Refused,
        ),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"res", ClientErrorKind::Unreachable),
        (b"", ClientErrorKind::Unreachable),
    ] {
        let (dir, thread) = answering(bytes);
        let mut client = Client::connect(dir.path()).unwrap();
        let error = client.version().unwrap_err();
        assert_eq!(error.failure(), failure, "{error}");
        thread.join().unwrap();
    }
}

/// Objective: for a daemon older than the list of evicted programs, the list is empty.
#[test]
fn an_older_daemon_lists_no_evicted_programs() {
    let (dir, thread) =
        answering(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"no such method\"}}\n");
    assert_eq!(Client::connect(dir.path()).unwrap().evicted().unwrap(), []);
    thread.join().unwrap();
}

/// Objective: the client gives up on a silent daemon after the limit and does not use the connection again.
#[test]
fn a_silent_daemon_is_given_up() {
    let (dir, thread) = daemon(|mut stream| {
        let mut request = Vec::new();
        // Returns when the client shuts the connection down.
        let _ = stream.read_to_end(&mut request);
    });
    let mut client = Client::connect_within(dir.path(), Duration::from_millis(30)).unwrap();
    assert!(matches!(client.version(), Err(ClientError::Timeout { .. })));
    thread.join().unwrap();
    client.set_timeout(DEFAULT_TIMEOUT);
    assert!(matches!(client.version(), Err(ClientError::Lost { .. })));
}

/// Objective: a daemon that does not accept connections does not block its clients forever.
#[test]
fn a_full_backlog_does_not_block_clients_forever() {
    let dir = tempfile::tempdir().unwrap();
    let fd = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&fd, &SocketAddrUnix::new(dir.path().join(CONTROL_SOCKET)).unwrap()).unwrap();
    rustix::net::listen(&fd, 0).unwrap();
    let mut held = Vec::new();
    let error = loop {
        match Client::connect_within(dir.path(), Duration::from_millis(30)) {
            Ok(client) => held.push(client),
            Err(error) => break error,
        }
        assert!(held.len() < 10, "a backlog of zero holds that many");
    };
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
}

/// Objective: waiting for the daemon's end returns when the daemon ends, and times out if the daemon does not end.
#[test]
fn waiting_for_the_end() {
    let (dir, thread) = daemon(drop);
    Client::connect(dir.path()).unwrap().wait_closed(DEFAULT_TIMEOUT).unwrap();
    thread.join().unwrap();
    let (dir, thread) = daemon(serve_fake);
    let waited = Client::connect(dir.path()).unwrap().wait_closed(Duration::from_millis(20));
    assert!(matches!(waited, Err(ClientError::Timeout { .. })));
    thread.join().unwrap();
}

/// Objective: events arrive in order, whether before an answer, together with it, or alone; other notifications are
/// ignored. If no event arrives within the limit, the wait ends and the connection stays usable; the daemon's end is an
/// error.
#[test]
fn events_arrive_in_order() {
    let event = |sequence: u64| {
        let params = Event { sequence, name: EventName::SwitchMade.as_str().into(), ..Event::default() };
        format!("{}\n", serde_json::json!({"jsonrpc": "2.0", "method": NOTIFICATION, "params": params}))
    };
    let answer =
        |id: u64, result: Value| format!("{}\n", serde_json::json!({"jsonrpc": "2.0", "result": result, "id": id}));
    let (go, told) = std::sync::mpsc::channel::<()>();
    let (dir, thread) = daemon(move |stream| {
        let mut bytes = [0; 1000];
        let mut say = |to_read: bool, text: String| {
            let mut peer = &stream;
            assert!(!to_read || peer.read(&mut bytes).unwrap() > 0);
            peer.write_all(text.as_bytes()).unwrap();
        };
        say(true, answer(1, serde_json::to_value(SubscribeReply::default()).unwrap()) + &event(1));
        let other = r#"{"jsonrpc":"2.0","method":"vxlan.changed","params":{}}"#;
        say(true, event(2) + other + "\n" + &event(3) + &answer(2, serde_json::json!([])) + &event(4));
        told.recv().unwrap();
        say(false, event(5));
    });
    let mut client = Client::connect(dir.path()).unwrap();
    client.subscribe(SubscribeParams::default()).unwrap();
    assert_eq!(client.switches().unwrap(), []);
    let mut next = |limit| client.next_event(limit).map(|event| event.map(|event| event.sequence));
    let long = Duration::from_secs(10);
    let short = Duration::from_millis(5);
    for sequence in 1..=4 {
        assert_eq!(next(long).unwrap(), Some(sequence));
    }
    assert_eq!(next(short).unwrap(), None);
    go.send(()).unwrap();
    assert_eq!(next(long).unwrap(), Some(5));
    assert!(matches!(next(long), Err(ClientError::Lost { .. })));
    thread.join().unwrap();
}
