//! The operations of the plugin.

use netvale_control::client::Client;
use netvale_netns::Namespace;
use serde_json::{Value, json};

use crate::attachment::{AttachedContainer, connect, found, remove};
use crate::call::{CniCommand, Container, NEWEST, VERSIONS};
use crate::config::{CniConfig, InterfaceMode};
use crate::error::{CniError, Code};
use crate::kinds::{tap, vhost};
use crate::result::{ContainerAddresses, ContainerInterface, expected};
use crate::{ipam, name};

/// The key of the list of containers that still exist, in GC's configuration.
const VALID: &str = "cni.dev/valid-attachments";

/// Carries out the operation that the environment requests. Returns its output; `None` if it has none.
///
/// # Errors
/// [`CniError`], for the runtime.
pub fn run(input: &Value) -> Result<Option<Value>, CniError> {
    let command = CniCommand::read()?;
    if command == CniCommand::Version {
        let said = input.get("cniVersion").and_then(Value::as_str).unwrap_or(NEWEST);
        return Ok(Some(json!({"cniVersion": said, "supportedVersions": VERSIONS})));
    }
    let config = CniConfig::read(input, command)?;
    match command {
        CniCommand::Add => add(&config, input).map(Some),
        CniCommand::Del => del(&config, input).map(|()| None),
        CniCommand::Check => check(&config, input).map(|()| None),
        CniCommand::Gc => gc(&config, input).map(|()| None),
        CniCommand::Status | CniCommand::Version => status(&config, input).map(|()| None),
    }
}

fn add(config: &CniConfig, input: &Value) -> Result<Value, CniError> {
    let container = Container::read(true)?;
    let port = port_of(config, &container);
    let attachment = AttachedContainer { config, container: &container, port: &port };
    let mut daemon = connect(config)?;
    // This is checked before anything else, since the interface of an earlier ADD must not be changed.
    if attachment.is_there(&mut daemon)? {
        return Err(attachment.exists("run DEL before the next ADD"));
    }
    let namespace = Namespace::open(&container.netns)?;
    attachment.begin(&namespace)?;
    let made = addresses(config, input).and_then(|addresses| {
        let interface = attachment.complete(&namespace, &addresses)?;
        Ok((addresses, interface))
    });
    let version = input["cniVersion"].as_str().unwrap_or_default();
    match made {
        Ok((addresses, interface)) => {
            let interface = ContainerInterface { sandbox: container.netns, ..interface };
            Ok(addresses.result(version, &interface, config.dns.as_ref()))
        }
        Err(error) => {
            // The original error is returned. If these calls fail, a later DEL removes the rest.
            let _ = attachment.detach(&mut daemon);
            let _ = delegate(config, "DEL", input);
            Err(error)
        }
    }
}

/// Requests addresses from the address plugin; returns no addresses if no such plugin is configured.
fn addresses(config: &CniConfig, input: &Value) -> Result<ContainerAddresses, CniError> {
    if config.ipam.kind.is_empty() {
        return Ok(ContainerAddresses::default());
    }
    let result = ipam::run(&config.ipam.kind, "ADD", input)?;
    let text = format!("plugin {} returned no addresses", config.ipam.kind);
    let mut addresses = ContainerAddresses::read(&result.ok_or_else(|| CniError::new(Code::Decode, text.clone()))?)?;
    if addresses.ips.is_empty() {
        return Err(CniError::new(Code::Config, text));
    }
    if config.is_default_gateway {
        addresses.add_default_routes()?;
    }
    Ok(addresses)
}

/// Runs the address plugin for `command`, if an address plugin is configured.
fn delegate(config: &CniConfig, command: &str, input: &Value) -> Result<(), CniError> {
    if config.ipam.kind.is_empty() { Ok(()) } else { ipam::run(&config.ipam.kind, command, input).map(drop) }
}

fn del(config: &CniConfig, input: &Value) -> Result<(), CniError> {
    let container = Container::read(false)?;
    let port = port_of(config, &container);
    let removed = AttachedContainer { config, container: &container, port: &port }.end();
    // Addresses are released even if the port could not be removed.
    let released = delegate(config, "DEL", input);
    removed.and(released)
}

fn check(config: &CniConfig, input: &Value) -> Result<(), CniError> {
    let container = Container::read(true)?;
    let port = port_of(config, &container);
    let Some(previous) = &config.prev_result else {
        return Err(CniError::new(Code::Config, "prevResult is missing: CHECK compares with the result of ADD"));
    };
    delegate(config, "CHECK", input)?;
    let mut daemon = connect(config)?;
    let attachment = AttachedContainer { config, container: &container, port: &port };
    if !attachment.is_there(&mut daemon)? {
        let text = format!("the container's port {} is not on the switch", attachment.full());
        return Err(CniError::new(Code::Broken, text));
    }
    if config.mode == InterfaceMode::VhostUser {
        return Ok(());
    }
    let (mac, addresses) = expected(previous, &container.ifname, &container.netns)?;
    tap::check(&Namespace::open(&container.netns)?, &container.ifname, mac, &addresses)
}

/// Removes those ports of the network that belong to containers which are not on the list of existing containers.
fn gc(config: &CniConfig, input: &Value) -> Result<(), CniError> {
    // Some runtimes send null for an empty list.
    if input.get(VALID).is_none() {
        let text = format!("{VALID} is missing: GC needs the list of existing containers");
        return Err(CniError::new(Code::Config, text));
    }
    let valid = config.valid.as_deref().unwrap_or_default();
    let keep: Vec<_> =
        valid.iter().map(|one| name::of_port(name::CNI, &config.name, &one.container, &one.ifname)).collect();
    let own = name::of_network(name::CNI, &config.name);
    let mut daemon = connect(config)?;
    let mut first = Ok(());
    let there = found(daemon.ports(Some(&config.bridge)))?.unwrap_or_default();
    let ports = there.iter().filter_map(|port| Some(port.name.split_once(':')?.1));
    for port in ports.filter(|port| port.starts_with(&own) && !keep.iter().any(|kept| kept == port)) {
        first = first.and(remove(config, port, &mut daemon).map(drop));
    }
    vhost::keep_only(config, &own, &keep);
    first?;
    delegate(config, "GC", input)
}

fn status(config: &CniConfig, input: &Value) -> Result<(), CniError> {
    let answer = Client::connect(&config.daemon_dir()).and_then(|mut daemon| daemon.version());
    answer.map_err(|error| CniError::advised(Code::Unavailable, error.what(), error.hint()))?;
    delegate(config, "STATUS", input)
}

fn port_of(config: &CniConfig, container: &Container) -> String {
    name::of_port(name::CNI, &config.name, &container.id, &container.ifname)
}
