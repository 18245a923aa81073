//! `vhost:/PATH`: a vhost-user device, for a virtual machine's virtio-net driver.

use super::SpecKind;

/// The kind `vhost`: a vhost-user device.
pub(super) const KIND: SpecKind = SpecKind {
    word: "vhost",
    pattern: Some("^vhost:"),
    example: "vhost:/v.sock",
    help: &[("vhost:/PATH", "a vhost-user device at this socket: a virtual machine's virtio-net")],
    takes: &["rings", "mtu", "gro", "client", "socket_mode", "socket_user", "socket_group", "mac"],
    adjusts: &["mtu"],
    page: "guide/virtual-machines.md",
};
