//! `vxlan:VNI,local=IP[,remote=IP…][,port=N]`: a tunnel to other hosts.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use super::{AfterColon, AttachNeeds, SpecKind, fitting};
use crate::cursor::{Cursor, SpecResult};
use crate::text::Ident;

/// The UDP port of VXLAN (RFC 7348 §8).
pub const DEFAULT_PORT: u16 = 4789;
/// The largest VNI.
const MAX_VNI: u64 = (1 << 24) - 1;
/// Maximum number of remote endpoints in a text.
const MAX_REMOTES: usize = 256;

/// The kind `vxlan`: a VXLAN tunnel.
pub(super) const KIND: SpecKind = SpecKind {
    word: "VXLAN",
    pattern: Some("^vxlan:"),
    example: "vxlan:1,local=192.0.2.1",
    help: &[("vxlan:VNI,local=IP[,remote=IP...][,port=N]", "a tunnel to other hosts' VXLAN endpoints")],
    takes: &["mtu", "evpn", "any_remote", "ageing", "ttl", "dscp", "fragment", "no_udp_checksum"],
    adjusts: &[],
    page: "guide/hosts.md",
};

/// A VXLAN tunnel: its VNI, this host's tunnel endpoint, and the remote endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VxlanSpec {
    vni: u32,
    local: IpAddr,
    remotes: BTreeSet<IpAddr>,
    port: u16,
}

impl VxlanSpec {
    /// Returns the VXLAN network identifier.
    pub fn vni(&self) -> u32 {
        self.vni
    }

    /// Returns the address of this host's tunnel endpoint.
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// Returns the addresses of the remote tunnel endpoints, in order.
    pub fn remotes(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.remotes.iter().copied()
    }

    /// Returns the UDP port of all endpoints.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl AfterColon for VxlanSpec {
    fn read(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        let vni = cursor.number(10, 0..=MAX_VNI, "a VNI")? as u32;
        let mut local = None;
        let mut remotes = BTreeSet::new();
        let mut port = None;
        while cursor.eat(",") {
            if local.is_none() && cursor.eat("local=") {
                local = Some(address(cursor)?);
            } else if cursor.eat("remote=") {
                let start = cursor.pos();
                if remotes.len() == MAX_REMOTES {
                    return Err(cursor.fail_at(start, "at most 256 remotes"));
                }
                remotes.insert((start, address(cursor)?));
            } else if port.is_none() && cursor.eat("port=") {
                port = Some(cursor.number(10, 1..=u16::MAX.into(), "a UDP port")? as u16);
            } else {
                let expected = if local.is_none() { "'local=', 'remote=' or 'port='" } else { "'remote=' or 'port='" };
                return Err(cursor.fail_at(cursor.pos(), expected));
            }
        }
        let no_local = "',local=' and the address of this host's tunnel endpoint";
        let local: IpAddr = local.ok_or_else(|| cursor.fail_at(cursor.pos(), no_local))?;
        for (start, remote) in &remotes {
            if remote.is_ipv4() != local.is_ipv4() {
                let version = if local.is_ipv4() {
                    "an IPv4 address, like the local one"
                } else {
                    "an IPv6 address, like the local one"
                };
                return Err(cursor.fail_at(*start, version));
            }
            if *remote == local {
                return Err(cursor.fail_at(*start, "another host's address"));
            }
        }
        let remotes = remotes.into_iter().map(|(_, remote)| remote).collect();
        Ok(Self { vni, local, remotes, port: port.unwrap_or(DEFAULT_PORT) })
    }

    fn port_name(&self, _prefix: &str) -> Ident {
        fitting(&format!("vxlan{}", self.vni))
    }

    fn needs(&self) -> AttachNeeds<'_> {
        AttachNeeds::Trust("tunnels to other hosts")
    }
}

/// Takes the address of a single host.
fn address(cursor: &mut Cursor<'_>) -> SpecResult<IpAddr> {
    let start = cursor.pos();
    let text = cursor.take_while(|c| c.is_ascii_hexdigit() || c == ':' || c == '.');
    let ip: IpAddr = text.parse().map_err(|_| cursor.fail_at(start, "an IP address"))?;
    let is_broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    if ip.is_unspecified() || ip.is_multicast() || is_broadcast {
        return Err(cursor.fail_at(start, "the address of a single host"));
    }
    Ok(ip)
}

impl fmt::Display for VxlanSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},local={}", self.vni, self.local)?;
        self.remotes.iter().try_for_each(|remote| write!(f, ",remote={remote}"))?;
        if self.port == DEFAULT_PORT { Ok(()) } else { write!(f, ",port={}", self.port) }
    }
}
