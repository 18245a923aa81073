//! Attaches ports of all kinds to their switches, and detaches them.

use std::sync::Arc;
use std::time::Instant;

use netvale_control::types::{EventName, Policies, PortKind};
use netvale_mem::region::RingRanges;
use netvale_port::domain::TimeDomain;
use netvale_port::gro::GroEgress;
use netvale_port::{Egress, Ingress, RingCounters};
use netvale_switch::{AttachedPort, CompiledPolicies, Forwarder, Switch};
use rustix::io::Errno;

use super::handed::{HandedQueues, domain_of};
use super::kind::AdmittedRequest;
use super::links::NewLinks;
use super::policies::{self, PortRules};
use super::private;
use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort, PortBackend};
use crate::permission;
use crate::refusal::Refusal;
use crate::registry::events::NewEvent;
use crate::registry::ports::{PortRecord, SwitchPort};
use crate::registry::traces::NewOnSwitch;
use crate::registry::watches::MonitoredPort;

/// A port's egresses and ingresses, from the point of view of its switch.
pub type PortQueues = (Vec<Arc<dyn Egress>>, Vec<Box<dyn Ingress>>);

/// A new port, without its queues.
pub struct NewPort {
    /// The part of the port that depends on its kind.
    pub behind: Box<dyn PortBackend>,
    /// The owner: the caller who attached or opened the port.
    pub owner: Caller,
    /// The domain (trusted users, or one untrusted user) whose workers serve the port.
    pub domain: TimeDomain,
    /// Whether the port remains if no program holds its rings.
    pub persistent: bool,
    /// Whether the port is lossless: when its queue is full, senders wait instead of losing frames.
    pub lossless: bool,
    /// Whether successive TCP segments and UDP datagrams to the port are merged (GRO).
    pub gro: bool,
    /// The port's policies. Policies that are not set get their values from the switch's policies for new ports.
    pub policies: Policies,
}

impl NewPort {
    /// Creates a port with the owner, the policies and `lossless` of the request.
    pub fn new(behind: impl PortBackend, asked: &AdmittedRequest<'_>) -> NewPort {
        let new = NewPort::of(Box::new(behind), asked.caller);
        NewPort { lossless: asked.lossless(), policies: asked.policies().clone(), ..new }
    }

    /// Creates a port of that owner, with default options.
    pub fn of(behind: Box<dyn PortBackend>, owner: Caller) -> NewPort {
        let domain = domain_of(owner);
        let policies = Policies::default();
        NewPort { behind, owner, domain, persistent: true, lossless: false, gro: false, policies }
    }

    /// Sets the domain whose workers serve the port.
    pub fn in_domain(self, domain: TimeDomain) -> NewPort {
        NewPort { domain, ..self }
    }

    /// Sets whether successive TCP segments and UDP datagrams to the port are merged (GRO).
    pub fn with_gro(self, gro: bool) -> NewPort {
        NewPort { gro, ..self }
    }
}

/// Returns the description of a port for its switch. The owner determines how many addresses the switch learns behind
/// the port, and, if the port is lossless, which senders the port may delay.
pub fn on_switch(
    d: &Daemon,
    name: &str,
    egresses: Vec<Arc<dyn Egress>>,
    lossless: bool,
    owner: Caller,
) -> AttachedPort {
    let most_addresses = permission::most_addresses(d, owner);
    AttachedPort {
        name: name.to_owned(),
        egresses,
        lossless,
        owner: owner.uid,
        most_addresses,
        ..AttachedPort::default()
    }
}

/// Prepares a port's policies: creates its links, and compiles the policies for the switch.
///
/// # Errors
/// [`Refusal`] if the policies contradict each other, there is no memory for the links, or the rate group is full.
pub fn prepare(
    d: &mut Daemon,
    owner: Caller,
    policies: &Policies,
    ingress: &[Arc<RingCounters>],
    egresses: &[Arc<dyn Egress>],
) -> Result<(NewLinks, Option<Arc<CompiledPolicies>>), Refusal> {
    let compiled = policies::compile(policies, PortRules::default())?;
    let links = NewLinks::make(d, owner, policies, ingress, egresses)?;
    let group = policies::join(d, owner.uid, policies)?;
    let compiled = compiled.map(|compiled| CompiledPolicies { link: links.sends(), group, ..compiled });
    Ok((links, compiled.map(Arc::new)))
}

/// Attaches a port to its switch and places its ingresses on workers.
///
/// # Errors
/// [`Refusal`] if the name is taken or the switch is full.
pub fn plug(d: &mut Daemon, at: &SwitchPort, (egress, ingresses): PortQueues, new: NewPort) -> Result<(), Refusal> {
    let NewPort { behind, owner, domain, persistent, lossless, gro, policies } = new;
    let policies = policies.over(&d.config.switch.policies.of(&at.switch));
    let policies = private::complete(d, &at.switch, &at.full(), policies)?;
    permission::may_have_rings(d, owner, egress.len() + ingresses.len())?;
    let merged = |e| Arc::new(GroEgress::new(e)) as Arc<dyn Egress>;
    let egresses: Vec<_> = if gro { egress.into_iter().map(merged).collect() } else { egress };
    let mut handed = HandedQueues::new(d, owner, domain, egresses.len())?;
    let egresses = handed.queues(egresses)?;
    let egress = egresses.iter().map(|e| Arc::clone(e.counters())).collect();
    let ingress: Vec<_> = ingresses.iter().map(|i| Arc::clone(i.counters())).collect();
    let (mut links, compiled) = prepare(d, owner, &policies, &ingress, &egresses)?;
    let switch = make_switch(d, &at.switch, owner.uid);
    let port = on_switch(d, &at.port, links.gets(&egresses), lossless, owner);
    let id = switch.attach(AttachedPort { policies: compiled, rings: ingresses.len(), ..port })?;
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

/// Returns the switch of that name. If it does not exist, creates it for user `uid`.
pub fn make_switch(d: &mut Daemon, name: &str, uid: u32) -> Arc<Switch> {
    let is_new = d.switches.get(name).is_none();
    let switch = d.switches.get_or_make(name, uid);
    if is_new {
        d.events.tell(NewEvent::to(EventName::SwitchMade, uid).on(name));
    }
    switch
}

/// Removes a switch that has no ports left, and reports this to subscribers of events.
pub fn drop_switch(d: &mut Daemon, switch: &Switch) {
    let owner = d.switches.owner(switch.name());
    d.switches.drop_if_empty(switch);
    if let Some(uid) = owner.filter(|_| d.switches.get(switch.name()).is_none()) {
        d.events.tell(NewEvent::to(EventName::SwitchGone, uid).on(switch.name()));
    }
}

/// Reports a port that was just attached to subscribers of events, and to traces that wait for that port.
pub fn tell_attached(d: &mut Daemon, full: &str) {
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

/// Reports to subscribers that a port has been created.
pub fn tell_made(d: &mut Daemon, full: &str, owner: Caller, kind: PortKind) {
    d.events.tell(NewEvent::to(EventName::PortAttached, owner.uid).at(full).by(owner).with("kind", kind));
}

/// Reports to subscribers that a port has been detached.
pub fn tell_detached(d: &mut Daemon, full: &str, uid: u32, why: &str) {
    d.events.tell(NewEvent::to(EventName::PortDetached, uid).at(full).why(why));
}

/// Reports to subscribers that a program has opened a port that no other program has opened.
pub fn tell_open(d: &mut Daemon, full: &str, uid: u32, caller: Caller) {
    d.events.tell(NewEvent::to(EventName::PortOpen, uid).at(full).by(caller));
}

/// Reports to subscribers that the last program that had opened a port has closed it.
pub fn tell_idle(d: &mut Daemon, full: &str, uid: u32) {
    d.events.tell(NewEvent::to(EventName::PortIdle, uid).at(full));
}

/// Detaches a port from its switch, and removes it; `why` is logged.
///
/// # Errors
/// [`Refusal`] if the port does not exist.
pub fn unplug(d: &mut Daemon, full: &str, why: &str) -> Result<(), Refusal> {
    let missing = || Refusal::new(Errno::NXIO, format!("port {full} does not exist: 'netvale list' shows the ports"));
    let mut record = d.ports.remove(full).ok_or_else(missing)?;
    if d.watches.remove(full).is_some() {
        end_watch(d, full, &record);
    } else if let (Some(switch), Some(id)) = (&record.switch, record.id) {
        switch.detach(id);
    }
    end_monitors(d, &MonitoredPort::Port(full.to_owned()));
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
    // When the last egress of a capture port is dropped, the capture writes its last frames.
    record.egresses.clear();
    record.links = Default::default();
    record.behind.stop(d, full);
    d.forget_kept_port(full);
    d.freed.note(Instant::now());
    Ok(())
}

/// Ends the copies for a removed monitor.
fn end_watch(d: &mut Daemon, full: &str, record: &DaemonPort) {
    if let Some(switch) = &record.switch {
        switch.unmonitor(full);
    }
    d.mirrors.remove(&mut d.workers, full);
}

/// Ends the monitors of a port that no longer exists or is no longer open, as netmap does when a port leaves netmap
/// mode.
pub fn end_monitors(d: &mut Daemon, gone: &MonitoredPort) {
    d.evictions.evict(d.watches.clients_of(gone));
}

/// Waits until the frames that are left in a port's tx rings have been forwarded. A client may exit right after it has
/// sent frames.
pub fn drain(d: &Daemon, full: &str) {
    if let Some(record) = d.ports.get(full) {
        d.workers.drain(&record.placed);
    }
}
