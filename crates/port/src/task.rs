//! What a worker does again and again.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A piece of work that one worker owns: an ingress whose frames are forwarded, or a passage between two rings.
///
/// `W` is memory that the tasks of a worker share.
pub trait Task<W>: Any + Send {
    /// Does what there is to do, up to a batch.
    fn pass(&mut self, work: &mut W) -> Passed;

    /// Asks to be woken. Returns whether there is something to do already: then do not sleep.
    fn arm(&mut self) -> bool {
        false
    }

    /// No wake-ups while the worker looks anyway.
    fn disarm(&mut self) {}

    /// The descriptor that becomes readable on a wake-up.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes back a pending wake-up after `wake_fd` became readable.
    fn woken(&mut self) {}

    /// Whether looking is a mere memory access. If not (it is a system call), the worker looks only after `wake_fd` became readable.
    fn is_cheap(&self) -> bool {
        true
    }

    /// For how long the worker may sleep at most, if nobody wakes it for this task.
    fn nap(&self) -> Option<Duration> {
        None
    }
}

/// What a pass did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// Nothing was there.
    Idle,
    /// This many frames were forwarded (or dropped).
    Frames(usize),
    /// Frames wait for room at a destination that does not tell when there is some. Call again.
    Held,
}

impl Passed {
    /// So many frames, if any.
    #[inline]
    pub fn count(frames: usize) -> Passed {
        if frames == 0 { Passed::Idle } else { Passed::Frames(frames) }
    }
}
