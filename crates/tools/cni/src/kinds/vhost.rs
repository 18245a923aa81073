//! A vhost-user socket in place of an interface, for a container that is a virtual machine.
//!
//! Each port has a folder of its own, named after it, that holds the socket and a description. The folder of a
//! container that no longer exists is found by that name. The description has the members of userspace CNI's
//! configuration data. It is for other programs: the folder belongs to the daemon's user, and this plugin trusts
//! nothing in it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use netvale_control::client::Client;
use netvale_control::types::{AttachParams, PortOptions, VhostInfo};
use rustix::fs::{Gid, Uid};
use serde_json::{Value, json};

use crate::call::Container;
use crate::config::Config;
use crate::error::{CniError, Code};
use crate::folder::OpenFolder;
use crate::kata;
use crate::result::{Addresses, Interface};

/// Name of the description.
const DESCRIPTION: &str = "interface.json";

fn folders(config: &Config) -> PathBuf {
    config.socket_dir.clone().unwrap_or_else(|| config.daemon_dir().join("cni"))
}

/// Attaches the port, with a socket in its own folder, and writes the description, for Kata too if configured.
///
/// # Errors
/// [`CniError`]: the folder cannot be made, the daemon refuses.
pub fn attach(
    config: &Config,
    container: &Container,
    port: &str,
    addresses: &Addresses,
    daemon: &mut Client,
) -> Result<Interface, CniError> {
    let folder = folders(config).join(port);
    let failed = |e: std::io::Error| CniError::new(Code::Io, format!("{}: {e}", folder.display()));
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
    let interface = Interface {
        name: container.ifname.clone(),
        mac: vhost.mac,
        mtu: vhost.mtu,
        socket: Some(socket.clone()),
        ..Interface::default()
    };
    let description = describe(config, container, &interface, addresses);
    made.write(DESCRIPTION, &description.to_string()).map_err(failed)?;
    if let Some(file) = config.kata_dir.as_ref().map(|dir| dir.join(format!("{}.json", container.id))) {
        kata::add(&file, container, &kata::device(&interface, &socket, vhost.pairs, addresses))
            .map_err(|e| CniError::new(Code::Io, format!("{}: {e}", file.display())))?;
    }
    Ok(interface)
}

/// The description for a program in the container, or for a virtual machine manager.
fn describe(config: &Config, container: &Container, interface: &Interface, addresses: &Addresses) -> Value {
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

/// Makes a port's folder. It belongs to the daemon's user, as the run directory does, so that the daemon can make a
/// socket there.
fn make(config: &Config, port: &str) -> std::io::Result<OpenFolder> {
    let daemon = fs::metadata(config.daemon_dir())?;
    let uid = Uid::from_raw(daemon.uid());
    let gid = Gid::from_raw(daemon.gid());
    OpenFolder::open_or_make(&folders(config), uid, gid)?.inner(port, uid, gid)
}

/// Removes a port's folder, if any, and the port's entries elsewhere.
pub fn remove(config: &Config, port: &str) {
    let above = folders(config);
    if let Some(dir) = &config.kata_dir {
        kata::forget(dir, &above.join(port));
    }
    // GC finds again what cannot be removed now.
    if let Ok(folder) = OpenFolder::open(&above) {
        folder.remove(port);
    }
}

/// Removes the folders of a network's ports except those of `keep`.
pub fn keep_only(config: &Config, network: &str, keep: &[String]) {
    let Ok(folder) = OpenFolder::open(&folders(config)) else { return };
    for name in folder.names().iter().filter(|name| name.starts_with(network) && !keep.contains(name)) {
        remove(config, name);
    }
}
