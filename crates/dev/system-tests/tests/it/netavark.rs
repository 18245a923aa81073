//! The plugin, started as netavark starts it for podman.

use crate::common::runtime;
use crate::common::{stdout, up};

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use netvale_harness::ChildProcess;
use netvale_harness::net::NamespaceHost;
use runtime::{Runtime, can_run, described, finish, inside, path, start};
use serde_json::{Value, json};
use up::until;

/// A user ID that no account of the system has.
const USER: u32 = 70_320;

/// Returns the text of the plugin's error.
fn why(answer: Result<Value, Value>) -> String {
    let error = answer.expect_err("an error");
    let members = error.as_object().expect("an object");
    assert_eq!(members.keys().collect::<Vec<_>>(), ["error"], "podman takes no other members");
    error["error"].as_str().expect("text").to_owned()
}

/// Adds options to the options of the container's network.
fn with_options(mut input: Value, options: &[(&str, &str)]) -> Value {
    for (key, text) in options {
        input["network"]["options"][*key] = json!(text);
    }
    input
}

/// Objective: two containers reach each other, with the addresses, routes, MTU, Ethernet address and policies that
/// podman and the network's options request; a teardown removes one container's port, and a second teardown, which
/// finds nothing, succeeds.
#[test]
fn containers_of_netavark_reach_each_other_and_are_removed() {
    let Some(r) = Runtime::start() else { return };
    let hosts = [NamespaceHost::new().unwrap(), NamespaceHost::new().unwrap()];
    let options = [("mtu", "1400"), ("queues", "2"), ("access", "10"), ("guard", "ip,arp"), ("rate_out", "80mbit")];
    let mut inputs =
        [r.described("one", "10.1.0.2"), r.described("two", "10.1.0.3")].map(|input| with_options(input, &options));
    inputs[0]["network_options"]["static_mac"] = json!("02:00:00:00:77:07");
    inputs[0]["network"]["routes"] = json!([{"destination": "10.9.0.0/16", "gateway": "10.1.0.9", "metric": 7}]);
    let status = r.ask(&["setup", &path(&hosts[0])], &inputs[0]).unwrap();
    let expected = json!({"dns_search_domains": [], "dns_server_ips": [], "interfaces": {"eth0": {
        "mac_address": "02:00:00:00:77:07", "subnets": [{"ipnet": "10.1.0.2/24", "gateway": "10.1.0.1"}]}}});
    assert_eq!(status, expected);
    r.ask(&["setup", &path(&hosts[1])], &inputs[1]).unwrap();
    inside(&hosts[1], "ping -c 2 -i 0.2 -W 20 10.1.0.2");
    assert!(inside(&hosts[0], "ip link show eth0").contains("mtu 1400"));
    let routes = inside(&hosts[0], "ip route");
    for route in ["default via 10.1.0.1 dev eth0 metric 100", "10.9.0.0/16 via 10.1.0.9 dev eth0 metric 7"] {
        assert!(routes.contains(route), "{routes}");
    }
    let sets: Vec<Value> = r.ports().iter().map(|port| r.up.show(port)["policies"].clone()).collect();
    let set = sets.iter().find(|set| set["info"] == "name-one").expect("a port with the container's name");
    assert_eq!((&set["access"], &set["rate_out"]), (&json!(10), &json!("80mbit")));
    // The container's own address passes the guard; another address does not.
    inside(&hosts[0], "ip addr add 10.1.0.77/24 dev eth0");
    let spoofed = hosts[0].command("ping", &["-c", "1", "-W", "1", "-I", "10.1.0.77", "10.1.0.3"]).output().unwrap();
    assert!(!spoofed.status.success(), "an address that podman did not assign");
    inside(&hosts[0], "ping -c 1 -W 20 -I 10.1.0.2 10.1.0.3");
    for _ in 0..2 {
        assert_eq!(r.ask(&["teardown", &path(&hosts[0])], &inputs[0]), Ok(Value::Null));
        assert!(!inside(&hosts[0], "ip link").contains("eth0"));
    }
    assert_eq!(r.ports().len(), 1);
    assert_eq!(r.ask(&["teardown", &path(&hosts[1])], &inputs[1]), Ok(Value::Null));
    assert!(r.ports().is_empty());
}

/// Objective: a container has addresses of both families, without default routes on an internal network, or no
/// addresses at all.
#[test]
fn a_container_has_the_addresses_that_podman_assigned() {
    let Some(r) = Runtime::start() else { return };
    let one = NamespaceHost::new().unwrap();
    let mut input = r.described("one", "10.1.0.2");
    input["network"]["internal"] = json!(true);
    input["network"]["subnets"] = json!([{"subnet": "10.1.0.0/24"}, {"subnet": "fd00::/64", "gateway": "fd00::1"}]);
    input["network_options"]["static_ips"] = json!(["10.1.0.2", "fd00::2"]);
    let status = r.ask(&["setup", &path(&one)], &input).unwrap();
    let subnets = json!([{"ipnet": "10.1.0.2/24"}, {"ipnet": "fd00::2/64", "gateway": "fd00::1"}]);
    assert_eq!(status["interfaces"]["eth0"]["subnets"], subnets);
    let addresses = inside(&one, "ip addr show eth0");
    assert!(addresses.contains("inet 10.1.0.2/24") && addresses.contains("inet6 fd00::2/64"), "{addresses}");
    assert!(!inside(&one, "ip route").contains("default") && !inside(&one, "ip -6 route").contains("default"));
    r.ask(&["teardown", &path(&one)], &input).unwrap();
    input["network"]["subnets"] = Value::Null;
    input["network"]["ipam_options"] = json!({"driver": "none"});
    input["network_options"]["static_ips"] = Value::Null;
    let status = r.ask(&["setup", &path(&one)], &input).unwrap();
    assert_eq!(status["interfaces"]["eth0"]["subnets"], json!([]));
    assert!(inside(&one, "ip link show eth0").contains("LOWER_UP"));
}

/// Objective: a set-up that fails at any step leaves neither port nor interface, and the next set-up succeeds.
#[test]
fn a_set_up_that_fails_half_way_leaves_nothing() {
    let Some(r) = Runtime::start() else { return };
    let one = NamespaceHost::new().unwrap();
    let good = r.described("one", "10.1.0.2");
    let changed = |path: &[&str], value: Value| {
        let mut input = good.clone();
        *path.iter().fold(&mut input, |place, key| &mut place[*key]) = value;
        input
    };
    let route = json!([{"destination": "10.9.0.0/16", "gateway": "10.77.0.1"}]);
    for (input, said) in [
        (with_options(good.clone(), &[("access", "10"), ("native", "11")]), "access: cannot be combined with native"),
        (changed(&["network_options", "static_ips"], json!(["10.1.0.2", "10.1.0.2"])), "give eth0 the address"),
        (changed(&["network", "routes"], route), "add the route to 10.9.0.0/16"),
        (changed(&["network_options", "static_mac"], json!("01:00:00:00:00:01")), "set the Ethernet address"),
        (changed(&["network", "options", "run_dir"], json!(r.dir.path())), "no netvale daemon runs in"),
    ] {
        let error = why(r.ask(&["setup", &path(&one)], &input));
        assert!(error.contains(said), "{said}: {error}");
        assert!(r.ports().is_empty() && !inside(&one, "ip link").contains("eth0"), "{said}");
        assert_eq!(r.ask(&["teardown", &path(&one)], &input), Ok(Value::Null), "{said}");
    }
    let gone = path(&NamespaceHost::new().unwrap());
    for (place, said) in [
        ("/nowhere", "cannot find the network namespace /nowhere"),
        (gone.as_str(), "cannot find the network namespace"),
        ("/dev/null", "another kind of namespace or file"),
        ("/proc/self/ns/uts", "another kind of namespace or file"),
    ] {
        let error = why(r.ask(&["setup", place], &good));
        assert!(error.contains(said) && r.ports().is_empty(), "{place}: {error}");
    }
    inside(&one, "ip link add eth0 type veth peer name other");
    let error = why(r.ask(&["setup", &path(&one)], &good));
    assert!(error.contains("an interface of that name already exists there"), "{error}");
    assert!(r.ports().is_empty() && inside(&one, "ip -d link show eth0").contains("veth"));
    inside(&one, "ip link del eth0");
    r.ask(&["setup", &path(&one)], &good).unwrap();
    assert_eq!(r.ports().len(), 1);
}

/// Objective: a teardown succeeds, even twice, if the container's namespace or the daemon is gone; it removes the port
/// even if the path of the namespace is wrong.
#[test]
fn a_teardown_without_a_namespace_leaves_nothing() {
    let Some(r) = Runtime::start() else { return };
    let input = r.described("one", "10.1.0.2");
    let one = NamespaceHost::new().unwrap();
    let place = path(&one);
    r.ask(&["setup", &place], &input).unwrap();
    drop(one);
    for _ in 0..2 {
        assert_eq!(r.ask(&["teardown", &place], &input), Ok(Value::Null));
    }
    until("the port is gone", || r.ports().is_empty());
    let two = NamespaceHost::new().unwrap();
    r.ask(&["setup", &path(&two)], &input).unwrap();
    // Options that have become invalid do not prevent the teardown.
    let wrong = with_options(input.clone(), &[("mtu", "x"), ("later", "1")]);
    assert_eq!(r.ask(&["teardown", "/nowhere"], &wrong), Ok(Value::Null));
    assert!(r.ports().is_empty());
    until("its interface is gone", || !inside(&two, "ip link").contains("eth0"));
    let nobody = with_options(input, &[("run_dir", r.dir.path().to_str().unwrap())]);
    assert_eq!(r.ask(&["teardown", &place], &nobody), Ok(Value::Null), "the ports went with the daemon");
}

/// Objective: a second set-up of an interface is an error and leaves the first unchanged; the set-up of a container
/// that was killed and starts again, in a new namespace, replaces the port.
#[test]
fn a_container_that_starts_again_gets_its_port() {
    let Some(r) = Runtime::start() else { return };
    let input = r.described("one", "10.1.0.2");
    let before = NamespaceHost::new().unwrap();
    r.ask(&["setup", &path(&before)], &input).unwrap();
    let error = why(r.ask(&["setup", &path(&before)], &input));
    assert!(error.contains("container one already has an interface eth0 in the network lab"), "{error}");
    assert!(inside(&before, "ip addr show eth0").contains("10.1.0.2/24"));
    let now = NamespaceHost::new().unwrap();
    r.ask(&["setup", &path(&now)], &input).unwrap();
    assert_eq!(r.ports().len(), 1);
    assert!(inside(&now, "ip addr show eth0").contains("10.1.0.2/24"));
    until("the former interface is gone", || !inside(&before, "ip link").contains("eth0"));
    let mut second = input.clone();
    second["network_options"]["interface_name"] = json!("eth1");
    second["network"]["name"] = json!("other");
    second["network_options"]["static_ips"] = json!(["10.1.0.9"]);
    r.ask(&["setup", &path(&now)], &second).unwrap();
    assert_eq!(r.ports().len(), 2, "another network's interface");
}

/// Objective: a teardown removes whatever a set-up that was killed at any moment has left behind. CNI's GC for a
/// network of the same name removes none of podman's ports.
#[test]
fn a_set_up_that_is_killed_is_removed() {
    let Some(r) = Runtime::start() else { return };
    let [one, other] = [NamespaceHost::new().unwrap(), NamespaceHost::new().unwrap()];
    let input = r.described("one", "10.1.0.2");
    r.ask(&["setup", &path(&other)], &r.described("stays", "10.1.0.9")).unwrap();
    let kept = r.ports();
    let began = Instant::now();
    r.ask(&["setup", &path(&one)], &input).unwrap();
    let length = began.elapsed();
    r.ask(&["teardown", &path(&one)], &input).unwrap();
    for round in 0..24u32 {
        let mut child = start(&mut r.netavark(&["setup", &path(&one)]), input.to_string().as_bytes());
        std::thread::sleep(length * round / 20);
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(r.ask(&["teardown", &path(&one)], &input), Ok(Value::Null));
        until("nothing is left", || r.ports() == kept && !inside(&one, "ip link").contains("eth0"));
    }
    let collecting = json!({"name": "lab", "cni.dev/valid-attachments": []});
    r.run("GC", "", "", &r.config("1.1.0", "10.1.0.2/24", &collecting)).unwrap();
    assert_eq!(r.ports(), kept);
}

/// Objective: any malformed input yields an error in the form that podman accepts, and nothing is made.
#[test]
fn nonsense_of_netavark_is_answered_by_an_error() {
    let Some(r) = Runtime::start() else { return };
    let one = NamespaceHost::new().unwrap();
    let place = path(&one);
    for words in [&["create"][..], &["setup", &place], &["teardown", &place]] {
        for input in [&b""[..], b"{", b"[]", b"null", b"7", b"{}", b"{\"name\": \"\xff\"}", &vec![b' '; (1 << 20) + 1]]
        {
            assert!(!why(finish(start(&mut r.netavark(words), input))).is_empty(), "{words:?}");
        }
    }
    let good = r.described("one", "10.1.0.2").to_string();
    for words in [&["setup"][..], &["setup", &place, "x"], &["make", &place], &["SETUP", &place], &["setup", ""]] {
        why(finish(start(&mut r.netavark(words), good.as_bytes())));
    }
    let bad = std::ffi::OsStr::from_bytes(b"/\xff");
    why(finish(start(r.netavark(&["setup"]).arg(bad), good.as_bytes())));
    let info = r.ask(&["info"], &Value::Null).unwrap();
    assert_eq!(info["api_version"], "1.0.0");
    assert!(r.ports().is_empty() && !inside(&one, "ip link").contains("eth0"));
}

/// A process of [`USER`] in a user namespace and a network namespace of its own.
struct UsersNamespace(ChildProcess);

impl UsersNamespace {
    /// Starts the process; `None` if the user may not create the namespaces.
    fn start(command: &mut Command) -> Option<UsersNamespace> {
        let mut process = ChildProcess::start(command.stdin(Stdio::null()).stdout(Stdio::piped())).unwrap();
        let mut word = String::new();
        std::io::BufRead::read_line(&mut process.lines().unwrap(), &mut word).unwrap();
        (word.trim() == "in").then_some(UsersNamespace(process))
    }

    /// Returns a command that runs in these namespaces, as their root.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.0.id().to_string(), "--user", "--net", "--"]).args(words);
        command
    }
}

/// Objective: in a rootless podman's namespaces the plugin finds the user's own daemon, and two containers of that user
/// reach each other.
#[test]
fn rootless_containers_reach_each_other() {
    const WAITS: [&str; 5] = ["--net", "--", "sh", "-c", "echo in; exec sleep 300"];
    if !can_run() {
        return;
    }
    let dir = netvale_harness::daemon::scratch("rootless").unwrap();
    chown(dir.path(), Some(USER), Some(USER)).unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let [netvale, plugin] = ["netvale", "netvale-cni"].map(|name| {
        let to = dir.path().join(name);
        netvale_system_tests::copy_program(name, &to);
        to.display().to_string()
    });
    let run_dir = dir.path().join("runtime/netvale");
    std::fs::create_dir_all(&run_dir).unwrap();
    chown(&run_dir, Some(USER), Some(USER)).unwrap();
    let as_user = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words).uid(USER).gid(USER).current_dir("/").env_remove("NETVALE_RUN_DIR");
        command
    };
    let own = |words: &[&str]| as_user(&netvale, &[&["--run-dir", run_dir.to_str().unwrap()], words].concat());
    let mut daemon = ChildProcess::start(own(&["up"]).stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    assert!(netvale_harness::daemon::ready(&run_dir, up::LIMIT, || matches!(daemon.child().try_wait(), Ok(None))));
    // The namespaces of podman, within which two containers have namespaces of their own.
    let mut podman = as_user("unshare", &[&["--user", "--map-root-user"][..], &WAITS].concat());
    let Some(podman) = UsersNamespace::start(&mut podman) else {
        netvale_harness::skip("ordinary users make no user namespaces here");
        return;
    };
    let container = || UsersNamespace::start(&mut podman.command(&[&["unshare"][..], &WAITS].concat())).unwrap();
    let containers = [container(), container()];
    let ask = |operation: &str, at: usize| {
        let mut input: Value = described(&format!("c{at}"), &format!("10.1.0.{}", at + 2));
        input["network"]["options"] = json!({"switch": "lab0"});
        let place = format!("/proc/{}/ns/net", containers[at].0.id());
        let mut command = podman.command(&[plugin.as_str(), operation, &place]);
        command.env_remove("NETVALE_RUN_DIR").env("XDG_RUNTIME_DIR", dir.path().join("runtime"));
        finish(start(&mut command, input.to_string().as_bytes()))
    };
    for at in 0..2 {
        assert!(ask("setup", at).unwrap()["interfaces"]["eth0"].is_object());
    }
    stdout(&containers[0].command(&["ping", "-c", "2", "-i", "0.2", "-W", "20", "10.1.0.3"]).output().unwrap());
    let ports = || {
        let listed: Value = serde_json::from_slice(&own(&["list", "--json"]).output().unwrap().stdout).unwrap();
        listed["ports"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(ports(), 2);
    for _ in 0..2 {
        assert_eq!(ask("teardown", 0), Ok(Value::Null));
    }
    assert_eq!(ports(), 1);
    let [one, two] = containers;
    let place = format!("/proc/{}/ns/net", two.0.id());
    drop([one, two]);
    until("the port went with its container", || ports() == 0);
    let mut command = podman.command(&[plugin.as_str(), "teardown", &place]);
    command.env_remove("NETVALE_RUN_DIR").env("XDG_RUNTIME_DIR", dir.path().join("runtime"));
    let input = described("c1", "10.1.0.3").to_string();
    assert_eq!(finish(start(&mut command, input.as_bytes())), Ok(Value::Null));
}
