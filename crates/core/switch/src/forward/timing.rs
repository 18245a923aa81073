//! Forwarding while somebody wants to know more than counters tell: batches are timed, or frames are traced.
//!
//! One of that many batches is timed on average, at random: from before its frames are taken out of their ring until
//! each of them is delivered or dropped, waits for room and for its port's rate included. Frames of one batch move
//! together, so that a batch says how long each of its frames takes, at most.

use netvale_mem::latency::sampling;
use netvale_mem::steps;
use netvale_port::{Passed, RingCounters};

use super::{Forwarder, Work};
use crate::clock::now;
use crate::trace::spread;

/// Which batch is timed next, and the one that is timed now.
#[derive(Default)]
pub(super) struct Timing {
    one_of: u32,
    skip: u64,
    /// When it began.
    begun: Option<u64>,
    /// Frames of it that are neither delivered nor dropped.
    open: usize,
}

impl Timing {
    /// A batch is to be taken.
    fn begin(&mut self) {
        let one_of = sampling();
        if self.one_of != one_of {
            (self.one_of, self.skip) = (one_of, gap(one_of));
        }
        self.begun = (one_of > 0 && self.skip == 0).then(now);
    }

    /// It was taken. A look that finds no frames is no batch.
    fn taken(&mut self, frames: usize) {
        self.open = frames;
        match self.begun {
            _ if frames == 0 => self.begun = None,
            Some(_) => self.skip = gap(self.one_of),
            None => self.skip = self.skip.saturating_sub(1),
        }
    }

    /// That many frames of it, or copies of frames, still wait.
    pub(super) fn left(&mut self, waiting: usize, counters: &RingCounters) {
        let Some(begun) = self.begun else { return };
        let moved = self.open.saturating_sub(waiting);
        self.open -= moved;
        if moved > 0 {
            counters.latency().add(now().saturating_sub(begun), moved as u64);
        }
        if waiting == 0 {
            self.begun = None;
        }
    }

    /// Whether frames of a batch wait that is timed.
    #[inline]
    pub(super) fn is_under_way(&self) -> bool {
        self.begun.is_some()
    }
}

/// A random number of batches, which is `one_of` - 1 on average.
fn gap(one_of: u32) -> u64 {
    spread(now()) % (2 * u64::from(one_of.max(1)) - 1)
}

impl Forwarder {
    /// Forwards one batch, or goes on with one that waits.
    // Not cold: it would be compiled for size, and with it all that forwards the batches that nobody times or traces.
    #[inline(never)]
    pub(super) fn pass_noting(&mut self, work: &mut Work) -> Passed {
        if self.is_held() {
            return self.pass_held(work);
        }
        // What comes out of a link was timed when it was put there.
        if !self.is_link_end {
            self.timing.begin();
        }
        let frames = if steps::are_wanted() { self.take_noting(work) } else { self.source.take(&mut work.spare).len() };
        self.timing.taken(frames);
        if frames > 0 {
            self.forward(work);
            self.note_time();
        }
        self.finish(frames, work)
    }

    /// Counts the frames that were delivered or dropped by now, if their batch is timed.
    #[cold]
    pub(super) fn note_time(&mut self) {
        let waiting = self.held.frames() + self.rest.frames.len();
        self.timing.left(waiting, self.source.ingress().counters());
    }
}
