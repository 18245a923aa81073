//! Kata Containers' files of directly attachable networks. Each file lists the devices of one sandbox. The files are in
//! the folder that the key `dan_conf` of Kata's configuration names.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;

use serde_json::{Value, json};

use crate::call::Container;
use crate::result::{ContainerAddresses, ContainerInterface};

/// Returns a device's entry for the sandbox's file. `pairs` is the number of queue pairs.
pub fn device(interface: &ContainerInterface, socket: &str, pairs: u32, addresses: &ContainerAddresses) -> Value {
    let own = |ip: &crate::result::ContainerIp| format!("{}/{}", ip.own.address, ip.own.length);
    let ips: Vec<_> = addresses.ips.iter().map(own).collect();
    let routes = addresses.routes.iter().map(|route| {
        // Kata expects an empty destination for the default route.
        let dest =
            if route.to.length == 0 { String::new() } else { format!("{}/{}", route.to.address, route.to.length) };
        json!({"dest": dest, "gateway": route.gateway.map(|ip| ip.to_string()).unwrap_or_default()})
    });
    json!({
        "name": interface.name,
        "guest_mac": interface.mac.to_string(),
        "device": {"type": "vhost-user", "path": socket, "queue_num": pairs},
        "network_info": {
            "interface": {"ip_addresses": ips, "mtu": interface.mtu, "ntype": "vhost-user"},
            "routes": routes.collect::<Vec<_>>(),
        },
    })
}

/// Adds a device to the sandbox's file `file`, and creates the file if it does not exist.
///
/// # Errors
/// The file cannot be written, or does not have Kata's format.
pub fn add(file: &Path, container: &Container, device: &Value) -> std::io::Result<()> {
    let mut whole = match fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes)?,
        Err(e) if e.kind() == ErrorKind::NotFound => json!({"netns": container.netns, "devices": []}),
        Err(e) => return Err(e),
    };
    let devices = whole["devices"]
        .as_array_mut()
        .ok_or_else(|| Error::new(ErrorKind::InvalidData, "expected a list `devices`"))?;
    devices.push(device.clone());
    replace(file, &whole)
}

/// Removes, from the files of all sandboxes in the folder `dir`, the devices whose sockets are in the folder `sockets`.
pub fn forget(dir: &Path, sockets: &Path) {
    let files = fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    files.filter(|file| file.extension().is_some_and(|ext| ext == "json")).for_each(|file| remove(&file, sockets));
}

/// Removes the devices whose sockets are in the folder `sockets` from one file. Removes the file if no device is left
/// in it.
fn remove(file: &Path, sockets: &Path) {
    let Ok(bytes) = fs::read(file) else { return };
    let Ok(mut whole) = serde_json::from_slice::<Value>(&bytes) else { return };
    let Some(devices) = whole["devices"].as_array_mut() else { return };
    let before = devices.len();
    let is_there = |path: &str| Path::new(path).parent() == Some(sockets);
    devices.retain(|device| !device["device"]["path"].as_str().is_some_and(is_there));
    // An error is ignored: Kata reads the file only when a sandbox starts, and this sandbox has ended.
    match devices.len() {
        left if left == before => {}
        0 => _ = fs::remove_file(file),
        _ => _ = replace(file, &whole),
    }
}

/// Replaces the file atomically.
fn replace(file: &Path, whole: &Value) -> std::io::Result<()> {
    let fresh = file.with_extension("json.new");
    fs::write(&fresh, whole.to_string())?;
    fs::rename(fresh, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: devices are added to and removed from the sandbox's file, which is removed together with its last
    /// device.
    #[test]
    fn devices_are_added_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sandbox.json");
        let container = Container {
            id: "sandbox".into(),
            ifname: "eth0".into(),
            netns: "/n".into(),
            mac: None,
            about: String::new(),
        };
        let interface = ContainerInterface { name: "eth0".into(), mtu: 1500, ..ContainerInterface::default() };
        let all = ContainerAddresses::read(
            &json!({"ips": [{"address": "10.1.0.2/24", "gateway": "10.1.0.1"}], "routes": [{"dst": "0.0.0.0/0"}]}),
        );
        let all = all.unwrap();
        for socket in ["/a/eth0.sock", "/b/eth0.sock"] {
            add(&file, &container, &device(&interface, socket, 2, &all)).unwrap();
        }
        let read = || serde_json::from_slice::<Value>(&fs::read(&file).unwrap()).unwrap();
        assert_eq!((&read()["netns"], read()["devices"].as_array().map(Vec::len)), (&json!("/n"), Some(2)));
        let first = read()["devices"][0].clone();
        assert_eq!(first["device"], json!({"type": "vhost-user", "path": "/a/eth0.sock", "queue_num": 2}));
        assert_eq!(first["network_info"]["routes"], json!([{"dest": "", "gateway": "10.1.0.1"}]));
        forget(dir.path(), Path::new("/c"));
        assert_eq!(read()["devices"].as_array().map(Vec::len), Some(2));
        forget(dir.path(), Path::new("/a"));
        assert_eq!(read()["devices"][0]["device"]["path"], "/b/eth0.sock");
        forget(dir.path(), Path::new("/b"));
        assert!(!file.exists());
        forget(dir.path(), Path::new("/b"));
        fs::write(&file, "{}").unwrap();
        assert!(add(&file, &container, &json!({})).is_err());
    }
}
