//! The far end of a link to a port: delivers arriving frames.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_mem::steps;
use netvale_port::link::LinkEnd;
use netvale_port::origin::Origin;
use netvale_port::{BATCH, DropReason, Egress, Ingress, Passed, Source, Task};

use crate::fdb::PortId;
use crate::forward::{IDENTITY, Work};
use crate::table::Switch;
use crate::trace::Record;

/// How long arrived frames wait for room at their port.
const PATIENCE: Duration = Duration::from_millis(10);

/// Delivers the frames of a link to a port's queue.
pub struct LinkTask {
    source: Source<LinkEnd>,
    to: Arc<dyn Egress>,
    /// Number of finished frames of the batch, and the start of the others' wait.
    done: usize,
    since: Option<Instant>,
    /// The port's ring that the link leads to; the port's traces record losses.
    ring: (Arc<Switch>, PortId, usize),
}

impl LinkTask {
    /// Creates the task of a link to `to`, the given ring of a port.
    #[must_use]
    pub fn new(end: LinkEnd, to: Arc<dyn Egress>, ring: (Arc<Switch>, PortId, usize)) -> LinkTask {
        LinkTask { source: Source::new(Box::new(end)), to, done: 0, since: None, ring }
    }

    /// The same as [`LinkTask::move_on`], while a trace runs. Lost frames are recorded without their bytes.
    #[cold]
    fn move_on_noting(&mut self, work: &mut Work) -> Passed {
        steps::begin();
        let passed = self.move_on(work);
        let (switch, port, ring) = &self.ring;
        if let Some(steps) = steps::end().filter(steps::Steps::has_drop)
            && let Some(to) = switch.table().get(*port)
        {
            to.traces.iter().for_each(|trace| trace.put_refused(&Record::without_frame(*port, *ring, steps)));
        }
        passed
    }

    fn move_on(&mut self, work: &mut Work) -> Passed {
        if self.since.is_none() && self.source.take(&mut work.spare).is_empty() {
            self.source.release(&mut work.spare);
            return Passed::Idle;
        }
        let moved = self.deliver(work);
        if self.left() > 0 && self.since.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
            return if moved > 0 { Passed::Frames(moved) } else { Passed::Held };
        }
        let all = moved + self.left();
        self.end(work);
        Passed::Frames(all.max(1))
    }

    /// Delivers the remaining frames. Returns the number that found room.
    fn deliver(&mut self, work: &mut Work) -> usize {
        let batch = self.source.frames();
        let picks = IDENTITY.get(self.done..batch.len().min(BATCH)).unwrap_or_default();
        work.scratch.may_wait(true);
        // A link carries frames of several ports, not those of this thread's last source.
        work.scratch.sent_by(Origin::UNKNOWN);
        let now = self.to.deliver(batch, picks, &mut work.scratch);
        self.done += now;
        now
    }

    fn left(&self) -> usize {
        self.source.frames().len() - self.done
    }

    fn end(&mut self, work: &mut Work) {
        if self.left() > 0 {
            self.to.counters().dropped(DropReason::NoRoom, self.left() as u64);
        }
        self.done = 0;
        self.since = None;
        self.source.release(&mut work.spare);
    }
}

impl Task<Work> for LinkTask {
    fn pass(&mut self, work: &mut Work) -> Passed {
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

    fn hurry(&mut self, work: &mut Work) {
        self.source.hurry();
        while matches!(self.pass(work), Passed::Frames(_)) {}
        if self.since.is_some() {
            self.end(work);
        }
    }

    fn settle(&mut self) {
        self.source.settle();
    }
}
