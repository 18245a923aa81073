//! The predecessor's part.

use std::any::Any;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use netvale_fdio::state::{Fd, State};
use netvale_mem::layout::PoolSize;
use netvale_mem::notify::nap;
use netvale_mem::region::RegionState;
use netvale_port::DropReason;
use netvale_switch::{Switch, WaitingFrames};
use rustix::net::SendFlags;

use super::{GO, READY};
use crate::daemon::{Daemon, Record};
use crate::handover::items::{Counts, Item, PortItem, RegionItem, SwitchItem, VLAN_SHIFT};
use crate::handover::{frames, wire};
use crate::ports::{self, plug};
use crate::registry::ports::PortLink;
use crate::registry::regions::Entry;
use crate::system::closing;
use crate::worker::TaskId;

/// Frames that wait for room, by task.
pub type Waiting = BTreeMap<TaskId, Vec<WaitingFrames>>;

/// What is to be handed over.
#[derive(Default)]
pub struct Gift {
    /// The items.
    pub items: Vec<Item>,
    /// Threads that pause, besides the workers, until this is dropped.
    pub paused: Vec<Box<dyn Any>>,
    /// Ports that do not go on.
    pub others: Vec<String>,
}

/// All items of the registries.
///
/// # Errors
/// When the daemon is out of descriptors or memory.
pub fn items(d: &Daemon, waiting: Vec<(TaskId, Vec<WaitingFrames>)>) -> std::io::Result<Gift> {
    let waiting: Waiting = waiting.into_iter().collect();
    let mut all = Vec::new();
    let mut paused = Vec::new();
    let mut others = Vec::new();
    // All pause in the time of one.
    let asked: Vec<_> = d.ports.iter().flat_map(|(_, record)| record.behind.ask_to_pause()).collect();
    for (entry, region) in d.regions.iter() {
        all.push(region_item(entry, region.save()?));
    }
    all.extend(d.switches.iter().map(|switch| switch_item(d, switch, true)));
    all.extend(d.captures.kept().into_iter().map(Item::Captures));
    all.extend(ports::nic::continued::interfaces(d)?);
    for (name, record) in d.ports.iter() {
        let of_port = |e: std::io::Error| std::io::Error::new(e.kind(), format!("port {name}: {e}"));
        let mut parked = record.behind.save_parked().map_err(of_port)?;
        paused.extend(parked.iter_mut().flat_map(|parked| parked.paused.drain(..)));
        others.extend(parked.is_none().then(|| name.to_owned()));
        let mut item = port_item(d, name, record, parked.map(|parked| parked.state), &waiting)?;
        count_lost(record, &waiting, &mut item);
        all.push(Item::Port(Box::new(item)));
    }
    for (name, pipe) in d.pipes.iter() {
        all.push(Item::Pipe(pipe.save(name)?));
    }
    all.extend(ports::nic::continued::open_rings(d)?);
    drop(asked);
    Ok(Gift { items: all, paused, others })
}

/// A region.
pub fn region_item(entry: &Entry, state: RegionState) -> Item {
    let size = |pool: PoolSize| (pool.num, pool.size);
    let file = entry.file.map(|place| [place.device, place.inode, place.asked.offset, place.asked.len]);
    Item::Region(RegionItem {
        id: entry.id,
        uid: entry.uid,
        sizes: [size(state.sizes.ifs), size(state.sizes.rings), size(state.sizes.bufs)],
        huge: state.huge,
        file,
        used_bufs: state.used_bufs,
        memory: state.memory,
    })
}

/// A switch, with its addresses or without.
pub fn switch_item(d: &Daemon, switch: &Switch, with_addresses: bool) -> Item {
    let addresses = if with_addresses { addresses(switch) } else { Vec::new() };
    let owner = d.switches.owner(switch.name()).unwrap_or_default();
    Item::Switch(SwitchItem { name: switch.name().to_owned(), owner, addresses, flows: Some(switch.flows()) })
}

/// The addresses of a switch, above their 48 bits the VLANs, and the names of the ports behind which they were seen.
pub fn addresses(switch: &Switch) -> Vec<(u64, String)> {
    let names: BTreeMap<_, _> = switch.ports().into_iter().collect();
    let entries = switch.addresses().entries().into_iter();
    entries
        .filter_map(|entry| Some((entry.mac | u64::from(entry.vlan) << VLAN_SHIFT, names.get(&entry.port)?.clone())))
        .collect()
}

/// Counters of a port's ingresses and egresses.
pub fn counters(record: &Record) -> [Vec<Counts>; 2] {
    [&record.ingress, &record.egress].map(|counters| counters.iter().map(|c| Counts::of(c)).collect())
}

/// A port, with what its kind says of itself.
///
/// # Errors
/// When the daemon is out of descriptors or memory.
pub fn port_item(
    d: &Daemon,
    name: &str,
    record: &Record,
    state: Option<State>,
    waiting: &Waiting,
) -> std::io::Result<PortItem> {
    let held = |task: &TaskId| waiting.get(task).map(Vec::as_slice).unwrap_or_default();
    let places = |held: &[WaitingFrames]| held.iter().map(|w| (w.port.clone(), w.ring, w.frames.len())).collect();
    let all_held = || record.placed.iter().flat_map(held);
    let has_frames = all_held().next().is_some();
    let frames = has_frames.then(|| frames::pack(all_held().flat_map(|w| &w.frames))).transpose()?;
    let on_switch = |switch: &Switch| Some((switch.name().to_owned(), switch.port_name(record.id?)?));
    Ok(PortItem {
        name: name.to_owned(),
        on: record.switch.as_deref().and_then(on_switch),
        kind: record.behind.kind(),
        owner: record.owner.into(),
        declared: record.declared.clone().map(|declared| (declared.params, declared.from_file)),
        persistent: record.persistent,
        lasting: ports::lasting_name(d, name, record),
        lossless: record.lossless,
        policies: record.policies.clone(),
        rules: ports::policies::rules(record).iter().map(|rule| rule.frames).collect(),
        policies_are_set: record.policies_are_set,
        polled: record.polled,
        counters: counters(record),
        state,
        waiting: record.placed.iter().map(|task| places(held(task))).collect(),
        frames: frames.map(Fd::from),
    })
}

/// Frames on a port's links do not go on. They arrived when the workers were parked, but for those that a port has no
/// room for, and those that were sent after the last look.
fn count_lost(record: &Record, waiting: &Waiting, item: &mut PortItem) {
    for (link, counts) in record.links.iter().zip(&mut item.counters) {
        let (Some(PortLink { link, task }), Some(counts)) = (link, counts.first_mut()) else { continue };
        let held: usize = waiting.get(task).into_iter().flatten().map(|w| w.frames.len()).sum();
        counts.drop(DropReason::NoRoom, link.under_way() + held as u64);
    }
}

/// Ends the ports that do not go on: what they have (files, devices) is free afterwards. The workers may be parked.
pub fn end(d: &mut Daemon, others: &[String]) {
    for name in others {
        // It may have gone with another one.
        let _ = plug::unplug(d, name, "the daemon is replaced");
    }
    d.captures.wait_for_ending();
}

/// Sends all items, and waits until the successor is ready to continue them, which it then does.
///
/// # Errors
/// A sentence that says why it does not.
pub fn send(to: &OwnedFd, items: &[Item]) -> Result<(), String> {
    let fails = |e: std::io::Error| format!("the successor does not take what it is sent: {e}");
    for item in items.iter().chain([&Item::End]) {
        wire::send(to.as_fd(), item).map_err(fails)?;
    }
    let mut answer = [0u8; 1024];
    let answered = nap(to.as_fd(), wire::LIMIT);
    match closing::receive(to, &mut answer) {
        Ok((0, _)) => Err("the successor ended".to_owned()),
        Ok((got, _)) if answer.get(..got) == Some(READY) => {
            rustix::net::send(to, GO, SendFlags::NOSIGNAL).map(drop).map_err(|e| fails(e.into()))
        }
        Ok((got, _)) => Err(String::from_utf8_lossy(answer.get(..got).unwrap_or_default()).into_owned()),
        Err(_) if !answered => Err(format!("the successor was not ready within {} s", wire::LIMIT.as_secs())),
        Err(e) => Err(fails(e.into())),
    }
}
