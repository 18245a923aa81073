//! Forwarding of frames from a traced port: traced frames are forwarded one at a time, and their steps are recorded;
//! other frames are forwarded as usual.

use std::ops::Range;
use std::sync::Arc;

use netvale_mem::steps::{self, Step, Steps};
use netvale_port::DropReason;

use super::{BatchSender, ForwardMemory, Forwarder, IDENTITY, deliver};
use crate::entry::PortEntry;
use crate::summary::PolicySummary;
use crate::table::PortTable;
use crate::trace::{TraceHit, TraceRecord};

/// A forwarder's state for tracing.
#[derive(Default)]
pub(super) struct ForwarderTrace {
    /// Sequence numbers of the batch's frames. Frames are counted only while there is a trace.
    numbers: Range<u64>,
    /// A traced frame that waits for room, and the sending port when it was forwarded; `None` if no traced frame waits.
    waiting: Option<(TraceHit, Arc<PortEntry>)>,
}

impl ForwarderTrace {
    /// Whether a traced frame waits for room.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Assigns sequence numbers to a new batch.
    pub(super) fn count(&mut self, frames: usize) {
        self.numbers = self.numbers.end..self.numbers.end.wrapping_add(frames as u64);
    }

    /// Sequence number of a frame of the batch.
    fn number(&self, frame: usize) -> u64 {
        self.numbers.start.wrapping_add(frame as u64)
    }
}

impl Forwarder {
    /// Takes a batch. If slots or descriptors are dropped before they become a frame, their drop is recorded without a
    /// frame.
    #[cold]
    pub(super) fn take_noting(&mut self, work: &mut ForwardMemory) -> usize {
        steps::begin();
        let frames = self.source.take(&mut work.spare).len();
        if let Some(steps) = steps::end() {
            let table = self.switch.table();
            let Some(me) = table.get(self.from) else { return frames };
            me.traces
                .iter()
                .for_each(|trace| trace.put_refused(&TraceRecord::without_frame(self.from, self.ring, steps)));
        }
        frames
    }

    /// Tries again to deliver the waiting frames, which are copies of one traced frame.
    #[cold]
    pub(super) fn retry_noting(&mut self, work: &mut ForwardMemory) {
        steps::begin();
        self.retry(work);
        let steps = steps::end();
        let Some((mut traced, me)) = self.tracing.waiting.take() else { return };
        steps.iter().for_each(|steps| traced.append(steps));
        if self.held.is_waiting() {
            self.tracing.waiting = Some((traced, me));
        } else {
            traced.put(&me.traces);
        }
    }

    /// Whether the batch contains a frame that a trace is to examine.
    pub(super) fn has_traced(&self, me: &PortEntry) -> bool {
        self.next_traced(me, 0..self.source.frames().len()).is_some()
    }

    /// Index of the first frame in `range` that a trace is to examine; `None` if there is none.
    fn next_traced(&self, me: &PortEntry, range: Range<usize>) -> Option<usize> {
        let number = self.tracing.number(range.start);
        let ahead = me.traces.iter().map(|trace| trace.ahead(number)).min()?;
        let next = range.start + usize::try_from(ahead).ok()?;
        (next < range.end).then_some(next)
    }

    /// Forwards the remaining frames of the batch, as far as the port's rates allow.
    #[cold]
    pub(super) fn forward_traced(
        &mut self,
        table: &PortTable,
        policed: &PolicySummary,
        me: &Arc<PortEntry>,
        work: &mut ForwardMemory,
    ) {
        let paid = self.pay(policed, me);
        let end = self.rest.frames.end;
        while self.rest.frames.start < paid && !self.held.is_waiting() && !self.has_flooded(table) {
            let start = self.rest.frames.start;
            let traced = self.next_traced(me, start..paid);
            let until = match traced {
                Some(next) if next == start => start + 1,
                Some(next) => next,
                None => paid,
            };
            self.rest.frames.end = until;
            self.rest.paid = until;
            if traced == Some(start) {
                self.forward_one(table, policed, me, work);
            } else if policed.is_only_traced && !table.is_wide() {
                self.forward_others(table, me, start..until, work);
            } else {
                self.forward_range(table, policed, me, work);
            }
            let next = if self.rest.is_empty() { until } else { self.rest.frames.start };
            self.rest.frames = next..end;
            self.rest.paid = paid;
        }
    }

    /// Returns the index of the first frame that the port's rates do not allow now. Like forwarding without a trace,
    /// decides for all frames together. Drops the remaining frames if they cannot wait.
    fn pay(&mut self, policed: &PolicySummary, me: &PortEntry) -> usize {
        let end = self.rest.frames.end;
        // Frames of a blocked port are dropped, and do not count towards the port's rates.
        let paid =
            if self.is_link_end || me.state.is_blocked() { end } else { self.permitted(policed.policies(me), me) };
        let mut dropped = self.rest.frames.end..end;
        while let Some(next) = self.next_traced(me, dropped.clone()) {
            if let Some(mut traced) = self.traced(me, next) {
                traced.append(&Steps::one(Step::Dropped(DropReason::Rate, 1)));
                traced.put(&me.traces);
            }
            dropped.start = next + 1;
        }
        paid
    }

    /// Creates the record of a frame of the batch; `None` if no trace selects the frame.
    fn traced(&self, me: &PortEntry, frame: usize) -> Option<TraceHit> {
        let number = self.tracing.number(frame);
        TraceHit::of(&me.traces, number, self.from, self.ring, &self.source.frames().get(frame)?)
    }

    /// Forwards the first remaining frame alone, and records its steps.
    fn forward_one(
        &mut self,
        table: &PortTable,
        policed: &PolicySummary,
        me: &Arc<PortEntry>,
        work: &mut ForwardMemory,
    ) {
        let traced = self.traced(me, self.rest.frames.start);
        steps::begin();
        self.forward_range(table, policed, me, work);
        let steps = steps::end();
        let Some(mut traced) = traced.filter(|_| self.rest.is_empty()) else { return };
        steps.iter().for_each(|steps| traced.append(steps));
        if self.held.is_waiting() {
            self.tracing.waiting = Some((traced, Arc::clone(me)));
        } else {
            traced.put(&me.traces);
        }
    }

    /// Forwards the frames of `range`, which no trace selects, on a switch without policies.
    fn forward_others(&mut self, table: &PortTable, me: &PortEntry, range: Range<usize>, work: &mut ForwardMemory) {
        if let Some(policed) = &mut work.policed {
            self.source.unstage(&mut policed.stage);
        }
        self.rest.frames.start = range.end;
        let batch = self.source.frames();
        let counters = self.source.ingress().counters();
        work.groups.classify_range(batch, range.clone(), self.from, self.switch.fdb(), counters);
        match work.groups.only().and_then(|id| table.get(id)) {
            Some(to) => {
                let picks = IDENTITY.get(range).unwrap_or_default();
                let sender = BatchSender { port: me, ring: self.ring };
                deliver(to, sender, batch, picks, true, &mut work.scratch, &mut self.held);
            }
            None => self.deliver_groups(table, me, work),
        }
    }
}
