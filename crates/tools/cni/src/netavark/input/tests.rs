use std::path::PathBuf;

use serde_json::Map;

use super::*;

/// Returns `base` with one member replaced by `value`; `path` leads to the member, as in `network.options`.
fn with(mut base: Value, path: &str, value: Value) -> Value {
    let mut place = &mut base;
    for key in path.split('.') {
        place = &mut place[key];
    }
    *place = value;
    base
}

fn network() -> Value {
    json!({"name": "lab", "id": "7f", "driver": "netvale", "internal": false, "ipv6_enabled": false,
        "subnets": [{"subnet": "10.1.0.0/24", "gateway": "10.1.0.1"}]})
}

fn container() -> Value {
    json!({"container_id": "c1", "container_name": "web", "port_mappings": null, "network": network(),
        "network_options": {"interface_name": "eth0", "aliases": ["c1"], "static_ips": ["10.1.0.2"]}})
}

fn read(input: &Value) -> Result<ContainerInput, CniError> {
    ContainerInput::read(input)
}

/// Objective: a network that the plugin cannot serve is refused with advice.
#[test]
fn a_network_that_cannot_be_served_is_refused() {
    assert_eq!(PodmanNetwork::read(&network()).unwrap().check(), Ok(()));
    let double = json!([{"subnet": "10.1.0.0/24"}, {"subnet": "fd00::/64"}]);
    let six = with(with(network(), "ipv6_enabled", json!(true)), "subnets", double);
    assert_eq!(PodmanNetwork::read(&six).unwrap().check(), Ok(()));
    for (path, value, said) in [
        ("name", json!("a b"), "name: expected"),
        ("name", json!(7), "the network cannot be read"),
        ("internal", json!("x"), "the network cannot be read"),
        ("subnets", json!([]), "the network has no subnet"),
        ("subnets", Value::Null, "the network has no subnet"),
        ("subnets", json!([{"subnet": "10.1.0.0"}]), "invalid address \"10.1.0.0\""),
        ("subnets", json!([{"subnet": "10.1.0.0/24", "gateway": "x"}]), "the network cannot be read"),
        ("subnets", json!([{"gateway": "10.1.0.1"}]), "the network cannot be read"),
        ("ipv6_enabled", json!(true), "the network has no IPv6 subnet"),
        ("network_interface", json!("br0"), "the network has no interface on the host"),
        ("ipam_options", json!({"driver": "dhcp"}), "ipam_options: expected the driver"),
        ("options", json!({"vlan": "7"}), "vlan: unknown network option"),
        ("options", json!({"mtu": 1500}), "the network cannot be read"),
        ("options", json!({"mtu": "1"}), "mtu: expected a number"),
        ("options", json!([]), "the network cannot be read"),
    ] {
        let input = with(network(), path, value);
        let error = PodmanNetwork::read(&input).and_then(|network| network.check()).expect_err(path).text();
        assert!(error.starts_with(said), "{input}: {error}");
    }
    let members = json!(["lab", false, false, null, null, {"driver": "none"}, null, null]);
    for wrong in [Value::Null, json!([]), members, json!("lab"), json!({}), json!(7)] {
        assert!(PodmanNetwork::read(&wrong).is_err(), "{wrong}");
    }
}

/// Objective: a container's description with a wrong or missing member is refused by the step that needs it.
#[test]
fn a_wrong_description_is_refused() {
    let all = |input: &Value| {
        let input = read(input)?;
        input.container("/run/netns/x").and(input.config().map(drop)).and(input.addresses().map(drop))
    };
    assert_eq!(all(&container()), Ok(()));
    for (path, value, said) in [
        ("container_id", json!(""), "invalid container_id"),
        ("container_id", json!("a/b"), "invalid container_id"),
        ("container_id", Value::Null, "the container cannot be read"),
        ("network", Value::Null, "the container cannot be read"),
        ("network.name", json!("../x"), "name: expected"),
        ("network.options", json!({"gro": "x"}), "gro: expected true or false"),
        ("network.subnets", json!([]), "10.1.0.2 is in no subnet"),
        ("network.subnets", json!([{"subnet": "10.1.0.0/33"}]), "invalid address \"10.1.0.0/33\""),
        ("network.routes", json!([{"destination": "10.9.0.0/16"}]), "the route to 10.9.0.0/16 has no gateway"),
        ("network.routes", json!([{"destination": "x", "gateway": "10.1.0.1"}]), "invalid address \"x\""),
        ("network_options.interface_name", json!("sixteen-letters-"), "interface_name is not a valid"),
        ("network_options.interface_name", json!(""), "interface_name is not a valid"),
        ("network_options.interface_name", Value::Null, "the container cannot be read"),
        ("network_options.static_ips", json!(["10.2.0.2"]), "10.2.0.2 is in no subnet"),
        ("network_options.static_ips", json!(["fd00::2"]), "fd00::2 is in no subnet"),
        ("network_options.static_ips", json!(["x"]), "the container cannot be read"),
        ("network_options.static_mac", json!("02:00"), "invalid static_mac \"02:00\""),
        ("network_options.options", json!({"host_interface_name": "x"}), "host_interface_name: unknown network option"),
    ] {
        let input = with(container(), path, value);
        let error = all(&input).expect_err(path).text();
        assert!(error.starts_with(said), "{input}: {error}");
    }
    for place in ["", "17", "run/netns/x", "/run/\n"] {
        assert!(read(&container()).unwrap().container(place).is_err(), "{place:?}");
    }
}

/// Objective: the options of a container override the options of its network; for a removal, only switch and run
/// directory are read.
#[test]
fn options_of_a_container_precede_those_of_its_network() {
    let input = with(container(), "network.options", json!({"switch": "lab0", "mtu": "9000", "access": "7"}));
    let input = with(input, "network_options.options", json!({"mtu": "1400", "run_dir": "/srv/run"}));
    let input = with(input, "network_options.static_mac", json!("02:00:00:00:00:07"));
    let config = read(&input).unwrap().config().unwrap();
    assert_eq!((config.bridge.as_str(), config.asked_mtu()), ("lab0", Some(1400)));
    assert_eq!(config.daemon_dir(), PathBuf::from("/srv/run"));
    assert_eq!(config.mac(None), Some(Mac([2, 0, 0, 0, 0, 7])));
    let set = config.policies.options(Mac::default(), &ContainerAddresses::default()).unwrap();
    assert_eq!(set, Map::from_iter([("access".to_owned(), json!(7))]));
    let later = with(input, "network_options.options", json!({"run_dir": "/srv/run", "mtu": "x", "gone": ""}));
    let place = read(&later).unwrap().place().unwrap();
    assert_eq!((place.bridge.as_str(), place.daemon_dir()), ("lab0", PathBuf::from("/srv/run")));
}

/// Objective: each address has the prefix length and the gateway of its subnet. The routes are those of the network,
/// with their metrics, and a default route through each gateway, unless the network is internal or disables default
/// routes.
#[test]
fn addresses_have_the_gateways_of_their_subnets() {
    let subnets = json!([{"subnet": "10.2.0.0/16"}, {"subnet": "fd00::/64", "gateway": "fd00::1"},
        {"subnet": "10.1.0.0/24", "gateway": "10.1.0.1"}]);
    let routes = json!([{"destination": "10.9.0.0/16", "gateway": "10.1.0.9", "metric": 7},
        {"destination": "fd09::/16", "gateway": "fd00::9"}]);
    let input = with(with(container(), "network.subnets", subnets), "network.routes", routes);
    let input = with(input, "network_options.static_ips", json!(["10.1.0.2", "fd00::2", "10.2.3.4"]));
    let told = |input: &Value| {
        let addresses = read(input).unwrap().addresses().unwrap();
        let ips = addresses.ips.iter().map(|ip| {
            let gateway = ip.gateway.map(|gateway| gateway.to_string()).unwrap_or_default();
            format!("{}/{} {gateway}", ip.own.address, ip.own.length)
        });
        let routes = addresses.routes.iter().map(|route| {
            let metric = route.priority.unwrap_or_default();
            format!("{}/{} via {} {metric}", route.to.address, route.to.length, route.gateway.unwrap())
        });
        (ips.collect::<Vec<_>>(), routes.collect::<Vec<_>>())
    };
    let (ips, routes) = told(&input);
    assert_eq!(ips, ["10.1.0.2/24 10.1.0.1", "fd00::2/64 fd00::1", "10.2.3.4/16 "]);
    let named = ["10.9.0.0/16 via 10.1.0.9 7".to_owned(), "fd09::/16 via fd00::9 100".to_owned()];
    let default = ["0.0.0.0/0 via 10.1.0.1 100".to_owned(), "::/0 via fd00::1 100".to_owned()];
    assert_eq!(routes, [&default[..], &named[..]].concat());
    assert_eq!(told(&with(input.clone(), "network.internal", json!(true))).1, named);
    assert_eq!(told(&with(input.clone(), "network.options", json!({"no_default_route": "true"}))).1, named);
    let other = told(&with(input, "network.options", json!({"metric": "50"}))).1;
    assert_eq!((other[0].as_str(), other[3].as_str()), ("0.0.0.0/0 via 10.1.0.1 50", "fd09::/16 via fd00::9 50"));
}

/// Objective: whether an address belongs to a network is determined correctly for prefix lengths from 0 to the maximum.
#[test]
fn whether_a_network_contains_an_address() {
    for (network, address, expected) in [
        ("10.1.0.0/24", "10.1.0.255", true),
        ("10.1.0.0/24", "10.1.1.0", false),
        ("0.0.0.0/0", "255.255.255.255", true),
        ("10.1.0.7/32", "10.1.0.7", true),
        ("10.1.0.7/32", "10.1.0.6", false),
        ("::/0", "ffff::", true),
        ("fd00::/64", "fd00::ffff:0:0:1", true),
        ("fd00::/64", "fd00:0:0:1::", false),
        ("fd00::1/128", "fd00::2", false),
        ("0.0.0.0/0", "::", false),
    ] {
        assert_eq!(contains(prefix(network).unwrap(), address.parse().unwrap()), expected, "{network} {address}");
    }
}
