//! `seqpacket:/PATH`: connections of messages, each a frame.

use super::SpecKind;

/// Connections of messages.
pub(super) const KIND: SpecKind = SpecKind {
    word: "seqpacket",
    pattern: Some("^seqpacket:"),
    example: "seqpacket:/n.sock",
    help: &[("seqpacket:/PATH", "User-Mode Linux' and BESS's sockets: a port for each that connects")],
    takes: &["mtu", "vnet_hdr", "client", "reconnect", "peers", "socket_mode", "socket_user", "socket_group"],
    adjusts: &["mtu"],
    page: "reference/sockets.md",
};
