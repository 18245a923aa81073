//! A unit of work that a worker repeats.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A task that one worker owns: it forwards the frames of an ingress, or moves frames between two rings.
///
/// `W` is memory that the tasks of a worker share.
pub trait Task<W>: Any + Send {
    /// Does the available work, at most one batch.
    fn pass(&mut self, work: &mut W) -> PassResult;

    /// Requests a wake-up. Returns true if there is work already; the worker must then not sleep.
    fn arm(&mut self) -> bool {
        false
    }

    /// Turns wake-ups off while the worker polls.
    fn disarm(&mut self) {}

    /// The descriptor that becomes readable on a wake-up; `None` if the task has no such descriptor.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Clears a pending wake-up after `wake_fd` became readable.
    fn woken(&mut self) {}

    /// Whether checking for work needs no system call. If it needs a system call, the worker checks only after
    /// `wake_fd` became readable.
    fn is_cheap(&self) -> bool {
        true
    }

    /// Asks the receiver of held frames to signal room. Returns the descriptor that becomes readable when there is
    /// room; `None` if no frames are held, or the receiver cannot signal room. The worker must call [`Task::pass`] once
    /// more before it sleeps.
    fn ask_for_room(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Withdraws the request of [`Task::ask_for_room`]. Passes the descriptor that `ask_for_room` returned to
    /// `_forget`, so that the worker stops waiting on it.
    fn stop_asking(&mut self, _forget: &mut dyn FnMut(BorrowedFd<'_>)) {}

    /// Prepares for the end of the port: from now on, frames that find no room are dropped and counted instead of
    /// waiting. The caller repeats [`Task::pass`] until no frames are left.
    fn stop_waiting(&mut self) {}

    /// Prepares for a pause of the worker: does work that would otherwise wait for a timer, such as the delivery of
    /// delayed frames.
    fn hurry(&mut self, _work: &mut W) {}

    /// Enters the pause, after which another process may take over: copies the frames that wait for room, releases
    /// their slots, and brings the ring's state up to date.
    fn settle(&mut self) {}

    /// Maximum time for which the worker may sleep without a wake-up for this task; `None`: no limit.
    fn nap(&self) -> Option<Duration> {
        None
    }
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassResult {
    /// There was no work.
    Idle,
    /// Number of frames forwarded or dropped.
    Frames(usize),
    /// Frames wait for room at a destination. Call again.
    Held,
}

impl PassResult {
    /// The result of a pass that moved `frames` frames.
    #[inline]
    pub fn count(frames: usize) -> PassResult {
        if frames == 0 { PassResult::Idle } else { PassResult::Frames(frames) }
    }
}
