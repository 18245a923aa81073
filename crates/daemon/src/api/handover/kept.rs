//! What the service manager keeps in case that this daemon ends without notice.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::continuing::{Client, Continued};
use super::give::{self, Waiting};
use crate::daemon::Daemon;
use crate::handover::items::{CountersItem, Item};
use crate::handover::store::Store;
use crate::ports;

/// Upper bound on waiting for the workers of a daemon that has just been started. Nobody else would go on.
const STARTING: Duration = Duration::from_secs(20);

/// An item, and how to get its descriptors.
pub type Lazy<'a> = (Item, Box<dyn FnOnce() -> std::io::Result<Vec<OwnedFd>> + 'a>);

/// The items of the registries as they are now, without pausing anything.
///
/// # Errors
/// When the daemon is out of descriptors.
pub fn items(d: &Daemon) -> std::io::Result<Vec<Lazy<'_>>> {
    let mut all: Vec<Lazy<'_>> = Vec::new();
    for (entry, region) in d.regions.iter() {
        let (state, fds) = region.state()?;
        all.push((give::region_item(entry, &state), Box::new(|| Ok(fds))));
    }
    for switch in d.switches.iter() {
        all.push((give::switch_item(d, switch, false), Box::new(|| Ok(Vec::new()))));
    }
    for kept in d.captures.kept_without_ports() {
        all.push((Item::Captures(kept), Box::new(|| Ok(Vec::new()))));
    }
    for (item, fds) in ports::nic::continued::kept_interfaces(d)? {
        all.push((item, Box::new(|| Ok(fds))));
    }
    let nobody_waits = Waiting::new();
    for (name, record) in d.ports.iter() {
        let state = record.behind.keeps()?;
        if state.is_some() || record.declared.is_some() || ports::lasting_name(d, name, record).is_some() {
            let (mut item, fds) = give::port_item(d, name, record, state, &nobody_waits)?;
            if let Item::Port(item) = &mut item {
                // They change with every frame.
                item.counters = Default::default();
            }
            all.push((item, Box::new(|| Ok(fds))));
        }
    }
    for (item, fds) in ports::nic::continued::kept_rings(d)? {
        all.push((item, Box::new(|| Ok(fds))));
    }
    for (name, pipe) in d.pipes.iter().filter(|(_, pipe)| pipe.guest_end().is_none()) {
        let (item, fds) = pipe.hand_over(name)?;
        all.push((item, Box::new(|| Ok(fds))));
    }
    Ok(all)
}

/// What changes with every frame.
pub fn counters(d: &Daemon) -> CountersItem {
    let ports = d.ports.iter().map(|(name, record)| (name.to_owned(), give::counters(record))).collect();
    let switches = d.switches.iter().map(|switch| (switch.name().to_owned(), give::addresses(switch))).collect();
    let host_rings = d.interfaces.ports().map(|(client, port)| (client, port.counted())).collect();
    CountersItem { ports, host_rings, switches }
}

/// Continues what an earlier daemon left in the store. What cannot be continued is forgotten there, since nobody else can
/// have it meanwhile (a queue of an interface), and attached anew or lost, as the log says. Returns the connections.
pub fn continue_all(d: &mut Daemon, store: &mut Store, items: Vec<(Item, Vec<OwnedFd>)>) -> Vec<Client> {
    let begun = Instant::now();
    let parked =
        std::iter::repeat_with(|| d.workers.park()).find(|parked| parked.is_some() || begun.elapsed() > STARTING);
    let Some(parked) = parked.flatten() else {
        tracing::error!("the workers do not start: nothing is continued");
        return Vec::new();
    };
    let mut continued = Continued::after_a_kill();
    for (item, fds) in items {
        let key = item.key();
        let goes_on = !matches!(&item, Item::Port(port) if !port.continues);
        let anew = continued.begins_anew();
        let lost = continued.add(d, item, fds);
        if lost.is_err() || goes_on && continued.begins_anew() > anew {
            store.forget_found(&key);
        }
        if let Err(why) = lost {
            tracing::error!(why, "cannot be continued");
        }
    }
    continued.complete(d);
    drop(parked);
    d.held.clear();
    continued.begin_others(d)
}
