//! Attaching ports to their switch, and detaching them, for all kinds.

use std::sync::Arc;
use std::time::Instant;

use netvale_control::types::{EventName, Policies, PortKind};
use netvale_mem::region::RingRanges;
use netvale_port::domain::TimeDomain;
use netvale_port::gro::GroEgress;
use netvale_port::{Egress, Ingress, RingCounters};
use netvale_switch::{CompiledPolicies, Forwarder, Port, Switch};
use rustix::io::Errno;

use super::handed::{Handed, domain_of};
use super::kind::Asked;
use super::links::Links;
use super::policies::{self, KnownRules};
use crate::caller::Caller;
use crate::daemon::{Attached, Daemon, Record};
use crate::permission;
use crate::refusal::Refusal;
use crate::registry::events::Happened;
use crate::registry::ports::{PortRecord, SwitchPort};
use crate::registry::traces::NewOnSwitch;
use crate::registry::watches::Watched;

/// A port's egresses and ingresses, as seen from its switch.
pub type Queues = (Vec<Arc<dyn Egress>>, Vec<Box<dyn Ingress>>);

/// A new port, without its queues.
pub struct NewPort {
    /// Its backend.
    pub behind: Box<dyn Attached>,
    /// The owner.
    pub owner: Caller,
    /// The domain whose time it takes.
    pub domain: TimeDomain,
    /// Whether it stays when no program holds its rings.
    pub persistent: bool,
    /// Whether it holds senders back.
    pub lossless: bool,
    /// Whether successive TCP segments are merged for it.
    pub gro: bool,
    /// Its policies; the switch's policies for new ports apply beneath them.
    pub policies: Policies,
}

impl NewPort {
    /// Creates a port with the request's owner, policies and `lossless`.
    pub fn new(behind: impl Attached, asked: &Asked<'_>) -> NewPort {
        let new = NewPort::of(Box::new(behind), asked.caller);
        NewPort { lossless: asked.lossless(), policies: asked.policies().clone(), ..new }
    }

    /// Creates a port without options for an owner.
    pub fn of(behind: Box<dyn Attached>, owner: Caller) -> NewPort {
        let domain = domain_of(owner);
        let policies = Policies::default();
        NewPort { behind, owner, domain, persistent: true, lossless: false, gro: false, policies }
    }

    /// Sets the domain whose time it takes.
    pub fn in_domain(self, domain: TimeDomain) -> NewPort {
        NewPort { domain, ..self }
    }

    /// Sets whether TCP segments are merged for it.
    pub fn with_gro(self, gro: bool) -> NewPort {
        NewPort { gro, ..self }
    }
}

/// Describes a port to its switch. The owner decides about the quota of addresses, and who waits for whom.
pub fn on_switch(d: &Daemon, name: &str, egresses: Vec<Arc<dyn Egress>>, lossless: bool, owner: Caller) -> Port {
    let most_addresses = permission::most_addresses(d, owner);
    Port { name: name.to_owned(), egresses, lossless, owner: owner.uid, most_addresses, ..Port::default() }
}

/// Prepares a port's policies: creates its links, and compiles the policies for the switch.
///
/// # Errors
/// [`Refusal`] if the policies contradict each other, or if its links or its group lack room.
pub fn prepare(
    d: &mut Daemon,
    owner: Caller,
    policies: &Policies,
    ingress: &[Arc<RingCounters>],
    egresses: &[Arc<dyn Egress>],
) -> Result<(Links, Option<Arc<CompiledPolicies>>), Refusal> {
    let compiled = policies::compile(policies, KnownRules::default())?;
    let links = Links::make(d, owner, policies, ingress, egresses)?;
    let group = policies::join(d, owner.uid, policies)?;
    let compiled = compiled.map(|compiled| CompiledPolicies { link: links.sends(), group, ..compiled });
    Ok((links, compiled.map(Arc::new)))
}

/// Attaches a port to its switch and places its ingresses on workers.
///
/// # Errors
/// [`Refusal`] if the name is taken or the switch is full.
pub fn plug(d: &mut Daemon, at: &SwitchPort, (egress, ingresses): Queues, new: NewPort) -> Result<(), Refusal> {
    let NewPort { behind, owner, domain, persistent, lossless, gro, policies } = new;
    let policies = policies.over(&d.config.switch.policies.of(&at.switch));
    permission::may_have_rings(d, owner, egress.len() + ingresses.len())?;
    let merged = |e| Arc::new(GroEgress::new(e)) as Arc<dyn Egress>;
    let egresses: Vec<_> = if gro { egress.into_iter().map(merged).collect() } else { egress };
    let mut handed = Handed::new(d, owner, domain, egresses.len())?;
    let egresses = handed.queues(egresses)?;
    let egress = egresses.iter().map(|e| Arc::clone(e.counters())).collect();
    let ingress: Vec<_> = ingresses.iter().map(|i| Arc::clone(i.counters())).collect();
    let (mut links, compiled) = prepare(d, owner, &policies, &ingress, &egresses)?;
    let switch = make_switch(d, &at.switch, owner.uid);
    let port = on_switch(d, &at.port, links.gets(&egresses), lossless, owner);
    let id = switch.attach(Port { policies: compiled, rings: ingresses.len(), ..port })?;
    let forwarders = ingresses.into_iter().enumerate();
    let forwarders = forwarders.map(|(ring, i)| Forwarder::new(Arc::clone(&switch), id, ring, i));
    let placed = forwarders.map(|forwarder| d.workers.place_for(domain, Box::new(forwarder))).collect();
    let links = links.place(d, domain, &switch, id, &egresses);
    let handed = handed.place(d, &switch, id);
    let switch = Some(switch);
    let id = Some(id);
    let base = PortRecord::new(behind, owner);
    let base = PortRecord { switch, id, persistent, lossless, policies, links, egresses, handed, ..base };
    d.ports.insert(&at.full(), PortRecord { placed, ingress, egress, ..base });
    tracing::info!(port = at.full(), uid = owner.uid, pid = owner.pid, "attached");
    tell_attached(d, &at.full());
    Ok(())
}

/// Returns the switch of that name; creates it for that user if it does not exist.
pub fn make_switch(d: &mut Daemon, name: &str, uid: u32) -> Arc<Switch> {
    let is_new = d.switches.get(name).is_none();
    let switch = d.switches.get_or_make(name, uid);
    if is_new {
        d.events.tell(Happened::to(EventName::SwitchMade, uid).on(name));
    }
    switch
}

/// Removes a switch without ports.
pub fn drop_switch(d: &mut Daemon, switch: &Switch) {
    let owner = d.switches.owner(switch.name());
    d.switches.drop_if_empty(switch);
    if let Some(uid) = owner.filter(|_| d.switches.get(switch.name()).is_none()) {
        d.events.tell(Happened::to(EventName::SwitchGone, uid).on(switch.name()));
    }
}

/// Reports that a port is attached.
pub fn tell_attached(d: &mut Daemon, full: &str) {
    d.looks.forget(full);
    let Some(record) = d.ports.get(full) else { return };
    let owner = record.owner;
    let kind = record.behind.kind();
    let place = record.switch.as_ref().zip(record.id).zip(full.split(':').nth(1));
    if let Some(((switch, id), port)) = place {
        let is_controlled_by = &|caller| permission::controls(caller, owner.uid);
        d.traces.meet(&NewOnSwitch { switch, id, port, is_controlled_by });
    }
    tell_made(d, full, owner, kind);
}

/// Reports that a port was created, with its creator.
pub fn tell_made(d: &mut Daemon, full: &str, owner: Caller, kind: PortKind) {
    d.events.tell(Happened::to(EventName::PortAttached, owner.uid).at(full).by(owner).with("kind", kind));
}

/// Reports that a port is detached.
pub fn tell_detached(d: &mut Daemon, full: &str, uid: u32, why: &str) {
    d.looks.forget(full);
    d.events.tell(Happened::to(EventName::PortDetached, uid).at(full).why(why));
}

/// Reports the first open of an idle port.
pub fn tell_open(d: &mut Daemon, full: &str, uid: u32, caller: Caller) {
    d.events.tell(Happened::to(EventName::PortOpen, uid).at(full).by(caller));
}

/// Reports that no program has a port open any more.
pub fn tell_idle(d: &mut Daemon, full: &str, uid: u32) {
    d.events.tell(Happened::to(EventName::PortIdle, uid).at(full));
}

/// Detaches a port from its switch; `why` is logged.
///
/// # Errors
/// [`Refusal`] if the port does not exist.
pub fn unplug(d: &mut Daemon, full: &str, why: &str) -> Result<(), Refusal> {
    let missing = || Refusal::new(Errno::NXIO, format!("there is no port {full}: 'netvale list' shows the ports"));
    let mut record = d.ports.remove(full).ok_or_else(missing)?;
    if d.watches.remove(full).is_some() {
        end_watch(d, full, &record);
    } else if let (Some(switch), Some(id)) = (&record.switch, record.id) {
        switch.detach(id);
    }
    end_monitors(d, &Watched::Port(full.to_owned()));
    d.workers.retire(&record.placed);
    record.links.iter().flatten().for_each(|link| d.workers.retire(&[link.task]));
    d.workers.retire(&record.handed);
    if let Some((switch, id)) = record.switch.as_ref().zip(record.id) {
        d.traces.part(switch, id);
    }
    if let Some(local) = record.behind.programs() {
        let mem = &local.rings.mem;
        d.mirrors.end(&mut d.workers, mem, &RingRanges::all(mem.shape()));
        d.evictions.evict(local.clients());
    }
    tracing::info!(port = full, why, "detached");
    tell_detached(d, full, record.owner.uid, why);
    if let Some(switch) = &record.switch {
        drop_switch(d, switch);
    }
    // A capture writes its last frames once its last egress is dropped.
    record.egresses.clear();
    record.links = Default::default();
    record.behind.stop(d, full);
    d.forget_kept_port(full);
    d.freed.note(Instant::now());
    Ok(())
}

/// Ends the copies for a removed monitor.
fn end_watch(d: &mut Daemon, full: &str, record: &Record) {
    if let Some(switch) = &record.switch {
        switch.unmonitor(full);
    }
    d.mirrors.remove(&mut d.workers, full);
}

/// Ends the monitors of a port that is gone or no longer open, as netmap does when a port leaves netmap mode.
pub fn end_monitors(d: &mut Daemon, gone: &Watched) {
    d.evictions.evict(d.watches.clients_of(gone));
}

/// Waits until the frames left in a port's tx rings have been forwarded: they count as sent even if the client exits
/// immediately.
pub fn drain(d: &Daemon, full: &str) {
    if let Some(record) = d.ports.get(full) {
        d.workers.drain(&record.placed);
    }
}
