//! A vhost-user socket in place of an interface, for a container that is a virtual machine.
//!
//! Each port has its own folder with the socket and a description. The folder is named after the port, so GC finds the
//! folders of containers that no longer exist. The description has the members of userspace CNI's configuration data,
//! for other programs. The folder belongs to the daemon's user, so this plugin trusts nothing in it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use netvale_control::client::Client;
use netvale_control::types::{AttachParams, PortOptions, VhostInfo};
use rustix::fs::{Gid, Uid};
use serde_json::{Value, json};

use crate::call::Container;
use crate::config::CniConfig;
use crate::error::{CniError, Code};
use crate::folder::OpenFolder;
use crate::kata;
use crate::result::{ContainerAddresses, ContainerInterface};

/// File name of the description.
const DESCRIPTION: &str = "interface.json";

fn folders(config: &CniConfig) -> PathBuf {
    config.socket_dir.clone().unwrap_or_else(|| config.daemon_dir().join("cni"))
}

/// Attaches the port, with a socket in the port's own folder, and writes the description and, if configured, Kata's
/// file. Returns the interface's entry for the result.
///
/// # Errors
/// [`CniError`]: the folder cannot be created, or the daemon refuses.
pub fn attach(
    config: &CniConfig,
    container: &Container,
    port: &str,
    addresses: &ContainerAddresses,
    daemon: &mut Client,
) -> Result<ContainerInterface, CniError> {
    let folder = folders(config).join(port);
    let failed = |e: std::io::Error| CniError::new(Code::Io, format!("cannot set up {}: {e}", folder.display()));
    let made = make(config, port).map_err(failed)?;
    let socket = folder.join(format!("{}.sock", container.ifname)).display().to_string();
    let options = PortOptions {
        name: Some(port.to_owned()),
        rings: config.queues,
        mtu: config.asked_mtu(),
        mac: config.mac(container.mac),
        gro: config.gro,
        ..PortOptions::default()
    };
    let params = AttachParams { switch: config.bridge.clone(), port: format!("vhost:{socket}"), options };
    let vhost = daemon.attach(params)?.detail::<VhostInfo>().cloned().unwrap_or_default();
    let interface = ContainerInterface {
        name: container.ifname.clone(),
        mac: vhost.mac,
        mtu: vhost.mtu,
        socket: Some(socket.clone()),
        ..ContainerInterface::default()
    };
    let description = describe(config, container, &interface, addresses);
    made.write(DESCRIPTION, &description.to_string()).map_err(failed)?;
    if let Some(file) = config.kata_dir.as_ref().map(|dir| dir.join(format!("{}.json", container.id))) {
        kata::add(&file, container, &kata::device(&interface, &socket, vhost.pairs, addresses))
            .map_err(|e| CniError::new(Code::Io, format!("cannot update {}: {e}", file.display())))?;
    }
    Ok(interface)
}

/// Returns the description of the socket, which a program in the container or a virtual machine monitor reads.
fn describe(
    config: &CniConfig,
    container: &Container,
    interface: &ContainerInterface,
    addresses: &ContainerAddresses,
) -> Value {
    json!({
        "containerId": container.id,
        "ifName": container.ifname,
        "name": config.name,
        "config": {
            "iftype": "vhostuser",
            "netType": "interface",
            "vhost": {"mode": "client", "socketfile": format!("{}.sock", container.ifname)},
        },
        "ipResult": addresses.result("1.0.0", interface, None),
        "socket": interface.socket,
        "mac": interface.mac.to_string(),
        "mtu": interface.mtu,
    })
}

/// Creates a port's folder, and gives it to the daemon's user, so that the daemon can create a socket in it.
fn make(config: &CniConfig, port: &str) -> std::io::Result<OpenFolder> {
    let daemon = fs::metadata(config.daemon_dir())?;
    let uid = Uid::from_raw(daemon.uid());
    let gid = Gid::from_raw(daemon.gid());
    OpenFolder::open_or_make(&folders(config), uid, gid)?.inner(port, uid, gid)
}

/// Removes a port's folder, if there is one, and the port's devices in Kata's files.
pub fn remove(config: &CniConfig, port: &str) {
    let above = folders(config);
    if let Some(dir) = &config.kata_dir {
        kata::forget(dir, &above.join(port));
    }
    // If the removal fails, a later GC removes the folder.
    if let Ok(folder) = OpenFolder::open(&above) {
        folder.remove(port);
    }
}

/// Removes the folders of all ports of a network except the ports in `keep`. `network` is the prefix of the names of
/// the network's ports.
pub fn keep_only(config: &CniConfig, network: &str, keep: &[String]) {
    let Ok(folder) = OpenFolder::open(&folders(config)) else { return };
    for name in folder.names().iter().filter(|name| name.starts_with(network) && !keep.contains(name)) {
        remove(config, name);
    }
}
