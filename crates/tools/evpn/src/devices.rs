//! Creation, reuse and removal of the kernel devices of a mirror.
//!
//! The devices stay when the agent ends, so that zebra does not notice a restart of the agent. The agent marks its
//! devices with an alias and never changes devices without this mark.

use std::net::IpAddr;

use netlink_packet_core::DefaultNla;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, BridgePortState, In6AddrGenMode, InfoBridge, InfoBridgePort, InfoData, InfoKind,
    InfoPortData, InfoPortKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage, LinkProtoInfoBridge,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netvale_control::types::Mac;
use netvale_netlink::{NetlinkSocket, RequestMode, link_message};
use rustix::io::Errno;
use thiserror::Error;

use crate::entry::KernelEntry;
use crate::tables::{AddressPlace, Fact, NeighborEntry, RemoteAddress};

mod kind;
mod seen;
mod vxlan;

pub use kind::DeviceKind;
pub use seen::KernelDevice;

/// The alias by which the agent marks its devices.
pub const MARK: &str = "netvale evpn";
/// Ageing time of local MAC addresses in 1/100 s: the kernel's maximum. Addresses need not age, because the agent
/// removes addresses that the daemon no longer lists.
const NEVER: u32 = u32::MAX;
/// `IFLA_BRPORT_STATE` of linux/if_link.h.
const BRPORT_STATE: u16 = 1;

/// The reason why a mirror cannot be created or removed.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// A device that the agent has not marked already has the name.
    #[error("device {0} exists and was not created by netvale; rename or remove it")]
    Foreign(String),
    /// The VTEP has an IPv6 address, which FRR does not support.
    #[error("FRR's EVPN supports only VTEPs with IPv4 addresses; the port has {0}")]
    Ipv6(IpAddr),
    /// The kernel refuses a step.
    #[error("cannot {what} {name}: {source}{}", hint(*.source))]
    Kernel {
        /// The step that failed.
        what: &'static str,
        /// The device's name.
        name: String,
        /// The kernel's error.
        source: Errno,
    },
}

fn hint(source: Errno) -> &'static str {
    match source {
        Errno::PERM => "; needs the privilege to configure networks (CAP_NET_ADMIN)",
        Errno::OPNOTSUPP => "; this kernel lacks that kind of device",
        Errno::ADDRINUSE => "; another program has that UDP port: choose one with --udp-port",
        _ => "",
    }
}

fn kernel<'a>(what: &'static str, name: &'a str) -> impl FnOnce(Errno) -> DeviceError + 'a {
    move |source| DeviceError::Kernel { what, name: name.to_owned(), source }
}

/// The parameters of a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorPlan {
    /// The VNI.
    pub vni: u32,
    /// The VTEP address of the port.
    pub local: IpAddr,
    /// UDP port of the VXLAN device.
    pub udp_port: u16,
}

/// The interface indices of a mirror's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorDevices {
    /// The bridge, which is also the VNI's SVI: the interface that has the VNI's neighbour entries.
    pub bridge: u32,
    /// The VXLAN device.
    pub tunnel: u32,
    /// The bridge port behind which the agent adds local addresses.
    pub locals: u32,
}

/// Returns the names of a VNI's devices: the bridge, the VXLAN device, the port for local addresses, and that port's
/// veth peer, which exists only if the kernel has no dummy devices.
#[must_use]
pub fn names(vni: u32) -> [String; 4] {
    ["nvb", "nvx", "nvl", "nvp"].map(|prefix| format!("{prefix}{vni}"))
}

/// Creates a mirror, or reuses an existing mirror that matches the plan. Returns the devices, and `true` if they are
/// new.
///
/// # Errors
/// [`DeviceError`]. If some devices have been created, they are removed again.
pub fn make(netlink: &mut NetlinkSocket, plan: &MirrorPlan) -> Result<(MirrorDevices, bool), DeviceError> {
    if plan.local.is_ipv6() {
        return Err(DeviceError::Ipv6(plan.local));
    }
    let names = names(plan.vni);
    let found = names.each_ref().map(|name| seen::find(netlink, name));
    let mut is_some = false;
    for (name, device) in names.iter().zip(found) {
        let device = device.map_err(kernel("look for", name))?;
        is_some |= device.is_some();
        if device.is_some_and(|device| !device.is_marked) {
            return Err(DeviceError::Foreign(name.clone()));
        }
    }
    if is_some {
        if let Some((devices, is_open)) = continued(netlink, plan, &names) {
            // The bridge enables a port when the port's device comes up, so the port must be disabled again.
            if is_open {
                disable(netlink, &names[1], devices.tunnel)?;
            }
            return Ok((devices, false));
        }
        remove(netlink, plan.vni)?;
    }
    match made(netlink, plan, &names) {
        Ok(devices) => Ok((devices, true)),
        Err(error) => {
            // The original error is reported; an error of the removal is ignored.
            let _ = remove(netlink, plan.vni);
            Err(error)
        }
    }
}

/// Removes the marked devices of a VNI, as far as they exist.
///
/// # Errors
/// [`DeviceError::Kernel`] if the kernel refuses a step.
pub fn remove(netlink: &mut NetlinkSocket, vni: u32) -> Result<(), DeviceError> {
    let [bridge, tunnel, locals, peer] = names(vni);
    // The VXLAN device is removed first, so that zebra drops the whole VNI. The kernel removes a veth peer together
    // with its port.
    for name in [tunnel, locals, peer, bridge] {
        let device = seen::find(netlink, &name).map_err(kernel("look for", &name))?;
        let Some(device) = device.filter(|device| device.is_marked) else { continue };
        let message = link_message(device.index, Vec::new());
        match netlink.request(RouteNetlinkMessage::DelLink(message), RequestMode::Change) {
            Ok(()) | Err(Errno::NODEV) => {}
            Err(error) => return Err(kernel("remove", &name)(error)),
        }
    }
    Ok(())
}

/// Returns all marked devices.
///
/// # Errors
/// The kernel's error.
pub fn all(netlink: &mut NetlinkSocket) -> rustix::io::Result<Vec<KernelDevice>> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let mut devices = netlink.dump(&request, |answer| KernelDevice::read(answer).filter(|device| device.is_marked))?;
    devices.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(devices)
}

/// Returns the existing devices, and whether the bridge accepts frames from the VXLAN device; `None` if devices are
/// missing or do not match the plan.
fn continued(netlink: &mut NetlinkSocket, plan: &MirrorPlan, names: &[String; 4]) -> Option<(MirrorDevices, bool)> {
    let [bridge, tunnel, locals, _] = names.each_ref().map(|name| seen::find(netlink, name).ok().flatten());
    let bridge = bridge?;
    let tunnel = tunnel?;
    let locals = locals?;
    let wanted = DeviceKind::Tunnel { vni: plan.vni, local: Some(plan.local), udp_port: plan.udp_port, learns: false };
    let is_right = bridge.kind == DeviceKind::Bridge
        && tunnel.kind == wanted
        && matches!(locals.kind, DeviceKind::Dummy | DeviceKind::Veth)
        && [&tunnel, &locals].iter().all(|port| port.controller == Some(bridge.index))
        && [&bridge, &tunnel, &locals].iter().all(|device| device.is_up);
    let devices = MirrorDevices { bridge: bridge.index, tunnel: tunnel.index, locals: locals.index };
    is_right.then_some((devices, tunnel.is_open))
}

fn made(netlink: &mut NetlinkSocket, plan: &MirrorPlan, names: &[String; 4]) -> Result<MirrorDevices, DeviceError> {
    let [bridge, tunnel, locals, peer] = names;
    let settings = vec![
        InfoBridge::AgeingTime(NEVER),
        // The bridge carries no traffic, so it needs neither multicast groups nor queries.
        InfoBridge::MulticastSnooping(false),
    ];
    let bridge_index = create(netlink, bridge, InfoKind::Bridge, Some(InfoData::Bridge(settings)))?;
    netlink.bring_up(bridge_index).map_err(kernel("bring up", bridge))?;
    let tunnel_index = create(netlink, tunnel, vxlan::KIND, Some(vxlan::data(plan)))?;
    let locals_index = match create(netlink, locals, InfoKind::Dummy, None) {
        Err(DeviceError::Kernel { source: Errno::OPNOTSUPP, .. }) => pair(netlink, locals, peer)?,
        other => other?,
    };
    // zebra detects the VNI when the VXLAN device joins the bridge. This step therefore comes last, after the port for
    // local addresses.
    join(netlink, locals, locals_index, bridge_index, false)?;
    join(netlink, tunnel, tunnel_index, bridge_index, true)?;
    Ok(MirrorDevices { bridge: bridge_index, tunnel: tunnel_index, locals: locals_index })
}

/// Creates a substitute for a dummy device: a veth pair of which only the end `name` is used.
fn pair(netlink: &mut NetlinkSocket, name: &str, peer: &str) -> Result<u32, DeviceError> {
    let other = link_message(0, vec![LinkAttribute::IfName(peer.to_owned())]);
    let index = create(netlink, name, InfoKind::Veth, Some(InfoData::Veth(InfoVeth::Peer(other))))?;
    let other = found(netlink, peer)?;
    mark(netlink, peer, other)?;
    netlink.bring_up(other).map_err(kernel("bring up", peer))?;
    Ok(index)
}

fn create(netlink: &mut NetlinkSocket, name: &str, kind: InfoKind, data: Option<InfoData>) -> Result<u32, DeviceError> {
    let info = std::iter::once(LinkInfo::Kind(kind)).chain(data.map(LinkInfo::Data)).collect();
    let message = link_message(0, vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::LinkInfo(info)]);
    netlink.request(RouteNetlinkMessage::NewLink(message), RequestMode::New).map_err(kernel("make", name))?;
    let index = found(netlink, name)?;
    mark(netlink, name, index)?;
    Ok(index)
}

fn found(netlink: &mut NetlinkSocket, name: &str) -> Result<u32, DeviceError> {
    let device = seen::find(netlink, name).and_then(|device| device.ok_or(Errno::NODEV));
    device.map(|device| device.index).map_err(kernel("find", name))
}

/// Marks a device as the agent's, and disables its IPv6 address generation, so that the device sends nothing.
fn mark(netlink: &mut NetlinkSocket, name: &str, index: u32) -> Result<(), DeviceError> {
    netlink.set_link(index, vec![LinkAttribute::IfAlias(MARK.to_owned())]).map_err(kernel("mark", name))?;
    let none = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
    match netlink.set_link(index, vec![LinkAttribute::AfSpecUnspec(vec![none])]) {
        // These errors are ignored, since a kernel without IPv6 generates no addresses.
        Ok(()) | Err(Errno::AFNOSUPPORT | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(kernel("turn off address generation of", name)(error)),
    }
}

/// Adds a device to the bridge as a port that does not learn MAC addresses from frames. `closed` is set for the VXLAN
/// device.
///
/// A closed port is locked and disabled, so that frames that arrive at the VXLAN device's UDP port go no further. A
/// disabled port accepts no frames, but the bridge may enable it again. The port is locked, too, so that even then it
/// accepts no frames from unknown addresses.
fn join(netlink: &mut NetlinkSocket, name: &str, index: u32, bridge: u32, closed: bool) -> Result<(), DeviceError> {
    netlink.bring_up(index).map_err(kernel("bring up", name))?;
    let done = netlink.set_link(index, vec![LinkAttribute::Controller(bridge)]);
    done.map_err(kernel("add to the bridge the port", name))?;
    let settings = vec![InfoBridgePort::Learning(false), InfoBridgePort::Locked(closed)];
    let info = vec![LinkInfo::PortKind(InfoPortKind::Bridge), LinkInfo::PortData(InfoPortData::BridgePort(settings))];
    let message = link_message(index, vec![LinkAttribute::LinkInfo(info)]);
    let done = netlink.request(RouteNetlinkMessage::NewLink(message), RequestMode::Change);
    done.map_err(kernel("configure the bridge port", name))?;
    if closed { disable(netlink, name, index) } else { Ok(()) }
}

/// Disables a bridge port (`BR_STATE_DISABLED`). The message has the bridge's address family, since bridges accept this
/// state only in such messages.
fn disable(netlink: &mut NetlinkSocket, name: &str, index: u32) -> Result<(), DeviceError> {
    let state = DefaultNla::new(BRPORT_STATE, vec![BridgePortState::Disabled.into()]);
    let state = LinkAttribute::ProtoInfoBridge(vec![LinkProtoInfoBridge::Other(state)]);
    let mut message = link_message(index, vec![state]);
    message.header.interface_family = AddressFamily::Bridge;
    netlink.request(RouteNetlinkMessage::SetLink(message), RequestMode::Change).map_err(kernel("close", name))
}

impl MirrorDevices {
    /// Converts a kernel entry into the form of the VNI's tables; `None` if the entry does not belong to a device of
    /// this VNI.
    #[must_use]
    pub fn fact(&self, entry: KernelEntry) -> Option<Fact> {
        match entry {
            KernelEntry::Bridge { device, mac, .. } if device == self.tunnel => {
                Some(Fact::Place(mac, AddressPlace::Tunnel))
            }
            KernelEntry::Bridge { device, mac, sticky } if device == self.locals => {
                Some(Fact::Place(mac, AddressPlace::Local { sticky }))
            }
            KernelEntry::Remote { device, mac, vtep, sticky } if device == self.tunnel => {
                Some(Fact::Remote(mac, RemoteAddress { vtep, sticky }))
            }
            KernelEntry::Flood { device, vtep } if device == self.tunnel => Some(Fact::Flood(vtep)),
            KernelEntry::Neighbor { device, ip, mac, remote, router } if device == self.bridge => {
                Some(Fact::Neighbor(ip, mac.map(|mac| NeighborEntry { mac, remote, router })))
            }
            _ => None,
        }
    }

    /// Adds a local MAC address to the bridge. If `moves` is set, the local entry may replace a remote entry of the
    /// address.
    ///
    /// # Errors
    /// `EEXIST` if the address is remote, unless `moves` is set.
    pub fn add_local(
        &self,
        netlink: &mut NetlinkSocket,
        mac: Mac,
        sticky: bool,
        moves: bool,
    ) -> rustix::io::Result<()> {
        let mut message = self.forwarding(mac);
        message.header.flags.set(NeighbourFlags::Sticky, sticky);
        let mode = if moves { RequestMode::Replace } else { RequestMode::New };
        netlink.request(RouteNetlinkMessage::NewNeighbour(message), mode)
    }

    /// Removes a local MAC address from the bridge.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn remove_local(&self, netlink: &mut NetlinkSocket, mac: Mac) -> rustix::io::Result<()> {
        netlink.request(RouteNetlinkMessage::DelNeighbour(self.forwarding(mac)), RequestMode::Change)
    }

    /// Adds an IP address of a local MAC address as a neighbour. `router` is set if the neighbour is a router.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn add_neighbor(
        &self,
        netlink: &mut NetlinkSocket,
        ip: IpAddr,
        mac: Mac,
        router: bool,
    ) -> rustix::io::Result<()> {
        let mut message = self.neighbor(ip);
        // zebra treats permanent neighbours as local, and the kernel's garbage collection never removes them.
        message.header.state = NeighbourState::Permanent;
        message.header.flags.set(NeighbourFlags::Router, router);
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
        netlink.request(RouteNetlinkMessage::NewNeighbour(message), RequestMode::Replace)
    }

    /// Removes the neighbour entry of an IP address.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn remove_neighbor(&self, netlink: &mut NetlinkSocket, ip: IpAddr) -> rustix::io::Result<()> {
        netlink.request(RouteNetlinkMessage::DelNeighbour(self.neighbor(ip)), RequestMode::Change)
    }

    fn forwarding(&self, mac: Mac) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = self.locals;
        message.header.state = NeighbourState::Reachable;
        message.header.flags = NeighbourFlags::Controller;
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
        message
    }

    fn neighbor(&self, ip: IpAddr) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.header.ifindex = self.bridge;
        message.attributes.push(NeighbourAttribute::Destination(ip.into()));
        message
    }
}
