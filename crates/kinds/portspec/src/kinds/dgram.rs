//! `dgram:LOCAL,remote=REMOTE`, `dgram:GROUP:PORT[,interface=IP]`: datagrams to and from one peer, or a multicast
//! group.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::socket_address::SocketAddress;
use super::{AfterColon, AttachNeeds, SpecKind};
use crate::cursor::{Cursor, SpecResult};
use crate::text::Ident;

/// The kind `dgram`: datagrams to and from one peer, or a multicast group.
pub(super) const KIND: SpecKind = SpecKind {
    word: "dgram",
    pattern: Some("^dgram:"),
    example: "dgram:/a.sock,remote=/b.sock",
    help: &[
        ("dgram:/LOCAL,remote=/REMOTE", "QEMU's -netdev dgram: frames to and from the socket REMOTE"),
        ("dgram:IP:PORT,remote=IP:PORT", "the same over UDP: GNS3's links, QEMU's socket,udp"),
        ("dgram:GROUP:PORT[,interface=IP]", "a multicast group, like QEMU's socket,mcast"),
    ],
    takes: &["mtu", "vnet_hdr", "reconnect", "socket_mode", "socket_user", "socket_group"],
    adjusts: &["mtu"],
    page: "reference/sockets.md",
};

/// Source and destination of datagrams.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DgramSpec {
    /// One peer, whose socket has the same address family as the port's own.
    Pair {
        /// The port's own socket.
        local: SocketAddress,
        /// The peer's socket.
        remote: SocketAddress,
    },
    /// A multicast group.
    Group {
        /// The group and its port.
        group: SocketAddrV4,
        /// Address of the interface that joins the group; `None`: the system's choice.
        interface: Option<Ipv4Addr>,
    },
}

impl DgramSpec {
    /// Returns the address from which the port's default name is derived.
    fn first(&self) -> SocketAddress {
        match self {
            Self::Pair { local, .. } => local.clone(),
            Self::Group { group, .. } => SocketAddress::Inet((*group).into()),
        }
    }
}

fn group(cursor: &mut Cursor<'_>, group: SocketAddrV4) -> SpecResult<DgramSpec> {
    if !cursor.eat(",") {
        return Ok(DgramSpec::Group { group, interface: None });
    }
    cursor.expect("interface=", "'interface=' and the IPv4 address of an interface")?;
    let start = cursor.pos();
    let text = cursor.take_while(|c| c.is_ascii_digit() || c == '.');
    let interface = text.parse().map_err(|_| cursor.fail_at(start, "the IPv4 address of an interface"))?;
    Ok(DgramSpec::Group { group, interface: Some(interface) })
}

fn remote(cursor: &mut Cursor<'_>, local: SocketAddress) -> SpecResult<DgramSpec> {
    cursor.expect(",remote=", "',remote=' and the address of the other socket")?;
    let start = cursor.pos();
    let remote = SocketAddress::read(cursor)?;
    let fits = match (&local, &remote) {
        (SocketAddress::Path(here), SocketAddress::Path(there)) => here != there,
        (SocketAddress::Inet(here), SocketAddress::Inet(there)) => {
            here != there && here.is_ipv4() == there.is_ipv4() && !there.ip().is_multicast()
        }
        _ => false,
    };
    if !fits {
        return Err(cursor.fail_at(start, "another address of the same family"));
    }
    Ok(DgramSpec::Pair { local, remote })
}

impl AfterColon for DgramSpec {
    fn read(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        let start = cursor.pos();
        let local = SocketAddress::read(cursor)?;
        match local.inet() {
            Some(std::net::SocketAddr::V4(at)) if at.ip().is_multicast() => group(cursor, at),
            Some(at) if at.ip().is_multicast() => Err(cursor.fail_at(start, "an IPv4 group")),
            _ => remote(cursor, local),
        }
    }

    fn port_name(&self, prefix: &str) -> Ident {
        self.first().port_name(prefix)
    }

    fn files(&self) -> Vec<&str> {
        match self {
            Self::Pair { local, remote } => local.path().into_iter().chain(remote.path()).collect(),
            Self::Group { .. } => Vec::new(),
        }
    }

    fn needs(&self) -> AttachNeeds<'_> {
        match self {
            Self::Pair { local, .. } => local.needs(),
            Self::Group { .. } => AttachNeeds::Trust("multicast groups"),
        }
    }
}

impl fmt::Display for DgramSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair { local, remote } => write!(f, "{local},remote={remote}"),
            Self::Group { group, interface: None } => group.fmt(f),
            Self::Group { group, interface: Some(interface) } => write!(f, "{group},interface={interface}"),
        }
    }
}
