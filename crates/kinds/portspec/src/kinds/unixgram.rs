//! `unixgram:/PATH`: datagrams of the first sender.

use super::SpecKind;

/// The kind `unixgram`: datagrams of a peer that chooses its own socket path.
pub(super) const KIND: SpecKind = SpecKind {
    word: "unixgram",
    pattern: Some("^unixgram:"),
    example: "unixgram:/n.sock",
    help: &[("unixgram:/PATH", "sockets for libkrun and vfkit, like gvproxy's")],
    takes: &["mtu", "vnet_hdr", "socket_mode", "socket_user", "socket_group"],
    adjusts: &["mtu"],
    page: "reference/sockets.md",
};
