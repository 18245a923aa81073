//! Evicts programs whose doorbell blocked a worker, or whose memory is gone.

use netvale_mem::Region;
use netvale_mem::fault::LOST;

use super::joint::part;
use super::plug::unplug;
use crate::daemon::{Daemon, Record};

/// Takes the port away from each program that was reported. The port is removed, even a persistent one: the program
/// still has its doorbells.
pub fn evict(d: &mut Daemon) {
    d.evictions.clear();
    let found = d.ports.iter().filter_map(|(full, record)| Some((full.to_owned(), reason(d, full, record)?)));
    for (full, why) in found.collect::<Vec<_>>() {
        if let Some(record) = d.ports.get(&full) {
            d.evictions.note(&full, record.owner, why.clone());
        }
        if let Some(joint) = d.persistent.joint_of(&full).map(str::to_owned) {
            part(d, &joint, &why);
        }
        d.persistent.remove_at(&full);
        // It was found just now.
        let _ = unplug(d, &full, &why);
    }
    for (client, port) in d.interfaces.ports() {
        if let Some(why) = port.fault.reason().or_else(|| lost(port.mem.region())) {
            d.evictions.note(&port.name, port.owner, why);
            d.evictions.evict([client]);
        }
    }
}

fn reason(d: &Daemon, full: &str, record: &Record) -> Option<String> {
    let pipe = || d.pipes.with_end(full)?.fault();
    let fault = record.rings().map(|rings| &rings.fault).or_else(pipe)?;
    fault.reason().or_else(|| lost(record.rings()?.mem.region()))
}

fn lost(region: &Region) -> Option<String> {
    region.mapping().is_damaged().then(|| LOST.to_owned())
}
