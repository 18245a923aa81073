//! Descriptions of tunnels to other hosts.

use netvale_control::types::{VxlanInfo, VxlanRemote};

use crate::grid::{self, Align};

/// Returns a tunnel's description in one line.
pub(super) fn facts(tunnel: &VxlanInfo) -> String {
    let how = if tunnel.evpn { ", EVPN" } else { "" };
    let local = tunnel.local;
    let udp = tunnel.port;
    let mtu = tunnel.mtu;
    format!("VNI {}, local {local} port {udp}, MTU {mtu}{how}", tunnel.vni)
}

/// Returns the table of a tunnel's endpoints.
pub fn table(tunnel: &VxlanInfo) -> String {
    let heads = [
        ("VTEP", Align::Left),
        ("FLOOD", Align::Left),
        ("IN", Align::Right),
        ("BYTES", Align::Right),
        ("OUT", Align::Right),
        ("BYTES", Align::Right),
    ];
    let row = |one: &VxlanRemote| {
        let flood = if one.flood { "yes" } else { "no" };
        let counts = [one.in_frames, one.in_bytes, one.out_frames, one.out_bytes].map(|count| count.to_string());
        let [a, b, c, d] = counts;
        [one.vtep.to_string(), flood.to_owned(), a, b, c, d]
    };
    grid::render(heads, tunnel.remotes.iter().map(row))
}
