//! netmap's persistent VALE ports (`NETMAP_REQ_VALE_NEWIF`): ports that have the name of an interface, on a switch or
//! not, and that remain until they are removed.
//!
//! A persistent port has the same rings from its creation on. All programs that open the port share these rings,
//! whether they use the port's own name or its name on a switch. While the port is on no switch, its forwarders belong
//! to a switch without other ports, which drops sent frames.

use std::sync::Arc;

use netvale_afxdp::iface::Interface;
use netvale_control::attach::AttachRequest;
use netvale_fdio::state::State;
use netvale_mem::PortShape;
use netvale_port::ring_in::RingIngress;
use netvale_port::{Egress, HdrLen, Ingress};
use netvale_portspec::{Base, Conf, PortName, PortSpec};
use netvale_switch::{AttachedPort, Forwarder, PortId, Switch, SwitchSettings};
use rustix::io::Errno;

use super::attachment::OpenedPort;
use super::handed::{HandedQueues, domain_of};
use super::joint::{join, part};
use super::kind::{Continuation, NamedRings};
use super::links;
use super::local::{bind, continued, is_not_joined};
use super::memory::{self, NumberedRegion};
use super::plug::{
    drain, drop_switch, end_monitors, make_switch, on_switch, prepare, tell_attached, tell_detached, unplug,
};
use super::private;
use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort, PortBackend};
use crate::handover::items::PortItem;
use crate::permission;
use crate::refusal::{Refusal, refuse};
use crate::registry::persistent::{PersistentPort, own_name};
use crate::registry::ports::{PortRecord, SwitchPort};
use crate::registry::watches::MonitoredPort;
use crate::rings::local::LocalRings;
use crate::rings::sizes::Sizes;
use crate::rings::switched::PortRings;

/// Maximum length of an interface's name in bytes, including the NUL.
const IFNAMSIZ: usize = 16;

/// Whether a name consists only of an interface's name, without prefix or quotes.
fn is_plain(parsed: &PortName, name: &str) -> bool {
    matches!(parsed.base(), Base::Netmap { ifname } if ifname.as_str() == name)
}

/// Creates a persistent port on no switch, with the shape and region in the request. Returns the port's actual shape,
/// and the region's number.
///
/// # Errors
/// [`Refusal`] if the name is invalid, or the sizes are impossible.
pub fn make(d: &mut Daemon, name: &str, request: &AttachRequest, caller: Caller) -> Result<(PortShape, u32), Refusal> {
    match PortName::parse(name) {
        Ok(parsed) if parsed.pipe().is_none() && is_plain(&parsed, name) => {}
        _ => return refuse(Errno::INVAL, format!("invalid name {name}: expected an interface name")),
    }
    if name.len() >= IFNAMSIZ || name.contains(':') {
        return refuse(
            Errno::INVAL,
            format!("invalid name {name}: expected at most {} bytes, and no colon", IFNAMSIZ - 1),
        );
    }
    let sizes = Sizes::new(request, &Conf::default())?;
    let (region, mem_id) = memory::region_or_new(d, request.mem_id, &sizes, caller)?;
    let nowhere = nowhere();
    let record = unattached(d, &(region, mem_id), sizes.shape, HdrLen::default(), &nowhere, caller)?;
    d.ports.insert(&own_name(name), record);
    d.persistent.add(name, caller.uid, nowhere);
    tell_attached(d, &own_name(name));
    Ok((sizes.shape, mem_id))
}

/// Creates the switch to which a persistent port's forwarders belong while the port is on no switch.
fn nowhere() -> Arc<Switch> {
    Switch::with("", SwitchSettings { table_entries: 8, ..SwitchSettings::default() })
}

/// Restores persistent ports, on a switch or not.
pub const CONTINUATION: Continuation = Continuation {
    is_for: |item| item.lasting.is_some(),
    go_on: |d, item, state| continue_port(d, item.lasting.as_deref().unwrap_or(&item.name), item, state),
    is_last: false,
    is_still: true,
};

/// Restores a persistent port that another process saved, on a switch or not.
///
/// # Errors
/// [`Refusal`] if the port's memory or descriptors are inconsistent, or the switch is full.
fn continue_port(d: &mut Daemon, port: &str, item: &PortItem, state: State) -> Result<(), Refusal> {
    let owner = Caller::from(item.owner);
    let nowhere = nowhere();
    let (local, ingresses) = continued(d, owner, state)?;
    let record = record(d, local, ingresses, &nowhere, owner)?;
    let record = PortRecord { policies: item.policies.clone(), ..record };
    d.ports.insert(&own_name(port), record);
    d.persistent.add(port, owner.uid, nowhere);
    match &item.on {
        Some((switch, _)) => put_on(d, &SwitchPort::new(switch, port), owner.uid),
        None => Ok(()),
    }
}

/// Creates the rings of a port that is on no switch, and the port's record. `nowhere` is the switch to which the port's
/// forwarders belong.
fn unattached(
    d: &mut Daemon,
    (region, mem_id): &NumberedRegion,
    shape: PortShape,
    hdr_len: HdrLen,
    nowhere: &Arc<Switch>,
    owner: Caller,
) -> Result<DaemonPort, Refusal> {
    let (rings, ingresses) = PortRings::new(region, *mem_id, shape, hdr_len, d.evictions.new_fault(owner))?;
    record(d, LocalRings::unheld(rings), ingresses, nowhere, owner)
}

/// Creates the record of a port on no switch.
fn record(
    d: &mut Daemon,
    local: LocalRings,
    ingresses: Vec<RingIngress>,
    nowhere: &Arc<Switch>,
    owner: Caller,
) -> Result<DaemonPort, Refusal> {
    let ingress = ingresses.iter().map(|i| Arc::clone(i.counters())).collect();
    let egress = local.rings.rx.iter().map(|e| Arc::clone(e.counters())).collect();
    let mut handed = HandedQueues::new(d, owner, domain_of(owner), local.rings.rx.len())?;
    let egresses = handed.queues(local.rings.rx.iter().map(|e| Arc::clone(e) as Arc<dyn Egress>).collect())?;
    let domain = handed.domain();
    let forwarders = ingresses.into_iter().enumerate();
    let forwarders = forwarders.map(|(ring, i)| Forwarder::new(Arc::clone(nowhere), 0, ring, Box::new(i)));
    let placed = forwarders.map(|forwarder| d.workers.place_for(domain, Box::new(forwarder))).collect();
    let handed = handed.place(d, nowhere, 0);
    let base = PortRecord::new(Box::new(local) as Box<dyn PortBackend>, owner);
    Ok(PortRecord { handed, placed, ingress, egress, egresses, ..base })
}

fn find<'a>(d: &'a Daemon, name: &str) -> Result<&'a PersistentPort, Refusal> {
    d.persistent.get(name).ok_or_else(|| {
        // The errno is netmap's: `EINVAL` for an interface that exists, but was not created by `NETMAP_REQ_VALE_NEWIF`.
        let errno = if Interface::find(name).is_ok() { Errno::INVAL } else { Errno::NXIO };
        Refusal::new(errno, format!("persistent port {name} does not exist"))
    })
}

/// Whether a program has opened the port.
fn is_held(d: &Daemon, place: &str) -> bool {
    let local = d.ports.get(place).and_then(|record| record.behind.get::<LocalRings>());
    local.is_some_and(|local| !local.is_unheld())
}

/// Removes a persistent port that is on no switch.
///
/// # Errors
/// [`Refusal`] if the port does not exist, is in use, or is on a switch.
pub fn remove(d: &mut Daemon, name: &str) -> Result<(), Refusal> {
    let place = find(d, name)?.place().to_owned();
    is_not_joined(d, &place)?;
    if place != own_name(name) {
        return refuse(Errno::BUSY, format!("{name} is on a switch, as {place}; detach it first"));
    }
    if is_held(d, &place) {
        return refuse(Errno::BUSY, format!("port {name} is open; remove it after its programs have closed it"));
    }
    d.persistent.remove(name);
    unplug(d, &place, "requested by a netmap program")
}

/// Attaches a persistent port to a switch: to its first switch with its existing rings, or to a second switch. As in
/// netmap, this fails while a program has opened the port, and if the port already joins two switches.
///
/// # Errors
/// [`Refusal`] if the port is open or joins two switches, or if the switch has no room.
pub fn attach(d: &mut Daemon, at: &SwitchPort, mem_id: u32, rings: NamedRings, caller: Caller) -> Result<(), Refusal> {
    let port = at.port.as_str();
    let place = find(d, port)?.place().to_owned();
    is_not_joined(d, &place)?;
    if is_held(d, &place) {
        return refuse(Errno::BUSY, format!("{port} is open; attach it after its programs have closed it"));
    }
    if place == own_name(port) {
        return hook(d, at, mem_id, caller);
    }
    if mem_id != 0 {
        memory::region(d, mem_id, caller)?;
    }
    join(d, at, rings, caller)
}

/// Attaches a persistent port that is on no switch to a switch, with its existing rings.
fn hook(d: &mut Daemon, at: &SwitchPort, mem_id: u32, caller: Caller) -> Result<(), Refusal> {
    let policies = d.ports.get(&own_name(&at.port)).map(|record| record.policies.clone()).unwrap_or_default();
    permission::may_begin_with(d, caller, at, &policies)?;
    move_to_region(d, &at.port, mem_id, caller)?;
    put_on(d, at, caller.uid)?;
    tracing::info!(port = at.full(), uid = caller.uid, pid = caller.pid, "attached");
    tell_attached(d, &at.full());
    Ok(())
}

/// Attaches a port that is on no switch, with the policies that it has.
fn put_on(d: &mut Daemon, at: &SwitchPort, uid: u32) -> Result<(), Refusal> {
    let place = own_name(&at.port);
    let record = d.ports.get(&place).ok_or_else(|| Refusal::internal("a persistent port without a record"))?;
    let owner = record.owner;
    let policies = record.given_policies().over(&d.config.switch.policies.of(&at.switch));
    let ingress = record.ingress.clone();
    let egresses = record.egresses.clone();
    let policies = private::complete(d, &at.switch, &at.full(), policies)?;
    let (mut links, compiled) = prepare(d, owner, &policies, &ingress, &egresses)?;
    let switch = make_switch(d, &at.switch, uid);
    let port = on_switch(d, &at.port, links.gets(&egresses), false, owner);
    let id = switch.attach(AttachedPort { policies: compiled, rings: ingress.len(), ..port })?;
    let links = links.place(d, domain_of(owner), &switch, id, &egresses);
    if let Some(record) = d.ports.get_mut(&place) {
        record.links = links;
        record.policies = policies;
    }
    rehome(d, &place, &switch, Some(id));
    rename(d, &at.port, &at.full());
    Ok(())
}

/// Detaches a persistent port from the switch on which its name is `full`; programs may keep it open. Returns false if
/// `full` is not such a port.
pub fn detach(d: &mut Daemon, full: &str, why: &str) -> bool {
    if part(d, full, why) {
        return true;
    }
    let Some(port) = d.persistent.at(full).filter(|port| own_name(port) != full).map(str::to_owned) else {
        return false;
    };
    let Some((switch, id)) = d.ports.get(full).and_then(|r| Some((r.switch.clone()?, r.id?))) else {
        return false;
    };
    let Some(nowhere) = d.persistent.get(&port).map(|known| Arc::clone(known.nowhere())) else { return false };
    // Frames that programs have already sent are forwarded. After that, the forwarders leave the switch, before another
    // port can get the port's number.
    drain(d, full);
    rehome(d, full, &nowhere, None);
    drain(d, full);
    let [sends, gets] = d.ports.get_mut(full).map(|record| std::mem::take(&mut record.links)).unwrap_or_default();
    links::end(d, sends.into_iter().collect());
    switch.detach(id);
    links::end(d, gets.into_iter().collect());
    d.traces.part(&switch, id);
    end_monitors(d, &MonitoredPort::Port(full.to_owned()));
    let owner = d.ports.get(full).map(|record| record.owner.uid);
    rename(d, &port, &own_name(&port));
    tracing::info!(port = full, why, "detached");
    owner.into_iter().for_each(|uid| tell_detached(d, full, uid, why));
    drop_switch(d, &switch);
    true
}

/// Makes a port's forwarders send from port `id` of `switch`; if `id` is `None`, the port is then on no switch.
fn rehome(d: &mut Daemon, place: &str, switch: &Arc<Switch>, id: Option<PortId>) {
    let Some(record) = d.ports.get_mut(place) else { return };
    record.switch = id.is_some().then(|| Arc::clone(switch));
    record.id = id;
    d.workers.rehome(&record.placed, switch, id.unwrap_or_default());
}

fn rename(d: &mut Daemon, port: &str, to: &str) {
    if let Some(from) = d.persistent.rename(port, to) {
        d.ports.rename(&from, to);
    }
}

/// Moves a port to the requested region, as netmap does. Changes nothing if no region is requested (`mem_id` is 0), or
/// if the port is on a switch or open.
fn move_to_region(d: &mut Daemon, port: &str, mem_id: u32, caller: Caller) -> Result<(), Refusal> {
    if mem_id == 0 {
        return Ok(());
    }
    let region = memory::region(d, mem_id, caller)?;
    let Some(known) = d.persistent.get(port) else { return Ok(()) };
    let place = known.place().to_owned();
    let nowhere = Arc::clone(known.nowhere());
    let Some(record) = d.ports.get(&place) else { return Ok(()) };
    let Some(rings) = record.rings().filter(|r| r.mem_id != mem_id) else { return Ok(()) };
    if record.switch.is_some() || is_held(d, &place) {
        return Ok(());
    }
    let shape = rings.mem.shape();
    let hdr_len = rings.hdr_len.clone();
    let owner = record.owner;
    let policies = record.policies.clone();
    let policies_are_set = record.policies_are_set;
    // When the port's owner opens the port, the owner gets access to the whole region.
    permission::may_move_to(caller, owner.uid)?;
    let new = unattached(d, &(region, mem_id), shape, hdr_len, &nowhere, owner)?;
    let new = PortRecord { policies, policies_are_set, ..new };
    if let Some(old) = d.ports.insert(&place, new) {
        d.workers.retire(&old.placed);
        d.workers.retire(&old.handed);
    }
    Ok(())
}

/// Opens a persistent port by its own name, on a switch or not.
///
/// # Errors
/// [`Refusal`] if the port joins two switches, or if another program has opened the rings.
pub fn open(
    d: &mut Daemon,
    request: &AttachRequest,
    spec: &PortSpec,
    name: &str,
    caller: Caller,
) -> Result<OpenedPort, Refusal> {
    let place = find(d, name)?.place().to_owned();
    is_not_joined(d, &place)?;
    move_to_region(d, name, request.mem_id, caller)?;
    bind(d, &place, spec, request, caller, None)
}
