//! Programs whose doorbell blocked a worker, or whose memory is gone: they lose their port.

use std::collections::VecDeque;
use std::time::Instant;

use netvale_control::types::{Evicted, Owner};
use netvale_mem::fault::{Fault, LOST, clear};

use crate::state::{Caller, PortRecord, State};

/// Evictions that are remembered.
const REMEMBERED: usize = 16;

/// The last evictions, the last one first: the ports are gone, and cannot tell why.
#[derive(Default)]
pub(crate) struct Evictions(VecDeque<(Instant, Evicted)>);

impl Evictions {
    fn note(&mut self, port: &str, owner: Caller, reason: String) {
        tracing::warn!(port, why = reason, "its program is evicted");
        self.0.truncate(REMEMBERED - 1);
        let owner = Owner { uid: owner.uid, pid: owner.pid };
        self.0.push_front((Instant::now(), Evicted { port: port.to_owned(), owner, reason, age_seconds: 0 }));
    }

    pub(crate) fn list(&self) -> Vec<Evicted> {
        let aged = |(at, one): &(Instant, Evicted)| Evicted { age_seconds: at.elapsed().as_secs(), ..one.clone() };
        self.0.iter().map(aged).collect()
    }

    /// What is said of the last program that lost the port of that name.
    pub(crate) fn note_of(&self, port: &str) -> Option<String> {
        let (_, last) = self.0.iter().find(|(_, one)| one.port == port)?;
        Some(format!("the last program that had it was evicted: {}", last.reason))
    }
}

impl State {
    /// A fault for a new port's program, which wakes the main thread when it is reported.
    pub(crate) fn new_fault(&self) -> Fault {
        Fault::told_by(&self.news)
    }

    /// Takes the port away from each program that was reported. The port goes, too, also one that would have stayed: the doorbells are still
    /// in the program's hands.
    pub(crate) fn evict_faulty(&mut self) {
        clear(&self.news);
        let reason = |full: &str, record: &PortRecord| {
            let pipe = || self.pipes.get(&full.replace('}', "{"))?.fault();
            let lost = || record.rings()?.mem.region().mapping().is_damaged().then(|| LOST.to_owned());
            record.rings().map(|rings| &rings.fault).or_else(pipe)?.reason().or_else(lost)
        };
        let found = self.ports.iter().filter_map(|(full, record)| Some((full.clone(), reason(full, record)?)));
        for (full, why) in found.collect::<Vec<_>>() {
            if let Some(record) = self.ports.get(&full) {
                self.evictions.note(&full, record.owner, why.clone());
            }
            if let Some(joint) = self.joint_of(&full).map(str::to_owned) {
                self.part(&joint, &why);
            }
            self.newifs.retain(|_, newif| newif.place() != full);
            // It was just found.
            let _ = self.unplug(&full, &why);
        }
        for (client, port) in &self.nics.ports {
            let lost = || port.mem.region().mapping().is_damaged().then(|| LOST.to_owned());
            if let Some(why) = port.fault.reason().or_else(lost) {
                self.evictions.note(&port.name, port.owner, why);
                self.evicted.push(*client);
            }
        }
    }
}
