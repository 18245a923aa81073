//! `vxlan:VNI,local=IP[,remote=IP…][,port=N]`: a tunnel to other hosts.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use netvale_control::options::{OptionsOf, kind};
use netvale_fdio::state::{Fd, State};
use netvale_portspec::AttachSpec;
use netvale_portspec::kinds::VxlanSpec;
use netvale_vxlan::endpoint::SendOptions;
use netvale_vxlan::tunnel::{GivenAddress, TunnelChange};
use netvale_vxlan::{EndpointError, Tunnel, TunnelEgress, TunnelIngress, TunnelOptions};
use rustix::io::Errno;

use super::kind::AdmittedRequest;
use super::plug::{NewPort, plug};
use super::tunnel::{VxlanPort, VxlanState, ask_port, neighbor_of, word_of};
use crate::daemon::Daemon;
use crate::refusal::Refusal;
use crate::system::keep;

/// Seconds after which a learned address expires (IEEE 802.1D's default).
const AGEING: u32 = 300;

/// Attaches a port with a VXLAN tunnel, or restores such a port.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::Vxlan(spec) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Vxlan>()?;
    let mut state = asked.continued().map(State::read::<VxlanState>).transpose()?;
    let socket = state.as_mut().and_then(|state| state.socket.take()).map(Fd::take).transpose()?;
    let endpoint = d.tunnels.endpoint(spec.local(), spec.port(), socket).map_err(refusal)?;
    // The random keys of the standard library's hasher serve as a source of random numbers.
    let random = RandomState::new();
    let drawn = [random.hash_one(1u8), random.hash_one(2u8)];
    let key = state.as_ref().and_then(|state| state.key).unwrap_or(drawn);
    let tunnel = Tunnel::new(endpoint, options(spec, &o, key)).map_err(refusal)?;
    if let Some(state) = state {
        go_on(&tunnel, state)?;
    }
    let instance = random.hash_one(3u8) >> 12;
    let queues = (
        vec![Arc::new(TunnelEgress::new(Arc::clone(&tunnel))) as _],
        vec![Box::new(TunnelIngress::new(Arc::clone(&tunnel))) as _],
    );
    plug(d, &asked.at, queues, NewPort::new(VxlanPort { tunnel, evpn: o.evpn(), instance }, asked))?;
    ask_port(d, &asked.at.full());
    Ok(())
}

fn options(spec: &VxlanSpec, o: &OptionsOf<'_, kind::Vxlan>, key: [u64; 2]) -> TunnelOptions {
    TunnelOptions {
        vni: spec.vni(),
        remotes: spec.remotes().collect(),
        learning: !o.evpn(),
        any_peer: o.any_remote(),
        ageing: o.ageing().unwrap_or(AGEING),
        send: SendOptions {
            ttl: o.ttl().map(|ttl| ttl as u8),
            dscp: o.dscp().unwrap_or(0) as u8,
            may_fragment: o.fragment(),
            no_checksum: o.no_udp_checksum(),
        },
        mtu: o.mtu(),
        key,
    }
}

/// Restores the configured and learned addresses that another process saved.
fn go_on(tunnel: &Tunnel, state: VxlanState) -> Result<(), Refusal> {
    let VxlanState { flood, addresses, neighbors, learned, .. } = state;
    let given = |(mac, vtep, sticky, sequence)| GivenAddress { mac: word_of(mac), vtep, sticky, sequence };
    let change = TunnelChange {
        replace: true,
        flood: (flood, Vec::new()),
        addresses: (addresses.into_iter().map(given).collect(), Vec::new()),
        neighbors: (neighbors.iter().map(neighbor_of).collect(), Vec::new()),
    };
    tunnel.change(&change).map_err(|e| Refusal::new(Errno::INVAL, e.to_string()))?;
    tunnel.learn_all(&learned.into_iter().map(|(mac, vtep)| (word_of(mac), vtep)).collect::<Vec<_>>());
    Ok(())
}

fn refusal(e: EndpointError) -> Refusal {
    let errno = match &e {
        EndpointError::InUse(..) | EndpointError::VniInUse(_) => Errno::ADDRINUSE,
        EndpointError::NotHere(_) => Errno::ADDRNOTAVAIL,
        EndpointError::Socket(_, e) => Errno::from_io_error(e).unwrap_or(Errno::IO),
    };
    Refusal::new(errno, e.to_string() + forbidden(errno))
}

/// If the errno shows that the daemon's systemd unit does not permit an address family, returns advice; otherwise, an
/// empty text.
fn forbidden(errno: Errno) -> &'static str {
    match errno {
        Errno::AFNOSUPPORT if keep::is_there() => {
            "; the daemon's unit forbids it (or the kernel has no IPv6): add AF_INET AF_INET6 to \
             RestrictAddressFamilies= (systemctl edit netvale)"
        }
        _ => "",
    }
}
