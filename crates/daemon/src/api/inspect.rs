//! Snapshots of the daemon's ports for `list`, `show` and `top`. Callers see their own ports; root and the daemon's own
//! user see all ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use netvale_control::types::{
    Direction, EvictionInfo, GroupsInfo, Owner, PortDetail, PortInfo, PortState, RingInfo, SwitchInfo, TableEntry,
};
use netvale_port::RingCounters;
use netvale_switch::{FdbEntry, Switch};

use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort};
use crate::permission::{controls, may_join, sees};
use crate::ports::tunnel::mac_of;
use crate::ports::{multicast, pipe, policies};
use crate::registry::pipes::Pipes;
use crate::rings::nic::NicPort;
use crate::rings::pipe::PipeRecord;
use crate::rings::status::{counted, read_indices, region_info, with_indices};
use crate::rings::switched::PortRings;

/// Lists the switches that the caller may use.
pub fn list_switches(d: &Daemon, caller: Caller) -> Vec<SwitchInfo> {
    d.switches.iter().filter(|s| may_join(d, s.name(), caller).is_ok()).map(|s| switch_info(s)).collect()
}

/// Describes a switch: the number of its ports, and the use of its forwarding table.
pub fn switch_info(s: &Switch) -> SwitchInfo {
    SwitchInfo {
        name: s.name().to_owned(),
        ports: s.ports().len() as u32,
        addresses: s.addresses().count() as u64,
        table_size: s.addresses().capacity() as u64,
        refused_addresses: s.refused(),
    }
}

/// Returns a switch's forwarding table, restricted to ports that the caller may see; `None` if the switch does not
/// exist.
pub fn list_table(d: &Daemon, switch: &str, caller: Caller) -> Option<Vec<TableEntry>> {
    let s = d.switches.get(switch)?;
    let full = |port: &str| format!("{switch}:{port}");
    let is_seen = |port: &str| d.ports.get(&full(port)).is_some_and(|record| controls(caller, record.owner.uid));
    let names: BTreeMap<_, _> = s.ports().into_iter().filter(|(_, port)| is_seen(port)).collect();
    let tick = d.switches.tick_length().as_millis() as u64;
    let entry = |e: FdbEntry| {
        let port = full(names.get(&e.port)?);
        let vlan = (e.vlan > 0).then_some(e.vlan);
        let age_seconds = u64::from(e.ticks) * tick / 1000;
        Some(TableEntry { mac: mac_of(e.mac), vlan, port, age_seconds, ..TableEntry::default() })
    };
    let mut entries: Vec<_> = s.addresses().entries().into_iter().filter_map(entry).collect();
    for (id, port) in &names {
        let full = full(port);
        if let Some(record) = d.ports.get(&full) {
            record.behind.add_addresses(s, *id, &full, &mut entries);
        }
    }
    entries.sort_by_key(|e| (e.vlan, e.mac));
    Some(entries)
}

/// Returns a switch's multicast group membership, restricted to ports that the caller may see; `None` if the switch
/// does not exist.
pub fn list_groups(d: &Daemon, switch: &str, caller: Caller) -> Option<GroupsInfo> {
    let ports: BTreeMap<_, _> = d.switches.get(switch)?.ports().into_iter().collect();
    let is_seen = |full: &String| d.ports.get(full).is_some_and(|record| controls(caller, record.owner.uid));
    let name = |id| Some(format!("{switch}:{}", ports.get(&id)?)).filter(is_seen);
    Some(multicast::groups(d, switch, name))
}

/// Lists the ports that the caller may see, without their rings. With `switch`, lists only ports on that switch;
/// without `switch`, also lists pipes, and interfaces that programs have opened.
pub fn list_ports(d: &Daemon, switch: Option<&str>, caller: Caller) -> Vec<PortInfo> {
    let on = |r: &DaemonPort| switch.is_none_or(|s| r.switch.as_ref().is_some_and(|on| on.name() == s));
    let mut ports: Vec<_> = d.ports.iter().filter(|(_, r)| on(r)).map(|(n, r)| summary(r, n)).collect();
    ports.iter_mut().filter_map(|port| port.detail.as_mut()).for_each(PortDetail::shorten);
    if switch.is_none() {
        // A pipe with an end that is passed through to a virtual machine is listed as the machine's port.
        let own = d.pipes.iter().filter(|(_, pipe)| pipe.guest_end().is_none());
        ports.extend(own.map(|(name, known)| pipe::show(name, known)));
        ports.extend(d.guests.iter().map(|port| port.info()));
        ports.extend(d.interfaces.ports().map(|(_, port)| PortInfo { rings: Vec::new(), ..port.info() }));
    }
    ports.retain(|port| sees(caller, port.owner));
    ports
}

/// Describes one port with its rings; `None` if the port does not exist, or if the caller may not see it.
pub fn show(d: &Daemon, name: &str, caller: Caller) -> Option<PortInfo> {
    let pipe = Pipes::name(name);
    let known = d.pipes.get(&pipe);
    let port = || {
        let mut info = info(d, d.ports.get(name)?, name);
        info.notes.extend(known.and_then(PipeRecord::far_end));
        Some(info)
    };
    let nic = || {
        let mut own = d.interfaces.ports().map(|(_, port)| NicPort::info(port)).filter(|info| sees(caller, info.owner));
        own.find(|info| info.name == name)
    };
    let guest = || d.guests.get(name.strip_prefix("netmap:")?).map(|port| port.info());
    let mut info = port().or_else(|| Some(pipe::show(&pipe, known?))).or_else(nic).or_else(guest)?;
    info.notes.extend(last_eviction(d, name, caller));
    sees(caller, info.owner).then_some(info)
}

/// Lists the evictions of the caller's programs, the newest first.
pub fn list_evicted(d: &Daemon, caller: Caller) -> Vec<EvictionInfo> {
    d.evictions.iter().filter(|one| sees(caller, Some(one.owner))).collect()
}

/// Returns a sentence with the reason of the last eviction from the port `port`; `None` if there was no eviction that
/// the caller may see.
pub fn last_eviction(d: &Daemon, port: &str, caller: Caller) -> Option<String> {
    let last = list_evicted(d, caller).into_iter().find(|one| one.port == port)?;
    Some(format!("the last program at this port was evicted: {}", last.reason))
}

/// Describes a port without its rings.
fn summary(record: &DaemonPort, name: &str) -> PortInfo {
    let mut info = PortInfo {
        name: name.to_owned(),
        switch: record.switch.as_ref().map(|switch| switch.name().to_owned()),
        kind: record.behind.kind(),
        state: if record.is_idle() { PortState::Idle } else { PortState::Open },
        owner: Some(Owner { uid: record.owner.uid, pid: record.owner.pid }),
        region: record.rings().map(|r| region_info(r.mem.region(), r.mem_id)),
        vnet_hdr: record.hdr_len(),
        lossless: record.lossless,
        policies: record.policies.values(),
        rules: policies::rules(record),
        drops: record.drops(),
        ..PortInfo::default()
    };
    record.behind.describe(&mut info);
    info
}

/// Describes a port with its rings.
fn info(d: &Daemon, record: &DaemonPort, name: &str) -> PortInfo {
    let ingress = record.ingress.iter().enumerate().map(|(i, c)| ring_in(d, record, i, c));
    let egress = record.egress.iter().enumerate().map(|(i, c)| ring_out(d, record, i, c));
    let rings = ingress.chain(egress).collect();
    PortInfo { rings, notes: notes(record), ..summary(record, name) }
}

fn ring_in(d: &Daemon, record: &DaemonPort, i: usize, counters: &RingCounters) -> RingInfo {
    let base = RingInfo { dir: Direction::In, index: i as u32, ..counted(counters) };
    let worker = record.placed.get(i).and_then(|&task| d.workers.worker_of(task)).map(|worker| worker as u32);
    let Some((tx, region)) = record.rings().and_then(|r| Some((r.tx.get(i)?, r.mem.region()))) else {
        let (kicks_sent, kicks_suppressed, kicks_received) = record.behind.ring_kicks(Direction::In, i);
        let base = RingInfo { worker, kicks_sent, kicks_suppressed, kicks_received, ..base };
        return with_any_indices(d, base, record, i);
    };
    RingInfo {
        kicks_sent: tx.kicks.sent(),
        kicks_suppressed: tx.kicks.suppressed(),
        kicks_received: tx.kicks.received(),
        worker,
        ..with_indices(base, &tx.side, region)
    }
}

/// Adds the indices of a netmap ring in a guest's memory. Omits them if reading that memory takes too long.
fn with_any_indices(d: &Daemon, base: RingInfo, record: &DaemonPort, i: usize) -> RingInfo {
    let Some(side) = record.behind.ring_side(base.dir, i) else { return base };
    let known = base.clone();
    d.regions.touch_guest(record.owner.uid, move || read_indices(base, &side)).unwrap_or(known)
}

fn ring_out(d: &Daemon, record: &DaemonPort, i: usize, counters: &RingCounters) -> RingInfo {
    let base = RingInfo { dir: Direction::Out, index: i as u32, ..counted(counters) };
    let Some((rx, region)) = record.rings().and_then(|r| Some((r.rx.get(i)?, r.mem.region()))) else {
        let (kicks_sent, kicks_suppressed, _) = record.behind.ring_kicks(Direction::Out, i);
        return with_any_indices(d, RingInfo { kicks_sent, kicks_suppressed, ..base }, record, i);
    };
    let kicks = rx.host().kicks();
    let side = rx.host().side();
    RingInfo { kicks_sent: kicks.sent(), kicks_suppressed: kicks.suppressed(), ..with_indices(base, side, region) }
}

/// Returns the number of slots that refer to each buffer. Returns an empty map if reading the memory of the rings takes
/// too long.
fn uses_of_buffers(rings: &PortRings) -> BTreeMap<u32, u32> {
    let mem = Arc::clone(&rings.mem);
    let count = move || {
        let mut uses: BTreeMap<u32, u32> = BTreeMap::new();
        for side in mem.tx.iter().chain(&mem.rx) {
            (0..side.ring.num_slots()).for_each(|s| *uses.entry(side.ring.slot_word(s).buf_idx).or_default() += 1);
        }
        uses
    };
    rings.mem.region().touch(count).unwrap_or_default()
}

/// Returns notes for `netvale show`. They include errors in a program's rings that cause the loss of frames: buffers
/// that are in several slots, or that are outside the pool.
fn notes(record: &DaemonPort) -> Vec<String> {
    let uses = record.rings().map_or_else(BTreeMap::new, uses_of_buffers);
    let bufs = record.rings().map_or(u32::MAX, |r| r.mem.region().layout().sizes.bufs.num);
    let twice = uses.values().filter(|&&n| n > 1).count();
    let outside = uses.keys().filter(|&&b| b < netvale_mem::layout::RESERVED_BUFS || b >= bufs).count();
    let mut notes = Vec::new();
    if twice > 0 {
        let text = "the frames in these slots overwrite each other";
        notes.push(format!("buffers to which more than one slot refers: {twice}; {text}"));
    }
    if outside > 0 {
        notes.push(format!("slots refer to {outside} buffers outside the pool; frames for them are dropped"));
    }
    notes.extend(record.behind.notes());
    notes.extend(policies::notes(record));
    notes
}
