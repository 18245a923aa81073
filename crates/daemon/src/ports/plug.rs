//! Putting a port on its switch, and taking it off: what all kinds have in common.

use std::sync::Arc;

use netvale_control::types::PortOptions;
use netvale_port::gro::GroEgress;
use netvale_port::{Egress, Ingress};
use netvale_switch::{Forwarder, Port};
use rustix::io::Errno;

use crate::caller::Caller;
use crate::daemon::{Attached, Daemon, Record};
use crate::refusal::Refusal;
use crate::registry::ports::{PortRecord, SwitchPort};
use crate::registry::watches::Watched;

/// What a switch delivers to, and what it takes frames from.
pub type Queues = (Vec<Arc<dyn Egress>>, Vec<Box<dyn Ingress>>);

/// A new port, beside its queues.
pub struct NewPort {
    /// What stands behind it.
    pub behind: Box<dyn Attached>,
    /// Whose it is.
    pub owner: Caller,
    /// Stays when nobody holds its rings.
    pub persistent: bool,
    /// Holds senders back.
    pub lossless: bool,
    /// TCP segments that follow one another are merged for it.
    pub gro: bool,
}

impl NewPort {
    /// One that was asked for with these options.
    pub fn with(behind: impl Attached, owner: Caller, o: &PortOptions) -> NewPort {
        NewPort { behind: Box::new(behind), owner, persistent: true, lossless: o.lossless, gro: o.gro }
    }
}

/// Puts a port on its switch and its ingresses on workers.
///
/// # Errors
/// [`Refusal`] when the name is taken or the switch is full.
pub fn plug(d: &mut Daemon, at: &SwitchPort, (egress, ingresses): Queues, new: NewPort) -> Result<(), Refusal> {
    let NewPort { behind, owner, persistent, lossless, gro } = new;
    let merged = |e| Arc::new(GroEgress::new(e)) as Arc<dyn Egress>;
    let egresses: Vec<_> = if gro { egress.into_iter().map(merged).collect() } else { egress };
    let egress = egresses.iter().map(|e| Arc::clone(e.counters())).collect();
    let ingress = ingresses.iter().map(|i| Arc::clone(i.counters())).collect();
    let switch = d.switches.get_or_make(&at.switch, owner.uid);
    let id = switch.attach(Port { name: at.port.clone(), egresses, lossless })?;
    let forwarders = ingresses.into_iter().enumerate();
    let forwarders = forwarders.map(|(ring, i)| Forwarder::new(Arc::clone(&switch), id, ring, i));
    let placed = forwarders.map(|forwarder| d.workers.place(Box::new(forwarder))).collect();
    let (switch, id) = (Some(switch), Some(id));
    let base = PortRecord::new(behind, owner);
    d.ports.insert(&at.full(), PortRecord { switch, id, persistent, lossless, placed, ingress, egress, ..base });
    tracing::info!(port = at.full(), uid = owner.uid, pid = owner.pid, "attached");
    Ok(())
}

/// Takes a port off its switch, with a reason for the log.
///
/// # Errors
/// [`Refusal`] when there is no such port.
pub fn unplug(d: &mut Daemon, full: &str, why: &str) -> Result<(), Refusal> {
    let missing = || Refusal::new(Errno::NXIO, format!("there is no port {full}: 'netvale list' shows the ports"));
    let record = d.ports.remove(full).ok_or_else(missing)?;
    if d.watches.remove(full).is_some() {
        end_watch(d, full, &record);
    } else if let (Some(switch), Some(id)) = (&record.switch, record.id) {
        switch.detach(id);
    }
    end_monitors(d, &Watched::Port(full.to_owned()));
    d.workers.retire(&record.placed);
    if let Some(local) = record.behind.programs() {
        d.mirrors.end(&d.workers, &local.rings.mem);
        d.evictions.evict(local.clients());
    }
    tracing::info!(port = full, why, "detached");
    if let Some(switch) = &record.switch {
        d.switches.drop_if_empty(switch);
    }
    record.behind.stop(d, full);
    Ok(())
}

/// A monitor is gone: nothing is copied for it any more.
fn end_watch(d: &mut Daemon, full: &str, record: &Record) {
    if let Some(switch) = &record.switch {
        switch.unmonitor(full);
    }
    d.mirrors.remove(&d.workers, full);
}

/// A port is gone, or nobody has it open any more: its monitors end, as netmap's do when the port leaves netmap mode.
pub fn end_monitors(d: &mut Daemon, gone: &Watched) {
    d.evictions.evict(d.watches.clients_of(gone));
}

/// Waits until what a port's client left in its tx rings has been forwarded: it was sent, also if the client ended immediately.
pub fn drain(d: &Daemon, full: &str) {
    if let Some(record) = d.ports.get(full) {
        d.workers.drain(&record.placed);
    }
}
