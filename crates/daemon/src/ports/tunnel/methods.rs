//! Control requests of a control plane for tunnels (`vxlan.set`, `vxlan.local`), and notifications of changes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use netvale_control::types::{
    Confirmation, EventName, KindReply, KindRequest, LocalAddress, Mac, TableEntry, VxlanAddress, VxlanLocal,
    VxlanLocalParams, VxlanSetParams,
};
use netvale_control::{ErrorCode, Reply, RpcError};
use netvale_port::origin::Origin;
use netvale_switch::{FdbEntry, PortId, Switch};
use netvale_vxlan::peers::VtepPeers;
use netvale_vxlan::tunnel::{ChangeError, GivenAddress, TunnelChange, now};

use super::{MOST_KEPT, VxlanPort, mac_of, neighbor_of, word_of};
use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort};
use crate::ports::kind::Methods;
use crate::registry::events::NewEvent;

/// The control requests of tunnels.
pub const METHODS: Methods = Methods { answer, due };

fn answer(d: &mut Daemon, request: &KindRequest, caller: Caller) -> Option<Result<Reply, RpcError>> {
    Some(match request {
        KindRequest::VxlanSet(p) => set(d, p).map(|()| Reply::Done(Confirmation {})),
        KindRequest::VxlanLocal(p) => local(d, p, caller).map(|local| Reply::OfKind(KindReply::VxlanLocal(local))),
        _ => return None,
    })
}

/// A tunnel's port, its switch, and its number on that switch.
struct TunnelPort<'d> {
    port: &'d VxlanPort,
    switch: &'d Arc<Switch>,
    id: PortId,
}

fn find<'d>(d: &'d Daemon, full: &str) -> Result<TunnelPort<'d>, RpcError> {
    let none =
        || RpcError::new(ErrorCode::NotFound, format!("port {full} does not exist"), "'netvale list' shows the ports");
    let record = d.ports.get(full).ok_or_else(none)?;
    let port = record.behind.get::<VxlanPort>().ok_or_else(|| {
        RpcError::new(
            ErrorCode::InvalidParams,
            format!("{full} is not a VXLAN tunnel"),
            "'netvale list' shows the kinds of ports",
        )
    })?;
    let (switch, id) = record.switch.as_ref().zip(record.id).ok_or_else(none)?;
    Ok(TunnelPort { port, switch, id })
}

/// Sets the addresses behind a tunnel. The switch forgets these addresses if it has learned them behind its local
/// ports.
fn set(d: &mut Daemon, p: &VxlanSetParams) -> Result<(), RpcError> {
    let TunnelPort { port, switch, id } = find(d, &p.port)?;
    let given = |one: &VxlanAddress| GivenAddress {
        mac: word_of(one.mac),
        vtep: one.vtep,
        sticky: one.sticky,
        sequence: one.sequence,
    };
    let words = |macs: &[Mac]| macs.iter().map(|mac| word_of(*mac)).collect::<Vec<_>>();
    let change = TunnelChange {
        replace: p.replace,
        flood: (p.flood.add.clone(), p.flood.remove.clone()),
        addresses: (p.addresses.add.iter().map(given).collect(), words(&p.addresses.remove)),
        neighbors: (p.neighbors.add.iter().map(neighbor_of).collect(), p.neighbors.remove.clone()),
    };
    let wrong = |e: ChangeError| RpcError::new(ErrorCode::InvalidParams, e.to_string(), "nothing has changed");
    let before = port.tunnel.count_given();
    let peers = port.tunnel.peers();
    port.tunnel.change(&change).map_err(wrong)?;
    let vlans = switch.vlans_of(id);
    for one in &change.addresses.0 {
        vlans.iter().for_each(|&vlan| _ = switch.forget_elsewhere(vlan, one.mac, id));
    }
    let is_small = before.min(port.tunnel.count_given()) <= MOST_KEPT || !port.evpn;
    let lost = flooded(&peers);
    let new = flooded(&port.tunnel.peers());
    d.changes.everything |= p.replace || !p.flood.add.is_empty() || !p.flood.remove.is_empty() || is_small;
    let uid = d.ports.get(&p.port).map_or(0, |record| record.owner.uid);
    let mut tell = |name, vtep: &IpAddr| d.events.tell(NewEvent::to(name, uid).at(&p.port).with("vtep", vtep));
    new.difference(&lost).for_each(|vtep| tell(EventName::TunnelVtepAdded, vtep));
    lost.difference(&new).for_each(|vtep| tell(EventName::TunnelVtepRemoved, vtep));
    Ok(())
}

/// Returns the IP addresses of the VTEPs to which frames are flooded.
fn flooded(peers: &VtepPeers) -> BTreeSet<IpAddr> {
    peers.all().iter().filter(|peer| peer.floods).map(|peer| peer.ip).collect()
}

/// Returns the generation of the addresses on the local side of a tunnel: the number of changes of these addresses so
/// far.
fn generation(on: &TunnelPort<'_>) -> u64 {
    on.switch.changes().count().wrapping_add(on.port.tunnel.heard().changes().count())
}

/// Returns the addresses on the local side of a tunnel, or, if the generation is still `p.since`, only the generation.
/// With `p.watch`, the caller gets a notification of the next change.
fn local(d: &mut Daemon, p: &VxlanLocalParams, caller: Caller) -> Result<VxlanLocal, RpcError> {
    let on = find(d, &p.port)?;
    if p.watch {
        let news = d.tunnels.news();
        on.switch.changes().arm(news);
        on.port.tunnel.heard().changes().arm(news);
    }
    let generation = generation(&on);
    let addresses = (p.since != Some(generation)).then(|| addresses(d, &on));
    if p.watch {
        d.tunnels.watch(&p.port, caller.client, generation);
        // A change that happened just before the doorbell was armed has not rung it.
        d.tunnels.news().ring();
    }
    Ok(VxlanLocal { generation, addresses })
}

fn addresses(d: &Daemon, on: &TunnelPort<'_>) -> Vec<LocalAddress> {
    let vlans: BTreeSet<u16> = on.switch.vlans_of(on.id).into_iter().collect();
    let names: BTreeMap<PortId, String> = on.switch.ports().into_iter().collect();
    let record = |id: PortId| d.ports.get(&format!("{}:{}", on.switch.name(), names.get(&id)?));
    let is_tunnel = |id| record(id).is_some_and(|record| record.behind.get::<VxlanPort>().is_some());
    let keeps = |record: &DaemonPort| record.policies.sticky == Some(true) || record.policies.locked == Some(true);
    let entries = on.switch.addresses().entries().into_iter();
    let local: Vec<_> = entries.filter(|e| e.port != on.id && vlans.contains(&e.vlan) && !is_tunnel(e.port)).collect();
    // The owner of a frame that has passed a link (a delaying queue) is unknown, because any station may have sent it.
    let owners = |e: &FdbEntry| on.switch.owner(e.port).into_iter().chain([Origin::UNKNOWN.owner]);
    let stations: HashSet<_> = local.iter().flat_map(|e| owners(e).map(|owner| (e.mac, owner))).collect();
    let mut heard: BTreeMap<u64, (Vec<IpAddr>, Vec<IpAddr>)> = BTreeMap::new();
    for one in on.port.tunnel.heard().all(now(), |mac, owner| stations.contains(&(mac, owner))) {
        let (ips, routers) = heard.entry(one.mac).or_default();
        ips.push(one.ip);
        routers.extend(one.router.then_some(one.ip));
    }
    let one = |e: FdbEntry| {
        let (ips, routers) = heard.get(&e.mac).cloned().unwrap_or_default();
        LocalAddress { mac: mac_of(e.mac), ips, routers, sticky: record(e.port).is_some_and(keeps) }
    };
    let mut all: Vec<_> = local.into_iter().map(one).collect();
    all.sort_by_key(|one| one.mac);
    all
}

/// Returns pending notifications, each with the number of the connection and the text.
fn due(d: &mut Daemon) -> Vec<(u64, String)> {
    let mut due = Vec::new();
    for (port, client, known) in d.tunnels.watchers() {
        // If the port no longer exists, the notification contains the highest generation, and the connection's next
        // request fails.
        let now = find(d, &port).map_or(u64::MAX, |on| generation(&on));
        if now == known {
            rearm(d, &port);
            continue;
        }
        d.tunnels.told(&port, client);
        let params = serde_json::json!({"port": port, "generation": now});
        due.push((
            client,
            serde_json::json!({"jsonrpc": "2.0", "method": "vxlan.changed", "params": params}).to_string(),
        ));
    }
    due
}

/// Arms the doorbell again if it rang although the tunnel's generation had not changed.
fn rearm(d: &Daemon, port: &str) {
    if let Ok(on) = find(d, port) {
        let news = d.tunnels.news();
        let before = generation(&on);
        on.switch.changes().arm(news);
        on.port.tunnel.heard().changes().arm(news);
        if generation(&on) != before {
            news.ring();
        }
    }
}

/// Adds a tunnel's addresses to the listing of its switch's table, each with its VTEP. The list includes configured
/// addresses from which no frame has been received yet.
pub(super) fn add_remote(port: &VxlanPort, switch: &Switch, id: PortId, full: &str, entries: &mut Vec<TableEntry>) {
    let mut known: BTreeMap<Mac, _> =
        port.tunnel.addresses().into_iter().map(|(entry, age)| (mac_of(entry.mac), (entry, age))).collect();
    let sequence = |mac| port.tunnel.given_address(mac).map(|given| given.sequence).filter(|sequence| *sequence > 0);
    for entry in entries.iter_mut().filter(|entry| entry.port == full) {
        if let Some((remote, _)) = known.remove(&entry.mac) {
            entry.vtep = Some(remote.vtep);
            entry.given = remote.given;
            entry.sequence = sequence(remote.mac);
        }
    }
    let vlan = switch.vlans_of(id).first().copied().filter(|vlan| *vlan > 0);
    entries.extend(known.into_iter().map(|(mac, (remote, age))| TableEntry {
        mac,
        vlan,
        port: full.to_owned(),
        age_seconds: if remote.given { 0 } else { age.into() },
        vtep: Some(remote.vtep),
        given: remote.given,
        sequence: sequence(remote.mac),
    }));
}
