//! Forwarding while somebody wants to know more than counters tell: batches are timed, or frames are traced.
//!
//! Of each number of batches, any one is timed: from before its frames are taken out of their ring until each of them is delivered or
//! dropped, waits for room and for its port's rate included. Frames of one batch move together, so that a batch says how long each of
//! its frames takes.

use netvale_mem::latency::sampling;
use netvale_mem::steps;
use netvale_port::{Passed, RingCounters};

use super::{Forwarder, Work};
use crate::clock::now;
use crate::trace::spread;

/// Which batch is timed next, and when the one began that is timed now.
#[derive(Default)]
pub(super) struct Timing {
    skip: u64,
    begun: Option<u64>,
}

impl Timing {
    /// A batch is to be taken.
    fn begin(&mut self) {
        let one_of = u64::from(sampling());
        self.skip = self.skip.min(2 * one_of);
        self.begun = (one_of > 0 && self.skip == 0).then(now);
    }

    /// It was taken. One without frames is none.
    fn taken(&mut self, frames: usize) {
        match self.begun {
            _ if frames == 0 => self.begun = None,
            // Any number of which the mean is one less than the number of batches of which one is timed.
            Some(begun) => self.skip = spread(begun) % (2 * u64::from(sampling().max(1)) - 1),
            None => self.skip = self.skip.saturating_sub(1),
        }
    }

    /// Frames of it reached where they go.
    fn moved(&self, frames: usize, counters: &RingCounters) {
        if let Some(begun) = self.begun.filter(|_| frames > 0) {
            counters.latency().add(now().saturating_sub(begun), frames as u64);
        }
    }
}

impl Forwarder {
    /// Forwards one batch, or goes on with one that waits.
    // Not cold: it would be compiled for size, and with it all that forwards the batches that nobody times or traces.
    #[inline(never)]
    pub(super) fn pass_noting(&mut self, work: &mut Work) -> Passed {
        if self.is_held() {
            let before = self.left();
            let passed = self.pass_held(work);
            self.timing.moved(before.saturating_sub(self.left()), self.source.ingress().counters());
            return passed;
        }
        // What comes out of a link was timed when it was put there.
        if !self.is_link_end {
            self.timing.begin();
        }
        let frames = if steps::are_wanted() { self.take_noting(work) } else { self.source.take(&mut work.spare).len() };
        self.timing.taken(frames);
        let passed = self.pass_taken(frames, work);
        self.timing.moved(frames.saturating_sub(self.left()), self.source.ingress().counters());
        passed
    }

    /// Frames of the batch that wait.
    fn left(&self) -> usize {
        self.held.frames() + self.rest.frames.len()
    }
}
