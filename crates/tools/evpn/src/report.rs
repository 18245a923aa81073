//! The *status* of each VNI for people and scripts, which is read only from the kernel's devices and tables.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netvale_control::types::Mac;
use netvale_netlink::NetlinkSocket;
use serde::Serialize;

use crate::agent::{AgentError, entries};
use crate::devices::{self, DeviceKind, KernelDevice, MirrorDevices};
use crate::entry::KernelEntry;
use crate::tables::{RemoteAddress, Tables};

/// The status of a VNI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VniStatus {
    /// The VNI (VXLAN network identifier).
    pub vni: u32,
    /// The local VTEP address; `None` if the VXLAN device has none.
    pub local: Option<IpAddr>,
    /// The names of the mirror's devices: bridge, VXLAN device, port for local addresses.
    pub devices: [String; 3],
    /// The VTEPs to which frames are flooded.
    pub flood: Vec<IpAddr>,
    /// The local MAC addresses, which zebra announces to its peers.
    pub locals: Vec<LocalStatus>,
    /// The remote MAC addresses, which zebra has learned from its peers.
    pub remotes: Vec<RemoteStatus>,
    /// Number of zebra's entries that exceed the limits and are ignored.
    pub beyond: u64,
}

/// A local MAC address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LocalStatus {
    /// The MAC address.
    pub mac: Mac,
    /// The IP addresses of this MAC address.
    pub ips: Vec<IpAddr>,
}

/// A remote MAC address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RemoteStatus {
    /// The MAC address.
    pub mac: Mac,
    /// The VTEP behind which the MAC address is.
    pub vtep: IpAddr,
    /// Whether the address is sticky: EVPN announces it as an address that does not move.
    pub sticky: bool,
    /// The IP addresses of this MAC address.
    pub ips: Vec<IpAddr>,
}

/// Returns the status of each VNI that has a mirror.
///
/// # Errors
/// [`AgentError`] if netlink fails.
pub fn read() -> Result<Vec<VniStatus>, AgentError> {
    let mut netlink = NetlinkSocket::open()?;
    let devices = devices::all(&mut netlink)?;
    let all = entries(&mut netlink, &|_| true)?;
    Ok(devices.iter().filter_map(|device| status(device, &devices, &all)).collect())
}

/// Returns the status of the VNI of a VXLAN device; `None` if the device is not a VXLAN device, or if the mirror is
/// incomplete.
fn status(tunnel: &KernelDevice, devices: &[KernelDevice], all: &[KernelEntry]) -> Option<VniStatus> {
    let DeviceKind::Tunnel { vni, local, .. } = tunnel.kind else { return None };
    let [bridge, _, locals, _] = devices::names(vni);
    let index = |name: &str| devices.iter().find(|device| device.name == name).map(|device| device.index);
    let numbers = MirrorDevices { bridge: index(&bridge)?, tunnel: tunnel.index, locals: index(&locals)? };
    let mut tables = Tables::default();
    all.iter().filter_map(|entry| numbers.fact(*entry)).for_each(|fact| {
        tables.put(fact);
    });
    let ips = ips_by_address(&tables);
    let ips_of = |mac: Mac| ips.get(&mac).cloned().unwrap_or_default();
    let mut here: Vec<_> = tables.locals().map(|mac| LocalStatus { mac, ips: ips_of(mac) }).collect();
    here.sort_unstable();
    let mut remotes: Vec<_> = tables.remotes().map(|(mac, r)| remote(mac, r, ips_of(mac))).collect();
    remotes.sort_unstable();
    let devices = [bridge, tunnel.name.clone(), locals];
    Some(VniStatus {
        vni,
        local,
        devices,
        flood: tables.flood().collect(),
        locals: here,
        remotes,
        beyond: tables.refused(),
    })
}

fn remote(mac: Mac, remote: RemoteAddress, ips: Vec<IpAddr>) -> RemoteStatus {
    RemoteStatus { mac, vtep: remote.vtep, sticky: remote.sticky, ips }
}

fn ips_by_address(tables: &Tables) -> BTreeMap<Mac, Vec<IpAddr>> {
    let mut ips: BTreeMap<Mac, Vec<IpAddr>> = BTreeMap::new();
    for (ip, neighbor) in tables.neighbors() {
        ips.entry(neighbor.mac).or_default().push(ip);
    }
    ips.values_mut().for_each(|list| list.sort_unstable());
    ips
}
