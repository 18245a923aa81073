//! VXLAN tunnels: requests and answers for a control plane.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::mac::Mac;

/// A VXLAN tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VxlanInfo {
    /// VXLAN network identifier.
    pub vni: u32,
    /// Address of this host's endpoint (VTEP).
    pub local: IpAddr,
    /// UDP port of the tunnel's packets.
    pub port: u16,
    /// Longest packet that fits into a tunnelled frame, in bytes: the MTU for guests.
    pub mtu: u32,
    /// Whether a control plane provides the addresses behind remote endpoints.
    pub evpn: bool,
    /// Instance number of the tunnel; each tunnel that ever had this name has a different number.
    #[serde(default)]
    pub instance: u64,
    /// Number of addresses known behind remote endpoints.
    pub addresses: u64,
    /// The known remote endpoints; only in `port.show`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<VxlanRemote>,
}

/// A remote endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VxlanRemote {
    /// Address of the endpoint (VTEP).
    pub vtep: IpAddr,
    /// Whether the tunnel sends flooded frames to the endpoint.
    pub flood: bool,
    /// Number of frames sent to the endpoint.
    pub out_frames: u64,
    /// Number of bytes in the frames sent to the endpoint.
    pub out_bytes: u64,
    /// Number of frames received from the endpoint.
    pub in_frames: u64,
    /// Number of bytes in the frames received from the endpoint.
    pub in_bytes: u64,
}

/// Counters of a VXLAN tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelStats {
    /// VXLAN network identifier.
    pub vni: u32,
    /// Address of this host's endpoint (VTEP).
    pub local: IpAddr,
    /// Number of addresses known behind remote endpoints.
    pub addresses: u64,
    /// Number of remote endpoints.
    pub vteps: u64,
    /// The first remote endpoints, at most [`TunnelStats::MOST`].
    pub remotes: Vec<VxlanRemote>,
}

impl TunnelStats {
    /// Maximum number of a tunnel's remote endpoints that have counters of their own.
    pub const MOST: usize = 256;
}

/// Parameters of `vxlan.set`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanSetParams {
    /// Full name of the tunnel's port, e.g. `vale0:vxlan100`.
    pub port: String,
    /// Whether to remove earlier entries that are not in this request.
    #[serde(default)]
    pub replace: bool,
    /// Remote endpoints that receive flooded frames.
    #[serde(default)]
    pub flood: VxlanChanges<IpAddr, IpAddr>,
    /// Ethernet addresses behind remote endpoints.
    #[serde(default)]
    pub addresses: VxlanChanges<VxlanAddress, Mac>,
    /// IP addresses behind remote endpoints, with their Ethernet addresses.
    #[serde(default)]
    pub neighbors: VxlanChanges<VxlanNeighbor, IpAddr>,
}

/// Entries to add and to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanChanges<T, K> {
    /// Entries to add; existing entries are replaced.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<T>,
    /// Entries to remove; missing entries are ignored.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<K>,
}

impl<T, K> Default for VxlanChanges<T, K> {
    fn default() -> Self {
        VxlanChanges { add: Vec::new(), remove: Vec::new() }
    }
}

/// An Ethernet address behind a remote endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanAddress {
    /// The Ethernet address.
    pub mac: Mac,
    /// Address of the remote endpoint (VTEP).
    pub vtep: IpAddr,
    /// Whether the address must not move elsewhere (RFC 7432 section 15.2).
    #[serde(default)]
    pub sticky: bool,
    /// Number of the address's moves, as counted by the control plane (RFC 7432 section 15); not used here.
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
    /// Whether the address is a router's; answers on its behalf then set the router flag (RFC 9161 section 3.2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub router: bool,
}

/// Parameters of `vxlan.local`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanLocalParams {
    /// Full name of the tunnel's port.
    pub port: String,
    /// Whether to send one `vxlan.changed` notification on this connection at the next change.
    #[serde(default)]
    pub watch: bool,
    /// The generation that the caller has: if this is the current generation, the answer omits the addresses. `None`
    /// requests the addresses of any generation.
    #[serde(default)]
    pub since: Option<u64>,
}

/// Addresses behind the other ports on a tunnel's switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VxlanLocal {
    /// Number of changes to these addresses so far.
    pub generation: u64,
    /// The addresses; `None` if the caller has them already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Vec<LocalAddress>>,
}

/// An address behind another port on a tunnel's switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalAddress {
    /// The Ethernet address.
    pub mac: Mac,
    /// IP addresses announced with this Ethernet address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
    /// The IP addresses that were announced as a router's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routers: Vec<IpAddr>,
    /// Whether the address is permanent on its port.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
}
