//! A switch, its settings and its port table. The table is immutable; each change replaces it as a whole, so that
//! workers read it without a lock.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use netvale_policy::snoop::Multicast;
use netvale_port::changes::ChangeCount;
use netvale_port::{BATCH, Egress};
use netvale_wire::flow::FlowKey;
use thiserror::Error;

use crate::elsewhere::AddressFinder;
use crate::entry::{AttachedPort, MonitorRings, PortEntry, PortMonitor};
use crate::fdb::{DEFAULT_ENTRIES, Fdb, PortId};
use crate::owners::{MAX_PORTS, OwnerId};
use crate::policies::{CompiledPolicies, PolicyState};
use crate::snooping::Snooping;
use crate::summary::PolicySummary;
use crate::trace::Trace;

/// Reason why a port cannot be attached, monitored or traced.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum AttachError {
    /// The switch has [`MAX_PORTS`] ports.
    #[error("switch {0} has the maximum of {MAX_PORTS} ports: detach one, or use another switch")]
    Full(String),
    /// The switch has a port of this name.
    #[error("switch {switch} already has a port {port}; choose another name, or detach that port first")]
    Exists {
        /// Name of the switch.
        switch: String,
        /// Name of the port.
        port: String,
    },
    /// The switch has no port of this name to monitor or trace.
    #[error("switch {switch} has no port {port}: 'netvale list' shows its ports")]
    NoSuchPort {
        /// Name of the switch.
        switch: String,
        /// Name of the port.
        port: String,
    },
}

/// A snapshot of a switch's ports.
pub(crate) struct PortTable {
    /// The ports by index; `None` for an unused index.
    by_id: Vec<Option<Arc<PortEntry>>>,
    /// The existing ports, in order of index.
    all: Vec<Arc<PortEntry>>,
    /// Summary of all ports' policies; `None` if no port has policies or a trace.
    policed: Option<Box<PolicySummary>>,
    /// Maximum number of frames that a pass floods.
    most_floods: usize,
}

/// Maximum number of copies of flooded frames in one pass. Flooded frames beyond this limit wait for the next pass. A
/// whole batch may be flooded to up to 256 ports.
const MOST_COPIES: usize = BATCH * 256;

impl PortTable {
    #[inline]
    pub(crate) fn get(&self, id: PortId) -> Option<&Arc<PortEntry>> {
        self.by_id.get(usize::from(id)).and_then(Option::as_ref)
    }

    pub(crate) fn all(&self) -> &[Arc<PortEntry>] {
        &self.all
    }

    /// Summary of all ports' policies; `None` if no port has policies or a trace.
    #[inline]
    pub(crate) fn policed(&self) -> Option<&PolicySummary> {
        self.policed.as_deref()
    }

    /// Maximum number of frames that a pass floods. Larger than a batch unless the switch has many ports.
    #[inline]
    pub(crate) fn most_floods(&self) -> usize {
        self.most_floods
    }

    /// Whether the switch has too many ports for a pass to flood a whole batch.
    #[inline]
    pub(crate) fn is_wide(&self) -> bool {
        self.most_floods < BATCH
    }

    fn from(by_id: Vec<Option<Arc<PortEntry>>>) -> PortTable {
        let all: Vec<_> = by_id.iter().flatten().cloned().collect();
        let policed = PolicySummary::of(&all);
        // A batch has at most `BATCH` flooded frames, so a switch with few ports needs no limit for them.
        let most_floods = if all.len() <= MOST_COPIES / BATCH { usize::MAX } else { MOST_COPIES / all.len() };
        PortTable { by_id, all, policed, most_floods }
    }
}

/// The ports of a switch, for the thread that keeps its multicast groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPorts {
    /// The ports.
    pub ports: Vec<GroupPort>,
    /// Whether frames belong to VLANs.
    pub has_vlans: bool,
}

/// A port, as the thread that keeps the switch's multicast groups needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPort {
    /// Index of the port.
    pub id: PortId,
    /// Sequence number of the port's attachment to the switch, never reused.
    pub since: u64,
    /// Multicast settings of the port.
    pub multicast: Multicast,
    /// VLAN of the port's untagged frames; 0 in a switch without VLANs, `None` if the port accepts no untagged frames.
    pub vlan: Option<u16>,
}

/// Settings of a switch.
#[derive(Clone, Copy, Debug)]
pub struct SwitchSettings {
    /// Minimum number of entries of the forwarding table.
    pub table_entries: usize,
    /// Whether an address stays with its owner until the address expires or its port is detached.
    pub sticky: bool,
    /// Whether lossless ports also hold back other owners' senders.
    pub holds_others: bool,
}

impl Default for SwitchSettings {
    /// [`DEFAULT_ENTRIES`] entries; addresses move between owners, and lossless ports hold back only their owner's
    /// senders.
    fn default() -> SwitchSettings {
        SwitchSettings { table_entries: DEFAULT_ENTRIES, sticky: false, holds_others: false }
    }
}

/// A learning switch.
pub struct Switch {
    name: String,
    table: ArcSwap<PortTable>,
    /// Serialises changes of the port table. The packet path never locks this mutex.
    changing: Mutex<()>,
    fdb: Fdb,
    /// Forwarding table of a switch with VLANs, created with the first VLAN.
    vlan_fdb: OnceLock<Fdb>,
    key: [u64; 2],
    flows: [u64; 2],
    /// State of multicast snooping, created with the first port that snoops.
    snooping: OnceLock<Arc<Snooping>>,
    /// Number of attachments so far.
    attached: AtomicU64,
    /// The current value of [`SwitchSettings::holds_others`], for ports that are attached later.
    holds_others: AtomicBool,
}

impl Switch {
    /// Creates a switch without ports.
    pub fn new(name: &str) -> Arc<Self> {
        Self::with(name, SwitchSettings::default())
    }

    /// Creates a switch without ports, with these settings.
    pub fn with(name: &str, settings: SwitchSettings) -> Arc<Self> {
        let random = RandomState::new();
        Self::with_flows(name, settings, [random.hash_one(3u8), random.hash_one(4u8)])
    }

    /// Creates a switch without ports. Switches with the same key `flows` spread flows over queues in the same way.
    pub fn with_flows(name: &str, settings: SwitchSettings, flows: [u64; 2]) -> Arc<Self> {
        let SwitchSettings { table_entries, sticky, holds_others } = settings;
        // Derives the key from the standard library's random state of this process.
        let random = RandomState::new();
        let key = [random.hash_one(1u8), random.hash_one(2u8)];
        let table = ArcSwap::from_pointee(PortTable::from(Vec::new()));
        let fdb = Fdb::new(table_entries, key, sticky);
        Arc::new(Switch {
            name: name.to_owned(),
            table,
            changing: Mutex::new(()),
            fdb,
            vlan_fdb: OnceLock::new(),
            key,
            flows,
            snooping: OnceLock::new(),
            attached: AtomicU64::new(0),
            holds_others: holds_others.into(),
        })
    }

    /// Name of the switch, e.g. `vale0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Key of the hash that spreads flows over queues.
    pub fn flows(&self) -> [u64; 2] {
        self.flows
    }

    /// The forwarding table that is in use while frames belong to no VLANs.
    pub fn fdb(&self) -> &Fdb {
        &self.fdb
    }

    /// The forwarding table that is in use: the table by VLAN if frames belong to VLANs, [`Switch::fdb`] otherwise.
    pub fn addresses(&self) -> &Fdb {
        self.fdb_of(self.table.load().policed())
    }

    /// The forwarding table of a switch with these policies.
    #[inline]
    pub(crate) fn fdb_of(&self, policed: Option<&PolicySummary>) -> &Fdb {
        policed.filter(|policed| policed.vlans).and_then(|_| self.vlan_fdb.get()).unwrap_or(&self.fdb)
    }

    fn tables(&self) -> impl Iterator<Item = &Fdb> {
        [Some(&self.fdb), self.vlan_fdb.get()].into_iter().flatten()
    }

    /// Advances the clock of the forwarding tables by one tick; see [`Fdb::advance`].
    pub fn advance(&self) {
        self.tables().for_each(Fdb::advance);
    }

    /// Number of frames whose source was not learned; see [`Fdb::refused`].
    pub fn refused(&self) -> u64 {
        self.tables().map(Fdb::refused).sum()
    }

    /// Adds an address to the forwarding table, in VLAN `vlan` (0 on a switch without VLANs).
    pub fn learn(&self, vlan: u16, mac: u64, port: PortId) {
        self.addresses().learn_in(vlan, mac, port, &mut 1);
    }

    /// The counter of changes of the forwarding tables: addresses learned, forgotten or moved.
    pub fn changes(&self) -> &ChangeCount {
        &self.fdb.beside().changes
    }

    /// Sets a port's address finder. In the VLANs of the port's frames, the switch asks the finder about addresses that
    /// are missing from the forwarding table. The call must be repeated after a change of the port's policies.
    pub fn ask_port(&self, id: PortId, by: &Arc<dyn AddressFinder>) {
        self.fdb.beside().elsewhere.set(id, &self.vlans_of(id), Some(by));
    }

    /// Returns the VLANs to which a port's frames may belong; only 0 on a switch without VLANs.
    pub fn vlans_of(&self, id: PortId) -> Vec<u16> {
        let table = self.table.load();
        let Some((entry, policed)) = table.get(id).zip(table.policed().filter(|policed| policed.vlans)) else {
            return vec![0];
        };
        let vlans = policed.vlans(policed.policies(entry));
        (1..4095).filter(|&vlan| vlans.tagging(vlan).is_some()).collect()
    }

    /// Removes an address that is behind a port other than `port`, unless that other port keeps its addresses (so that
    /// they neither expire nor move). Returns whether the address was removed.
    pub fn forget_elsewhere(&self, vlan: u16, mac: u64, port: PortId) -> bool {
        self.addresses().forget_elsewhere(vlan, mac, port)
    }

    /// Replaces a port's policies; may be called while frames pass. `egresses` replaces the port's egresses, unless it
    /// is `None`.
    pub fn set_policies(
        &self,
        id: PortId,
        policies: Option<Arc<CompiledPolicies>>,
        egresses: Option<Vec<Arc<dyn Egress>>>,
    ) {
        self.has_table_for(policies.as_deref());
        self.restrict(id, policies.as_deref());
        let had_vlans = self.has_vlans();
        self.rewrite(
            |entry| entry.id == id,
            |entry| {
                entry.port.policies.clone_from(&policies);
                entry.port.egresses = egresses.clone().unwrap_or_else(|| std::mem::take(&mut entry.port.egresses));
                if !policies.as_ref().is_some_and(|policies| policies.loop_guard) {
                    entry.state.unblock();
                }
            },
        );
        self.begin_anew_if(had_vlans);
    }

    /// State of multicast snooping; `None` while no port snoops.
    pub fn snooping(&self) -> Option<&Arc<Snooping>> {
        self.table.load().policed().filter(|policed| policed.snoops).and_then(|_| self.snooping.get())
    }

    /// State of multicast snooping; `None` if no port has ever snooped.
    #[inline]
    pub(crate) fn snooping_of(&self) -> Option<&Arc<Snooping>> {
        self.snooping.get()
    }

    /// The switch's ports, for the thread that keeps the switch's multicast groups.
    pub fn groups_of(&self) -> GroupPorts {
        let table = self.table.load();
        let none = PolicySummary::none();
        let policed = table.policed().unwrap_or(&none);
        let ports = table.all().iter().map(|entry| {
            let policies = policed.policies(entry);
            let vlan = if policed.vlans { policed.vlans(policies).untagged() } else { Some(0) };
            GroupPort { id: entry.id, since: entry.since, multicast: policies.multicast, vlan }
        });
        GroupPorts { ports: ports.collect(), has_vlans: policed.vlans }
    }

    /// Creates the forwarding table by VLAN and the state of multicast snooping, if these policies need them.
    fn has_table_for(&self, policies: Option<&CompiledPolicies>) {
        if policies.is_some_and(|policies| policies.multicast.needs_groups()) {
            self.snooping.get_or_init(Arc::default);
        }
        if policies.is_some_and(|policies| policies.vlans.is_some()) {
            self.vlan_fdb
                .get_or_init(|| Fdb::by_vlan(self.fdb.capacity(), self.key, self.fdb.is_sticky()).beside_of(&self.fdb));
        }
    }

    /// If the switch has just begun or ceased to use VLANs, empties the forwarding table that it now uses, as the
    /// contents of that table may be outdated.
    fn begin_anew_if(&self, had_vlans: bool) {
        if self.has_vlans() != had_vlans {
            self.addresses().forget_all();
        }
    }

    fn has_vlans(&self) -> bool {
        self.table.load().policed().is_some_and(|policed| policed.vlans)
    }

    fn restrict(&self, id: PortId, policies: Option<&CompiledPolicies>) {
        let most = policies.and_then(|policies| policies.most_addresses);
        let keeps = policies.is_some_and(|policies| policies.sticky);
        self.tables().for_each(|fdb| fdb.restrict(id, most, keeps));
    }

    /// A port's policies; `None` if the port has none, or if there is no such port.
    pub fn policies(&self, id: PortId) -> Option<Arc<CompiledPolicies>> {
        self.table.load().get(id)?.port.policies.clone()
    }

    /// Run-time state of a port's policies; `None` if there is no such port.
    pub fn policy_state(&self, id: PortId) -> Option<Arc<PolicyState>> {
        self.table.load().get(id).map(|entry| Arc::clone(&entry.state))
    }

    #[inline]
    pub(crate) fn table(&self) -> arc_swap::Guard<Arc<PortTable>> {
        self.table.load()
    }

    fn change<T>(
        &self,
        f: impl FnOnce(&mut Vec<Option<Arc<PortEntry>>>) -> Result<T, AttachError>,
    ) -> Result<T, AttachError> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut by_id = self.table.load().by_id.clone();
        let result = f(&mut by_id)?;
        self.table.store(Arc::new(PortTable::from(by_id)));
        Ok(result)
    }

    /// Adds a port. From then on, frames may reach the port's egresses.
    ///
    /// # Errors
    /// [`AttachError::Full`] or [`AttachError::Exists`].
    pub fn attach(&self, port: AttachedPort) -> Result<PortId, AttachError> {
        self.has_table_for(port.policies.as_deref());
        let had_vlans = self.has_vlans();
        let id = self.change(|by_id| {
            if by_id.iter().flatten().any(|e| e.port.name == port.name) {
                return Err(AttachError::Exists { switch: self.name.clone(), port: port.name.clone() });
            }
            let id = free_place(by_id).ok_or_else(|| AttachError::Full(self.name.clone()))?;
            let owner = owner_of(by_id, &port);
            self.tables().for_each(|fdb| fdb.own(id, owner, port.most_addresses.unwrap_or(u32::MAX)));
            self.restrict(id, port.policies.as_deref());
            by_id[usize::from(id)] = Some(Arc::new(PortEntry {
                flows: FlowKey::new(self.flows),
                id,
                since: self.attached.fetch_add(1, Ordering::Relaxed),
                port,
                owner,
                holds_others: self.holds_others.load(Ordering::Relaxed),
                holding: Arc::default(),
                state: Arc::default(),
                traces: Vec::new(),
                tx_monitors: Vec::new(),
                rx_monitors: Vec::new(),
            }));
            Ok(id)
        })?;
        self.begin_anew_if(had_vlans);
        Ok(id)
    }

    /// Sets whether an address moves to another owner's port only after it has expired, and whether lossless ports hold
    /// back other owners' senders as well. May be called while frames pass.
    pub fn treat(&self, sticky: bool, holds_others: bool) {
        self.tables().for_each(|fdb| fdb.set_sticky(sticky));
        self.holds_others.store(holds_others, Ordering::Relaxed);
        self.rewrite(|entry| entry.holds_others != holds_others, |entry| entry.holds_others = holds_others);
    }

    /// Sets whether a port holds senders back. May be called while frames pass.
    pub fn set_lossless(&self, id: PortId, lossless: bool) {
        self.rewrite(|entry| entry.id == id, |entry| entry.port.lossless = lossless);
    }

    /// Changes the entries that `which` selects, in a copy of the port table that replaces the table.
    fn rewrite(&self, which: impl Fn(&PortEntry) -> bool, how: impl Fn(&mut PortEntry)) {
        let _ = self.change(|by_id| {
            by_id.iter_mut().flatten().filter(|entry| which(entry)).for_each(|entry| how(Arc::make_mut(entry)));
            Ok(())
        });
    }

    /// Removes the addresses that were learned behind a port. Frames to these addresses are flooded until the addresses
    /// are learned again.
    pub fn forget_learned(&self, id: PortId) {
        self.tables().for_each(|fdb| fdb.forget_learned(id));
    }

    /// Removes a port and its addresses. Workers may still deliver batches that they are forwarding during the call to
    /// the port's egresses.
    pub fn detach(&self, id: PortId) {
        let had_vlans = self.has_vlans();
        let _ = self.change(|by_id| {
            if let Some(e) = by_id.get_mut(usize::from(id)) {
                *e = None;
            }
            by_id.truncate(by_id.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
            Ok(())
        });
        self.begin_anew_if(had_vlans);
        self.tables().for_each(|fdb| fdb.forget_port(id));
        self.fdb.beside().elsewhere.set(id, &[], None);
    }

    /// Adds a monitor called `name` to a port: copies of frames that the port sends go to `tx`, copies of frames that
    /// the port receives go to `rx`. Each ring has its own monitor ring; copies that find no room are dropped.
    ///
    /// # Errors
    /// [`AttachError::NoSuchPort`] if there is no port of that name.
    pub fn monitor(&self, port: &str, name: &str, tx: MonitorRings, rx: MonitorRings) -> Result<(), AttachError> {
        let missing = || AttachError::NoSuchPort { switch: self.name.clone(), port: port.to_owned() };
        self.change(|by_id| {
            let found = by_id.iter_mut().flatten().find(|e| e.port.name == port).ok_or_else(missing)?;
            let with = |old: &[PortMonitor], rings: MonitorRings| {
                let new = (!rings.is_empty()).then(|| PortMonitor { name: name.to_owned(), rings });
                old.iter().cloned().chain(new).collect()
            };
            *found = Arc::new(found.with_monitors(with(&found.tx_monitors, tx), with(&found.rx_monitors, rx)));
            Ok(())
        })
    }

    /// Removes all monitors called `name`.
    pub fn unmonitor(&self, name: &str) {
        let is_it = |monitor: &PortMonitor| monitor.name == name;
        self.rewrite(
            |entry| entry.tx_monitors.iter().chain(&entry.rx_monitors).any(is_it),
            |entry| {
                entry.tx_monitors.retain(|monitor| !is_it(monitor));
                entry.rx_monitors.retain(|monitor| !is_it(monitor));
            },
        );
    }

    /// Traces the frames of a port until [`Switch::end_trace`], or until the port is detached.
    ///
    /// # Errors
    /// [`AttachError::NoSuchPort`] if there is no port of that name.
    pub fn trace(&self, port: &str, trace: &Arc<Trace>) -> Result<(), AttachError> {
        let missing = || AttachError::NoSuchPort { switch: self.name.clone(), port: port.to_owned() };
        self.change(|by_id| {
            let found = by_id.iter_mut().flatten().find(|e| e.port.name == port).ok_or_else(missing)?;
            Arc::make_mut(found).traces.push(Arc::clone(trace));
            Ok(())
        })
    }

    /// Number of ports whose frames `trace` traces.
    pub fn traced(&self, trace: &Arc<Trace>) -> usize {
        self.table.load().all.iter().filter(|entry| entry.traces.iter().any(|one| Arc::ptr_eq(one, trace))).count()
    }

    /// Ends a trace on all its ports.
    pub fn end_trace(&self, trace: &Arc<Trace>) {
        let is_it = |one: &Arc<Trace>| Arc::ptr_eq(one, trace);
        self.rewrite(|entry| entry.traces.iter().any(is_it), |entry| entry.traces.retain(|one| !is_it(one)));
    }

    /// Indices and names of the switch's ports.
    pub fn ports(&self) -> Vec<(PortId, String)> {
        self.table.load().all.iter().map(|e| (e.id, e.port.name.clone())).collect()
    }

    /// The user who owns a port; `None` if there is no such port.
    pub fn owner(&self, id: PortId) -> Option<u32> {
        self.table.load().get(id).map(|e| e.port.owner)
    }

    /// The name of a port; `None` if there is no such port.
    pub fn port_name(&self, id: PortId) -> Option<String> {
        self.table.load().get(id).map(|e| e.port.name.clone())
    }
}

/// The number of a port's owner: the same number as for the owner's other ports, or an unused number.
fn owner_of(by_id: &[Option<Arc<PortEntry>>], port: &AttachedPort) -> OwnerId {
    let mut entries = by_id.iter().flatten();
    if let Some(known) = entries.find(|e| e.port.owner == port.owner) {
        return known.owner;
    }
    let mut used = vec![false; by_id.len() + 1];
    for entry in by_id.iter().flatten() {
        if let Some(used) = used.get_mut(entry.owner.index()) {
            *used = true;
        }
    }
    // `used` has more entries than there are ports, so an unused number exists.
    OwnerId::new(used.iter().position(|used| !used).unwrap_or(0) as u16)
}

/// Finds the lowest free index for a port, and makes room for it in the table; `None` if the switch is full.
fn free_place(by_id: &mut Vec<Option<Arc<PortEntry>>>) -> Option<PortId> {
    let free = by_id.iter().position(Option::is_none).unwrap_or(by_id.len());
    if free >= MAX_PORTS {
        return None;
    }
    by_id.resize(by_id.len().max(free + 1), None);
    Some(free as PortId)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: settings of a running switch apply to present and later ports; a setting for one port applies to no
    /// other port.
    #[test]
    fn changed_while_frames_pass() {
        let switch = Switch::new("vale0");
        let join = |name: &str| switch.attach(AttachedPort { name: name.into(), ..AttachedPort::default() }).unwrap();
        let a = join("a");
        let b = join("b");
        let holds = |id| switch.table().get(id).unwrap().may_hold(OwnerId::new(9));
        let lossless = |id| switch.table().get(id).unwrap().port.lossless;
        switch.set_lossless(a, true);
        assert_eq!((lossless(a), lossless(b), holds(a)), (true, false, false));
        switch.treat(true, true);
        let c = join("c");
        assert_eq!((holds(a), holds(c), lossless(a)), (true, true, true));
        switch.treat(false, false);
        switch.set_lossless(a, false);
        assert_eq!((holds(a), holds(c), lossless(a)), (false, false, false));
    }
}
