//! A unit of work that a worker repeats.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A task that one worker owns: an ingress whose frames are forwarded, or a passage between two rings.
///
/// `W` is memory that the tasks of a worker share.
pub trait Task<W>: Any + Send {
    /// Does the work that is there, up to a batch.
    fn pass(&mut self, work: &mut W) -> Passed;

    /// Asks to be woken. Returns whether there is work already: then do not sleep.
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

    /// Frames are held: asks their receiver to say when it makes room; call [`Task::pass`] once more before sleeping.
    /// Returns the descriptor that becomes readable then, if the receiver can say so.
    fn ask_for_room(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Asks no longer, if it did. `forget` gets the descriptor that [`Task::ask_for_room`] returned.
    fn stop_asking(&mut self, _forget: &mut dyn FnMut(BorrowedFd<'_>)) {}

    /// Its port ends: frames that find no room from now on do not wait, but are counted as drops. The caller goes on
    /// with [`Task::pass`] until there are none.
    fn stop_waiting(&mut self) {}

    /// The worker is about to pause: does what waits for nothing but time.
    fn hurry(&mut self, _work: &mut W) {}

    /// The worker pauses, and another process may go on in its place: copies the frames that wait for room, so that
    /// their memory is given back, and what its ring says is right.
    fn settle(&mut self) {}

    /// The longest time the worker may sleep if nothing wakes it for this task.
    fn nap(&self) -> Option<Duration> {
        None
    }
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// There was nothing to do.
    Idle,
    /// This many frames were forwarded or dropped.
    Frames(usize),
    /// Frames wait for room at a destination that does not notify when there is some. Call again.
    Held,
}

impl Passed {
    /// The result of a pass that moved `frames` frames.
    #[inline]
    pub fn count(frames: usize) -> Passed {
        if frames == 0 { Passed::Idle } else { Passed::Frames(frames) }
    }
}
