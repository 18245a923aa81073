//! Forwarding of a port under trace: frames that are traced are moved one at a time, and their steps are taken down; those between
//! them are moved as ever.

use std::ops::Range;
use std::sync::Arc;

use netvale_mem::steps;

use super::{Forwarder, Work};
use crate::entry::Entry;
use crate::policed::Policed;
use crate::table::Table;
use crate::trace::{Record, Traced};

/// What a forwarder knows of the frames that are traced.
#[derive(Default)]
pub(super) struct Tracing {
    /// The numbers of the batch's frames, counted while there is a trace.
    numbers: Range<u64>,
    /// A frame that waits for room, and its port as it was.
    waiting: Option<(Traced, Arc<Entry>)>,
}

impl Tracing {
    /// Whether a frame that is traced waits for room.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Another batch.
    pub(super) fn count(&mut self, frames: usize) {
        self.numbers = self.numbers.end..self.numbers.end.wrapping_add(frames as u64);
    }

    /// The number of a frame of the batch.
    fn number(&self, frame: usize) -> u64 {
        self.numbers.start.wrapping_add(frame as u64)
    }
}

impl Forwarder {
    /// Takes a batch. What is refused before there is a frame is told without one.
    #[cold]
    pub(super) fn take_noting(&mut self, work: &mut Work) -> usize {
        steps::begin();
        let frames = self.source.take(&mut work.spare).len();
        if let Some(steps) = steps::end() {
            let table = self.switch.table();
            let Some(me) = table.get(self.from) else { return frames };
            me.traces.iter().for_each(|trace| trace.put_refused(&Record::without_frame(self.from, self.ring, steps)));
        }
        frames
    }

    /// Tries again to deliver the frames that wait. They are copies of one, which is traced.
    #[cold]
    pub(super) fn retry_noting(&mut self, work: &mut Work) {
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

    /// Whether the batch has a frame that is traced.
    pub(super) fn has_traced(&self, me: &Entry) -> bool {
        self.next_traced(me, 0..self.source.frames().len()).is_some()
    }

    /// The first frame of a range whose turn it is to be traced.
    fn next_traced(&self, me: &Entry, range: Range<usize>) -> Option<usize> {
        let number = self.tracing.number(range.start);
        let ahead = me.traces.iter().map(|trace| trace.ahead(number)).min()?;
        let next = range.start + usize::try_from(ahead).ok()?;
        (next < range.end).then_some(next)
    }

    /// Forwards the frames that were not looked at yet, as far as their port may send.
    #[cold]
    pub(super) fn forward_traced(&mut self, table: &Table, policed: &Policed, me: &Arc<Entry>, work: &mut Work) {
        let end = self.rest.frames.end;
        while self.rest.frames.start < end && !self.held.is_waiting() {
            let start = self.rest.frames.start;
            let traced = self.next_traced(me, start..end);
            let until = match traced {
                Some(next) if next == start => start + 1,
                Some(next) => next,
                None => end,
            };
            self.rest.frames.end = until;
            if traced == Some(start) {
                self.forward_one(table, policed, me, work);
            } else if policed.is_only_traced {
                self.forward_others(table, start..until, work);
            } else {
                self.forward_range(table, policed, me, work);
            }
            // What waits for its port's rate is looked at again when it goes on.
            let waits = !self.rest.is_empty();
            self.rest.frames = (if waits { self.rest.frames.start } else { until })..end;
            if waits {
                break;
            }
        }
    }

    /// Forwards the first frame that was not looked at yet, alone, and tells what became of it.
    fn forward_one(&mut self, table: &Table, policed: &Policed, me: &Arc<Entry>, work: &mut Work) {
        let start = self.rest.frames.start;
        let number = self.tracing.number(start);
        let frame = self.source.frames().get(start);
        let traced = frame.and_then(|frame| Traced::of(&me.traces, number, self.from, self.ring, &frame));
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

    /// Forwards frames that nobody traces, on a switch without policies.
    fn forward_others(&mut self, table: &Table, range: Range<usize>, work: &mut Work) {
        if let Some(policed) = &mut work.policed {
            self.source.unstage(&mut policed.stage);
        }
        self.rest.frames.start = range.end;
        let (batch, counters) = (self.source.frames(), self.source.ingress().counters());
        work.groups.classify_range(batch, range, self.from, self.switch.fdb(), counters);
        self.deliver_groups(table, work);
    }
}
