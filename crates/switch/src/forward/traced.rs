//! Forwarding of a port under trace: one frame at a time, of which every step is taken down.

use std::sync::Arc;

use netvale_mem::steps::{self, Steps};

use super::{Forwarder, Work};
use crate::entry::Entry;
use crate::policed::Policed;
use crate::table::Table;
use crate::trace::{Record, Traced};

impl Forwarder {
    /// Takes a batch. What is refused before there is a frame is told without one.
    #[cold]
    pub(super) fn take_noting(&mut self, work: &mut Work) -> usize {
        steps::begin();
        let frames = self.source.take(&mut work.spare).len();
        self.tell(&steps::end());
        frames
    }

    /// Tries again to deliver the waiting frames, whose steps were told when they began to wait.
    #[cold]
    pub(super) fn retry_noting(&mut self, work: &mut Work) {
        steps::begin();
        self.retry(work);
        self.tell(&steps::end());
    }

    /// Tells what happened to frames that are not here any more, or not yet.
    fn tell(&self, steps: &Steps) {
        if steps.list().is_empty() {
            return;
        }
        let table = self.switch.table();
        let Some(me) = table.get(self.from) else { return };
        me.traces.iter().for_each(|trace| trace.put(&Record::without_frame(self.from, self.ring, *steps)));
    }

    /// Forwards the frames that were not looked at yet, as far as their port may send.
    #[cold]
    pub(super) fn forward_traced(&mut self, table: &Table, policed: &Policed, me: &Arc<Entry>, work: &mut Work) {
        let end = self.rest.frames.end;
        while self.rest.frames.start < end && !self.held.is_waiting() {
            let number = self.rest.frames.start;
            let frame = self.source.frames().get(number);
            let traced = frame.and_then(|frame| Traced::of(&me.traces, self.from, self.ring, &frame));
            self.rest.frames.end = number + 1;
            steps::begin();
            self.forward_range(table, policed, me, work);
            let steps = steps::end();
            // It waits for its port's rate, and is told of when it goes on.
            let waits = !self.rest.is_empty();
            self.rest.frames = (if waits { number } else { number + 1 })..end;
            if waits {
                break;
            }
            if let Some(traced) = traced {
                traced.put(&me.traces, steps);
            }
        }
    }
}
