//! `seqpacket:/PATH`: connections with one frame per message.

use super::SpecKind;

/// The kind `seqpacket`: connections with one frame per message.
pub(super) const KIND: SpecKind = SpecKind {
    word: "seqpacket",
    pattern: Some("^seqpacket:"),
    example: "seqpacket:/n.sock",
    help: &[("seqpacket:/PATH", "sockets of User-Mode Linux and BESS: a port for each connection")],
    takes: &["mtu", "vnet_hdr", "client", "reconnect", "peers", "socket_mode", "socket_user", "socket_group"],
    adjusts: &["mtu"],
    page: "reference/sockets.md",
};
