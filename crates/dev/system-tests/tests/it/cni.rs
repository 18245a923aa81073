//! The CNI plugin, started as a container runtime starts it.

use crate::common;
use crate::common::guest;
use crate::common::runtime;
use crate::common::up;

use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use guest::{Guest, Nic, image};
use netvale_harness::net::NamespaceHost;
use runtime::{Runtime, finish, inside, path, start};
use serde_json::{Value, json};
use up::until;

fn code(error: Result<Value, Value>) -> u64 {
    let error = error.expect_err("an error");
    assert!(error["msg"].as_str().is_some_and(|msg| !msg.is_empty()) && error["cniVersion"].is_string(), "{error}");
    error["code"].as_u64().expect("a code")
}

/// Objective: in each version of CNI, containers get interfaces with addresses, routes and the settings that the
/// runtime requests, reach each other, pass CHECK, and are removed; a second DEL succeeds.
#[test]
fn containers_reach_each_other_and_are_removed() {
    for version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let Some(r) = Runtime::start() else { return };
        let one = NamespaceHost::new().unwrap();
        let two = NamespaceHost::new().unwrap();
        let more =
            json!({"mtu": 1400, "isDefaultGateway": true, "runtimeConfig": {"mac": "02:00:00:00:77:07"}, "queues": 2});
        let configs =
            [r.config(version, "10.1.0.2/24", &more), r.config(version, "10.1.0.3/24", &json!({"gro": true}))];
        let result = r.run("ADD", "one", &path(&one), &configs[0]).unwrap();
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result["interfaces"][0]["mac"], "02:00:00:00:77:07");
        assert_eq!(result["interfaces"][0]["sandbox"], path(&one));
        assert_eq!(result["ips"][0]["address"], "10.1.0.2/24");
        r.run("ADD", "two", &path(&two), &configs[1]).unwrap();
        inside(&two, "ping -c 2 -i 0.2 -W 20 10.1.0.2");
        let routes = inside(&one, "ip route");
        assert!(routes.contains("default via 10.1.0.1") && routes.contains("10.9.0.0/16 via 10.1.0.1"), "{routes}");
        assert!(inside(&one, "ip link show eth0").contains("mtu 1400"));
        let mut checked = configs[0].clone();
        checked["prevResult"] = result;
        let done = r.run("CHECK", "one", &path(&one), &checked);
        if version < "0.4.0" {
            assert_eq!(code(done), 1);
        } else {
            assert_eq!(done, Ok(Value::Null));
            inside(&one, "ip addr del 10.1.0.2/24 dev eth0");
            assert_eq!(code(r.run("CHECK", "one", &path(&one), &checked)), 101);
            assert_eq!(code(r.run("CHECK", "one", &path(&one), &configs[0])), 7, "without prevResult");
        }
        for _ in 0..2 {
            assert_eq!(r.run("DEL", "one", &path(&one), &configs[0]), Ok(Value::Null));
        }
        assert_eq!(r.ports().len(), 1);
        assert_eq!(r.run("DEL", "two", "", &configs[1]), Ok(Value::Null), "without a namespace");
        assert!(r.ports().is_empty());
        assert!(!inside(&one, "ip link").contains("eth0"));
        assert_eq!(r.asked().iter().filter(|line| line.starts_with("DEL one eth0")).count(), 2);
    }
}

/// Objective: the bridge in the configuration may have any name, or netmap's name of the switch (`valeNAME`); under
/// either name, ports are made, checked and removed.
#[test]
fn the_bridge_has_any_name() {
    for (bridge, switch) in [("cni0", "cni0"), ("br-lab.1", "br-lab.1"), ("valecni0", "cni0")] {
        let Some(r) = Runtime::start() else { return };
        r.up.must(&["attach", switch, "beside"]);
        let one = NamespaceHost::new().unwrap();
        let mut config = r.config("1.1.0", "10.1.0.2/24", &json!({"bridge": bridge}));
        let result = r.run("ADD", "one", &path(&one), &config).unwrap();
        assert_eq!(r.ports().iter().filter(|port| port.starts_with(&format!("{switch}:"))).count(), 2);
        config["prevResult"] = result;
        assert_eq!(r.run("CHECK", "one", &path(&one), &config), Ok(Value::Null));
        config["cni.dev/valid-attachments"] = json!([]);
        assert_eq!(r.run("GC", "one", &path(&one), &config), Ok(Value::Null));
        assert_eq!(r.ports(), [format!("{switch}:beside")]);
        assert_eq!(r.run("DEL", "one", &path(&one), &config), Ok(Value::Null));
    }
}

/// Objective: containers have the VLANs, isolation, checks and rates of their network from the first frame on; the same
/// applies to a virtual machine's port; invalid options are refused and leave nothing behind.
#[test]
fn containers_have_the_policies_of_their_network() {
    let Some(r) = Runtime::start() else { return };
    let hosts: Vec<NamespaceHost> = (0..3).map(|_| NamespaceHost::new().unwrap()).collect();
    let vlan = json!({"vlan": 10, "guard": "ip,arp", "macspoofchk": true,
        "runtimeConfig": {"bandwidth": {"ingressRate": 80_000_000, "ingressBurst": 8_000_000}}});
    let configs = [
        r.config("1.0.0", "10.1.0.2/24", &vlan),
        r.config("1.0.0", "10.1.0.3/24", &vlan),
        r.config("1.0.0", "10.1.0.4/24", &json!({"vlan": 20})),
    ];
    for (i, host) in hosts.iter().enumerate() {
        r.run("ADD", &format!("c{i}"), &path(host), &configs[i]).unwrap();
    }
    inside(&hosts[0], "ping -c 2 -i 0.2 -W 20 10.1.0.3");
    let alone = hosts[2].command("ping", &["-c", "1", "-W", "1", "10.1.0.2"]).output().unwrap();
    assert!(!alone.status.success(), "another VLAN");
    let shown = |r: &Runtime| r.ports().iter().map(|port| r.up.show(port)["policies"].clone()).collect::<Vec<Value>>();
    let set = shown(&r).into_iter().find(|set| set["info"] == "c0").expect("a port of VLAN 10");
    let is_set = |key: &str, value: Value| assert_eq!(set[key], value, "{key} of {set}");
    is_set("access", json!(10));
    is_set("rate_out", json!("80000000bit"));
    assert!(set["guard"].as_str().is_some_and(|checks| checks.contains("ip") && checks.contains("mac")), "{set}");
    assert_eq!(set["info"], "c0");
    // The container's own address still passes; another address does not.
    inside(&hosts[0], "ip addr add 10.1.0.77/24 dev eth0");
    let spoofed = hosts[0].command("ping", &["-c", "1", "-W", "1", "-I", "10.1.0.77", "10.1.0.3"]).output().unwrap();
    assert!(!spoofed.status.success(), "an address that the plugin did not give");
    inside(&hosts[0], "ping -c 1 -W 20 -I 10.1.0.2 10.1.0.3");
    let wrong = r.config("1.0.0", "10.1.0.5/24", &json!({"name": "wrong", "vlan": 5000}));
    let other = NamespaceHost::new().unwrap();
    assert_eq!(code(r.run("ADD", "wrong", &path(&other), &wrong)), 102);
    assert_eq!(r.ports().len(), 3);
    let isolated = json!({"name": "vms", "mode": "vhostuser", "portIsolation": true, "vlanTrunk": [{"id": 7}]});
    let config = r.config("1.1.0", "10.1.0.6/24", &isolated);
    r.run("ADD", "vm", &path(&other), &config).unwrap();
    assert!(
        shown(&r).iter().any(|set| set["isolated"] == json!(true) && set["trunk"] == json!("7")),
        "{:?}",
        shown(&r)
    );
}

/// Objective: a second ADD of a container's interface is an error and does not change the existing interface; the same
/// container on another network, or with another interface, gets another port.
#[test]
fn a_second_add_is_an_error() {
    let Some(r) = Runtime::start() else { return };
    let one = NamespaceHost::new().unwrap();
    let config = r.config("1.0.0", "10.1.0.2/24", &json!({}));
    r.run("ADD", "one", &path(&one), &config).unwrap();
    let asked = r.asked();
    assert_eq!(code(r.run("ADD", "one", &path(&one), &config)), 100);
    let other = r.config("1.0.0", "10.1.0.4/24", &json!({"name": "other"}));
    assert_eq!(code(r.run("ADD", "one", &path(&one), &other)), 100, "the container has an eth0");
    assert_eq!((r.ports().len(), r.asked()), (1, asked));
    let mut second = r.command("ADD", "one", &path(&one));
    finish(start(second.env("CNI_IFNAME", "eth1"), other.to_string().as_bytes())).unwrap();
    assert_eq!(r.ports().len(), 2);
    assert!(inside(&one, "ip addr show eth0").contains("10.1.0.2/24"));
}

/// Objective: an ADD that fails leaves neither port nor interface, and releases its addresses; an error of the address
/// plugin is passed on unchanged.
#[test]
fn a_failed_add_leaves_nothing() {
    let Some(r) = Runtime::start() else { return };
    let one = NamespaceHost::new().unwrap();
    for (address, expected) in [("fail", 111), ("nonsense", 6), ("10.1.0.2", 6), ("10.1.0.2/24", 103)] {
        // In the last configuration, the gateway is outside the interface's subnet.
        let ipam = json!({"type": "test-ipam", "hand": if expected == 103 { "10.7.0.2/24" } else { address }});
        let config = r.config("1.0.0", address, &json!({"ipam": ipam}));
        assert_eq!(code(r.run("ADD", "one", &path(&one), &config)), expected, "{address}");
        assert!(r.ports().is_empty() && !inside(&one, "ip link").contains("eth0"), "{address}");
        assert_eq!(r.asked().last().map(String::as_str), Some("DEL one eth0"));
    }
    let missing = r.config("1.0.0", "", &json!({"ipam": {"type": "no-such-plugin"}}));
    assert_eq!(code(r.run("ADD", "one", &path(&one), &missing)), 7);
    let nobody = r.config("1.0.0", "10.1.0.2/24", &json!({"runDir": r.dir.path()}));
    assert_eq!(code(r.run("ADD", "one", &path(&one), &nobody)), 11, "no daemon");
    assert_eq!(r.run("DEL", "one", &path(&one), &nobody), Ok(Value::Null), "the ports went with it");
    for (place, expected) in [("/nowhere", 3), ("/dev/null", 103), ("/proc/self/ns/uts", 103)] {
        let config = r.config("1.0.0", "10.1.0.2/24", &json!({}));
        assert_eq!(code(r.run("ADD", "one", place, &config)), expected, "{place}");
    }
    let gone = path(&NamespaceHost::new().unwrap());
    let config = r.config("1.0.0", "10.1.0.2/24", &json!({}));
    assert_eq!(code(r.run("ADD", "one", &gone, &config)), 3, "the container has ended");
    assert!(r.ports().is_empty());
}

/// Objective: when a container ends, its port is removed; a later DEL succeeds nevertheless.
#[test]
fn a_container_that_ends_takes_its_port_along() {
    let Some(r) = Runtime::start() else { return };
    let one = NamespaceHost::new().unwrap();
    let config = r.config("1.0.0", "10.1.0.2/24", &json!({}));
    let place = path(&one);
    r.run("ADD", "one", &place, &config).unwrap();
    assert_eq!(r.ports().len(), 1);
    drop(one);
    until("the port is gone", || r.ports().is_empty());
    assert_eq!(r.run("DEL", "one", &place, &config), Ok(Value::Null));
}

/// Objective: any malformed input yields an error with its code, and nothing is made.
#[test]
fn nonsense_is_answered_by_an_error() {
    let Some(r) = Runtime::start() else { return };
    let one = NamespaceHost::new().unwrap();
    let place = path(&one);
    let raw = |input: &[u8]| code(finish(start(&mut r.command("ADD", "one", &place), input)));
    assert_eq!(raw(&vec![b' '; (1 << 20) + 1]), 6, "too long");
    assert_eq!(raw(b"{\"name\": \"\xff\"}"), 6, "not UTF-8");
    assert_eq!(raw(b"{"), 6);
    assert_eq!(raw(b""), 1, "no version");
    assert_eq!(raw(b"[1]"), 1);
    let config = r.config("1.0.0", "10.1.0.2/24", &json!({}));
    assert_eq!(raw(r.config("0.2.0", "", &json!({})).to_string().as_bytes()), 1);
    assert_eq!(raw(r.config("1.0.0", "", &json!({"ipMasq": true})).to_string().as_bytes()), 2);
    assert_eq!(raw(r.config("1.0.0", "", &json!({"vlan": "x"})).to_string().as_bytes()), 7);
    assert_eq!(raw(r.config("1.0.0", "", &json!({"name": ""})).to_string().as_bytes()), 7);
    let bad = std::ffi::OsStr::from_bytes(b"\xff");
    for (key, value) in [
        ("CNI_COMMAND", "MAKE"),
        ("CNI_COMMAND", ""),
        ("CNI_CONTAINERID", ""),
        ("CNI_CONTAINERID", "a/b"),
        ("CNI_IFNAME", ""),
        ("CNI_IFNAME", "sixteen-letters-"),
        ("CNI_IFNAME", "a/b"),
        ("CNI_IFNAME", ".."),
        ("CNI_NETNS", ""),
        ("CNI_ARGS", "FOO=bar"),
    ] {
        let mut command = r.command("ADD", "one", &place);
        assert_eq!(code(finish(start(command.env(key, value), config.to_string().as_bytes()))), 4, "{key}={value}");
    }
    for key in ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_ARGS"] {
        let mut command = r.command("ADD", "one", &place);
        assert_eq!(code(finish(start(command.env(key, bad), config.to_string().as_bytes()))), 4, "{key}");
    }
    assert!(r.ports().is_empty() && r.asked().is_empty());
    let version = r.run("VERSION", "", "", &json!({"cniVersion": "1.0.0"})).unwrap();
    assert_eq!(version["supportedVersions"].as_array().map(Vec::len), Some(5));
}

/// Objective: whatever an ADD that was killed at any moment leaves behind is removed by DEL or, without a DEL, by GC;
/// GC removes no port of other containers or networks.
#[test]
fn killed_at_any_time() {
    let Some(r) = Runtime::start() else { return };
    let one = NamespaceHost::new().unwrap();
    let other = NamespaceHost::new().unwrap();
    let config = r.config("1.1.0", "10.1.0.2/24", &json!({}));
    r.run("ADD", "stays", &path(&other), &r.config("1.1.0", "10.1.0.9/24", &json!({}))).unwrap();
    let elsewhere = r.config("1.1.0", "10.1.0.8/24", &json!({"name": "elsewhere"}));
    finish(start(r.command("ADD", "stays", &path(&other)).env("CNI_IFNAME", "eth1"), elsewhere.to_string().as_bytes()))
        .unwrap();
    let kept = r.ports();
    let began = Instant::now();
    let mut whole = start(&mut r.command("ADD", "one", &path(&one)), config.to_string().as_bytes());
    assert!(whole.wait().unwrap().success());
    let length = began.elapsed();
    r.run("DEL", "one", &path(&one), &config).unwrap();
    let mut collecting = config.clone();
    collecting["cni.dev/valid-attachments"] = json!([{"containerID": "stays", "ifname": "eth0"}]);
    for round in 0..24u32 {
        let mut child = start(&mut r.command("ADD", "one", &path(&one)), config.to_string().as_bytes());
        std::thread::sleep(length * round / 20);
        let _ = child.kill();
        let _ = child.wait();
        let (operation, input) = if round % 2 == 0 { ("DEL", &config) } else { ("GC", &collecting) };
        assert_eq!(r.run(operation, "one", &path(&one), input), Ok(Value::Null));
        // If the plugin was killed between creating the TAP and passing it to the daemon, the kernel removes the TAP.
        until("nothing is left", || r.ports() == kept && !inside(&one, "ip link").contains("eth0"));
    }
    // The plugin is killed while it waits for the address plugin.
    let hangs = r.config("1.1.0", "hang", &json!({}));
    let mut child = start(&mut r.command("ADD", "one", &path(&one)), hangs.to_string().as_bytes());
    until("it asks", || r.dir.path().join("hangs").exists());
    assert_eq!(r.ports().len(), 3);
    child.kill().unwrap();
    let _ = child.wait();
    assert_eq!(r.run("GC", "", "", &collecting), Ok(Value::Null));
    assert_eq!(r.ports(), kept);
    let nothing = r.run("GC", "", "", &config);
    assert_eq!(code(nothing), 7, "without the list");
}

/// Objective: STATUS reports whether a daemon answers.
#[test]
fn status_says_whether_a_daemon_answers() {
    let Some(r) = Runtime::start() else { return };
    let config = r.config("1.1.0", "10.1.0.2/24", &json!({}));
    assert_eq!(r.run("STATUS", "", "", &config), Ok(Value::Null));
    let nobody = r.config("1.1.0", "10.1.0.2/24", &json!({"runDir": r.dir.path()}));
    assert_eq!(code(r.run("STATUS", "", "", &nobody)), 50);
}

/// Objective: a pod that is a virtual machine gets a vhost-user socket and a description of it, in a folder that DEL or
/// GC removes.
#[test]
fn a_virtual_machine_pod_gets_a_socket() {
    let Some(r) = Runtime::start() else { return };
    let one = NamespaceHost::new().unwrap();
    let kata = r.dir.path().join("one.json");
    let more = json!({"mode": "vhostuser", "mtu": 1450, "kataDir": r.dir.path()});
    let config = r.config("1.1.0", "10.1.0.2/24", &more);
    let result = r.run("ADD", "one", &path(&one), &config).unwrap();
    let socket = result["interfaces"][0]["socketPath"].as_str().unwrap().to_owned();
    let folder = std::path::Path::new(&socket).parent().unwrap().to_owned();
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let described: Value = serde_json::from_slice(&std::fs::read(folder.join("interface.json")).unwrap()).unwrap();
    assert_eq!((&described["socket"], &described["mtu"]), (&json!(socket), &json!(1450)));
    assert_eq!(described["ipResult"]["ips"][0]["address"], "10.1.0.2/24");
    let devices: Value = serde_json::from_slice(&std::fs::read(&kata).unwrap()).unwrap();
    assert_eq!(devices["devices"][0]["device"]["path"], json!(socket));
    r.run("DEL", "one", &path(&one), &config).unwrap();
    assert!(r.ports().is_empty() && !folder.exists() && !kata.exists());
    r.run("ADD", "one", &path(&one), &config).unwrap();
    let mut collecting = config.clone();
    collecting["cni.dev/valid-attachments"] = json!(null);
    r.run("GC", "", "", &collecting).unwrap();
    assert!(r.ports().is_empty() && !folder.exists() && !kata.exists());
}

/// Objective: a container and a virtual machine on the same switch reach each other.
#[test]
fn container_and_guest_reach_each_other() {
    let Some(image) = image() else { return };
    let Some(r) = Runtime::start() else { return };
    let one = NamespaceHost::new().unwrap();
    let socket = r.up.path("vm.sock");
    common::stdout(&r.up.run(&format!("attach vale0 vhost:{}", socket.display())));
    r.run("ADD", "one", &path(&one), &r.config("1.0.0", "10.1.0.2/24", &json!({}))).unwrap();
    let script = "
ip addr add 10.1.0.3/24 dev eth0; ip link set eth0 up
for i in $(seq 100); do ping -c 1 -W 1 10.1.0.2 >/dev/null && break; done
ping -c 3 -i 0.2 10.1.0.2 && echo reached
";
    let guest = Guest::start(image, script, 1, &Nic::new(&socket));
    let said = guest.end();
    assert!(said.contains("reached"), "{said}");
}

/// Objective: Debian's address plugin, host-local, assigns addresses and releases them.
#[test]
fn host_local_gets_its_addresses_back() {
    const FOLDER: &str = "/usr/lib/cni";
    if !std::path::Path::new(FOLDER).join("host-local").exists() {
        netvale_harness::skip("host-local is missing (Debian: containernetworking-plugins)");
        return;
    }
    let Some(r) = Runtime::start() else { return };
    let one = NamespaceHost::new().unwrap();
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/24", "dataDir": r.dir.path().join("data"),
        "routes": [{"dst": "0.0.0.0/0"}]});
    let config = r.config("1.0.0", "", &json!({"ipam": ipam}));
    let run = |operation: &str, config: &Value| {
        let mut command = r.command(operation, "one", &path(&one));
        finish(start(command.env("CNI_PATH", FOLDER), config.to_string().as_bytes()))
    };
    let result = run("ADD", &config).unwrap();
    assert_eq!(result["ips"][0]["address"], "10.1.0.2/24");
    assert!(inside(&one, "ip route").contains("default via 10.1.0.1"));
    let mut checked = config.clone();
    checked["prevResult"] = result;
    assert_eq!(run("CHECK", &checked), Ok(Value::Null));
    assert_eq!(run("DEL", &config), Ok(Value::Null));
    assert!(!r.dir.path().join("data/net/10.1.0.2").exists());
}
