//! `vxlan:VNI,local=IP[,remote=IP…][,port=N]`: a tunnel to other hosts.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;

use netvale_control::options::{OptionsOf, kind};
use netvale_control::types::{Mac, PortInfo, PortKind, VxlanInfo, VxlanRemote};
use netvale_portspec::{AttachSpec, VxlanSpec};
use netvale_switch::Knows;
use netvale_vxlan::endpoint::SendOptions;
use netvale_vxlan::tunnel::{Change, Given};
use netvale_vxlan::{EndpointError, Tunnel, TunnelEgress, TunnelIngress, TunnelOptions};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::kind::Asked;
use super::plug::{NewPort, plug};
use crate::daemon::{Attached, Daemon};
use crate::handover::items::{State, from_said};
use crate::refusal::Refusal;

/// Seconds after which a learned address is forgotten (IEEE 802.1D's default).
const AGEING: u32 = 300;
/// Addresses that are kept for a daemon that is killed, at most: with more, its control plane says them again.
const MOST_KEPT: usize = 4096;

/// A tunnel behind a port.
pub struct VxlanPort {
    /// The tunnel.
    pub tunnel: Arc<Tunnel>,
    /// Whether a control plane says where addresses are.
    pub evpn: bool,
}

/// What a successor must know. Descriptors: the endpoint's socket, where datagrams wait.
#[derive(Default, Serialize, Deserialize)]
struct VxlanState {
    flood: Vec<IpAddr>,
    addresses: Vec<(Mac, IpAddr, bool, u32)>,
    neighbors: Vec<(IpAddr, Mac)>,
    learned: Vec<(Mac, IpAddr)>,
}

/// A tunnel as its switch asks it.
struct Behind(Arc<Tunnel>);

impl Knows for Behind {
    fn knows(&self, mac: u64) -> bool {
        self.0.knows(mac)
    }
}

impl VxlanPort {
    fn state(&self, with_all: bool) -> std::io::Result<State> {
        let (change, learned) = self.tunnel.state();
        let given = |one: &Given| (mac_of(one.mac), one.vtep, one.sticky, one.sequence);
        let mut said = VxlanState { flood: change.flood.0, ..VxlanState::default() };
        if with_all || change.addresses.0.len() <= MOST_KEPT {
            said.addresses = change.addresses.0.iter().map(given).collect();
            said.neighbors = change.neighbors.0.iter().map(|(ip, mac)| (*ip, mac_of(*mac))).collect();
        }
        if with_all {
            said.learned = learned.into_iter().map(|(mac, vtep)| (mac_of(mac), vtep)).collect();
        }
        let socket = rustix::io::fcntl_dupfd_cloexec(&**self.tunnel.endpoint(), 0)?;
        State::of(said, vec![socket])
    }
}

impl Attached for VxlanPort {
    fn kind(&self) -> PortKind {
        PortKind::Vxlan
    }

    fn describe(&self, info: &mut PortInfo) {
        let (tunnel, peers) = (&self.tunnel, self.tunnel.peers());
        let remotes = peers.all().iter().map(|peer| {
            let [out_frames, out_bytes, in_frames, in_bytes] = peer.counters.all();
            VxlanRemote { vtep: peer.ip, flood: peer.floods, out_frames, out_bytes, in_frames, in_bytes }
        });
        info.vxlan = Some(VxlanInfo {
            vni: tunnel.options().vni,
            local: tunnel.endpoint().local(),
            port: tunnel.endpoint().port(),
            mtu: tunnel.mtu(),
            evpn: self.evpn,
            addresses: tunnel.addresses().len() as u64,
            remotes: remotes.collect(),
        });
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.tunnel.peers().flood().is_empty() {
            let who =
                if self.evpn { "'netvale evpn' gives them" } else { "name them: remote=IP, or 'netvale vtep add'" };
            notes.push(format!("no remotes: frames for all, and for unknown addresses, are dropped ({who})"));
        }
        notes
    }

    fn stop(self: Box<Self>, _d: &mut Daemon, _full: &str) {
        self.tunnel.leave();
    }

    fn hand_over(&self) -> std::io::Result<Option<State>> {
        self.state(true).map(Some)
    }

    fn keeps(&self) -> std::io::Result<Option<State>> {
        self.state(false).map(Some)
    }
}

/// Attaches a tunnel.
pub fn attach(d: &mut Daemon, asked: &Asked<'_>) -> Result<(), Refusal> {
    let AttachSpec::Vxlan(spec) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Vxlan>()?;
    let (state, socket) = match asked.continued() {
        Some(State { said, mut fds, .. }) => (Some(from_said::<VxlanState>(said)?), fds.pop()),
        None => (None, None),
    };
    let endpoint = d.tunnels.endpoint((spec.local(), spec.port()), socket).map_err(refusal)?;
    let tunnel = Tunnel::new(endpoint, options(spec, &o)).map_err(refusal)?;
    if let Some(state) = state {
        go_on(&tunnel, state)?;
    }
    let queues = (
        vec![Arc::new(TunnelEgress::new(Arc::clone(&tunnel))) as _],
        vec![Box::new(TunnelIngress::new(Arc::clone(&tunnel))) as _],
    );
    plug(d, &asked.at, queues, NewPort::new(VxlanPort { tunnel, evpn: o.evpn() }, asked))?;
    ask_port(d, &asked.at.full());
    Ok(())
}

/// Has a tunnel's switch ask it about addresses that the switch does not know, if somebody says where they are. Again when the
/// port's VLANs have changed.
pub fn ask_port(d: &Daemon, full: &str) {
    let Some(record) = d.ports.get(full) else { return };
    if let Some(port) = record.behind.get::<VxlanPort>().filter(|port| port.evpn)
        && let (Some(switch), Some(id)) = (&record.switch, record.id)
    {
        switch.ask_port(id, &(Arc::new(Behind(Arc::clone(&port.tunnel))) as _));
    }
}

fn options(spec: &VxlanSpec, o: &OptionsOf<'_, kind::Vxlan>) -> TunnelOptions {
    // Two keys from the standard library's random state.
    let random = RandomState::new();
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
        key: [random.hash_one(1u8), random.hash_one(2u8)],
    }
}

/// Goes on with what another process knew.
fn go_on(tunnel: &Tunnel, state: VxlanState) -> Result<(), Refusal> {
    let VxlanState { flood, addresses, neighbors, learned } = state;
    let given = |(mac, vtep, sticky, sequence)| Given { mac: word_of(mac), vtep, sticky, sequence };
    let change = Change {
        replace: true,
        flood: (flood, Vec::new()),
        addresses: (addresses.into_iter().map(given).collect(), Vec::new()),
        neighbors: (neighbors.into_iter().map(|(ip, mac)| (ip, word_of(mac))).collect(), Vec::new()),
    };
    tunnel.change(&change).map_err(|e| Refusal::new(Errno::INVAL, e.to_string()))?;
    tunnel.learn_all(&learned.into_iter().map(|(mac, vtep)| (word_of(mac), vtep)).collect::<Vec<_>>());
    Ok(())
}

/// An address in wire order, first byte lowest.
pub fn word_of(Mac([a, b, c, d, e, f]): Mac) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// The address that such a word is.
pub fn mac_of(word: u64) -> Mac {
    let [a, b, c, d, e, f, ..] = word.to_le_bytes();
    Mac([a, b, c, d, e, f])
}

fn refusal(e: EndpointError) -> Refusal {
    let errno = match &e {
        EndpointError::InUse(..) | EndpointError::VniInUse(_) => Errno::ADDRINUSE,
        EndpointError::NotHere(_) => Errno::ADDRNOTAVAIL,
        EndpointError::Socket(_, e) => Errno::from_io_error(e).unwrap_or(Errno::IO),
    };
    Refusal::new(errno, e.to_string())
}
