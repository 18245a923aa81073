//! `stream:/PATH`, `stream:IP:PORT`: frames behind their lengths, on connections.

use super::SpecKind;

/// Streams of frames.
pub(super) const KIND: SpecKind = SpecKind {
    word: "stream",
    pattern: Some("^stream:"),
    example: "stream:/n.sock",
    help: &[("stream:/PATH, stream:IP:PORT", "QEMU's -netdev stream and socket, passt: a port for each that connects")],
    takes: &["mtu", "vnet_hdr", "client", "reconnect", "peers", "socket_mode", "socket_user", "socket_group"],
    adjusts: &["mtu"],
    page: "reference/sockets.md",
};
