//! Applies files with `config.apply` that change options of ports whose devices and sockets a service manager keeps.

use crate::common;

use common::{Daemon, cable};
use serde_json::json;

/// For each kind of port: its specification, its options before the change, and its options after the change.
const PORTS: [[&str; 3]; 6] = [
    ["port = 'netmap:nva'", "slots = 256", "slots = 512"],
    ["port = 'tap:nvt0'", "mac = '02:00:00:00:00:01'", "mac = '02:00:00:00:00:02'"],
    ["port = 'vhost:DIR/v'\nname = 'v'", "rings = 4", "rings = 2"],
    ["port = 'ptnet:DIR/p'\nname = 'p'", "slots = 256", "slots = 512"],
    ["port = 'e1000:DIR/e'\nname = 'e'", "itr = 0", "itr = 100"],
    [
        "name = 't'",
        "port = 'vxlan:7,local=127.0.0.1,remote=127.0.0.2'",
        "port = 'vxlan:8,local=127.0.0.1,remote=127.0.0.2'",
    ],
];

fn text(folder: &std::path::Path, options: usize) -> String {
    let table = |port: &[&str; 3]| format!("[[port]]\nswitch = 'vale0'\n{}\n{}\n", port[0], port[options]);
    "require_ports = true\n".to_owned()
        + &PORTS.iter().map(table).collect::<String>().replace("DIR", folder.to_str().unwrap())
}

/// Objective: a port of each kind is attached again with other options although the service manager has its device or
/// socket; the new port is restored after a kill, even if the daemon's configuration file still contains the old
/// options.
#[test]
fn ports_with_other_options() {
    if !rustix::process::geteuid().is_root() || !std::path::Path::new("/dev/net/tun").exists() {
        return netvale_harness::skip("needs root and /dev/net/tun");
    }
    if !common::inside(&["--net"]) {
        return;
    }
    common::ip("link set lo up");
    cable("nva", "nvb", 1);
    let folder = tempfile::tempdir().unwrap();
    let d = Daemon::managed(&text(folder.path(), 1));
    let all = d.ports();
    assert_eq!(all.len(), PORTS.len());
    let head = format!("run_dir = {:?}\nsandbox = false\n", d.dir());
    let apply = |options| {
        let text = head.clone() + &text(folder.path(), options);
        let reply = d.call("config.apply", json!({"text": text}));
        (reply["result"]["changes"].as_array().map(Vec::len), reply["result"]["unchanged"].as_u64(), reply)
    };
    let owners = || all.iter().map(|port| d.show(port)["pid"].clone());
    for options in [2, 1, 2] {
        // Before the change, the service manager has stored the ports' descriptors; it removes them when the daemon
        // requests their removal.
        d.manager().sync().unwrap();
        let (changes, _, reply) = apply(options);
        assert_eq!(changes, Some(PORTS.len()), "{reply}");
        let before: Vec<_> = owners().collect();
        d.is_killed();
        assert_eq!((d.ports(), owners().collect::<Vec<_>>()), (all.clone(), before), "they go on");
        let (changes, unchanged, reply) = apply(options);
        assert_eq!((changes, unchanged), (Some(0), Some(PORTS.len() as u64)), "{reply}");
    }
}
