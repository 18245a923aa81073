//! A vhost-user socket in place of an interface, for a container that is a virtual machine.
//!
//! Each port has a folder of its own, with its name, that holds the socket and a file that describes it. A folder that
//! no container has any more is found by its name. The description has the members that userspace CNI's configuration
//! data have. It is for others: the folder is the daemon's user's, and nothing in it is believed here.

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

/// The file that describes a socket.
const DESCRIPTION: &str = "interface.json";

fn folders(config: &Config) -> PathBuf {
    config.socket_dir.clone().unwrap_or_else(|| config.daemon_dir().join("cni"))
}

/// Attaches the port, with a socket in a folder of its own, and describes it there, and to Kata if the configuration
/// says so.
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

/// What a program in the container, or a virtual machine's manager, needs to know.
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

/// Makes a port's folder, in which the daemon can make a socket: it belongs to the daemon's user, as the run directory
/// does.
fn make(config: &Config, port: &str) -> std::io::Result<OpenFolder> {
    let daemon = fs::metadata(config.daemon_dir())?;
    let uid = Uid::from_raw(daemon.uid());
    let gid = Gid::from_raw(daemon.gid());
    OpenFolder::open_or_make(&folders(config), uid, gid)?.inner(port, uid, gid)
}

/// Removes a port's folder, if it has one, and what else was written for it.
pub fn remove(config: &Config, port: &str) {
    let above = folders(config);
    if let Some(dir) = &config.kata_dir {
        kata::forget(dir, &above.join(port));
    }
    // What cannot be removed now is found again by GC.
    if let Ok(folder) = OpenFolder::open(&above) {
        folder.remove(port);
    }
}

/// Removes the folders of a network's ports but those of `keep`.
pub fn keep_only(config: &Config, network: &str, keep: &[String]) {
    let Ok(folder) = OpenFolder::open(&folders(config)) else { return };
    for name in folder.names().iter().filter(|name| name.starts_with(network) && !keep.contains(name)) {
        remove(config, name);
    }
}
