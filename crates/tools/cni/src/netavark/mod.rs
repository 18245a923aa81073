//! The plugin's interface to netavark, podman's network stack: it serves networks of the driver `netvale`.
//!
//! The first argument is the operation, the second the path of the container's network namespace. podman assigns the
//! addresses. A rootless podman runs the plugin in podman's user, mount and network namespaces, in which the plugin is
//! root.
//!
//! | module | contents |
//! |---|---|
//! | [`input`] | networks and containers as podman describes them |
//! | [`options`] | the network's options |
//! | [`rootless`] | the run directory of a rootless user's daemon |

pub mod input;
pub mod options;
pub mod rootless;

use std::ffi::OsString;

use netvale_netns::Namespace;
use netvale_netns::netlink::AddressPrefix;
use serde_json::{Map, Value, json};

use crate::attachment::{AttachedContainer, connect};
use crate::error::{CniError, Code};
use crate::kinds::tap;
use crate::name;
use crate::result::{ContainerAddresses, ContainerInterface};

use input::{ContainerInput, PodmanNetwork};

/// The version of the interface between netavark and its plugins.
const API: &str = "1.0.0";
const USAGE: &str = "invalid arguments: expected create, setup NAMESPACE, teardown NAMESPACE, or info";

/// Carries out the operation that the arguments request. Returns the operation's output; `None` if it has none. `input`
/// reads the operation's input.
///
/// # Errors
/// The error, in netavark's format.
pub fn run(words: &[OsString], input: impl FnOnce() -> Result<Value, CniError>) -> Result<Option<Value>, Value> {
    let text = |word: &OsString| word.to_str().map(str::to_owned);
    let words: Option<Vec<String>> = words.iter().map(text).collect();
    let words: Vec<&str> = words.iter().flatten().map(String::as_str).collect();
    let done = match words[..] {
        ["create"] => input().and_then(create).map(Some),
        ["setup", place] => input().and_then(|input| setup(place, &input)).map(Some),
        ["teardown", place] => input().and_then(|input| teardown(place, &input)).map(|()| None),
        ["info"] => Ok(Some(json!({"version": env!("CARGO_PKG_VERSION"), "api_version": API}))),
        _ => Err(CniError::new(Code::Environment, USAGE)),
    };
    done.map_err(|error| json!({"error": error.text()}))
}

/// Checks a new network, and completes it with the settings that podman leaves to the driver.
fn create(mut network: Value) -> Result<Value, CniError> {
    PodmanNetwork::read(&network)?.check()?;
    // netavark's name server serves only containers of netavark's own drivers.
    network["dns_enabled"] = json!(false);
    if !network["ipam_options"].is_object() {
        network["ipam_options"] = json!({});
    }
    let driver = &mut network["ipam_options"]["driver"];
    if driver.as_str().unwrap_or_default().is_empty() {
        *driver = json!(input::HOST_LOCAL);
    }
    Ok(network)
}

fn setup(place: &str, input: &Value) -> Result<Value, CniError> {
    let input = ContainerInput::read(input)?;
    let container = input.container(place)?;
    let config = input.config()?;
    let addresses = input.addresses()?;
    let port = name::of_port(name::NETAVARK, &config.name, &container.id, &container.ifname);
    let attachment = AttachedContainer { config: &config, container: &container, port: &port };
    let namespace = Namespace::open(place)?;
    let mut daemon = connect(&config)?;
    if attachment.is_there(&mut daemon)? {
        if tap::is_there(&namespace, &container.ifname)? {
            return Err(attachment.exists("disconnect the container from the network first"));
        }
        // The port still exists if a container was killed and is starting again in a new namespace, while its previous
        // namespace still exists.
        attachment.detach(&mut daemon)?;
    }
    attachment.begin(&namespace)?;
    match attachment.complete(&namespace, &addresses) {
        Ok(interface) => Ok(status(&interface, &addresses)),
        Err(error) => {
            // The original error is returned; an error of this cleanup is ignored.
            let _ = attachment.detach(&mut daemon);
            Err(error)
        }
    }
}

fn teardown(place: &str, input: &Value) -> Result<(), CniError> {
    let input = ContainerInput::read(input)?;
    let container = input.container(place)?;
    let config = input.place()?;
    let port = name::of_port(name::NETAVARK, &config.name, &container.id, &container.ifname);
    AttachedContainer { config: &config, container: &container, port: &port }.end()
}

/// Returns the result of `setup`, which `podman inspect` shows.
fn status(interface: &ContainerInterface, addresses: &ContainerAddresses) -> Value {
    let subnets = addresses.ips.iter().map(|ip| {
        let AddressPrefix { address, length } = ip.own;
        let mut subnet = Map::from_iter([("ipnet".to_owned(), json!(format!("{address}/{length}")))]);
        subnet.extend(ip.gateway.map(|gateway| ("gateway".to_owned(), json!(gateway))));
        Value::Object(subnet)
    });
    let subnets: Vec<_> = subnets.collect();
    let described = json!({"mac_address": interface.mac.to_string(), "subnets": subnets});
    let interfaces = Map::from_iter([(interface.name.clone(), described)]);
    json!({"dns_search_domains": [], "dns_server_ips": [], "interfaces": interfaces})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(words: &[&str], input: Value) -> Result<Option<Value>, Value> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        run(&words, || Ok(input))
    }

    /// Objective: `create` keeps podman's description of a network, except that it disables DNS and selects podman's
    /// address management.
    #[test]
    fn a_new_network_keeps_what_podman_says_of_it() {
        let network = json!({"name": "lab", "id": "7f", "driver": "netvale", "created": "2024-01-01T00:00:00Z",
            "dns_enabled": true, "internal": false, "ipv6_enabled": false, "labels": {"a": "b"},
            "options": {"switch": "lab0", "mtu": "9000"}, "subnets": [{"subnet": "10.1.0.0/24", "lease_range": null}]});
        let mut expected = network.clone();
        expected["dns_enabled"] = json!(false);
        expected["ipam_options"] = json!({"driver": "host-local"});
        assert_eq!(ask(&["create"], network.clone()), Ok(Some(expected.clone())));
        assert_eq!(ask(&["create"], expected.clone()), Ok(Some(expected)), "again");
        let mut none = network;
        none["subnets"] = Value::Null;
        none["ipam_options"] = json!({"driver": "none"});
        assert_eq!(ask(&["create"], none).unwrap().unwrap()["ipam_options"]["driver"], "none");
    }

    /// Objective: invalid arguments lead to an error that lists the valid arguments, and the input is not read.
    #[test]
    fn other_arguments_are_answered_by_the_right_ones() {
        for words in [&["setup"][..], &["create", "x"], &["--help"], &["teardown"], &["info", "x"], &[""]] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let error = run(&words, || unreachable!("the input is not read")).unwrap_err();
            assert_eq!(error, json!({"error": USAGE}), "{words:?}");
        }
        let info = ask(&["info"], Value::Null).unwrap().unwrap();
        assert_eq!((&info["api_version"], &info["version"]), (&json!("1.0.0"), &json!(env!("CARGO_PKG_VERSION"))));
    }

    /// Objective: the result has the members that netavark expects; the entry of an address without a gateway has no
    /// member for the gateway.
    #[test]
    fn the_result_has_the_members_of_netavark() {
        let addresses = json!({"ips": [{"address": "10.1.0.2/24", "gateway": "10.1.0.1"}, {"address": "fd00::2/64"}]});
        let addresses = ContainerAddresses::read(&addresses).unwrap();
        let interface = ContainerInterface { name: "eth0".into(), ..ContainerInterface::default() };
        let expected = json!({"dns_search_domains": [], "dns_server_ips": [], "interfaces": {"eth0": {
            "mac_address": "00:00:00:00:00:00",
            "subnets": [{"ipnet": "10.1.0.2/24", "gateway": "10.1.0.1"}, {"ipnet": "fd00::2/64"}]}}});
        assert_eq!(status(&interface, &addresses), expected);
    }
}
