//! The kernel's description of a network device ([`KernelDevice`]), as far as mirrors need it.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    BridgePortState, InfoBridgePort, InfoData, InfoKind, InfoPortData, LinkAttribute, LinkFlags, LinkInfo,
};
use netvale_netlink::NetlinkSocket;
use rustix::io::Errno;

use super::kind::DeviceKind;
use super::{MARK, vxlan};

/// A network device of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelDevice {
    /// Interface index.
    pub index: u32,
    /// The device's name.
    pub name: String,
    /// The kind of device, with its parameters.
    pub kind: DeviceKind,
    /// Interface index of the bridge of which the device is a port; `None` if it is not a bridge port.
    pub controller: Option<u32>,
    /// Whether the device is administratively up.
    pub is_up: bool,
    /// Whether the device is a bridge port that is not disabled, so that the bridge accepts frames from it.
    pub is_open: bool,
    /// Whether the device has the agent's mark, because the agent has created it.
    pub is_marked: bool,
}

impl KernelDevice {
    /// Parses a device from a message; `None` if the message is not about a device, or has no name.
    #[must_use]
    pub fn read(message: &RouteNetlinkMessage) -> Option<KernelDevice> {
        let RouteNetlinkMessage::NewLink(message) = message else { return None };
        let mut name = None;
        let mut kind = DeviceKind::Other;
        let mut controller = None;
        let mut is_marked = false;
        let mut is_open = false;
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(text) => name = Some(text.clone()),
                LinkAttribute::IfAlias(text) => is_marked = text == MARK,
                LinkAttribute::Controller(index) => controller = Some(*index),
                LinkAttribute::LinkInfo(info) => {
                    kind = kind_of(info);
                    is_open = is_open_port(info);
                }
                _ => {}
            }
        }
        let index = message.header.index;
        let is_up = message.header.flags.contains(LinkFlags::Up);
        Some(KernelDevice { index, name: name?, kind, controller, is_up, is_open, is_marked })
    }
}

/// Finds a device by name; `None` if it does not exist.
pub(super) fn find(netlink: &mut NetlinkSocket, name: &str) -> rustix::io::Result<Option<KernelDevice>> {
    match netlink.link(name, KernelDevice::read) {
        Err(Errno::NODEV) => Ok(None),
        found => found.map(Some),
    }
}

fn kind_of(info: &[LinkInfo]) -> DeviceKind {
    let data = info.iter().find_map(|one| if let LinkInfo::Data(data) = one { Some(data) } else { None });
    let kind = info.iter().find_map(|one| if let LinkInfo::Kind(kind) = one { Some(kind) } else { None });
    match (kind, data) {
        (Some(InfoKind::Bridge), _) => DeviceKind::Bridge,
        (Some(InfoKind::Dummy), _) => DeviceKind::Dummy,
        (Some(InfoKind::Veth), _) => DeviceKind::Veth,
        (Some(kind), Some(InfoData::Vxlan(data))) if *kind == vxlan::KIND => vxlan::read(data),
        _ => DeviceKind::Other,
    }
}

fn is_open_port(info: &[LinkInfo]) -> bool {
    info.iter().any(|one| match one {
        LinkInfo::PortData(InfoPortData::BridgePort(port)) => {
            port.iter().any(|one| matches!(one, InfoBridgePort::State(state) if *state != BridgePortState::Disabled))
        }
        _ => false,
    })
}
