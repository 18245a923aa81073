//! The predecessor's side of a hand-over. As soon as an item is ready, it is passed to a *sink*, which sends or stores
//! it.

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
use crate::daemon::{Daemon, DaemonPort};
use crate::handover::items::{Item, PortItem, RegionItem, RingCounts, SwitchItem, VLAN_SHIFT};
use crate::handover::parts::pack_frames;
use crate::handover::wire;
use crate::ports::{self, plug};
use crate::registry::ports::PortLink;
use crate::registry::regions::RegionEntry;
use crate::system::closing;
use crate::worker::TaskId;

/// Frames that wait for room at their destination, by forwarding task.
pub type FramesByTask = BTreeMap<TaskId, Vec<WaitingFrames>>;

/// A function that sends or stores an item.
pub type ItemSink<'a> = &'a mut dyn FnMut(Item) -> std::io::Result<()>;

/// Results of a hand-over other than the items.
#[derive(Default)]
pub struct HandoverResult {
    /// Guards that keep the ports' own threads paused until the guards are dropped. The workers are not included, as
    /// they are paused separately.
    pub paused: Vec<Box<dyn Any>>,
    /// Full names of ports that cannot be handed over.
    pub others: Vec<String>,
}

/// Writes all regions to the sink. Workers need not be parked (paused), because only the main thread changes the state
/// of regions.
///
/// # Errors
/// Fails if the daemon is out of descriptors or memory, or if the sink fails.
pub fn regions(d: &Daemon, give: ItemSink<'_>) -> std::io::Result<()> {
    for (entry, region) in d.regions.iter() {
        give(region_item(entry, region.save()?))?;
    }
    Ok(())
}

/// Writes all items except the regions to the sink, each as soon as it is ready, so that the successor can restore it
/// while the next item is saved.
///
/// # Errors
/// Fails if the daemon is out of descriptors or memory, or if the sink fails.
pub fn items(
    d: &Daemon,
    waiting: Vec<(TaskId, Vec<WaitingFrames>)>,
    give: ItemSink<'_>,
) -> std::io::Result<HandoverResult> {
    let waiting: FramesByTask = waiting.into_iter().collect();
    let mut gift = HandoverResult::default();
    // All ports' own threads are requested to pause before the daemon waits for any of them, so that they pause in
    // parallel.
    let asked: Vec<_> = d.ports.iter().flat_map(|(_, record)| record.behind.ask_to_pause()).collect();
    d.switches.iter().try_for_each(|switch| give(switch_item(d, switch, true)))?;
    d.captures.kept().into_iter().try_for_each(|captures| give(Item::Captures(captures)))?;
    ports::nic::continued::interfaces(d)?.into_iter().try_for_each(&mut *give)?;
    for (name, record) in d.ports.iter() {
        let of_port = |e: std::io::Error| std::io::Error::new(e.kind(), format!("port {name}: {e}"));
        let mut parked = record.behind.save_parked().map_err(of_port)?;
        gift.paused.extend(parked.iter_mut().flat_map(|parked| parked.paused.drain(..)));
        gift.others.extend(parked.is_none().then(|| name.to_owned()));
        let mut item = port_item(d, name, record, parked.map(|parked| parked.state), &waiting)?;
        count_lost(record, &waiting, &mut item);
        give(Item::Port(Box::new(item)))?;
    }
    for (name, pipe) in d.pipes.iter() {
        give(Item::Pipe(pipe.save(name)?))?;
    }
    ports::nic::continued::open_rings(d)?.into_iter().try_for_each(&mut *give)?;
    drop(asked);
    Ok(gift)
}

/// Returns the item (saved state) of a region.
pub fn region_item(entry: &RegionEntry, state: RegionState) -> Item {
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

/// Returns the item of a switch, with or without its learned addresses.
pub fn switch_item(d: &Daemon, switch: &Switch, with_addresses: bool) -> Item {
    let addresses = if with_addresses { addresses(switch) } else { Vec::new() };
    let owner = d.switches.owner(switch.name()).unwrap_or_default();
    Item::Switch(SwitchItem { name: switch.name().to_owned(), owner, addresses, flows: Some(switch.flows()) })
}

/// Returns the learned addresses of a switch, each with the name of its port. Each address is a word with the MAC
/// address in its low 48 bits and the VLAN in its upper bits.
pub fn addresses(switch: &Switch) -> Vec<(u64, String)> {
    let names: BTreeMap<_, _> = switch.ports().into_iter().collect();
    let entries = switch.addresses().entries().into_iter();
    entries
        .filter_map(|entry| Some((entry.mac | u64::from(entry.vlan) << VLAN_SHIFT, names.get(&entry.port)?.clone())))
        .collect()
}

/// Returns the counters of a port: the counters of its ingresses, then the counters of its egresses.
pub fn counters(record: &DaemonPort) -> [Vec<RingCounts>; 2] {
    [&record.ingress, &record.egress].map(|counters| counters.iter().map(|c| RingCounts::of(c)).collect())
}

/// Returns the item of a port. `state` is the saved state of the port's backend, `None` if the port must start anew.
///
/// # Errors
/// Fails if the daemon is out of descriptors or memory.
pub fn port_item(
    d: &Daemon,
    name: &str,
    record: &DaemonPort,
    state: Option<State>,
    waiting: &FramesByTask,
) -> std::io::Result<PortItem> {
    let held = |task: &TaskId| waiting.get(task).map(Vec::as_slice).unwrap_or_default();
    let places = |held: &[WaitingFrames]| held.iter().map(|w| (w.port.clone(), w.ring, w.frames.len())).collect();
    let all_held = || record.placed.iter().flat_map(held);
    let has_frames = all_held().next().is_some();
    let frames = has_frames.then(|| pack_frames(all_held().flat_map(|w| &w.frames))).transpose()?;
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

/// Counts as dropped the frames that are still in a port's links (queues that delay frames): the frames for which the
/// port has no room, and the frames that were sent after the link's last pass. All other frames were delivered before
/// the workers were parked.
fn count_lost(record: &DaemonPort, waiting: &FramesByTask, item: &mut PortItem) {
    for (link, counts) in record.links.iter().zip(&mut item.counters) {
        let (Some(PortLink { link, task }), Some(counts)) = (link, counts.first_mut()) else { continue };
        let held: usize = waiting.get(task).into_iter().flatten().map(|w| w.frames.len()).sum();
        counts.drop(DropReason::NoRoom, link.under_way() + held as u64);
    }
}

/// Removes the ports that cannot be handed over, so that the successor can use their files and devices. May be called
/// while the workers are parked.
pub fn end(d: &mut Daemon, others: &[String]) {
    for name in others {
        // Removing another port may already have removed this port.
        let _ = plug::unplug(d, name, "the daemon is replaced");
    }
    d.captures.wait_for_ending();
}

/// Sends an item.
///
/// # Errors
/// A message with the reason why the item cannot be sent.
pub fn send(to: &OwnedFd, item: &Item) -> std::io::Result<()> {
    wire::send(to.as_fd(), item).map_err(|e| std::io::Error::other(format!("cannot send to the successor: {e}")))
}

/// Marks the end of the items, and waits until the successor is ready. If this function succeeds, the successor serves
/// the ports.
///
/// # Errors
/// A message with the reason why the successor does not take over.
pub fn let_go(to: &OwnedFd) -> Result<(), String> {
    send(to, &Item::End).map_err(|e| e.to_string())?;
    let fails = |e: rustix::io::Errno| format!("cannot send to the successor: {e}");
    let mut answer = [0u8; 1024];
    let answered = nap(to.as_fd(), wire::LIMIT);
    match closing::receive(to, &mut answer) {
        Ok((0, _)) => Err("the successor ended before it was ready".to_owned()),
        Ok((got, _)) if answer.get(..got) == Some(READY) => {
            rustix::net::send(to, GO, SendFlags::NOSIGNAL).map(drop).map_err(fails)
        }
        Ok((got, _)) => Err(String::from_utf8_lossy(answer.get(..got).unwrap_or_default()).into_owned()),
        Err(_) if !answered => Err(format!("the successor was not ready within {} s", wire::LIMIT.as_secs())),
        Err(e) => Err(fails(e)),
    }
}
