//! The task that sends a switch's multicast queries to its ports.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_mem::notify::Doorbell;
use netvale_policy::snoop::Query;
use netvale_policy::vlan::Vlan;
use netvale_port::{Batch, DropReason, PassResult, Task};

use crate::forward::{ForwardMemory, IDENTITY};
use crate::policies::protocol;
use crate::snooping::Snooping;
use crate::table::Switch;

/// Offset of a frame's tag in bytes, after both addresses.
const TAG_AT: usize = 12;
/// Length of the longest query with a tag, in bytes.
const LONGEST: usize = 128;

/// The task that delivers multicast queries, each with the tag that the port's VLANs require.
pub struct QueryTask {
    switch: Arc<Switch>,
    snooping: Arc<Snooping>,
    bell: Arc<Doorbell>,
    batch: Box<Batch>,
    /// The query with the tag that the current port requires.
    frame: Vec<u8>,
}

impl QueryTask {
    /// Creates the task. Ringing `bell` wakes its worker.
    #[must_use]
    pub fn new(switch: Arc<Switch>, snooping: Arc<Snooping>, bell: Arc<Doorbell>) -> QueryTask {
        QueryTask { switch, snooping, bell, batch: Box::default(), frame: Vec::with_capacity(LONGEST) }
    }

    fn send(&mut self, query: &Query, work: &mut ForwardMemory) {
        let table = self.switch.table();
        let Some(policed) = table.policed() else { return };
        let to = table.all().iter().filter(|to| query.port.is_none_or(|port| port == to.id));
        for to in to.filter(|to| !to.state.is_blocked()) {
            let Some(kind) = policed.kind(policed.policies(to), query.vlan) else { continue };
            let Some(egress) = to.port.egresses.first() else { continue };
            tagged(query, kind, &mut self.frame);
            self.batch.lend(&self.frame, |batch| {
                if egress.deliver(batch, &IDENTITY[..batch.len()], &mut work.scratch) < batch.len() {
                    egress.counters().dropped(DropReason::NoRoom, 1);
                }
            });
        }
    }
}

/// Writes the query to `frame`, with a tag of kind `kind` (an index below [`KINDS`](crate::policies::KINDS)).
fn tagged(query: &Query, kind: usize, frame: &mut Vec<u8>) {
    frame.clear();
    let (addresses, rest) = query.frame().split_at(query.frame().len().min(TAG_AT));
    frame.extend_from_slice(addresses);
    if let Some(protocol) = protocol(kind) {
        let vlan = Vlan { id: query.vlan, priority: 0, tagged: true, stays: false };
        frame.extend_from_slice(&vlan.tag(protocol));
    }
    frame.extend_from_slice(rest);
}

impl Task<ForwardMemory> for QueryTask {
    fn pass(&mut self, work: &mut ForwardMemory) -> PassResult {
        let Some(query) = self.snooping.take_query() else { return PassResult::Idle };
        self.send(&query, work);
        PassResult::Frames(1)
    }

    fn arm(&mut self) -> bool {
        self.snooping.has_queries()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn woken(&mut self) {
        self.bell.drain();
    }
}
