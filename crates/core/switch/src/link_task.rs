//! The task at the far end of an impaired link: delivers the frames that arrive there to a port.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_mem::steps;
use netvale_port::link::LinkEnd;
use netvale_port::origin::Origin;
use netvale_port::{BATCH, DropReason, Egress, Ingress, PassResult, Source, Task};

use crate::fdb::PortId;
use crate::forward::{ForwardMemory, IDENTITY};
use crate::table::Switch;
use crate::trace::TraceRecord;

/// How long arrived frames wait for room at the port before they are dropped.
const PATIENCE: Duration = Duration::from_millis(10);

/// Delivers the frames that arrive at the far end of an impaired link to a port's queue.
pub struct LinkTask {
    source: Source<LinkEnd>,
    to: Arc<dyn Egress>,
    /// Number of frames of the batch that have been delivered or dropped.
    done: usize,
    /// Time at which the other frames of the batch began to wait for room; `None` if no frame waits.
    since: Option<Instant>,
    switch: Arc<Switch>,
    /// The port to which the link leads; its traces record lost frames.
    port: PortId,
    /// Index of the port's ring to which frames are delivered.
    ring: usize,
}

impl LinkTask {
    /// Creates the task of a link to `to`, ring `ring` of port `port`.
    #[must_use]
    pub fn new(end: LinkEnd, to: Arc<dyn Egress>, switch: Arc<Switch>, port: PortId, ring: usize) -> LinkTask {
        LinkTask { source: Source::new(Box::new(end)), to, done: 0, since: None, switch, port, ring }
    }

    /// Like [`LinkTask::move_on`], for use while a trace runs. Records the loss of frames without the frames' bytes.
    #[cold]
    fn move_on_noting(&mut self, work: &mut ForwardMemory) -> PassResult {
        steps::begin();
        let passed = self.move_on(work);
        if let Some(steps) = steps::end().filter(steps::Steps::has_drop)
            && let Some(to) = self.switch.table().get(self.port)
        {
            let record = TraceRecord::without_frame(self.port, self.ring, steps);
            to.traces.iter().for_each(|trace| trace.put_refused(&record));
        }
        passed
    }

    fn move_on(&mut self, work: &mut ForwardMemory) -> PassResult {
        if self.since.is_none() && self.source.take(&mut work.spare).is_empty() {
            self.source.release(&mut work.spare);
            return PassResult::Idle;
        }
        let moved = self.deliver(work);
        if self.left() > 0 && self.since.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
            return if moved > 0 { PassResult::Frames(moved) } else { PassResult::Held };
        }
        let all = moved + self.left();
        self.end(work);
        PassResult::Frames(all.max(1))
    }

    /// Tries to deliver the remaining frames. Returns the number of frames that found room.
    fn deliver(&mut self, work: &mut ForwardMemory) -> usize {
        let batch = self.source.frames();
        let picks = IDENTITY.get(self.done..batch.len().min(BATCH)).unwrap_or_default();
        work.scratch.may_wait(true);
        // The frames may come from several ports, so the origin of this thread's last batch is cleared.
        work.scratch.sent_by(Origin::UNKNOWN);
        let now = self.to.deliver(batch, picks, &mut work.scratch);
        self.done += now;
        now
    }

    fn left(&self) -> usize {
        self.source.frames().len() - self.done
    }

    fn end(&mut self, work: &mut ForwardMemory) {
        if self.left() > 0 {
            self.to.counters().dropped(DropReason::NoRoom, self.left() as u64);
        }
        self.done = 0;
        self.since = None;
        self.source.release(&mut work.spare);
    }
}

impl Task<ForwardMemory> for LinkTask {
    fn pass(&mut self, work: &mut ForwardMemory) -> PassResult {
        if steps::are_wanted() { self.move_on_noting(work) } else { self.move_on(work) }
    }

    fn arm(&mut self) -> bool {
        self.source.arm()
    }

    fn disarm(&mut self) {
        self.source.disarm();
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.ingress().wake_fd()
    }

    fn woken(&mut self) {
        self.source.woken();
    }

    fn nap(&self) -> Option<Duration> {
        if self.since.is_some() { None } else { self.source.ingress().nap() }
    }

    fn hurry(&mut self, work: &mut ForwardMemory) {
        self.source.hurry();
        while matches!(self.pass(work), PassResult::Frames(_)) {}
        if self.since.is_some() {
            self.end(work);
        }
    }

    fn settle(&mut self) {
        self.source.settle();
    }
}
