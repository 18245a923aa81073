//! All peers, and netvale's own paths that are compared with others.

use crate::contender::Contender;
use crate::peers::{af_packet, bridge, dpdk, eventfd, iperf, kernel_vxlan, ovs, ovs_vxlan, udp};
use crate::scenarios::{
    compat, copy, e1000, fairness, filter, gateway, generators, guest, nic, parts, ptnet, sockets, vhost,
};

/// Returns all peers, best known first. A case uses the peers for which [`Contender::fits`] returns true.
pub fn all() -> Vec<Contender> {
    let kinds: &[fn() -> Vec<Contender>] = &[
        copy::peers,
        dpdk::peers,
        ovs::peers,
        bridge::peers,
        af_packet::peers,
        iperf::peers,
        kernel_vxlan::peers,
        ovs_vxlan::peers,
        eventfd::peers,
        udp::peers,
        compat::peers,
        vhost::peers,
        nic::peers,
        generators::peers,
        parts::peers,
        filter::peers,
        ptnet::peers,
        e1000::players,
        guest::peers,
        guest::pairs::peers,
        guest::pktgen::peers,
        fairness::peers,
        ptnet::virtio,
        e1000::booted,
        sockets::peers,
        gateway::peers,
    ];
    kinds.iter().flat_map(|peers| peers()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crate::case::Case;
    use crate::measure::Measure;
    use crate::scenarios;

    /// Objective: every peer fits some scenario, and no two peers of the same name fit the same case.
    #[test]
    fn peers_are_reachable() {
        let peers = super::all();
        let cases: Vec<Case> = scenarios::ALL.iter().flat_map(|scenario| scenario.cases(&Measure::default())).collect();
        for case in &cases {
            let names: Vec<_> = peers.iter().filter(|peer| peer.fits(case)).map(|peer| peer.name).collect();
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
        }
        for peer in &peers {
            assert!(cases.iter().any(|case| peer.fits(case)), "{} fits no scenario", peer.name);
        }
    }
}
