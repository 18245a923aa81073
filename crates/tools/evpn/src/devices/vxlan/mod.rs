//! The kernel's VXLAN devices, as netlink's messages have them.

use std::net::IpAddr;

use netlink_packet_route::link::{InfoData, InfoKind, InfoVxlan};

use super::Plan;
use super::kind::Kind;

/// What the kernel calls them.
pub(super) const KIND: InfoKind = InfoKind::Vxlan;

/// What makes the device of a VNI.
pub(super) fn data(plan: &Plan) -> InfoData {
    let local = match plan.local {
        IpAddr::V4(ip) => InfoVxlan::Local(ip),
        IpAddr::V6(ip) => InfoVxlan::Local6(ip),
    };
    let port = InfoVxlan::Port(plan.udp_port);
    InfoData::Vxlan(vec![InfoVxlan::Id(plan.vni), local, port, InfoVxlan::Learning(false)])
}

/// What the kernel says of one.
pub(super) fn read(data: &[InfoVxlan]) -> Kind {
    let (mut vni, mut local, mut udp_port, mut learns) = (0, None, 0, true);
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
