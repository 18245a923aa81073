//! State that the service manager keeps in case this daemon is killed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::continuing::{ContinuedClient, ContinuedState};
use super::give::{self, FramesByTask};
use crate::daemon::{Daemon, DaemonPort};
use crate::handover::items::{CountersItem, Item};
use crate::handover::store::Store;
use crate::handover::touched::TouchedItems;
use crate::ports;
use crate::registry::changes::UnsavedChanges;

/// How long to wait until the workers of a daemon that was started after a kill are parked.
const STARTING: Duration = Duration::from_secs(20);

/// Takes the set of objects that changed since the last save: the objects noted in the daemon's `changes` and in the
/// registries.
pub fn touched(d: &mut Daemon) -> TouchedItems {
    let UnsavedChanges { everything, clients } = std::mem::take(&mut d.changes);
    TouchedItems {
        everything,
        clients,
        ports: d.ports.take_touched(),
        pipes: d.pipes.take_touched(),
        switches: d.switches.take_touched(),
        regions: d.regions.take_touched(),
    }
}

/// Returns the current items of touched objects. The workers are not paused.
///
/// # Errors
/// Fails if the daemon is out of descriptors.
pub fn items(d: &Daemon, touched: &TouchedItems) -> std::io::Result<Vec<Item>> {
    let mut all = Vec::new();
    for (entry, region) in d.regions.iter().filter(|(entry, _)| touched.has_region(entry.id, entry.uid)) {
        all.push(give::region_item(entry, region.save()?));
    }
    let switches = d.switches.iter().filter(|switch| touched.has_switch(switch.name()));
    all.extend(switches.map(|switch| give::switch_item(d, switch, false)));
    all.extend(d.captures.kept_without_ports().into_iter().map(Item::Captures));
    all.extend(ports::nic::continued::kept_interfaces(d)?);
    for (name, record) in d.ports.iter().filter(|(name, _)| touched.has_port(name)) {
        all.extend(port(d, name, record)?);
    }
    all.extend(ports::nic::continued::kept_rings(d)?);
    let own = d.pipes.iter().filter(|(_, pipe)| pipe.guest_end().is_none());
    for (name, pipe) in own.filter(|(name, _)| touched.has_pipe(name)) {
        all.push(Item::Pipe(pipe.save(name)?));
    }
    Ok(all)
}

/// Returns a port's item, `None` for a port that ends with the daemon, and that the service manager thus need not keep.
fn port(d: &Daemon, name: &str, record: &DaemonPort) -> std::io::Result<Option<Item>> {
    let state = record.behind.save()?;
    if state.is_none() && record.declared.is_none() && ports::lasting_name(d, name, record).is_none() {
        return Ok(None);
    }
    let mut item = give::port_item(d, name, record, state, &FramesByTask::new())?;
    // Counters change with every frame, so they are saved in a separate item.
    item.counters = Default::default();
    Ok(Some(Item::Port(Box::new(item))))
}

/// For a debug assertion: returns the keys of outdated items whose objects change only by requests. A request has then
/// failed to record its change.
///
/// # Errors
/// Fails if the daemon is out of descriptors.
pub fn missed(d: &Daemon, store: &Store) -> std::io::Result<Vec<String>> {
    let by_requests = |item: &Item| match item {
        // The state of the other ports changes with frames as well, or through the ports' own threads.
        Item::Port(port) => ports::continuation::is_still(port) && port.rules.is_empty(),
        Item::Switch(_) | Item::Pipe(_) => true,
        _ => false,
    };
    let items = items(d, &TouchedItems::all())?;
    let missed = items.iter().filter(|item| by_requests(item) && !store.has(item));
    let mut keys: Vec<_> = missed.map(Item::key).collect();
    let there: BTreeSet<_> = items.iter().map(Item::key).collect();
    let is_gone =
        |key: &&String| ["port ", "pipe ", "switch "].iter().any(|of| key.starts_with(of)) && !there.contains(*key);
    keys.extend(store.keys().filter(is_gone).cloned());
    Ok(keys)
}

/// Returns the item with the state that changes with every frame: counters and learned addresses. `None` if there are
/// neither ports nor open host rings.
pub fn counters(d: &Daemon) -> Option<CountersItem> {
    let ports: Vec<_> = d.ports.iter().map(|(name, record)| (name.to_owned(), give::counters(record))).collect();
    let host_rings: Vec<_> = d.interfaces.ports().map(|(client, port)| (client, port.counted())).collect();
    let switches = d.switches.iter().map(|switch| (switch.name().to_owned(), give::addresses(switch))).collect();
    let is_any = !ports.is_empty() || !host_rings.is_empty();
    is_any.then_some(CountersItem { ports, host_rings, switches })
}

/// Restores the items that an earlier daemon left in the service manager's store. An item that cannot be restored is
/// removed from the store, which frees its resources (e.g. a queue of an interface). The port of such an item is
/// attached anew, or lost; this is logged. Returns the restored connections.
pub fn continue_all(d: &mut Daemon, store: &mut Store, items: Vec<Item>) -> Vec<ContinuedClient> {
    let begun = Instant::now();
    let parked =
        std::iter::repeat_with(|| d.workers.park().ok()).find(|parked| parked.is_some() || begun.elapsed() > STARTING);
    let Some(parked) = parked.flatten() else {
        tracing::error!("the workers did not start in time; nothing is restored");
        return Vec::new();
    };
    let mut continued = ContinuedState::after_a_kill();
    for item in items {
        let key = item.key();
        let goes_on = !matches!(&item, Item::Port(port) if port.state.is_none());
        let anew = continued.begins_anew();
        let lost = continued.add(d, item);
        if lost.is_err() || goes_on && continued.begins_anew() > anew {
            store.forget_found(&key);
        }
        if let Err(why) = lost {
            tracing::error!(why, "cannot restore a part of the saved state");
        }
    }
    continued.complete(d);
    drop(parked);
    d.held.clear();
    continued.begin_others(d)
}
