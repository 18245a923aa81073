//! Ports, switches and pipes whose names contain `-` or `.`, or do not begin with `vale`.

use crate::common;

use std::os::fd::AsFd;

use common::{Daemon, frame, receive, send};
use netvale::{Error, Options, Port};
use netvale_abi::nmreq::{NETMAP_REQ_PORT_INFO_GET, NETMAP_REQ_VALE_LIST};
use netvale_control::attach::{AttachRequest, FLAG_NETMAP};
use netvale_control::device::{DeviceReply, DeviceRequest};
use rustix::process::Signal;
use serde_json::{Value, json};

fn attach(d: &Daemon, switch: &str, port: &str) -> Value {
    d.call("port.attach", json!({"switch": switch, "port": port}))
}

fn refusal(opened: Result<Port, Error>) -> String {
    match opened {
        Ok(port) => panic!("{} was opened", port.name()),
        Err(why) => why.to_string(),
    }
}

fn request(d: &Daemon, reqtype: u16, name: &str) -> DeviceReply {
    let request = DeviceRequest { reqtype, name: name.into(), ..DeviceRequest::default() };
    let connection = netvale::raw::connect_to(Some(d.dir())).unwrap();
    netvale::raw::request(connection.as_fd(), &request).unwrap()
}

/// Objective: switches and ports may have any name of permitted characters, and can be opened, queried and detached by
/// that name; frames pass between them.
#[test]
fn switches_and_ports_may_have_any_name() {
    let d = Daemon::start("");
    for port in ["web-1", "my.port", "-1", "web 1", "ä", "", "--", ".", "..", "'a'b"] {
        let is_good = port.ends_with("-1") && port.len() > 2 || port == "my.port";
        assert_eq!(attach(&d, "br-lab", port)["result"].is_object(), is_good, "{port}");
    }
    for switch in ["tap", "netmap", "nv", "null", "-a", "a b", "", "..", "'lan'"] {
        assert!(attach(&d, switch, "a")["error"].is_object(), "{switch}");
    }
    assert_eq!(d.ports(), ["br-lab:my.port", "br-lab:web-1"]);
    let [mut a, mut b] = d.opened(["br-lab:web-1", "br-lab:'my.port'"]);
    send(&mut a, &frame(255, 1, 7));
    assert_eq!(receive(&mut b)[14], 7);
    for name in ["br-lab:web-1", "br-lab:'web-1'"] {
        assert_eq!(d.show(name)["name"], "br-lab:web-1");
    }
    let table = d.call("switch.table", json!({"switch": "br-lab"}));
    assert_eq!(table["result"][0]["port"], "br-lab:web-1");
    let longest = format!("{}:{}", "s".repeat(31), "p".repeat(31));
    assert!(d.open(&longest).is_ok() && matches!(d.open(&format!("{longest}p")), Err(Error::Name(_))));
    drop((a, b));
    d.call("port.detach", json!({"switch": "br-lab", "port": "web-1"}));
    d.call("port.detach", json!({"switch": "br-lab", "port": "br-lab:my.port"}));
    assert!(d.ports().is_empty());
}

/// Objective: a number at the end of a name is the number of a ring, unless a port or a pipe has the whole name; quotes
/// remove the ambiguity.
#[test]
fn whole_names_win() {
    let d = Daemon::start("");
    let one_ring = Options { rings: 2, ..d.options() };
    let ring = Port::open_with("vale0:web-1", &one_ring).unwrap();
    assert_eq!((d.ports(), ring.info().tx_bound.clone()), (vec!["vale0:web".to_owned()], 1..2));
    let _quoted = d.open("vale0:'web-1'").unwrap();
    assert_eq!(d.ports(), ["vale0:web", "vale0:web-1"]);
    assert!(refusal(d.open("vale0:web-1")).contains("vale0:web-1 is already open"));
    assert!(refusal(d.open("vale0:'web'-1")).contains("vale0:web is already open"));
    let [_other, _monitor] = d.opened(["vale0:'web'-0", "vale0:web-1/r"]);
    assert!(d.ports().iter().any(|name| name.starts_with("vale0:web-1/monitor-")), "{:?}", d.ports());
    let [_master, _slave] = d.opened(["netmap:p{'x-1'", "netmap:p}'x-1'"]);
    assert!(refusal(d.open("netmap:p}x-1")).contains("netmap:p{x-1 is already open"));
}

/// Objective: in a netmap program's request, a number at the end of a name always selects a ring.
#[test]
fn netmap_means_rings() {
    let d = Daemon::start("");
    attach(&d, "vale0", "web-1");
    let made = d.call("port.attach", json!({"switch": "vale0", "port": "web", "options": {"rings": 2}}));
    assert_eq!(made["result"]["name"], "vale0:web", "{made}");
    let bound = |name: &str, flags| {
        let connection = netvale::raw::connect_to(Some(d.dir())).unwrap();
        let request = AttachRequest { name: name.into(), flags, ..AttachRequest::default() };
        let reply = netvale::raw::attach(connection.as_fd(), &request).unwrap().reply;
        (reply.tx_rings, reply.tx_bound)
    };
    assert_eq!(bound("vale0:web-1", FLAG_NETMAP), (2, 1..2));
    assert_eq!(bound("vale0:'web-1'", FLAG_NETMAP), (1, 0..1));
    assert_eq!(bound("vale0:web-1", 0), (1, 0..1));
}

/// Objective: the name `valelan` also denotes the switch `lan`, in every kind of name; netmap programs get names that
/// they can open.
#[test]
fn a_switch_has_an_alias_in_netmaps_style() {
    let d = Daemon::start("");
    assert_eq!(attach(&d, "lan", "web-1")["result"]["name"], "lan:web-1");
    assert_eq!(attach(&d, "valelan", "b")["result"]["name"], "lan:b");
    assert_eq!(attach(&d, "valelan", "valelan:c")["result"]["name"], "lan:c");
    let stranger = attach(&d, "lan", "other:x")["error"]["message"].to_string();
    assert!(stranger.contains("invalid port other:x: expected a port of switch lan"), "{stranger}");
    let _port = d.open("valelan:d").unwrap();
    assert_eq!(d.ports(), ["lan:b", "lan:c", "lan:d", "lan:web-1"]);
    assert_eq!(d.show("valelan:web-1")["name"], "lan:web-1");
    assert_eq!(d.call("port.list", json!({"switch": "valelan"}))["result"].as_array().unwrap().len(), 4);
    let traced = d.call("trace.begin", json!({"of": ["valelan"]}));
    assert_eq!(traced["result"]["ports"].as_array().unwrap().len(), 4);
    assert_eq!(request(&d, NETMAP_REQ_PORT_INFO_GET, "valelan:web-1").status, 0);
    assert_eq!(request(&d, NETMAP_REQ_VALE_LIST, "").name, "valelan:web-1");
    assert_eq!(request(&d, NETMAP_REQ_VALE_LIST, "lan:b").name, "valelan:b");
    d.call("port.detach", json!({"switch": "valelan", "port": "b"}));
    d.call("port.detach", json!({"switch": "valelan", "port": "lan:c"}));
    assert_eq!(d.ports(), ["lan:d", "lan:web-1"]);
}

/// Objective: a switch whose own name is the alias, whether it exists or is configured, takes precedence over the
/// alias.
#[test]
fn real_names_come_before_aliases() {
    let d = Daemon::start("[switch]\nshared = ['valecfg', 'later']\n");
    let _first = d.open("valelan:a").unwrap();
    attach(&d, "lan", "b");
    let _second = d.open("valelan:c").unwrap();
    attach(&d, "cfg", "b");
    let [_third, _fourth] = d.opened(["valecfg:c", "valelater:c"]);
    assert_eq!(d.ports(), ["cfg:b", "lan:b", "later:c", "valecfg:c", "valelan:a", "valelan:c"]);
}

/// Objective: if a request names a switch where a port is expected, or a port where a switch is expected, the refusal
/// says so, and differs from the refusal for a missing port or switch.
#[test]
fn a_misplaced_switch_or_port_is_named() {
    let d = Daemon::start("");
    attach(&d, "vale7", "a");
    let said = |method: &str, params: Value| d.call(method, params)["error"].to_string();
    for (method, params) in [
        ("port.show", json!({"port": "vale7"})),
        ("port.set", json!({"port": "vale7", "set": {}})),
        ("vxlan.local", json!({"port": "vale7"})),
    ] {
        let said = said(method, params);
        assert!(said.contains("found the switch vale7") && said.contains("netvale list vale7"), "{method}: {said}");
    }
    assert!(said("port.show", json!({"port": "vale8"})).contains("port vale8 does not exist"));
    let said = attach(&d, "vale7:foo", "null:").to_string();
    assert!(said.contains("found the port vale7:foo") && said.contains("name to foo"), "{said}");
    let said = attach(&d, "vale7", "tpa:x").to_string();
    assert!(said.contains("invalid port tpa:x: expected a port of switch vale7"), "{said}");
}

const FILE: &str = "[[port]]\nswitch = 'lan'\nport = 'web-1'\n[[port]]\nswitch = 'br-lab'\nport = 'null:my.sink-2'\n\
                    [[port]]\nswitch = 'vale0'\nport = 'echo:'\nname = 'e-1'\n";

/// Objective: a configuration with such names is exported unchanged, and applying the exported file changes nothing.
#[test]
fn configured_names_are_exported_as_they_are() {
    let d = Daemon::start(FILE);
    let all = ["br-lab:my.sink-2", "lan:web-1", "vale0:e-1"];
    assert_eq!(d.ports(), all);
    let text = d.exports(3);
    assert_eq!(d.ports(), all);
    let fewer = text.replace("web-1", "web-2");
    let changed = d.call("config.apply", json!({"text": fewer}));
    assert_eq!(changed["result"]["changes"].as_array().unwrap().len(), 2, "{changed}");
    assert_eq!(d.ports(), ["br-lab:my.sink-2", "lan:web-2", "vale0:e-1"]);
}

/// Objective: names are the same in the next daemon, after an upgrade or a restart, and the programs at the ports
/// continue.
#[test]
fn names_are_the_same_in_the_next_daemon() {
    let d = Daemon::managed(FILE);
    let [mut a, mut b] = d.opened(["lan:web-1", "valelan:c.d-e"]);
    let all = ["br-lab:my.sink-2", "lan:c.d-e", "lan:web-1", "vale0:e-1"];
    for round in 0..3 {
        send(&mut a, &frame(255, 1, round));
        assert_eq!(receive(&mut b)[14], round);
        assert_eq!(d.ports(), all);
        if round == 0 { d.is_succeeded() } else { d.is_restarted(Signal::KILL, || ()) }
    }
}
