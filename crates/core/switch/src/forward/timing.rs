//! Forwarding with more than counters: batches are timed, or frames are traced.
//!
//! One batch in a configured number is timed on average, at random: from before its frames are taken out of their ring
//! until each is delivered or dropped, including waits for room and for the port's rate. Frames of one batch move
//! together, so its time bounds that of each of its frames.

use netvale_mem::latency::sampling;
use netvale_mem::steps;
use netvale_port::{Passed, RingCounters};

use super::{Forwarder, Work};
use crate::clock::now;
use crate::trace::spread;

/// The next batch to time, and the one in progress.
#[derive(Default)]
pub(super) struct Timing {
    one_of: u32,
    skip: u64,
    /// Start of the timed batch.
    begun: Option<u64>,
    /// Its frames that are neither delivered nor dropped yet.
    open: usize,
}

impl Timing {
    /// Called before a batch is taken.
    fn begin(&mut self) {
        let one_of = sampling();
        if self.one_of != one_of {
            self.one_of = one_of;
            self.skip = gap(one_of);
        }
        self.begun = (one_of > 0 && self.skip == 0).then(now);
    }

    /// Called after it was taken. A look without frames is not a batch.
    fn taken(&mut self, frames: usize) {
        self.open = frames;
        match self.begun {
            _ if frames == 0 => self.begun = None,
            Some(_) => self.skip = gap(self.one_of),
            None => self.skip = self.skip.saturating_sub(1),
        }
    }

    /// Records that this many of its frames, or copies of them, still wait.
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

    /// Whether frames of a timed batch wait.
    #[inline]
    pub(super) fn is_under_way(&self) -> bool {
        self.begun.is_some()
    }
}

/// A random number of batches, on average `one_of` - 1.
fn gap(one_of: u32) -> u64 {
    spread(now()) % (2 * u64::from(one_of.max(1)) - 1)
}

impl Forwarder {
    /// Forwards one batch, or continues with a waiting one.
    // Not cold: it would be compiled for size, and with it all code that forwards untimed and untraced batches.
    #[inline(never)]
    pub(super) fn pass_noting(&mut self, work: &mut Work) -> Passed {
        if self.is_held() {
            return self.pass_held(work);
        }
        // Frames out of a link were timed when they entered it.
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

    /// Counts the frames delivered or dropped by now, if their batch is timed.
    #[cold]
    pub(super) fn note_time(&mut self) {
        let waiting = self.held.frames() + self.rest.frames.len();
        self.timing.left(waiting, self.source.ingress().counters());
    }
}
