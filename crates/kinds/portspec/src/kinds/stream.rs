//! `stream:/PATH`, `stream:IP:PORT`: connections with frames in a byte stream, each after its length.

use super::SpecKind;

/// The kind `stream`: connections with frames in a byte stream.
pub(super) const KIND: SpecKind = SpecKind {
    word: "stream",
    pattern: Some("^stream:"),
    example: "stream:/n.sock",
    help: &[("stream:/PATH, stream:IP:PORT", "QEMU's -netdev stream and socket, passt: a port for each connection")],
    takes: &["mtu", "vnet_hdr", "client", "reconnect", "peers", "socket_mode", "socket_user", "socket_group"],
    adjusts: &["mtu"],
    page: "reference/sockets.md",
};
