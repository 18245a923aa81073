//! Tunnels whose daemon is killed, and restarted by a service manager: datagrams that wait in the socket are received,
//! and configured addresses stay.

use crate::common;

use std::net::Ipv4Addr;

use common::ports::attach;
use common::{Daemon, crosses, frame, receive, send};
use rustix::process::Signal;
use serde_json::json;

const MORE: &str = "workers = 2\n[quota]\nlog_lines = 100";
/// Number of kills.
const TIMES: u8 = 5;

/// Returns a loopback address that no other test uses.
fn host(n: u8) -> Ipv4Addr {
    let [a, b, ..] = std::process::id().to_le_bytes();
    Ipv4Addr::new(127, 1 | a, b, n)
}

/// Objective: a frame that arrives while no daemon runs is received by the next daemon, frames pass in the other
/// direction, and addresses from a control plane survive a kill and a requested end.
#[test]
fn tunnels_and_their_addresses_survive_kills() {
    let managed = Daemon::managed(MORE);
    let far = Daemon::start("");
    let [here, there] = [100, 101].map(host);
    attach(&managed, &format!("vxlan:7,local={here}"), json!({"name": "vx", "evpn": true}));
    attach(&far, &format!("vxlan:7,local={there},remote={here}"), json!({"name": "vx"}));
    let said = json!({"port": "vale0:vx", "flood": {"add": [there]},
        "addresses": {"add": [{"mac": "02:00:00:00:00:02", "vtep": there, "sequence": 3}]},
        "neighbors": {"add": [{"ip": "fd00::2", "mac": "02:00:00:00:00:02", "router": true}]}});
    let reply = managed.call("vxlan.set", said);
    assert_eq!(reply["result"], json!({}), "{reply}");
    let [mut local, mut remote] = [&managed, &far].map(|d| d.open("vale0:local").unwrap());
    for n in 0..=TIMES {
        let how = if n == TIMES { Signal::TERM } else { Signal::KILL };
        managed.is_restarted(how, || send(&mut remote, &frame(1, 2, n)));
        assert_eq!(receive(&mut local), frame(1, 2, n));
        crosses(&mut local, &mut remote, &frame(2, 1, n));
        let vxlan = &managed.show("vale0:vx")["vxlan"];
        assert_eq!((&vxlan["addresses"], &vxlan["remotes"][0]["flood"]), (&json!(1), &json!(true)), "{vxlan}");
        let table = managed.call("switch.table", json!({"switch": "vale0"}))["result"].to_string();
        assert!(table.contains(r#""sequence":3"#), "{table}");
    }
}
