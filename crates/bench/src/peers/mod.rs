//! Those we are compared with. Each is one file and checks itself whether it can run here.

pub mod af_packet;
pub mod bridge;
pub mod dpdk;
pub mod eventfd;
pub mod frames;
pub mod iperf;
pub mod memif;
pub mod net_ring;
pub mod ovs;
pub mod pingpong;
pub mod testpmd;
pub mod udp;

use crate::contender::Contender;
use crate::scenarios::compat::{Native, SystemPcap};
use crate::scenarios::copy::AlignedCopy;
use crate::scenarios::e1000::{self, Played};
use crate::scenarios::guest::Booted;
use crate::scenarios::guest::interface::Interface;
use crate::scenarios::nic::Nic;
use crate::scenarios::ptnet::{self, Rings};
use crate::scenarios::vhost::{Pairing, guests, pvp};

/// Every peer there is, best known first. A case takes those that [`Contender::fits`].
#[must_use]
pub fn all() -> Vec<Box<dyn Contender>> {
    let mut peers: Vec<Box<dyn Contender>> = vec![
        Box::new(AlignedCopy),
        Box::new(net_ring::NetRing::Macswap),
        Box::new(net_ring::NetRing::Io),
        Box::new(memif::Memif::Copy),
        Box::new(memif::Memif::ZeroCopy),
        Box::new(ovs::Ovs::InOrder),
        Box::new(ovs::Ovs::Mergeable),
        Box::new(bridge::Bridge::Veth),
        Box::new(bridge::Bridge::Tap),
        Box::new(af_packet::AfPacket),
        Box::new(iperf::BridgedTcp),
        Box::new(eventfd::Eventfd::AcrossCores),
        Box::new(eventfd::Eventfd::OneCore),
        Box::new(udp::UdpEcho::AcrossCores),
        Box::new(udp::UdpEcho::OneCore),
        Box::new(Native),
        Box::new(SystemPcap),
        Box::new(Pairing::Dpdk),
        Box::new(Pairing::OurDriver),
        Box::new(Pairing::Both),
        Box::new(pvp::Pvp::Dpdk),
        Box::new(pvp::Pvp::Both),
        Box::new(guests::Guests::Both),
        Box::new(Nic::Xdp),
        Box::new(Nic::Dpdk),
        Box::new(Nic::Packet),
        Box::new(Nic::Sendto),
        Box::new(Rings::Local),
        Box::new(Played::Base),
        Box::new(Played::Combining),
        Box::new(Booted(Interface::Vhost)),
        Box::new(Booted(Interface::QemuE1000)),
    ];
    peers.extend(ptnet::virtio());
    peers.extend(e1000::booted());
    peers
}
