//! Snoops (IGMP and MLD snooping): the multicast group membership of each snooping switch.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_control::types::Mac;
use netvale_mem::notify::Doorbell;
use netvale_policy::snoop::{Snoop, SnoopSettings};
use netvale_switch::snooping::{HeardMessage, Snooping};
use netvale_switch::{GroupPorts, Switch};
use netvale_wire::MacAddr;

use crate::worker::TaskId;

/// Maximum number of received messages of a switch that one tick processes.
const READ: usize = 256;
/// Time until the next tick if a tick has left messages unprocessed.
const SOON: Duration = Duration::from_millis(2);
/// Kind byte from which [`Mac::of_name`] derives the MAC address of a switch.
const SWITCH_ADDRESS: u8 = 0x73;

/// All snooping switches.
pub struct Snoops {
    by_switch: BTreeMap<String, SnoopingSwitch>,
    bell: Arc<Doorbell>,
    begun: Instant,
}

/// A switch that snoops, and the state of its snooping.
pub struct SnoopingSwitch {
    /// The switch.
    pub switch: Arc<Switch>,
    /// Queue of received IGMP and MLD messages.
    pub snooping: Arc<Snooping>,
    /// Multicast group membership of the switch's ports.
    pub snoop: Snoop,
    /// The task that sends the switch's queries. Ringing `bell` wakes the task.
    pub task: TaskId,
    bell: Arc<Doorbell>,
    ports: GroupPorts,
    watched: BTreeSet<u16>,
}

impl Snoops {
    /// Creates an empty registry.
    ///
    /// # Errors
    /// Fails if no descriptor is left for the registry's doorbell.
    pub fn new() -> std::io::Result<Snoops> {
        let bell = Arc::new(Doorbell::new()?);
        Ok(Snoops { by_switch: BTreeMap::new(), bell, begun: Instant::now() })
    }

    /// Returns the descriptor that is readable when an IGMP or MLD message has been received.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Drains the doorbell. As messages are pending, the next tick is due immediately.
    pub fn woken(&self) {
        self.bell.drain();
    }

    /// Returns a snooping switch; `None` if there is no such switch, or it does not snoop.
    pub fn get(&self, switch: &str) -> Option<&SnoopingSwitch> {
        self.by_switch.get(switch)
    }

    /// Returns the current time in nanoseconds of the clock that [`Snoop`] uses.
    pub fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// Starts snooping on a switch. `task` sends the queries when `bell` rings.
    pub fn begin(&mut self, switch: &Arc<Switch>, snooping: &Arc<Snooping>, task: TaskId, bell: Arc<Doorbell>) {
        let told = Arc::clone(&self.bell);
        snooping.wake_by(move || told.ring());
        let ports = GroupPorts { ports: Vec::new(), has_vlans: switch.groups_of().has_vlans };
        let known = SnoopingSwitch {
            switch: Arc::clone(switch),
            snooping: Arc::clone(snooping),
            snoop: Snoop::new(settings(switch.name(), false)),
            task,
            bell,
            ports,
            watched: BTreeSet::new(),
        };
        self.by_switch.insert(switch.name().to_owned(), known);
    }

    /// Removes switches that no longer exist or no longer snoop. Returns the tasks of these switches.
    pub fn end(&mut self) -> Vec<TaskId> {
        let is_over = |known: &SnoopingSwitch| known.switch.snooping().is_none();
        let over: Vec<_> = self.by_switch.extract_if(.., |_, known| is_over(known)).map(|(_, known)| known).collect();
        over.iter().for_each(|known| known.snooping.tell(None));
        over.iter().map(|known| known.task).collect()
    }

    /// Processes received messages, and sends the queries that are due. Returns the time until the next call.
    pub fn tick(&mut self) -> Duration {
        let now = self.now();
        self.by_switch.values_mut().map(|known| known.tick(now)).min().unwrap_or(Duration::MAX)
    }
}

/// Returns the settings of a switch, with the timers of a Linux bridge.
fn settings(switch: &str, querier: bool) -> SnoopSettings {
    let mac = MacAddr(Mac::of_name(SWITCH_ADDRESS, switch).0);
    SnoopSettings { querier, ..SnoopSettings::new(mac) }
}

impl SnoopingSwitch {
    fn tick(&mut self, now: u64) -> Duration {
        let mut changed = self.settle(now);
        let mut read = 0;
        self.snooping.begin_to_read();
        while read < READ
            && let Some(heard) = self.snooping.read()
        {
            read += 1;
            // The port that sent the message may have been added after the last update of the set of ports.
            changed |= !self.knows(&heard) && self.settle(now);
            if self.knows(&heard) {
                changed |= self.snoop.observe(now, heard.vlan, heard.port, heard.frame()).changed;
            }
        }
        let mut sent = false;
        while let Some(query) = self.snoop.next_query(now) {
            self.snooping.send(query);
            sent = true;
        }
        if sent {
            self.bell.ring();
        }
        let expiry = self.snoop.tick(now);
        if changed || expiry.changed {
            self.snooping.tell(Some(self.snoop.snapshot()));
        }
        let next = Duration::from_nanos(expiry.next_ns.saturating_sub(now));
        if read == READ { next.min(SOON) } else { next }
    }

    /// Whether the port that sent a message still exists, i.e. no other port has got its number.
    fn knows(&self, heard: &HeardMessage) -> bool {
        self.ports.ports.iter().any(|port| (port.id, port.since) == (heard.port, heard.since))
    }

    /// Updates the set of ports. Returns whether the set has changed.
    fn settle(&mut self, now: u64) -> bool {
        let ports = self.switch.groups_of();
        if ports == self.ports {
            return false;
        }
        let queries = |ports: &GroupPorts| ports.ports.iter().any(|port| port.multicast.querier);
        if ports.has_vlans != self.ports.has_vlans || queries(&ports) != queries(&self.ports) {
            // The old membership may be outdated. Multicast frames are flooded until stations report their membership
            // again.
            self.snoop = Snoop::new(settings(self.switch.name(), queries(&ports)));
            self.watched.clear();
        }
        let is_here = |id, since| ports.ports.iter().any(|port| port.id == id && port.since == since);
        for gone in self.ports.ports.iter().filter(|port| !is_here(port.id, port.since)) {
            self.snoop.remove_port(gone.id);
        }
        for port in &ports.ports {
            self.snoop.set_router(port.id, port.multicast.router);
            self.snoop.set_fast_leave(port.id, port.multicast.fast_leave);
        }
        self.watch(now, ports.ports.iter().filter_map(|port| port.vlan).collect());
        self.ports = ports;
        true
    }

    /// Starts snooping in `vlans`, the VLANs of the ports' untagged frames, without waiting for a message in these
    /// VLANs. Ends snooping in VLANs that no port uses any more.
    fn watch(&mut self, now: u64, vlans: BTreeSet<u16>) {
        for gone in self.watched.difference(&vlans) {
            self.snoop.unwatch(*gone);
        }
        vlans.iter().for_each(|&vlan| self.snoop.watch(now, vlan));
        self.watched = vlans;
    }
}

#[cfg(test)]
mod tests {
    use netvale_policy::snoop::{GroupFamily, Multicast};
    use netvale_port::Egress;
    use netvale_port::loopback::loopback;
    use netvale_switch::{AttachedPort, CompiledPolicies, ForwardMemory, Forwarder, PortId};

    use super::*;

    fn attach(switch: &Switch, name: &str) -> PortId {
        let multicast = Multicast { snooping: true, ..Multicast::default() };
        let policies = Some(Arc::new(CompiledPolicies { multicast, ..CompiledPolicies::default() }));
        switch.attach(AttachedPort { name: name.to_owned(), policies, ..AttachedPort::default() }).unwrap()
    }

    /// Sends the hello message of a multicast router (PIM).
    fn send_hello(switch: &Arc<Switch>, from: PortId) {
        let (to, from_ring) = loopback(1).unwrap();
        let ip = [0x45, 0xc0, 0, 24, 0, 0, 0, 0, 1, 103, 0xce, 0xb1, 10, 0, 0, 1, 224, 0, 0, 13];
        let frame = [&[1, 0, 0x5e, 0, 0, 13, 2, 0, 0, 0, 0, 1, 8, 0][..], &ip, &[0x20, 0, 0xdf, 0xff]].concat();
        let mut batch = Box::<netvale_port::Batch>::default();
        let mut work = ForwardMemory::default();
        batch.lend(&frame, |batch| assert_eq!(to.deliver(batch, &[0], &mut work.scratch), 1));
        Forwarder::new(Arc::clone(switch), from, 0, Box::new(from_ring)).pass(&mut work);
    }

    /// Objective: a message from a removed port is not attributed to the next port with its number, even if that port
    /// existed before the message was processed; messages of the new port are processed.
    #[test]
    fn numbers_are_used_again() {
        let mut snoops = Snoops::new().unwrap();
        let switch = Switch::new("vale0");
        let old = attach(&switch, "old");
        let snooping = Arc::clone(switch.snooping().unwrap());
        snoops.begin(&switch, &snooping, 0, Arc::new(Doorbell::new().unwrap()));
        let is_router = |snoops: &mut Snoops, port| {
            snoops.tick();
            snoops.get("vale0").unwrap().snoop.router_ports(0, GroupFamily::V4).has(port)
        };
        assert!(!is_router(&mut snoops, old));
        send_hello(&switch, old);
        switch.detach(old);
        let new = attach(&switch, "new");
        assert_eq!(old, new);
        assert!(!is_router(&mut snoops, new));
        send_hello(&switch, new);
        assert!(is_router(&mut snoops, new));
        send_hello(&switch, new);
        switch.detach(new);
        let next = attach(&switch, "next");
        assert!(!is_router(&mut snoops, next));
    }
}
