//! VXLAN tunnels: what a control plane asks and says of them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::mac::Mac;

/// A VXLAN tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VxlanInfo {
    /// VXLAN network identifier.
    pub vni: u32,
    /// Address of its endpoint (VTEP) on this host.
    pub local: IpAddr,
    /// UDP port.
    pub port: u16,
    /// Longest packet in a frame, in bytes: the MTU for guests.
    pub mtu: u32,
    /// Whether a control plane says where addresses are.
    pub evpn: bool,
    /// A number that another tunnel of that name, before or after, does not have.
    #[serde(default)]
    pub instance: u64,
    /// Number of addresses that it knows behind other endpoints.
    pub addresses: u64,
    /// The other endpoints that it knows; only in `port.show`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<VxlanRemote>,
}

/// Another host's endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VxlanRemote {
    /// Its address.
    pub vtep: IpAddr,
    /// Whether it gets what goes to all.
    pub flood: bool,
    /// Frames sent to it.
    pub out_frames: u64,
    /// Their bytes.
    pub out_bytes: u64,
    /// Frames received from it.
    pub in_frames: u64,
    /// Their bytes.
    pub in_bytes: u64,
}

/// What a VXLAN tunnel has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelStats {
    /// VXLAN network identifier.
    pub vni: u32,
    /// Address of its endpoint (VTEP) on this host.
    pub local: IpAddr,
    /// Number of addresses that it knows behind other endpoints.
    pub addresses: u64,
    /// Number of other endpoints.
    pub vteps: u64,
    /// The first of them, at most [`TunnelStats::MOST`].
    pub remotes: Vec<VxlanRemote>,
}

impl TunnelStats {
    /// Most endpoints of a tunnel that are counted for themselves.
    pub const MOST: usize = 256;
}

/// Parameters of `vxlan.set`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanSetParams {
    /// Full name of the tunnel's port, e.g. `vale0:vxlan100`.
    pub port: String,
    /// Whether all that was given before, and is not in this request, goes.
    #[serde(default)]
    pub replace: bool,
    /// Endpoints that get what goes to all.
    #[serde(default)]
    pub flood: VxlanChanges<IpAddr, IpAddr>,
    /// Ethernet addresses behind endpoints.
    #[serde(default)]
    pub addresses: VxlanChanges<VxlanAddress, Mac>,
    /// Which IP addresses are which Ethernet addresses' behind endpoints.
    #[serde(default)]
    pub neighbors: VxlanChanges<VxlanNeighbor, IpAddr>,
}

/// What comes and what goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanChanges<T, K> {
    /// What comes; what is there already is replaced.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<T>,
    /// What goes; what is not there does not matter.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<K>,
}

impl<T, K> Default for VxlanChanges<T, K> {
    fn default() -> Self {
        VxlanChanges { add: Vec::new(), remove: Vec::new() }
    }
}

/// An Ethernet address behind an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanAddress {
    /// The address.
    pub mac: Mac,
    /// The endpoint.
    pub vtep: IpAddr,
    /// Whether it may not be seen elsewhere (RFC 7432 section 15.2).
    #[serde(default)]
    pub sticky: bool,
    /// How often it has moved, as its control plane counts (RFC 7432 section 15); not used here.
    #[serde(default)]
    pub sequence: u32,
}

/// Which Ethernet address an IP address belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanNeighbor {
    /// The IP address.
    pub ip: IpAddr,
    /// The Ethernet address.
    pub mac: Mac,
    /// Whether it is a router: what is answered in its name says so, too (RFC 9161 section 3.2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub router: bool,
}

/// Parameters of `vxlan.local`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanLocalParams {
    /// Full name of the tunnel's port.
    pub port: String,
    /// Whether to be told of the next change, by one notification `vxlan.changed` on this connection.
    #[serde(default)]
    pub watch: bool,
    /// The generation that the caller knows: if it is the current one, addresses are left out.
    #[serde(default)]
    pub since: Option<u64>,
}

/// What is behind the other ports of a tunnel's switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VxlanLocal {
    /// Counts changes.
    pub generation: u64,
    /// The addresses; none if the caller knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Vec<LocalAddress>>,
}

/// An address behind another port of a tunnel's switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalAddress {
    /// The Ethernet address.
    pub mac: Mac,
    /// IP addresses that it has said to have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
    /// Those of them with which it has said to be a router.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routers: Vec<IpAddr>,
    /// Whether its port keeps it for good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
}
