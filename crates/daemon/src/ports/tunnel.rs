//! The backend of a VXLAN port: a tunnel.

pub mod kernel;
pub mod methods;

use std::net::IpAddr;
use std::sync::Arc;

use netvale_control::types::{
    Mac, PortDetails, PortInfo, PortKind, TableEntry, TunnelStats, VxlanInfo, VxlanNeighbor, VxlanRemote,
};
use netvale_fdio::state::{Fd, State};
use netvale_switch::{Knows, PortId, Switch};
use netvale_vxlan::Tunnel;
use netvale_vxlan::neighbors::Neighbor;
use netvale_vxlan::peers::Peer;
use netvale_vxlan::tunnel::GivenAddress;
use netvale_wire::MacAddr;
use serde::{Deserialize, Serialize};

use crate::daemon::{Attached, Daemon};
use crate::handover::items::ParkedPort;

/// Maximum number of addresses saved in case the daemon is killed; over it, the control plane must send them again.
pub const MOST_KEPT: usize = 4096;

/// Backend of a tunnel's port.
pub struct VxlanPort {
    /// The tunnel.
    pub tunnel: Arc<Tunnel>,
    /// Whether a control plane provides addresses.
    pub evpn: bool,
    /// Unique among daemons: it tells the control plane when to send all addresses again.
    pub instance: u64,
}

/// State for another process.
#[derive(Default, Serialize, Deserialize)]
pub struct VxlanState {
    /// VTEPs that get flooded frames.
    pub flood: Vec<IpAddr>,
    /// Addresses: VTEP, whether it is fixed, number of moves.
    pub addresses: Vec<(Mac, IpAddr, bool, u32)>,
    /// IP addresses of neighbours.
    pub neighbors: Vec<VxlanNeighbor>,
    /// Learned addresses.
    pub learned: Vec<(Mac, IpAddr)>,
    /// Key of the source ports of flows: each flow stays on its path, and in order.
    #[serde(default)]
    pub key: Option<[u64; 2]>,
    /// The endpoint's socket, with waiting datagrams.
    pub socket: Option<Fd>,
}

/// A tunnel, as queried by its switch.
struct Behind(Arc<Tunnel>);

impl Knows for Behind {
    fn knows(&self, mac: u64) -> bool {
        self.0.knows(mac)
    }
}

impl VxlanPort {
    fn state(&self, with_all: bool) -> std::io::Result<State> {
        let (change, learned) = self.tunnel.state();
        let given = |one: &GivenAddress| (mac_of(one.mac), one.vtep, one.sticky, one.sequence);
        let neighbor = |one: &Neighbor| VxlanNeighbor { ip: one.ip, mac: mac_of(one.mac), router: one.router };
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

impl Attached for VxlanPort {
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
            let who =
                if self.evpn { "'netvale evpn' gives them" } else { "name them: remote=IP, or 'netvale vtep add'" };
            notes.push(format!("no remotes: frames for all, and for unknown addresses, are dropped ({who})"));
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

/// Counters of a tunnel's traffic with another endpoint.
fn remote(peer: &Peer) -> VxlanRemote {
    let [out_frames, out_bytes, in_frames, in_bytes] = peer.counters.all();
    VxlanRemote { vtep: peer.ip, flood: peer.floods, out_frames, out_bytes, in_frames, in_bytes }
}

/// Lets a switch query its tunnel for unknown addresses, if a control plane provides them. Repeated after a change of
/// the port's VLANs.
pub fn ask_port(d: &Daemon, full: &str) {
    let Some(record) = d.ports.get(full) else { return };
    if let Some(port) = record.behind.get::<VxlanPort>().filter(|port| port.evpn)
        && let (Some(switch), Some(id)) = (&record.switch, record.id)
    {
        switch.ask_port(id, &(Arc::new(Behind(Arc::clone(&port.tunnel))) as _));
    }
}

/// A configured neighbour behind a tunnel.
pub fn neighbor_of(one: &VxlanNeighbor) -> Neighbor {
    Neighbor { ip: one.ip, mac: word_of(one.mac), router: one.router }
}

/// An address in wire order, first byte lowest.
pub fn word_of(Mac(bytes): Mac) -> u64 {
    MacAddr(bytes).to_word()
}

/// The address of such a word.
pub fn mac_of(word: u64) -> Mac {
    Mac(MacAddr::from_word(word).0)
}
