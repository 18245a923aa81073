//! The attributes of the kernel's VXLAN devices in netlink messages.

use std::net::IpAddr;

use netlink_packet_route::link::{InfoData, InfoKind, InfoVxlan};

use super::MirrorPlan;
use super::kind::DeviceKind;

/// The kind of VXLAN devices in netlink messages.
pub(super) const KIND: InfoKind = InfoKind::Vxlan;

/// Returns the attributes with which a mirror's VXLAN device is created.
pub(super) fn data(plan: &MirrorPlan) -> InfoData {
    let local = match plan.local {
        IpAddr::V4(ip) => InfoVxlan::Local(ip),
        IpAddr::V6(ip) => InfoVxlan::Local6(ip),
    };
    let port = InfoVxlan::Port(plan.udp_port);
    InfoData::Vxlan(vec![InfoVxlan::Id(plan.vni), local, port, InfoVxlan::Learning(false)])
}

/// Parses the attributes of a VXLAN device.
pub(super) fn read(data: &[InfoVxlan]) -> DeviceKind {
    let mut vni = 0;
    let mut local = None;
    let mut udp_port = 0;
    let mut learns = true;
    for one in data {
        match one {
            InfoVxlan::Id(id) => vni = *id,
            InfoVxlan::Local(ip) => local = Some(IpAddr::from(*ip)),
            InfoVxlan::Local6(ip) => local = Some(IpAddr::from(*ip)),
            InfoVxlan::Port(port) => udp_port = *port,
            InfoVxlan::Learning(on) => learns = *on,
            _ => {}
        }
    }
    DeviceKind::Tunnel { vni, local, udp_port, learns }
}
