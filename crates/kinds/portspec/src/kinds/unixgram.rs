//! `unixgram:/PATH`: datagrams, from the first sender.

use super::SpecKind;

/// Datagrams of a peer that says itself where it is.
pub(super) const KIND: SpecKind = SpecKind {
    word: "unixgram",
    pattern: Some("^unixgram:"),
    example: "unixgram:/n.sock",
    help: &[("unixgram:/PATH", "libkrun's and vfkit's sockets, as gvproxy has them")],
    takes: &["mtu", "vnet_hdr", "socket_mode", "socket_user", "socket_group"],
    adjusts: &["mtu"],
    page: "reference/sockets.md",
};
