//! `ptnet:/PATH`: a ptnet device, for a virtual machine.

use super::SpecKind;

/// The kind `ptnet`: a ptnet device.
pub(super) const KIND: SpecKind = SpecKind {
    word: "ptnet",
    pattern: Some("^ptnet:"),
    example: "ptnet:/p.sock",
    help: &[("ptnet:/PATH", "a ptnet device at this socket: netmap rings that a virtual machine maps")],
    takes: &[
        "rings",
        "slots",
        "buf_size",
        "vnet_hdr",
        "mtu",
        "gro",
        "vfio_user",
        "backend",
        "socket_mode",
        "socket_user",
        "socket_group",
        "mac",
    ],
    adjusts: &[],
    page: "guide/ptnet.md",
};
