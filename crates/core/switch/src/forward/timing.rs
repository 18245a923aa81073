//! Forwarding while batches are timed or frames are traced.
//!
//! On average, one batch in a configured number is timed, selected at random. The time of a batch runs from before its
//! frames are taken from their ring until each frame is delivered or dropped, and includes waits for room and for the
//! port's rate. As the frames of a batch move together, the batch's time is an upper bound for each frame.

use netvale_mem::latency::sampling;
use netvale_mem::steps;
use netvale_port::{PassResult, RingCounters};

use super::{ForwardMemory, Forwarder};
use crate::clock::now;
use crate::trace::spread;

/// State of timing: the number of batches until the next timed batch, and the timed batch in progress.
#[derive(Default)]
pub(super) struct BatchTiming {
    one_of: u32,
    skip: u64,
    /// Start of the timed batch, in nanoseconds of the policies' clock; `None` if no batch is being timed.
    begun: Option<u64>,
    /// Number of the timed batch's frames that are neither delivered nor dropped yet.
    open: usize,
}

impl BatchTiming {
    /// Decides whether to time the next batch, and if so, starts the clock. Must be called before the batch is taken.
    fn begin(&mut self) {
        let one_of = sampling();
        if self.one_of != one_of {
            self.one_of = one_of;
            self.skip = gap(one_of);
        }
        self.begun = (one_of > 0 && self.skip == 0).then(now);
    }

    /// Records that a batch of `frames` frames was taken. An empty batch is not timed.
    fn taken(&mut self, frames: usize) {
        self.open = frames;
        match self.begun {
            _ if frames == 0 => self.begun = None,
            Some(_) => self.skip = gap(self.one_of),
            None => self.skip = self.skip.saturating_sub(1),
        }
    }

    /// Counts the frames of the timed batch that no longer wait, with the time since the start of the batch. `waiting`
    /// is the number of frames, or copies of frames, that still wait.
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

/// A pseudo-random number of batches to skip before the next timed batch, on average `one_of` - 1.
fn gap(one_of: u32) -> u64 {
    spread(now()) % (2 * u64::from(one_of.max(1)) - 1)
}

impl Forwarder {
    /// Forwards one batch, or continues with a waiting batch, while batches are timed or frames are traced.
    // Not `#[cold]`: the function, and all inlined code that forwards other batches, would be optimised for size.
    #[inline(never)]
    pub(super) fn pass_noting(&mut self, work: &mut ForwardMemory) -> PassResult {
        if self.is_held() {
            return self.pass_held(work);
        }
        // Frames from a link were already timed when they were put on the link.
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

    /// Counts the frames that have been delivered or dropped, if their batch is timed.
    #[cold]
    pub(super) fn note_time(&mut self) {
        let waiting = self.held.frames() + self.rest.frames.len();
        self.timing.left(waiting, self.source.ingress().counters());
    }
}
