//! The kernel's VXLAN devices in netlink messages.

use std::net::IpAddr;

use netlink_packet_route::link::{InfoData, InfoKind, InfoVxlan};

use super::Plan;
use super::kind::Kind;

/// The kernel's kind of these devices.
pub(super) const KIND: InfoKind = InfoKind::Vxlan;

/// The attributes to make the device of a VNI.
pub(super) fn data(plan: &Plan) -> InfoData {
    let local = match plan.local {
        IpAddr::V4(ip) => InfoVxlan::Local(ip),
        IpAddr::V6(ip) => InfoVxlan::Local6(ip),
    };
    let port = InfoVxlan::Port(plan.udp_port);
    InfoData::Vxlan(vec![InfoVxlan::Id(plan.vni), local, port, InfoVxlan::Learning(false)])
}

/// Parses the kernel's attributes of a device.
pub(super) fn read(data: &[InfoVxlan]) -> Kind {
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
    Kind::Tunnel { vni, local, udp_port, learns }
}
