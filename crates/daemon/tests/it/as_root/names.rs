//! Interfaces whose names contain `-` or end in a number, and names of other users' switches.

use crate::common;

use common::users::{as_user, folder_of};
use common::{Daemon, cable, frame, frames, inside_as_root, ip, receive, send, until};
use netvale::{Options, Port};
use netvale_abi::nmreq::{NETMAP_REQ_VALE_ATTACH, NR_REG_ALL_NIC, NmreqRegister, NmreqValeAttach};
use serde_json::json;

const ALICE: u32 = 70_001;
const BOB: u32 = 70_002;

/// Objective: programs open interfaces with `-` and with a trailing number, with and without a daemon; to name a ring
/// of such an interface, the interface's name is quoted or written in full before the ring.
#[test]
fn programs_open_interfaces_with_odd_names() {
    if !inside_as_root() {
        return;
    }
    cable("veth-a", "vnet-3", 1);
    let d = Daemon::start("");
    let without = Options { run_dir: Some("/nonexistent".into()), ..Options::default() };
    for options in [Options { slots: 0, ..d.options() }, without] {
        let open = |name: &str| Port::open_with(name, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        for name in ["netmap:vnet-3", "netmap:'vnet-3'", "netmap:'vnet-3'-0", "netmap:vnet-3-0"] {
            let mut a = open("netmap:veth-a");
            let mut b = open(name);
            assert!(carried(&mut a, &mut b), "{name}");
        }
        assert!(Port::open_with("netmap:'vnet'-3", &options).is_err());
        assert!(Port::open_with("netmap:veth-b", &options).is_err());
    }
    let _port = d.open("netmap:'vnet-3'-0").unwrap();
    assert_eq!(d.ports(), ["netmap:vnet-3-0"]);
    assert!(d.show("netmap:vnet-3-0").is_object());
}

fn carried(a: &mut Port, b: &mut Port) -> bool {
    let frames = frames();
    common::carry(a, b, &frames) == frames && common::carry(b, a, &frames) == frames
}

/// Objective: interfaces with such names become ports of the same name, however they are attached, and keep that name
/// when they are exported, applied and restored.
#[test]
fn interfaces_with_odd_names_are_attached_as_ports() {
    if !inside_as_root() {
        return;
    }
    cable("veth-a", "vnet-3", 1);
    cable("vnet-4", "vnet-5", 1);
    let d = Daemon::start("");
    let attach = |port: &str| d.call("port.attach", json!({"switch": "br-lab", "port": port}));
    for port in ["netmap:veth-a", "netmap:vnet-3", "tap:br-x", "tap:e.1", "tap:e_1"] {
        assert!(attach(port)["result"].is_object(), "{port}: {}", attach(port));
    }
    const REG: usize = std::mem::offset_of!(NmreqValeAttach, reg);
    let mode = (REG + std::mem::offset_of!(NmreqRegister, nr_mode), NR_REG_ALL_NIC as u8);
    assert_eq!(common::request(&d, 0, NETMAP_REQ_VALE_ATTACH, "valebr-lab:vnet-4", &[mode]).status, 0);
    let all = ["br-lab:br-x", "br-lab:e.1", "br-lab:e_1", "br-lab:veth-a", "br-lab:vnet-3", "br-lab:vnet-4"];
    assert_eq!(d.ports(), all);
    d.exports(6);
    // `netmap:vnet-3` could now also mean ring 3 of the interface `vnet`; the restored port is still the interface
    // `vnet-3`.
    cable("vnet", "vnet-6", 1);
    d.is_succeeded();
    assert_eq!(d.ports(), all);
    ip("link del vnet-3");
    until("vnet-3 is gone", || {
        !d.call("port.show", json!({"port": "br-lab:vnet-3"})).to_string().contains("\"link\":true")
    });
}

/// Objective: a user who names a switch by its alias has exactly the rights that the user has on the switch under its
/// own name.
#[test]
fn permissions_are_those_of_the_switch() {
    if !common::is_root("needs root") {
        return;
    }
    let d = Daemon::start_as(0, folder_of(0, 0o755), "[switch]\nshared = ['lan']\n[sockets]\nmode = '0666'\n");
    let open = |uid, name: &str| as_user(uid, || d.open(name));
    let mut a = open(ALICE, "valelan:a").unwrap();
    let mut b = open(BOB, "valelan:b").unwrap();
    send(&mut a, &frame(255, 1, 7));
    assert_eq!(receive(&mut b)[14], 7);
    let _own = open(ALICE, "home:a").unwrap();
    let refused = open(BOB, "valehome:b").err().expect("another user's").to_string();
    assert!(refused.contains("switch home belongs to another user"), "{refused}");
    assert_eq!(d.ports(), ["home:a", "lan:a", "lan:b"]);
}
