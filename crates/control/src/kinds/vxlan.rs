//! VXLAN tunnels: requests and answers for a control plane.

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
    /// Whether a control plane provides the addresses.
    pub evpn: bool,
    /// A number that no other tunnel of that name has, before or after.
    #[serde(default)]
    pub instance: u64,
    /// Number of addresses known behind other endpoints.
    pub addresses: u64,
    /// The other endpoints known; only in `port.show`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<VxlanRemote>,
}

/// Another host's endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VxlanRemote {
    /// Its address.
    pub vtep: IpAddr,
    /// Whether it gets flooded frames.
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

/// Counters of a VXLAN tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelStats {
    /// VXLAN network identifier.
    pub vni: u32,
    /// Address of its endpoint (VTEP) on this host.
    pub local: IpAddr,
    /// Number of addresses known behind other endpoints.
    pub addresses: u64,
    /// Number of other endpoints.
    pub vteps: u64,
    /// The first of them, at most [`TunnelStats::MOST`].
    pub remotes: Vec<VxlanRemote>,
}

impl TunnelStats {
    /// Maximum number of endpoints of a tunnel with counters of their own.
    pub const MOST: usize = 256;
}

/// Parameters of `vxlan.set`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanSetParams {
    /// Full name of the tunnel's port, e.g. `vale0:vxlan100`.
    pub port: String,
    /// Whether earlier entries that are not in this request are removed.
    #[serde(default)]
    pub replace: bool,
    /// Endpoints that get flooded frames.
    #[serde(default)]
    pub flood: VxlanChanges<IpAddr, IpAddr>,
    /// Ethernet addresses behind endpoints.
    #[serde(default)]
    pub addresses: VxlanChanges<VxlanAddress, Mac>,
    /// Ethernet addresses of IP addresses behind endpoints.
    #[serde(default)]
    pub neighbors: VxlanChanges<VxlanNeighbor, IpAddr>,
}

/// Entries to add and to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanChanges<T, K> {
    /// Entries to add; existing ones are replaced.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<T>,
    /// Entries to remove; missing ones are ignored.
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
    /// Whether it may not move elsewhere (RFC 7432 section 15.2).
    #[serde(default)]
    pub sticky: bool,
    /// Number of its moves, as counted by the control plane (RFC 7432 section 15); not used here.
    #[serde(default)]
    pub sequence: u32,
}

/// The Ethernet address of an IP address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanNeighbor {
    /// The IP address.
    pub ip: IpAddr,
    /// The Ethernet address.
    pub mac: Mac,
    /// Whether it is a router: answers in its name say so, too (RFC 9161 section 3.2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub router: bool,
}

/// Parameters of `vxlan.local`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanLocalParams {
    /// Full name of the tunnel's port.
    pub port: String,
    /// Whether to announce the next change, by one notification `vxlan.changed` on this connection.
    #[serde(default)]
    pub watch: bool,
    /// The generation known to the caller: if it is the current one, addresses are left out.
    #[serde(default)]
    pub since: Option<u64>,
}

/// Addresses behind the other ports of a tunnel's switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VxlanLocal {
    /// Counts changes.
    pub generation: u64,
    /// The addresses; `None` if the caller knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Vec<LocalAddress>>,
}

/// An address behind another port of a tunnel's switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalAddress {
    /// The Ethernet address.
    pub mac: Mac,
    /// IP addresses that it has announced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
    /// Those that it has announced as a router's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routers: Vec<IpAddr>,
    /// Whether its port keeps it permanently.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
}
