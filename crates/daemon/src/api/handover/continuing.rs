//! Restores ports and connections from items. An item is the saved state of one object, with the object's descriptors.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_control::attach::FilePlacement;
use netvale_control::types::SubscribeParams;
use netvale_fdio::state::State;
use netvale_mem::Region;
use netvale_mem::holes::HoleWaiter;
use netvale_switch::WaitingFrames;
use rustix::io::Errno;

use crate::api::attaching;
use crate::api::opening::AttachHold;
use crate::caller::{Caller, is_trusted_user};
use crate::daemon::{Daemon, DaemonPort};
use crate::handover::items::{
    ClientItem, ConnectionItem, CountersItem, Item, PortItem, RegionItem, RingCounts, SwitchItem, VLAN_SHIFT,
};
use crate::handover::parts::unpack_frames;
use crate::ports::nic::continued::ContinuedInterface;
use crate::ports::{self, continuation};
use crate::refusal::{Refusal, refuse};
use crate::registry::ports::DeclaredPort;
use crate::registry::regions::FilePlace;
use crate::system::freed::{self, HeapReserve};

/// How long to wait until the service manager has released the sockets and devices of the former daemon.
const TAKEN_BACK: Duration = Duration::from_secs(1);

/// A restored connection: its peer, its protocol state, and its socket.
pub type ContinuedClient = (Caller, ConnectionState, OwnedFd);

/// The protocol state of a connection.
pub enum ConnectionState {
    /// An attach connection, with its hold on a port; `None` if the connection holds no port.
    Attach(Option<AttachHold>),
    Control {
        /// Bytes of an incomplete request.
        pending: Vec<u8>,
        /// Bytes of answers not yet sent.
        unsent: Vec<u8>,
        /// Whether the client has sent its last request.
        ended: bool,
        /// Event filters, and the number of the last event; `None` if the connection has no subscription.
        events: Option<(SubscribeParams, u64)>,
    },
}

/// A restoration in progress: the objects that have been restored so far, and the items that are left for later.
#[derive(Default)]
pub struct ContinuedState {
    /// Whether the predecessor was killed and so cannot resume. If so, ports that cannot be restored are attached anew;
    /// otherwise, the restoration fails.
    is_last: bool,
    clients: Vec<ContinuedClient>,
    /// Ports to attach anew, without their saved state, after all other ports are restored.
    anew: Vec<PortItem>,
    switches: Vec<SwitchItem>,
    /// Regions, which this vector keeps alive until the ports in them are restored.
    regions: Vec<Arc<Region>>,
    /// Memory for the ports. It is obtained while the predecessor still forwards frames.
    reserve: HeapReserve,
    interfaces: Vec<ContinuedInterface>,
    counters: CountersItem,
    /// Items that depend on other ports, and are therefore restored after all other items.
    last: Vec<Item>,
    /// For each user, a waiter. If a hole is punched in one of the user's memory files, the waiter limits how long the
    /// daemon waits.
    waiters: BTreeMap<u32, Rc<HoleWaiter>>,
}

impl ContinuedState {
    /// Starts a restoration after a kill: a port that cannot be restored is attached anew.
    pub fn after_a_kill() -> ContinuedState {
        ContinuedState { is_last: true, ..ContinuedState::default() }
    }

    /// Restores an item, or defers it to [`ContinuedState::begin_others`] if it depends on other ports.
    ///
    /// # Errors
    /// A sentence that names the item and the reason.
    pub fn add(&mut self, d: &mut Daemon, item: Item) -> Result<(), String> {
        match item {
            Item::Region(_) => self.reserve.add(),
            _ => self.reserve.release(),
        }
        if continuation::is_last(&item) {
            self.last.push(item);
            return Ok(());
        }
        self.add_now(d, item)
    }

    /// Restores an item immediately. If the memory of the item's user blocks the daemon for too long, logs an error and
    /// skips the item.
    fn add_now(&mut self, d: &mut Daemon, item: Item) -> Result<(), String> {
        let key = item.key();
        let failed = |why: Refusal| format!("{key}: {why}");
        let Some(uid) = item.user() else { return self.add_one(d, item, None).map_err(failed) };
        let waiter = self.waiter(d, uid).map_err(|e| failed(e.into()))?;
        let done = waiter.during(|| self.add_one(d, item, Some(&waiter)));
        match done {
            Err(why) if waiter.was_late() => {
                tracing::error!(key, %why, "dropped a part of the saved state: its user's memory blocks the daemon");
                Ok(())
            }
            done => done.map_err(failed),
        }
    }

    /// Returns the waiter that limits how long the daemon waits while a hole is punched in one of that user's memory
    /// files.
    fn waiter(&mut self, d: &mut Daemon, uid: u32) -> std::io::Result<Rc<HoleWaiter>> {
        // After a wait that took too long, a trusted user gets a new waiter, so that one slow peer of one of root's
        // ports does not affect root's other ports.
        let known = self.waiters.get(&uid).filter(|known| !is_trusted_user(uid) || !known.was_late());
        if let Some(known) = known {
            return Ok(Rc::clone(known));
        }
        let waiter = d.regions.waiter_of(uid)?;
        self.waiters.insert(uid, Rc::clone(&waiter));
        Ok(waiter)
    }

    fn add_one(&mut self, d: &mut Daemon, item: Item, waiter: Option<&HoleWaiter>) -> Result<(), Refusal> {
        match item {
            Item::Region(item) => self.regions.push(region(d, item)?),
            Item::Switch(item) => {
                d.switches.continue_one(&item.name, item.owner, item.flows);
                self.switches.push(item);
            }
            Item::Port(mut item) => match item.state.take() {
                None => self.anew.push(PortItem { frames: None, ..*item }),
                Some(state) => match port(d, &mut item, state) {
                    Err(why)
                        if (self.is_last || waiter.is_some_and(HoleWaiter::was_late)) && item.declared.is_some() =>
                    {
                        tracing::error!(port = item.name, %why, "cannot restore a port; it is attached anew");
                        self.anew.push(*item);
                    }
                    done => done?,
                },
            },
            Item::Captures(item) => ports::pcap::restore(d, item),
            Item::Interface(item) => {
                self.interfaces.push(ports::nic::continued::continue_interface(d, *item)?);
            }
            Item::OpenInterface(item) => ports::nic::continued::continue_rings(d, *item)?,
            Item::Pipe(item) => ports::pipe::continue_pipe(d, item)?,
            Item::Client(item) => self.clients.extend(client(d, item)),
            Item::Counters(item) => self.counters = item,
            Item::Process(_) | Item::End | Item::Failed(_) => {}
        }
        Ok(())
    }

    /// Adds the learned addresses to the switches' forwarding tables. Must be called after all items have arrived.
    pub fn complete(&mut self, d: &mut Daemon) {
        self.switches.iter().for_each(|item| learn(d, &item.name, &item.addresses));
        self.interfaces.clear();
    }

    /// Returns the number of ports to attach anew.
    pub fn begins_anew(&self) -> usize {
        self.anew.len()
    }

    /// Finishes the restoration: restores the items that depend on other items, releases the holds of connections that
    /// were not restored, attaches ports anew, and adds the saved counters. Returns the restored connections.
    pub fn begin_others(mut self, d: &mut Daemon) -> Vec<ContinuedClient> {
        d.interfaces.own();
        freed::keep_limits();
        d.freed.note(Instant::now());
        let mut last = std::mem::take(&mut self.last);
        last.sort_by_key(Item::rank);
        for item in last {
            if let Err(why) = self.add_now(d, item) {
                tracing::error!(why, "cannot restore a part of the saved state");
            }
        }
        // From now on, the restored ports keep the regions alive.
        self.regions.clear();
        let late = self.waiters.iter().filter(|(uid, waiter)| !is_trusted_user(**uid) && waiter.was_late());
        late.for_each(|(&uid, _)| d.evictions.hold_up(uid));
        let clients: BTreeSet<u64> = self.clients.iter().map(|(caller, ..)| caller.client).collect();
        ports::release_all_but(d, &clients);
        let until = Instant::now() + TAKEN_BACK;
        for item in self.anew {
            if let Err(why) = attach_patiently(d, &item, until) {
                tracing::error!(port = item.name, %why, "cannot restore a port; it is removed");
            }
        }
        for (name, counts) in &self.counters.ports {
            d.ports.get(name).into_iter().for_each(|record| count(record, counts));
        }
        for (client, counts) in &self.counters.host_rings {
            d.interfaces.port(*client).into_iter().for_each(|port| port.count(counts));
        }
        self.counters.switches.iter().for_each(|(name, addresses)| learn(d, name, addresses));
        for item in self.switches {
            if let Some(switch) = d.switches.get(&item.name).cloned() {
                d.switches.drop_if_empty(&switch);
            }
        }
        self.clients
    }
}

fn region(d: &mut Daemon, item: RegionItem) -> Result<Arc<Region>, Refusal> {
    let asked = |offset, len| FilePlacement { offset, len };
    let place = |[device, inode, offset, len]: [u64; 4]| FilePlace { device, inode, asked: asked(offset, len) };
    let place = item.file.map(place);
    let id = item.id;
    let uid = item.uid;
    let region = Region::restore(item.state())?;
    d.regions.add(id, uid, &region, place)?;
    Ok(region)
}

fn port(d: &mut Daemon, item: &mut PortItem, state: State) -> Result<(), Refusal> {
    let waiting = item.frames.take().map(|file| unpack_frames(file.take()?)).transpose()?.unwrap_or_default();
    continuation::continue_port(d, item, state)?;
    if d.ports.get(&item.name).is_some_and(|record| record.policies != item.policies) {
        ports::policies::put(d, &item.name, &item.policies)?;
    }
    let Some(record) = d.ports.get_mut(&item.name) else {
        return refuse(Errno::INVAL, "the port was attached under another name");
    };
    ports::policies::count_rules(record, &item.rules);
    record.declared = declared(item);
    record.polled = item.polled;
    record.policies_are_set = item.policies_are_set;
    count(record, &item.counters);
    let tasks = record.placed.clone();
    d.workers.keep_awake(if item.polled { &tasks } else { &[] }, true);
    let mut frames = waiting.into_iter();
    for (task, places) in tasks.iter().zip(&item.waiting) {
        let of = |(port, ring, count): &(String, usize, usize)| WaitingFrames {
            port: port.clone(),
            ring: *ring,
            frames: frames.by_ref().take(*count).collect(),
        };
        let all: Vec<_> = places.iter().map(of).collect();
        if !all.is_empty() {
            d.workers.wait_with(*task, all);
        }
    }
    Ok(())
}

/// Adds the saved counts to a port's counters. `counts` contains the counts of the ingresses, then the counts of the
/// egresses.
fn count(record: &DaemonPort, counts: &[Vec<RingCounts>; 2]) {
    for (counters, counts) in [&record.ingress, &record.egress].into_iter().zip(counts) {
        counters.iter().zip(counts).for_each(|(counters, counts)| counts.add_to(counters));
    }
}

fn declared(item: &PortItem) -> Option<DeclaredPort> {
    item.declared.clone().map(|(params, from_file)| DeclaredPort { params, from_file })
}

/// Attaches a port anew, as soon as its resources are free. Waits for the resources until `until`; for the queues of an
/// interface, possibly longer.
fn attach_patiently(d: &mut Daemon, item: &PortItem, until: Instant) -> Result<(), Refusal> {
    let longest = continuation::begin_anew(d, item);
    let until = longest.map_or(until, |longest| Instant::now() + longest);
    attaching::once_free(d, until, |d| attach_anew(d, item))
}

/// Attaches a port again with its former parameters, but without its former peers.
fn attach_anew(d: &mut Daemon, item: &PortItem) -> Result<(), Refusal> {
    if item.lasting.is_some() {
        return ports::join_again(d, item);
    }
    let lost = || Refusal::new(Errno::OPNOTSUPP, format!("ports of kind {} cannot be restored", item.kind));
    let declared = declared(item).ok_or_else(lost)?;
    attaching::attach_declared(d, declared, item.owner.into())?;
    Ok(())
}

fn learn(d: &Daemon, switch: &str, addresses: &[(u64, String)]) {
    let Some(switch) = d.switches.get(switch) else { return };
    let ports = switch.ports();
    for (mac, name) in addresses {
        if let Some((id, _)) = ports.iter().find(|(_, port)| port == name) {
            switch.learn((*mac >> VLAN_SHIFT) as u16, *mac & ((1 << VLAN_SHIFT) - 1), *id);
        }
    }
}

/// Restores a connection. Returns `None` if the connection's port is lost; the connection is then closed.
fn client(d: &mut Daemon, item: ClientItem) -> Option<ContinuedClient> {
    let caller = Caller::from(item.caller);
    let socket = item.socket.take().ok()?;
    let connected = match item.connection {
        ConnectionItem::Control { pending, unsent, ended, events } => {
            ConnectionState::Control { pending, unsent, ended, events }
        }
        ConnectionItem::Attach { holds: None } => ConnectionState::Attach(None),
        ConnectionItem::Attach { holds: Some((hold, note)) } => {
            let held = AttachHold::continued(d, hold, note, caller);
            let lost = |why: &Refusal| tracing::error!(pid = caller.pid, %why, "cannot restore a program's port");
            ConnectionState::Attach(Some(held.inspect_err(lost).ok()?))
        }
    };
    Some((caller, connected, socket))
}
