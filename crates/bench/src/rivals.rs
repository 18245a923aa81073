//! Every peer that is measured, and every path of netvale's that is compared with another.

use crate::contender::Contender;
use crate::peers::{af_packet, bridge, eventfd, iperf, kernel_vxlan, memif, net_ring, ovs, ovs_vxlan, udp};
use crate::scenarios::compat::{Native, SystemPcap};
use crate::scenarios::copy::AlignedCopy;
use crate::scenarios::e1000::{self, Played};
use crate::scenarios::fairness::Beside;
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
        Box::new(kernel_vxlan::KernelVxlan),
        Box::new(ovs_vxlan::OvsVxlan),
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
        Box::new(Beside::WellBehaved),
    ];
    peers.extend(ptnet::virtio());
    peers.extend(e1000::booted());
    peers
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crate::case::Case;
    use crate::scenarios::{self, Sweep};

    /// Objective: every peer fits some scenario, and no two of one name fit the same case.
    #[test]
    fn peers_are_reachable() {
        let peers = super::all();
        let cases: Vec<Case> = scenarios::all().iter().flat_map(|scenario| scenario.cases(&Sweep::default())).collect();
        for case in &cases {
            let names: Vec<_> =
                peers.iter().filter(|peer| peer.fits(case)).map(|peer| peer.name().to_owned()).collect();
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
        }
        for peer in &peers {
            assert!(cases.iter().any(|case| peer.fits(case)), "{} fits no scenario", peer.name());
        }
    }
}
