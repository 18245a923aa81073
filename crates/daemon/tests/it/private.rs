//! Private ports: each of them gets a VLAN that no other port on its switch has.

use crate::common;

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::net::UnixStream;

use common::ports::attach;
use common::{Daemon, frame, receive, sum, until};
use serde_json::{Value, json};

fn vlan(d: &Daemon, port: &str) -> u64 {
    d.show(port)["policies"]["access"].as_u64().unwrap_or_default()
}

fn set(d: &Daemon, port: &str, set: Value) -> Value {
    d.call("port.set", json!({"port": port, "set": set}))
}

/// Objective: private ports get VLANs that neither other ports nor trunks have; a trunk of all VLANs is ignored; a VLAN
/// that has become free is not immediately reused.
#[test]
fn private_ports_have_vlans_that_nobody_else_has() {
    let d = Daemon::start("");
    attach(&d, "null:uplink", json!({"trunk": "2-3", "native": 4}));
    attach(&d, "null:gateway", json!({"trunk": "all", "native": 1}));
    attach(&d, "null:office", json!({"access": 5}));
    for (port, wanted) in [("a", 6), ("b", 7)] {
        attach(&d, &format!("null:{port}"), json!({"private": true}));
        assert_eq!(vlan(&d, &format!("vale0:{port}")), wanted, "{port}");
    }
    d.call("port.detach", json!({"switch": "vale0", "port": "a"}));
    attach(&d, "null:c", json!({"private": true}));
    assert_eq!(vlan(&d, "vale0:c"), 8);
    attach(&d, "null:d", json!({"private": true, "access": 99}));
    assert_eq!(vlan(&d, "vale0:d"), 99);
    let refused = set(&d, "vale0:c", json!({"trunk": "9"}));
    assert!(refused["error"]["message"].as_str().unwrap().contains("private"), "{refused}");
}

/// Objective: the order of a file's ports does not matter: no private port gets a VLAN that another port of the file
/// names, neither when the daemon starts nor when a file is applied.
#[test]
fn ports_of_a_file_may_name_vlans_after_private_ports() {
    let port = |name: &str, policies: &str| format!("[[port]]\nswitch = 'vale0'\nport = 'null:{name}'\n{policies}\n");
    let ports = [port("a", "private = true"), port("b", "access = 2"), port("c", "trunk = '3-4'\nnative = 5")].concat();
    let d = Daemon::start(&ports);
    assert_eq!(["a", "b"].map(|name| vlan(&d, &format!("vale0:{name}"))), [6, 2]);
    let e = Daemon::start("");
    attach(&e, "null:d", json!({}));
    let own = format!("run_dir = {:?}\nsandbox = false\n", e.dir());
    let text = own + &port("d", "private = true") + &ports;
    let applied = e.call("config.apply", json!({"text": text, "file": "f.toml", "prune": true}));
    assert!(applied["error"].is_null(), "{applied}");
    assert_eq!(["d", "a", "b"].map(|name| vlan(&e, &format!("vale0:{name}"))), [6, 7, 2]);
}

/// Objective: no later port, and no change of an earlier port, joins a VLAN that was picked for a private port. A VLAN
/// that the private port's owner has chosen may be shared.
#[test]
fn a_picked_vlan_is_refused_to_others() {
    let d = Daemon::start("");
    attach(&d, "null:uplink", json!({"trunk": "20-29"}));
    attach(&d, "null:a", json!({"private": true}));
    attach(&d, "null:b", json!({"private": true, "access": 10}));
    let picked = vlan(&d, "vale0:a");
    let around = format!("{}-{}", picked, picked + 3);
    for policies in
        [json!({"access": picked}), json!({"access": picked, "private": true}), json!({"trunk": around, "native": 30})]
    {
        let changed = set(&d, "vale0:uplink", policies.clone());
        let added = d.call("port.attach", json!({"switch": "vale0", "port": "null:new", "options": policies}));
        for refused in [changed, added] {
            let message = refused["error"]["message"].as_str().unwrap_or_default().to_owned();
            assert!(message.contains(&format!("VLAN {picked}: expected one that is not")), "{policies}: {refused}");
        }
    }
    assert_eq!(d.show("vale0:uplink")["policies"], json!({"trunk": "20-29"}));
    attach(&d, "null:shared", json!({"access": 10}));
    attach(&d, "null:gateway", json!({"trunk": "all", "native": 1}));
    assert!(set(&d, "vale0:a", json!({"isolated": true}))["error"].is_null());
    assert_eq!(vlan(&d, "vale0:a"), picked);
}

/// Objective: changes of other policies do not change the port's VLAN; after `private` is reset, the port has its
/// original VLAN settings.
#[test]
fn a_vlan_stays_until_the_port_is_private_no_more() {
    let d = Daemon::start("");
    attach(&d, "null:a", json!({}));
    attach(&d, "null:b", json!({"private": true}));
    let before = vlan(&d, "vale0:b");
    assert!(before > 1);
    for policies in [json!({"isolated": true}), json!({"private": true}), json!({"access": null})] {
        assert!(set(&d, "vale0:b", policies)["error"].is_null());
        assert_eq!(vlan(&d, "vale0:b"), before);
    }
    assert!(set(&d, "vale0:a", json!({"private": true}))["error"].is_null());
    assert!(![0, 1, before].contains(&vlan(&d, "vale0:a")));
    assert!(set(&d, "vale0:b", json!({"private": null}))["error"].is_null());
    assert_eq!(d.show("vale0:b")["policies"], json!({"isolated": true}));
}

/// Objective: an exported file contains no VLANs that the daemon has picked, and changes nothing when it is applied; a
/// successor keeps these VLANs, and picks other VLANs for new ports.
#[test]
fn picked_vlans_survive_files_and_successors() {
    let d = Daemon::start("");
    attach(&d, "null:a", json!({"private": true}));
    attach(&d, "null:b", json!({"private": true}));
    assert!(set(&d, "vale0:b", json!({"isolated": true}))["error"].is_null());
    let vlans = || ["vale0:a", "vale0:b"].map(|port| vlan(&d, port));
    let before = vlans();
    let text = d.call("config.export", json!({}))["result"]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("private = true") && !text.contains("access"), "{text}");
    let applied = d.call("config.apply", json!({"text": text, "file": "f.toml"}));
    assert_eq!(applied["result"]["changes"], json!([]), "{applied}");
    d.is_succeeded();
    assert_eq!(vlans(), before);
    attach(&d, "null:c", json!({"private": true}));
    assert!(!before.contains(&vlan(&d, "vale0:c")));
    let again = d.call("config.export", json!({}))["result"]["text"].as_str().unwrap().to_owned();
    assert!(!again.contains("access"), "{again}");
}

/// Objective: each peer of a listening socket gets a separate private port: no peer receives frames of another peer,
/// and a trunk receives the frames of all peers with their tags.
#[test]
fn each_peer_of_a_socket_has_a_private_port_of_its_own() {
    let d = Daemon::start("");
    attach(&d, "gateway", json!({"trunk": "all", "native": 1}));
    let mut gateway = d.open("vale0:gateway").unwrap();
    let path = d.path("lab.sock");
    attach(&d, &format!("stream:{}", path.display()), json!({"name": "lab", "private": true}));
    let mut peers: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
    until("three peers have ports", || d.ports().len() == 4);
    let ports = ["vale0:lab", "vale0:lab-1", "vale0:lab-2"];
    let vlans: BTreeSet<_> = ports.iter().map(|port| vlan(&d, port)).collect();
    assert_eq!(vlans.len(), 3);
    let mut tags = BTreeSet::new();
    for (number, peer) in peers.iter_mut().enumerate() {
        // All peers have the same Ethernet address.
        let bytes = frame(255, 9, number as u8);
        peer.write_all(&[&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()).unwrap();
        let got = receive(&mut gateway);
        assert_eq!((&got[12..14], got[18]), (&[0x81, 0][..], number as u8));
        tags.insert(u64::from(u16::from_be_bytes([got[14], got[15]])));
    }
    assert_eq!(tags, vlans);
    // The gateway has received all frames, so the daemon has forwarded them. No frame was sent to a peer.
    for port in ports {
        let shown = d.show(port);
        assert_eq!(sum(&shown, "out", "frames"), 0, "{port}: {shown}");
    }
}
