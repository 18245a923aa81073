//! The backend of a port with a VXLAN tunnel.

pub mod kernel;
pub mod methods;

use std::net::IpAddr;
use std::sync::Arc;

use netvale_control::types::{
    Mac, PortDetails, PortInfo, PortKind, TableEntry, TunnelStats, VxlanInfo, VxlanNeighbor, VxlanRemote,
};
use netvale_fdio::state::{Fd, State};
use netvale_switch::{AddressFinder, PortId, Switch};
use netvale_vxlan::Tunnel;
use netvale_vxlan::neighbors::TunnelNeighbor;
use netvale_vxlan::peers::VtepPeer;
use netvale_vxlan::tunnel::GivenAddress;
use netvale_wire::MacAddr;
use serde::{Deserialize, Serialize};

use crate::daemon::{Daemon, PortBackend};
use crate::handover::items::ParkedPort;

/// Maximum number of a tunnel's addresses that are saved in case the daemon is killed. If a tunnel has more addresses,
/// none of them are saved, and the control plane must send all of them again.
pub const MOST_KEPT: usize = 4096;

/// Backend of a tunnel's port.
pub struct VxlanPort {
    /// The tunnel: its addresses, peers and sockets.
    pub tunnel: Arc<Tunnel>,
    /// Whether a control plane provides addresses.
    pub evpn: bool,
    /// A random number of this tunnel. If it differs from the number that a control plane has seen before, the tunnel
    /// is new, and the control plane must send all addresses again.
    pub instance: u64,
}

/// The state from which another process restores the tunnel.
#[derive(Default, Serialize, Deserialize)]
pub struct VxlanState {
    /// VTEPs to which frames are flooded.
    pub flood: Vec<IpAddr>,
    /// Configured addresses: MAC address, VTEP, whether the address is fixed, and how often the address has moved
    /// between VTEPs.
    pub addresses: Vec<(Mac, IpAddr, bool, u32)>,
    /// Configured IP addresses of neighbours.
    pub neighbors: Vec<VxlanNeighbor>,
    /// Addresses that the tunnel has learned from received frames, each with its VTEP.
    pub learned: Vec<(Mac, IpAddr)>,
    /// Key from which the source port of each flow is derived. It is kept so that each flow stays on its path and in
    /// order.
    #[serde(default)]
    pub key: Option<[u64; 2]>,
    /// Socket of the endpoint, in which received datagrams may wait.
    pub socket: Option<Fd>,
}

/// A tunnel that answers its switch's queries for unknown addresses.
struct SwitchTunnel(Arc<Tunnel>);

impl AddressFinder for SwitchTunnel {
    fn knows(&self, mac: u64) -> bool {
        self.0.knows(mac)
    }
}

impl VxlanPort {
    fn state(&self, with_all: bool) -> std::io::Result<State> {
        let (change, learned) = self.tunnel.state();
        let given = |one: &GivenAddress| (mac_of(one.mac), one.vtep, one.sticky, one.sequence);
        let neighbor = |one: &TunnelNeighbor| VxlanNeighbor { ip: one.ip, mac: mac_of(one.mac), router: one.router };
        let key = Some(self.tunnel.options().key);
        let mut said = VxlanState { flood: change.flood.0, key, ..VxlanState::default() };
        if with_all || !self.evpn || change.addresses.0.len() <= MOST_KEPT {
            said.addresses = change.addresses.0.iter().map(given).collect();
            said.neighbors = change.neighbors.0.iter().map(neighbor).collect();
        }
        if with_all {
            said.learned = learned.into_iter().map(|(mac, vtep)| (mac_of(mac), vtep)).collect();
        }
        said.socket = Some(Fd::copy_of(&**self.tunnel.endpoint())?);
        Ok(State::of(&said)?)
    }
}

impl PortBackend for VxlanPort {
    fn kind(&self) -> PortKind {
        PortKind::Vxlan
    }

    fn describe(&self, info: &mut PortInfo) {
        let tunnel = &self.tunnel;
        let peers = self.tunnel.peers();
        let tunnel = VxlanInfo {
            vni: tunnel.options().vni,
            local: tunnel.endpoint().local(),
            port: tunnel.endpoint().port(),
            mtu: tunnel.mtu(),
            evpn: self.evpn,
            instance: self.instance,
            addresses: tunnel.count_addresses() as u64,
            remotes: peers.all().iter().map(remote).collect(),
        };
        info.detail = Some(tunnel.into());
    }

    fn count(&self, port: &mut PortDetails) {
        let tunnel = &self.tunnel;
        let peers = self.tunnel.peers();
        let tunnel = TunnelStats {
            vni: tunnel.options().vni,
            local: tunnel.endpoint().local(),
            addresses: tunnel.count_addresses() as u64,
            vteps: peers.all().len() as u64,
            remotes: peers.all().iter().take(TunnelStats::MOST).map(remote).collect(),
        };
        port.of_kind = Some(tunnel.into());
    }

    fn add_addresses(&self, switch: &Switch, id: PortId, full: &str, entries: &mut Vec<TableEntry>) {
        methods::add_remote(self, switch, id, full, entries);
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.tunnel.peers().flood().is_empty() {
            let who = if self.evpn {
                "'netvale evpn' provides them"
            } else {
                "add them with remote=IP or 'netvale vtep add'"
            };
            notes.push(format!("no remotes: broadcasts and frames for unknown addresses are dropped ({who})"));
        }
        notes
    }

    fn stop(self: Box<Self>, _d: &mut Daemon, _full: &str) {
        self.tunnel.leave();
    }

    fn save(&self) -> std::io::Result<Option<State>> {
        self.state(false).map(Some)
    }

    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        Ok(Some(self.state(true)?.into()))
    }
}

/// Returns the counters of a tunnel's traffic with one VTEP.
fn remote(peer: &VtepPeer) -> VxlanRemote {
    let [out_frames, out_bytes, in_frames, in_bytes] = peer.counters.all();
    VxlanRemote { vtep: peer.ip, flood: peer.floods, out_frames, out_bytes, in_frames, in_bytes }
}

/// Makes a switch query the tunnel for unknown addresses, if a control plane provides the tunnel's addresses. Must be
/// called again after a change of the port's VLANs.
pub fn ask_port(d: &Daemon, full: &str) {
    let Some(record) = d.ports.get(full) else { return };
    if let Some(port) = record.behind.get::<VxlanPort>().filter(|port| port.evpn)
        && let (Some(switch), Some(id)) = (&record.switch, record.id)
    {
        switch.ask_port(id, &(Arc::new(SwitchTunnel(Arc::clone(&port.tunnel))) as _));
    }
}

/// Converts a neighbour entry of the control protocol to an entry of a tunnel.
pub fn neighbor_of(one: &VxlanNeighbor) -> TunnelNeighbor {
    TunnelNeighbor { ip: one.ip, mac: word_of(one.mac), router: one.router }
}

/// Returns a MAC address as a word, with the first byte in the lowest bits.
pub fn word_of(Mac(bytes): Mac) -> u64 {
    MacAddr(bytes).to_word()
}

/// Returns the MAC address that [`word_of`] converted to `word`.
pub fn mac_of(word: u64) -> Mac {
    Mac(MacAddr::from_word(word).0)
}
