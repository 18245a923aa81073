//! Programs whose doorbell blocked a worker, or whose memory is gone: they lose their port.

use netvale_mem::fault::{Fault, LOST, clear};

use crate::state::{PortRecord, State};

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
            tracing::warn!(port = full, why, "its program is evicted");
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
                tracing::warn!(port = port.name, why, "its program is evicted");
                self.evicted.push(*client);
            }
        }
    }
}
