//! Ports of the members of a lab (`netvale lab`).

use std::path::Path;

use serde::{Deserialize, Serialize};

/// How a member's program connects to its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MemberSocket {
    Stream,
    Vhost,
    Vde,
}

impl MemberSocket {
    /// Returns the notation of a port whose socket is at this path.
    pub fn port(self, path: &Path) -> String {
        let kind = match self {
            MemberSocket::Stream => "stream",
            MemberSocket::Vhost => "vhost",
            MemberSocket::Vde => "vde",
        };
        format!("{kind}:{}", path.display())
    }

    /// Returns whether the path of the socket is a folder, which must exist before the port is attached.
    pub fn is_folder(self) -> bool {
        self == MemberSocket::Vde
    }
}

/// Returns the notation of the port for a member in namespaces.
pub(crate) fn interface_port(interface: &str) -> String {
    format!("tap:{interface}")
}
