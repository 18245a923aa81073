//! A unit of work that a worker repeats.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A task that one worker owns: an ingress whose frames are forwarded, or a passage between two rings.
///
/// `W` is memory that the tasks of a worker share.
pub trait Task<W>: Any + Send {
    /// Does the available work, up to a batch.
    fn pass(&mut self, work: &mut W) -> Passed;

    /// Asks for a wake-up. Returns whether there is work already: then do not sleep.
    fn arm(&mut self) -> bool {
        false
    }

    /// Turns wake-ups off while the worker polls.
    fn disarm(&mut self) {}

    /// The descriptor that becomes readable on a wake-up.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Clears a pending wake-up after `wake_fd` became readable.
    fn woken(&mut self) {}

    /// Whether looking for work is just a memory access. If not (it is a system call), the worker looks only after
    /// `wake_fd` became readable.
    fn is_cheap(&self) -> bool {
        true
    }

    /// Asks the receiver of held frames to announce room; call [`Task::pass`] once more before sleeping. Returns the
    /// descriptor that becomes readable then, if the receiver can announce it.
    fn ask_for_room(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Withdraws the request. `forget` gets the descriptor that [`Task::ask_for_room`] returned.
    fn stop_asking(&mut self, _forget: &mut dyn FnMut(BorrowedFd<'_>)) {}

    /// Prepares for the end of the port: from now on, frames without room are counted as drops instead of waiting. The
    /// caller repeats [`Task::pass`] until no frames are left.
    fn stop_waiting(&mut self) {}

    /// Prepares for a pause of the worker: does the work that waits only for time.
    fn hurry(&mut self, _work: &mut W) {}

    /// Enters the pause, after which another process may take over: copies the frames that wait for room, gives their
    /// memory back, and brings the ring's state up to date.
    fn settle(&mut self) {}

    /// The longest time that the worker may sleep without a wake-up for this task.
    fn nap(&self) -> Option<Duration> {
        None
    }
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// There was no work.
    Idle,
    /// Number of frames forwarded or dropped.
    Frames(usize),
    /// Frames wait for room at a destination that does not announce it. Call again.
    Held,
}

impl Passed {
    /// The result of a pass that moved `frames` frames.
    #[inline]
    pub fn count(frames: usize) -> Passed {
        if frames == 0 { Passed::Idle } else { Passed::Frames(frames) }
    }
}
