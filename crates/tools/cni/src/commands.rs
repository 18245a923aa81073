//! The operations of the plugin.

use netvale_control::ErrorCode;
use netvale_control::client::{Client, ClientError};
use netvale_control::types::Mac;
use netvale_netns::Namespace;
use serde_json::{Map, Value, json};

use crate::call::{CniCommand, Container, NEWEST, VERSIONS};
use crate::config::{CniConfig, InterfaceMode};
use crate::error::{CniError, Code};
use crate::kinds::{tap, vhost};
use crate::result::{ContainerAddresses, ContainerInterface, expected};
use crate::{ipam, name};

/// The key of the list of containers that still exist.
const VALID: &str = "cni.dev/valid-attachments";

/// Carries out the operation that the environment requests. Returns its output.
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
    let port = name::of_port(&config.name, &container.id, &container.ifname);
    let mut daemon = connect(config)?;
    // This check comes first: an earlier ADD's interface must stay unchanged.
    if is_attached(config, &port, &mut daemon)? {
        let text = format!(
            "container {} already has an interface {} in the network {}",
            container.id, container.ifname, config.name
        );
        return Err(CniError::advised(Code::Exists, text, "run DEL before the next ADD"));
    }
    let namespace = Namespace::open(&container.netns)?;
    if config.mode == InterfaceMode::Tap {
        tap::attach(config, &container, &port, &namespace)?;
    }
    let made = || -> Result<(ContainerAddresses, ContainerInterface), CniError> {
        let addresses = addresses(config, input)?;
        let mut daemon = connect(config)?;
        let interface = match config.mode {
            InterfaceMode::Tap => {
                // The policies are set while the interface is down, so that they apply to every frame.
                let mac = tap::address(&namespace, &container.ifname)?;
                set_policies(config, &container, &port, mac, &addresses, &mut daemon)?;
                tap::configure(&namespace, &container.ifname, &addresses)?
            }
            InterfaceMode::VhostUser => {
                let interface = vhost::attach(config, &container, &port, &addresses, &mut daemon)?;
                set_policies(config, &container, &port, interface.mac, &addresses, &mut daemon)?;
                interface
            }
        };
        Ok((addresses, interface))
    };
    let version = input["cniVersion"].as_str().unwrap_or_default();
    match made() {
        Ok((addresses, interface)) => {
            let interface = ContainerInterface { sandbox: container.netns, ..interface };
            Ok(addresses.result(version, &interface, config.dns.as_ref()))
        }
        Err(error) => {
            // The first error is reported. DEL removes what is left.
            let _ = remove(config, &port, &mut daemon).map(|was_there| wait(was_there, &container));
            let _ = release(config, input);
            Err(error)
        }
    }
}

/// Sets the configured policies on the container's port.
fn set_policies(
    config: &CniConfig,
    container: &Container,
    port: &str,
    mac: Mac,
    addresses: &ContainerAddresses,
    daemon: &mut Client,
) -> Result<(), CniError> {
    let full = format!("{}:{port}", config.bridge);
    let set = config.policies.options(mac, addresses)?;
    if !set.is_empty() {
        daemon.set(&full, set)?;
    }
    // The name is only for people: an older daemon, which does not support it, works too.
    let _ = daemon.set(&full, Map::from_iter([("info".to_owned(), json!(container.about))]));
    Ok(())
}

/// Runs the address plugin to get addresses.
fn addresses(config: &CniConfig, input: &Value) -> Result<ContainerAddresses, CniError> {
    if config.ipam.kind.is_empty() {
        return Ok(ContainerAddresses::default());
    }
    let result = ipam::run(&config.ipam.kind, "ADD", input)?;
    let text = format!("{} returned no addresses", config.ipam.kind);
    let mut addresses = ContainerAddresses::read(&result.ok_or_else(|| CniError::new(Code::Decode, text.clone()))?)?;
    if addresses.ips.is_empty() {
        return Err(CniError::new(Code::Config, text));
    }
    if config.is_default_gateway {
        addresses.add_default_routes()?;
    }
    Ok(addresses)
}

fn release(config: &CniConfig, input: &Value) -> Result<(), CniError> {
    if config.ipam.kind.is_empty() { Ok(()) } else { ipam::run(&config.ipam.kind, "DEL", input).map(drop) }
}

fn del(config: &CniConfig, input: &Value) -> Result<(), CniError> {
    let container = Container::read(false)?;
    let port = name::of_port(&config.name, &container.id, &container.ifname);
    let removed = match Client::connect(&config.daemon_dir()) {
        Ok(mut daemon) => remove(config, &port, &mut daemon).map(|was_there| wait(was_there, &container)),
        // Without a daemon, there are no ports, and their interfaces are gone too.
        Err(ClientError::NotRunning { .. }) => {
            vhost::remove(config, &port);
            Ok(())
        }
        Err(error) => Err(error.into()),
    };
    // Addresses are released even after an error.
    let released = release(config, input);
    removed.and(released)
}

/// Removes a port and everything that belongs to it. Returns whether it existed; a missing port is no error.
fn remove(config: &CniConfig, port: &str, daemon: &mut Client) -> Result<bool, CniError> {
    let done = found(daemon.detach(&config.bridge, port)).map(|done| done.is_some());
    vhost::remove(config, port);
    done
}

/// Waits until the interface of a removed port is gone, which may be after the daemon's answer.
fn wait(was_there: bool, container: &Container) {
    if was_there && let Ok(namespace) = Namespace::open(&container.netns) {
        tap::wait_gone(&namespace, &container.ifname);
    }
}

fn check(config: &CniConfig, input: &Value) -> Result<(), CniError> {
    let container = Container::read(true)?;
    let port = name::of_port(&config.name, &container.id, &container.ifname);
    let Some(previous) = &config.prev_result else {
        return Err(CniError::new(Code::Config, "prevResult is missing: CHECK compares with what ADD returned"));
    };
    if !config.ipam.kind.is_empty() {
        ipam::run(&config.ipam.kind, "CHECK", input)?;
    }
    let mut daemon = connect(config)?;
    if !is_attached(config, &port, &mut daemon)? {
        let full = format!("{}:{port}", config.bridge);
        return Err(CniError::new(Code::Broken, format!("the container's port {full} is not on the switch")));
    }
    if config.mode == InterfaceMode::VhostUser {
        return Ok(());
    }
    let (mac, addresses) = expected(previous, &container.ifname, &container.netns)?;
    tap::check(&Namespace::open(&container.netns)?, &container.ifname, mac, &addresses)
}

/// Removes the network's ports of containers that are not on the list of existing containers.
fn gc(config: &CniConfig, input: &Value) -> Result<(), CniError> {
    // Some runtimes send null for an empty list.
    if input.get(VALID).is_none() {
        return Err(CniError::new(
            Code::Config,
            format!("{VALID} is missing: GC needs the list of existing containers"),
        ));
    }
    let valid = config.valid.as_deref().unwrap_or_default();
    let keep: Vec<_> = valid.iter().map(|one| name::of_port(&config.name, &one.container, &one.ifname)).collect();
    let own = name::of_network(&config.name);
    let mut daemon = connect(config)?;
    let mut first = Ok(());
    let there = found(daemon.ports(Some(&config.bridge)))?.unwrap_or_default();
    let ports = there.iter().filter_map(|port| Some(port.name.split_once(':')?.1));
    for port in ports.filter(|port| port.starts_with(&own) && !keep.iter().any(|kept| kept == port)) {
        first = first.and(remove(config, port, &mut daemon).map(drop));
    }
    vhost::keep_only(config, &own, &keep);
    first?;
    if config.ipam.kind.is_empty() { Ok(()) } else { ipam::run(&config.ipam.kind, "GC", input).map(drop) }
}

fn status(config: &CniConfig, input: &Value) -> Result<(), CniError> {
    let answer = Client::connect(&config.daemon_dir()).and_then(|mut daemon| daemon.version());
    answer.map_err(|error| CniError::advised(Code::Unavailable, error.what(), error.hint()))?;
    if config.ipam.kind.is_empty() { Ok(()) } else { ipam::run(&config.ipam.kind, "STATUS", input).map(drop) }
}

fn connect(config: &CniConfig) -> Result<Client, CniError> {
    Ok(Client::connect(&config.daemon_dir())?)
}

/// Returns whether the container's port is on the switch.
fn is_attached(config: &CniConfig, port: &str, daemon: &mut Client) -> Result<bool, CniError> {
    Ok(found(daemon.show(&format!("{}:{port}", config.bridge)))?.is_some())
}

/// Returns an answer; `None` if the object does not exist in the daemon.
fn found<T>(answer: Result<T, ClientError>) -> Result<Option<T>, CniError> {
    match answer {
        Err(ClientError::Refused(why)) if why.is(ErrorCode::NotFound) => Ok(None),
        answer => Ok(Some(answer?)),
    }
}
