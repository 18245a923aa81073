//! Metrics of VXLAN ports: their remote endpoints, and the traffic with each endpoint.

use std::fmt::Result as Encoded;

use netvale_control::types::{PortDetails, TunnelStats, VxlanRemote};

use super::MetricKind;
use crate::metrics::families::families;
use crate::metrics::samples::SampleValue::Count;
use crate::metrics::samples::{Samples, both, whose};

pub(super) const KIND: MetricKind = MetricKind { families: TUNNELS, encode };

families! {
    /// The families of metrics of tunnels.
    TUNNELS:
    TUNNEL = Info "tunnel" ["port", "switch", "vni", "local"] "A VXLAN port: its VNI, and its endpoint on this host.";
    TUNNEL_ADDRESSES = Gauge "tunnel_addresses" ["port", "switch"] "Known addresses behind other endpoints.";
    TUNNEL_VTEPS = Gauge "tunnel_vteps" ["port", "switch"] "Other endpoints (VTEPs).";
    TUNNEL_FRAMES = Counter "tunnel_frames" ["port", "switch", "vtep", "direction"]
        "Frames from and to another endpoint, for a tunnel's first 256 endpoints.";
    TUNNEL_BYTES = Counter "tunnel" in Bytes ["port", "switch", "vtep", "direction"] "Bytes of these frames.";
}

fn encode(samples: &mut Samples<'_>, ports: &[PortDetails]) -> Encoded {
    let tunnels = || ports.iter().filter_map(|port| Some((port, port.of_kind::<TunnelStats>()?)));
    let about = |tunnel: &TunnelStats| ([("vni", u64::from(tunnel.vni))], [("local", tunnel.local.to_string())]);
    samples.info(&TUNNEL, tunnels().map(|(port, tunnel)| (whose(port), about(tunnel))))?;
    samples.all(&TUNNEL_ADDRESSES, tunnels().map(|(port, tunnel)| (whose(port), Count(tunnel.addresses))))?;
    samples.all(&TUNNEL_VTEPS, tunnels().map(|(port, tunnel)| (whose(port), Count(tunnel.vteps))))?;
    let mut of = |family, value: fn(&VxlanRemote) -> [u64; 2]| {
        let remotes = tunnels().flat_map(|(port, tunnel)| tunnel.remotes.iter().map(move |remote| (port, remote)));
        let counts = remotes.flat_map(|(port, remote)| {
            let [got, sent] = value(remote);
            let vtep = remote.vtep.to_string();
            both(got, sent).map(|(direction, n)| ((whose(port), ([("vtep", vtep.clone())], direction)), Count(n)))
        });
        samples.all(family, counts)
    };
    of(&TUNNEL_FRAMES, |remote| [remote.in_frames, remote.out_frames])?;
    of(&TUNNEL_BYTES, |remote| [remote.in_bytes, remote.out_bytes])
}
