//! Evictions after a fault: of programs whose doorbell blocked a worker, or whose memory or interface no longer exists;
//! of ports whose interface no longer exists; and of ports whose task made a worker panic.

use netvale_control::types::EventName;
use netvale_mem::Region;
use netvale_mem::fault::{Fault, LOST};

use super::joint::part;
use super::plug::unplug;
use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort};
use crate::registry::events::{NewEvent, Subscriptions};
use crate::registry::evictions::Evictions;

/// Reason of eviction of a port whose task panicked.
const BROKEN: &str =
    "internal error: a worker panicked in a task of this port; please report it, with the daemon's log";

/// Reason of eviction of a port whose owner's own worker is blocked.
const HELD_UP: &str = "the user's worker is blocked by that user's memory or descriptor";

/// Evicts the programs whose faults have been reported. The port of such a program is removed, even if it is
/// persistent, because the program still has descriptors of the port's doorbells.
pub fn evict(d: &mut Daemon) {
    d.regions.take_late().into_iter().for_each(|uid| d.evictions.block(uid));
    d.evictions.clear();
    let broken = d.workers.take_broken();
    let held_up = d.evictions.take_held_up();
    let is_broken = |record: &DaemonPort| record.placed.iter().any(|task| broken.contains(task));
    let is_held_up = |task| d.workers.user_of(task).is_some_and(|uid| held_up.contains(&uid));
    let why = |full: &str, record: &DaemonPort| {
        let broken = is_broken(record).then_some(BROKEN);
        let of_tasks = broken.or_else(|| record.tasks().any(is_held_up).then_some(HELD_UP));
        of_tasks.map(str::to_owned).or_else(|| reason(d, full, record))
    };
    let found = d.ports.iter().filter_map(|(full, record)| Some((full.to_owned(), why(full, record)?)));
    for (full, why) in found.collect::<Vec<_>>() {
        take_away(d, &full, &why);
    }
    d.evictions.begin_pauses();
    for (client, port) in d.interfaces.ports() {
        if let Some(why) = port.fault.reason().or_else(|| lost(port.mem.region())).or_else(|| port.nic.gone()) {
            note(&mut d.evictions, &mut d.events, &port.name, port.owner, why);
            d.evictions.evict([client]);
        }
    }
}

/// Removes the port of that name if it has a fault or its device no longer exists, so that a new port can get the name.
pub fn make_way(d: &mut Daemon, full: &str) {
    let Some(record) = d.ports.get(full) else { return };
    if let Some(why) = reason(d, full, record).or_else(|| record.behind.look()) {
        take_away(d, full, &why);
    }
}

fn take_away(d: &mut Daemon, full: &str, why: &str) {
    if let Some(record) = d.ports.get(full) {
        let owner = record.owner;
        note(&mut d.evictions, &mut d.events, full, owner, why.to_owned());
    }
    if let Some(joint) = d.persistent.joint_of(full).map(str::to_owned) {
        part(d, &joint, why);
    }
    d.persistent.remove_at(full);
    // This cannot fail, because the port exists.
    let _ = unplug(d, full, why);
}

/// Records the reason of an eviction, and reports it as an event.
fn note(evictions: &mut Evictions, events: &mut Subscriptions, port: &str, owner: Caller, why: String) {
    events.tell(NewEvent::to(EventName::PortEvicted, owner.uid).at(port).why(&why));
    evictions.note(port, owner, why);
}

fn reason(d: &Daemon, full: &str, record: &DaemonPort) -> Option<String> {
    let pipe = || d.pipes.with_end(full)?.fault();
    let fault = record.rings().map(|rings| &rings.fault).or_else(|| record.behind.fault()).or_else(pipe);
    fault.and_then(Fault::reason).or_else(|| lost(record.rings()?.mem.region())).or_else(|| record.behind.gone())
}

fn lost(region: &Region) -> Option<String> {
    region.mapping().is_damaged().then(|| LOST.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::time::Duration;

    use netvale_control::types::PortKind;
    use netvale_port::{PassResult, Task};
    use netvale_switch::ForwardMemory;

    use super::*;
    use crate::config::ConfigFile;
    use crate::daemon::PortBackend;
    use crate::registry::ports::PortRecord;

    struct Mistaken;

    impl PortBackend for Mistaken {
        fn kind(&self) -> PortKind {
            PortKind::Null
        }
    }

    impl Task<ForwardMemory> for Mistaken {
        fn pass(&mut self, _work: &mut ForwardMemory) -> PassResult {
            panic!("a mistake, made for this test")
        }

        fn arm(&mut self) -> bool {
            false
        }

        fn disarm(&mut self) {}

        fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    /// Objective: if a worker panics in a port's task, that port is removed and the reason is recorded; no other port
    /// is removed.
    #[test]
    fn a_panic_costs_its_port() {
        let owner = Caller { client: 7, uid: 70_001, pid: 1 };
        let mut d = Daemon::new(ConfigFile::default().into_config()).unwrap();
        for (name, task) in [("vale0:bad", true), ("vale0:good", false)] {
            let placed = if task { vec![d.workers.place(Box::new(Mistaken))] } else { Vec::new() };
            let base = PortRecord::new(Box::new(Mistaken) as Box<dyn PortBackend>, owner);
            d.ports.insert(name, PortRecord { placed, ..base });
        }
        let gone = || {
            evict(&mut d);
            !d.ports.contains("vale0:bad")
        };
        assert!(netvale_harness::until(Duration::from_secs(60), Duration::from_millis(1), gone));
        assert!(d.ports.contains("vale0:good"));
        let found: Vec<_> = d.evictions.iter().map(|one| (one.port, one.owner.uid, one.reason)).collect();
        assert_eq!(found, [("vale0:bad".to_owned(), 70_001, BROKEN.to_owned())]);
    }
}
