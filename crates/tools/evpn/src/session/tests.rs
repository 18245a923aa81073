use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

use netvale_control::types::Mac;

use super::*;

/// Starts a daemon that sends the prepared answers, one per request, and then returns the requests that it has
/// received.
fn daemon(answers: Vec<&'static str>) -> (tempfile::TempDir, JoinHandle<Vec<Value>>) {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join(CONTROL_SOCKET)).unwrap();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let answer = |answer: &str| {
            let request: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            (&stream).write_all(format!("{}\n", answer.replace("ID", &request["id"].to_string())).as_bytes()).unwrap();
            request
        };
        answers.into_iter().map(answer).collect()
    });
    (dir, thread)
}

/// Objective: ports with EVPN are found among other ports; ports with an invalid VNI are skipped.
#[test]
fn ports_with_evpn_are_found_among_others() {
    let (dir, thread) = daemon(vec![concat!(
        r#"{"jsonrpc":"2.0","id":ID,"result":[{"name":"vale0:a","kind":"tap"},{"name":"vale0:vx","kind":"vxlan","#,
        r#""vxlan":{"vni":100,"local":"10.0.0.1","port":4789,"evpn":true,"instance":7}},{"name":"vale0:vy","#,
        r#""vxlan":{"vni":101,"local":"10.0.0.1","port":4789,"evpn":false}},{"name":"vale0:vz","#,
        r#""vxlan":{"vni":16777216,"local":"10.0.0.1","port":4789,"evpn":true}}]}"#
    )]);
    let ports = DaemonSession::connect(dir.path()).unwrap().ports().unwrap();
    let port =
        EvpnPort { name: "vale0:vx".into(), vni: 100, local: IpAddr::from([10, 0, 0, 1]), udp_port: 4789, tunnel: 7 };
    assert_eq!(ports, vec![port]);
    assert_eq!(thread.join().unwrap()[0]["method"], "port.list");
}

/// Objective: a notification before an answer is kept; a request for the list clears it.
#[test]
fn a_notification_before_an_answer_is_kept() {
    let (dir, thread) = daemon(vec![
        "{\"jsonrpc\":\"2.0\",\"method\":\"vxlan.changed\",\"params\":{\"port\":\"vale0:vx\",\"generation\":9}}\n\
         {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}",
        concat!(
            r#"{"jsonrpc":"2.0","id":ID,"result":{"generation":9,"#,
            r#""addresses":[{"mac":"02:00:00:00:00:01","ips":["fe80::1"]}]}}"#
        ),
    ]);
    let mut session = DaemonSession::connect(dir.path()).unwrap();
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    let ip = IpAddr::from([10, 0, 0, 2]);
    let changes = [FeedChange::Flood(ip), FeedChange::Address(mac, ip, true), FeedChange::NoNeighbor(ip)];
    session.set("vale0:vx", true, &changes).unwrap();
    assert!(session.changed().contains("vale0:vx"));
    let local = session.local("vale0:vx", Some(8)).unwrap();
    assert_eq!((local.generation, local.addresses.unwrap()[0].mac), (9, mac));
    assert!(session.changed().is_empty());
    let requests = thread.join().unwrap();
    let expected = serde_json::json!({ "port": "vale0:vx", "replace": true, "flood": { "add": ["10.0.0.2"] },
        "addresses": { "add": [{ "mac": "02:00:00:00:00:01", "vtep": "10.0.0.2", "sticky": true, "sequence": 0 }] },
        "neighbors": { "remove": ["10.0.0.2"] } });
    assert_eq!(requests[0]["params"], expected);
    assert_eq!(requests[1]["params"], serde_json::json!({ "port": "vale0:vx", "watch": true, "since": 8 }));
}

/// Objective: a refusal, a malformed answer and the end of the connection are different errors.
#[test]
fn the_errors_of_a_session_are_distinct() {
    let (dir, thread) = daemon(vec![
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"there is no port vale0:vx"}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"generation":"x"}}"#,
    ]);
    let mut session = DaemonSession::connect(dir.path()).unwrap();
    assert!(matches!(session.local("vale0:vx", None), Err(SessionError::Refused { .. })));
    assert!(matches!(session.local("vale0:vx", None), Err(SessionError::Protocol { .. })));
    thread.join().unwrap();
    assert!(matches!(session.ports(), Err(SessionError::Lost(_))));
    assert!(matches!(DaemonSession::connect(Path::new("/nowhere")), Err(SessionError::Connect { .. })));
}
