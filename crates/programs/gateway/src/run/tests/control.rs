//! Tests of rules with names and of changes while a gateway runs.

use serde_json::{Value, json};

use super::*;
use crate::control::message::ControlRequest;
use crate::core::{FlowRefusal, FlowReview, PermittedFlow};
use crate::flows::{FlowDirection, FlowEnds};
use crate::guests::NetworkId;
use crate::policy::FlowTransport;
use crate::resolved::ResolvedAddress;

const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 8];

fn rules(texts: &[&str]) -> impl FnOnce(&mut GatewayOptions) {
    let rules: Vec<EgressRule> = texts.iter().map(|text| text.parse().unwrap()).collect();
    move |options| options.policy.set(rules)
}

impl TestGuest {
    fn obey(&mut self, request: Value) -> Result<Value, String> {
        let request: ControlRequest = serde_json::from_value(request).unwrap();
        self.gateway.obey(request)
    }

    fn ended(&mut self, request: Value) -> u64 {
        self.obey(request).unwrap()["ended"].as_u64().unwrap()
    }

    /// Records that a guest has resolved a name to an address.
    fn resolve(&mut self, mac: [u8; 6], name: &str, address: [u8; 4]) {
        let address = ResolvedAddress { address: address.into(), ttl: 60 };
        let now = self.gateway.core.now;
        self.gateway.core.resolved.record(NetworkId::UNTAGGED.station(MacAddr(mac)), name, &[address], now);
    }

    fn judge(&self, mac: [u8; 6], remote: &str) -> Result<PermittedFlow, FlowRefusal> {
        self.gateway.core.judge(&ends(mac, remote))
    }
}

fn ends(mac: [u8; 6], remote: &str) -> FlowEnds {
    FlowEnds {
        transport: FlowTransport::Tcp,
        direction: FlowDirection::Out,
        who: NetworkId::UNTAGGED.station(MacAddr(mac)),
        guest: (GUEST, 4000).into(),
        remote: remote.parse().unwrap(),
    }
}

#[test]
fn a_name_opens_its_addresses_to_the_guest_that_asked() {
    let mut guest = TestGuest::new(rules(&["deny any", "allow example.test:443/tcp"]));
    assert_eq!(guest.judge(GUEST_MAC, "192.0.2.7:443"), Err(FlowRefusal::Policy));
    guest.resolve(GUEST_MAC, "example.test", [192, 0, 2, 7]);
    guest.resolve(GUEST_MAC, "other.test", [192, 0, 2, 7]);
    let permitted = guest.judge(GUEST_MAC, "192.0.2.7:443").unwrap();
    assert_eq!(
        (permitted.name.as_deref(), permitted.outer.to_string().as_str()),
        (Some("example.test"), "192.0.2.7:443")
    );
    assert_eq!(guest.judge(GUEST_MAC, "192.0.2.7:80"), Err(FlowRefusal::Policy), "another port");
    assert_eq!(guest.judge(GUEST_MAC, "192.0.2.8:443"), Err(FlowRefusal::Policy), "another address");
    assert_eq!(guest.judge(OTHER_MAC, "192.0.2.7:443"), Err(FlowRefusal::Policy), "another guest");
}

#[test]
fn an_open_flow_outlives_the_time_of_its_name() {
    let mut guest = TestGuest::new(rules(&["deny any", "allow example.test"]));
    guest.resolve(GUEST_MAC, "example.test", [192, 0, 2, 7]);
    let name = guest.judge(GUEST_MAC, "192.0.2.7:443").unwrap().name;
    guest.gateway.core.now += Duration::from_secs(3600);
    assert_eq!(guest.judge(GUEST_MAC, "192.0.2.7:443"), Err(FlowRefusal::Policy), "a new flow has to ask again");
    let goes_on = |guest: &TestGuest| {
        guest.gateway.core.permits(&mut FlowReview::default(), &ends(GUEST_MAC, "192.0.2.7:443"), name.as_ref())
    };
    assert!(goes_on(&guest));
    guest.ended(json!({"do": "remove", "rule": "allow example.test"}));
    assert!(!goes_on(&guest));
}

#[test]
fn a_name_opens_neither_the_host_nor_its_networks() {
    let mut guest = TestGuest::new(rules(&["allow example.test"]));
    for address in [[10, 0, 0, 1], [127, 0, 0, 1], [10, 9, 9, 9], [169, 254, 169, 254]] {
        guest.resolve(GUEST_MAC, "example.test", address);
        let remote = format!("{}:443", Ipv4Addr::from(address));
        assert_eq!(guest.judge(GUEST_MAC, &remote), Err(FlowRefusal::Policy), "{remote}");
    }
    guest.ended(json!({"do": "allow", "rule": "10.9.9.9:443"}));
    assert!(guest.judge(GUEST_MAC, "10.9.9.9:443").is_ok());
}

#[test]
fn names_that_no_rule_allows_are_refused_while_nothing_is_open() {
    let mut guest = TestGuest::new(|options| {
        rules(&["deny any", "allow 192.0.2.0/24"])(options);
        options.leases = vec!["02:00:00:00:00:09=10.0.0.9,vm9".parse().unwrap()];
    });
    let ask = |guest: &mut TestGuest, name: &str| {
        let question = crate::dns::message::tests::query_bytes(5, name, 1);
        guest.say(OWN, Make::Udp { ports: [4000, 53], payload: &question });
        guest.wait_packet("an answer", UDP).l4[8 + 3] & 0xf
    };
    assert_eq!(ask(&mut guest, "secret.example.com"), 5);
    assert_eq!(ask(&mut guest, "vm9.lan"), 0);
    let stats = guest.obey(json!({"do": "stats"})).unwrap();
    assert_eq!((&stats["refused"], &stats["opened"]), (&1.into(), &0.into()));
}

#[test]
fn a_change_of_rules_resets_what_they_no_longer_allow() {
    let servers: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let mut guest = TestGuest::new(allow_loopback);
    let ports: Vec<u16> = servers.iter().map(|server| server.local_addr().unwrap().port()).collect();
    for (at, port) in ports.iter().enumerate() {
        guest.connect(OWN, [4000 + at as u16, *port]);
    }
    let clients: Vec<_> = servers.iter().map(|server| server.accept().unwrap().0).collect();
    guest.gateway.turn(&mut guest.ready, Duration::ZERO).unwrap();
    let flows = guest.obey(json!({"do": "flows"})).unwrap();
    assert_eq!((flows["flows"].as_array().unwrap().len(), &flows["more"]), (2, &0.into()));
    let rule = format!("127.0.0.1:{}/tcp", ports[0]);
    assert_eq!(guest.ended(json!({"do": "deny", "rule": rule})), 1);
    assert_eq!(guest.ended(json!({"do": "deny", "rule": rule})), 0);
    let reset = guest.wait_segment("a reset");
    assert_eq!(reset.flags & RST, RST);
    let end = (&clients[0]).read(&mut [0; 1]).unwrap_err();
    assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset, "the reset is there when the answer is");
    clients[1].set_nonblocking(true).unwrap();
    let open = (&clients[1]).read(&mut [0; 1]).unwrap_err();
    assert_eq!(open.kind(), std::io::ErrorKind::WouldBlock, "the other connection goes on");
    let flows = guest.obey(json!({"do": "flows"})).unwrap();
    assert_eq!(flows["flows"][0]["remote"], format!("10.0.0.1:{}", ports[1]));
    assert_eq!(guest.ended(json!({"do": "remove", "rule": "allow 127.0.0.0/8"})), 1);
    assert!(guest.obey(json!({"do": "remove", "rule": "allow 127.0.0.0/8"})).is_err());
}

#[test]
fn a_change_of_rules_closes_datagrams_ways() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let mut guest = TestGuest::new(allow_loopback);
    guest.say(OWN, Make::Udp { ports: [4000, port], payload: b"question" });
    server.set_nonblocking(true).unwrap();
    let mut from = None;
    guest.until("a datagram", || {
        from = from.or_else(|| server.recv_from(&mut [0; 9]).ok());
        from.is_some()
    });
    assert_eq!(guest.ended(json!({"do": "set-rules", "rules": []})), 1);
    let closed = UdpSocket::bind(from.unwrap().1).map(|_| ());
    assert!(closed.is_ok(), "the host's port is free again");
    guest.say(OWN, Make::Udp { ports: [4000, port], payload: b"question" });
    assert_eq!(guest.wait_packet("an error", ICMP).l4[..2], [3, 3]);
}

#[test]
fn rules_are_set_all_or_none() {
    let mut guest = TestGuest::new(rules(&["deny any"]));
    let listed = |guest: &mut TestGuest| guest.obey(json!({"do": "rules"})).unwrap()["rules"].clone();
    let error = guest.obey(json!({"do": "set-rules", "rules": ["allow any", "allow all"]})).unwrap_err();
    assert!(error.contains("\"all\""), "{error}");
    assert_eq!(listed(&mut guest), json!(["deny any"]));
    guest.ended(json!({"do": "set-rules", "rules": ["deny 10.9.9.9/8", "allow Example.Test:443"]}));
    assert_eq!(listed(&mut guest), json!(["deny 10.0.0.0/8", "allow example.test:443"]));
}

#[test]
fn ports_are_published_and_closed_while_the_gateway_runs() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let rule = format!("127.0.0.1:{port}:10.0.0.9:22");
    let mut guest = TestGuest::new(|_| ());
    guest.obey(json!({"do": "publish", "rule": rule})).unwrap();
    assert_eq!(guest.obey(json!({"do": "published"})).unwrap(), json!({"published": [rule]}));
    assert!(guest.obey(json!({"do": "publish", "rule": rule})).unwrap_err().contains("cannot publish"));
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    guest.obey(json!({"do": "unpublish", "rule": port.to_string()})).unwrap();
    assert_eq!(TcpStream::connect(("127.0.0.1", port)).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(guest.obey(json!({"do": "unpublish", "rule": rule})).is_err());
    assert_eq!(guest.obey(json!({"do": "published"})).unwrap(), json!({"published": []}));
}

/// Objective: requests arrive through the socket, whether one write holds several requests or one request takes several
/// writes; a client that follows the log first gets its answer, and then the events.
#[test]
fn clients_ask_and_follow_through_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let mut guest = TestGuest::new(|options| options.control = Some(path.clone()));
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    client.set_nonblocking(true).unwrap();
    let mut got = Vec::new();
    let mut lines = |guest: &mut TestGuest, count: usize| {
        let ended = |got: &[u8]| got.iter().filter(|byte| **byte == b'\n').count() >= count;
        guest.until("answers", || {
            let mut bytes = [0; 4096];
            let count = (&client).read(&mut bytes).unwrap_or(0);
            got.extend_from_slice(&bytes[..count]);
            ended(&got)
        });
        let text = String::from_utf8(std::mem::take(&mut got)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    (&client).write_all(b"{\"do\":\"rules\"}\n\nnonsense\n{\"do\":\"fol").unwrap();
    let answers = lines(&mut guest, 3);
    assert_eq!(answers[0], json!({"ok": {"rules": []}}));
    assert!(answers[1..].iter().all(|answer| answer["error"].is_string()));
    (&client).write_all(b"low\"}\n").unwrap();
    assert_eq!(lines(&mut guest, 1), [json!({"ok": {}})]);
    guest.say([10, 9, 9, 9], Make::Tcp { ports: [4000, 80], seq: 999, ack: 0, flags: SYN, payload: b"" });
    let event = lines(&mut guest, 1);
    assert_eq!((&event[0]["event"], &event[0]["remote"]), (&"refused".into(), &"10.9.9.9:80".into()));
    client.flush().unwrap();
    drop(guest);
    assert!(!path.exists());
}

/// Objective: limits that are set while flows are open apply to them: a download continues at the guest's rate without
/// loss, and new flows in excess of the rate are refused with the reason; once the rules are removed, no flow is
/// limited.
#[test]
fn limits_change_while_a_connection_is_open() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let mut guest = TestGuest::new(allow_loopback);
    let ports = [4000, port];
    let first = guest.connect(OWN, ports);
    let (mut client, _) = server.accept().unwrap();
    assert_eq!(guest.ended(json!({"do": "limit", "rule": "sent 80kbit received 80kbit new 1/s"})), 0);
    let begun = Instant::now();
    client.write_all(&[7; 20_000]).unwrap();
    let mut end = first;
    while end < first + 20_000 {
        let segment = guest.wait_segment("a part");
        assert_eq!(segment.seq, end, "in order");
        assert!(segment.payload.iter().all(|byte| *byte == 7));
        end += segment.payload.len() as u32;
        guest.say(OWN, Make::Tcp { ports, seq: 1000, ack: end, flags: ACK, payload: b"" });
    }
    // 16 KiB pass as a burst; the other 3,616 bytes take some 360 ms at 10,000 bytes per second.
    assert!(begun.elapsed() > Duration::from_millis(250), "{:?}", begun.elapsed());
    guest.connect(OWN, [4001, port]);
    guest.say(OWN, Make::Tcp { ports: [4002, port], seq: 999, ack: 0, flags: SYN, payload: b"" });
    assert_eq!(guest.wait_segment("a reset").flags & RST, RST);
    let stats = guest.obey(json!({"do": "stats"})).unwrap();
    assert_eq!(stats["reasons"], json!({"rate": 1}));
    assert!(stats["waits"].as_u64() > Some(0));
    let flows = guest.obey(json!({"do": "flows"})).unwrap();
    assert!(flows["flows"].as_array().unwrap().iter().any(|flow| flow["waited"].as_f64() > Some(0.2)));
    assert_eq!(guest.ended(json!({"do": "remove", "rule": "limit"})), 0);
    guest.connect(OWN, [4003, port]);
}

#[test]
fn what_a_guest_sends_beyond_its_rate_waits_or_is_dropped() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let [port, udp] = [server.local_addr().unwrap().port(), datagrams.local_addr().unwrap().port()];
    let mut guest = TestGuest::new(|options| {
        allow_loopback(options);
        options.rates.add("02:00:00:00:00:09 sent 80kbit".parse().unwrap());
    });
    let ports = [4000, port];
    let first = guest.connect(OWN, ports);
    let (mut client, _) = server.accept().unwrap();
    for at in 0..20 {
        let seq = 1000 + at * 1000;
        guest.say(OWN, Make::Tcp { ports, seq, ack: first, flags: ACK | PSH, payload: &[9; 1000] });
    }
    client.set_nonblocking(true).unwrap();
    let mut got = 0;
    let mut bytes = [0; 4096];
    let begun = Instant::now();
    guest.until("all bytes", || {
        got += client.read(&mut bytes).unwrap_or(0);
        got == 20_000
    });
    assert!(begun.elapsed() > Duration::from_millis(250), "{:?}", begun.elapsed());
    for _ in 0..40 {
        guest.say(OWN, Make::Udp { ports: [4001, udp], payload: &[1; 1000] });
    }
    guest.gateway.turn(&mut guest.ready, Duration::ZERO).unwrap();
    let passed = std::iter::from_fn(|| datagrams.recv(&mut bytes).ok()).count();
    assert!((10..25).contains(&passed), "a burst: {passed}");
    let stats = guest.obey(json!({"do": "stats"})).unwrap();
    assert_eq!(stats["dropped"], 40 - passed);
    let flows = guest.obey(json!({"do": "flows"})).unwrap();
    assert!(flows["flows"].as_array().unwrap().iter().any(|flow| flow["dropped"] == 40 - passed));
}

#[test]
fn limits_are_rules_among_the_others() {
    let mut guest = TestGuest::new(rules(&["deny any"]));
    guest.ended(json!({"do": "limit", "rule": "open 5"}));
    guest.ended(json!({"do": "limit", "rule": "02:00:00:00:00:09 received 1mbit"}));
    guest.ended(json!({"do": "limit", "rule": "open 6"}));
    let listed = guest.obey(json!({"do": "rules"})).unwrap();
    assert_eq!(listed["rules"], json!(["deny any", "limit open 6", "limit 02:00:00:00:00:09 received 1mbit"]));
    assert_eq!(guest.ended(json!({"do": "set-rules", "rules": listed["rules"]})), 0);
    assert_eq!(guest.obey(json!({"do": "rules"})).unwrap(), listed);
    for bad in ["limit @vm7", "limit 02:00:00:00:00:08", "limits"] {
        assert!(guest.obey(json!({"do": "remove", "rule": bad})).is_err(), "{bad}");
    }
    for bad in [json!(["limit"]), json!(["deny any", "limit sent"]), json!(["permit any"])] {
        assert!(guest.obey(json!({"do": "set-rules", "rules": bad})).is_err());
    }
    assert_eq!(guest.obey(json!({"do": "rules"})).unwrap(), listed, "what is refused changes nothing");
    guest.ended(json!({"do": "set-rules", "rules": ["deny any"]}));
    assert_eq!(guest.obey(json!({"do": "rules"})).unwrap()["rules"], json!(["deny any"]));
}

/// Objective: connections that wait for their guest's rate buffer at most the guest's limit of bytes plus two segments
/// per connection, even if larger windows were offered before.
#[test]
fn connections_that_wait_respect_the_limit_of_buffered_bytes() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let mut guest = TestGuest::new(|options| {
        allow_loopback(options);
        options.limits.bytes = 40_000;
        options.rates.add("sent 80kbit".parse().unwrap());
    });
    let connected = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| ([4000 + n, port], guest.connect(OWN, [4000 + n, port])));
    for (ports, first) in connected {
        for at in 0..40 {
            let seq = 1000 + at * 1000;
            guest.say(OWN, Make::Tcp { ports, seq, ack: first, flags: ACK | PSH, payload: &[9; 1000] });
        }
        guest.gateway.turn(&mut guest.ready, Duration::ZERO).unwrap();
    }
    let flows = guest.obey(json!({"do": "flows"})).unwrap();
    let taken: u64 = flows["flows"].as_array().unwrap().iter().map(|flow| flow["sent"].as_u64().unwrap()).sum();
    // At most the sum of the burst, the limit of bytes, two segments per connection, and the bytes that pass during the
    // test.
    assert!((40_000..16_384 + 40_000 + 8 * 2 * 1460 + 20_000).contains(&taken), "{taken} of 320,000");
}

#[test]
fn a_limit_is_replaced_also_in_a_full_list() {
    let mut guest = TestGuest::new(rules(&[]));
    let ports = |n: usize| format!("deny 192.0.2.1:{}", n + 1);
    let all: Vec<_> = (1..crate::policy::MAX_RULES).map(ports).chain(["limit open 5".to_owned()]).collect();
    guest.ended(json!({"do": "set-rules", "rules": all}));
    assert_eq!(guest.ended(json!({"do": "limit", "rule": "open 6"})), 0);
    assert!(guest.obey(json!({"do": "limit", "rule": "@vm7 open 6"})).is_err());
}
