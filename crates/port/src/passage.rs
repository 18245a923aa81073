//! Seats for what moves frames between a peer's rings and a port that is passed through to it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_mem::lent::{Away, InUse};
use netvale_mem::relay::Relay;
use rustix::io::Errno;

use crate::seat::Seat;
use crate::{DropReason, Passed, RingCounters, Task};

/// Moves frames in one direction.
pub trait Passage: Send {
    /// Moves what there is to move. Returns frames.
    fn pass(&mut self, counters: &RingCounters) -> usize;

    /// Asks to be woken. Returns whether there is something to do already.
    fn arm(&mut self) -> bool;

    /// No wake-ups while the worker looks anyway.
    fn disarm(&mut self);

    /// There is something to be moved, and room for it.
    fn has_news(&self) -> bool;

    /// Readable when there is something to do that is no kick.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Passage for Relay {
    #[inline]
    fn pass(&mut self, counters: &RingCounters) -> usize {
        let Ok(done) = Relay::pass(self) else {
            counters.dropped(DropReason::BadHead, 1);
            return 0;
        };
        if done.frames > 0 {
            counters.passed(done.frames, done.bytes);
        }
        let lost = [
            (done.bad_slots, DropReason::BadBuffer),
            (done.bad_lengths, DropReason::BadLength),
            (done.bad_places, DropReason::BadRxBuffer),
        ];
        for (n, why) in lost.into_iter().filter(|(n, _)| *n > 0) {
            counters.dropped(why, n);
        }
        // A round of nothing but bad slots was work, too.
        if done.any() { done.frames.max(1) as usize } else { 0 }
    }

    fn arm(&mut self) -> bool {
        Relay::arm(self)
    }

    fn disarm(&mut self) {
        Relay::disarm(self);
    }

    fn has_news(&self) -> bool {
        self.can_move()
    }
}

impl<P: Passage> Seat<P> {
    /// Puts a passage in.
    ///
    /// # Errors
    /// What epoll_ctl(2) says; `EBUSY` when the one before is in use.
    pub fn connect(&self, passage: P) -> rustix::io::Result<()> {
        if let (Some(fd), Some(wake)) = (passage.wake_fd(), &self.wake) {
            wake.add(fd)?;
        }
        self.put(passage).map_err(|InUse| Errno::BUSY)
    }

    /// Takes the passage out, once what was published is on its way. No worker is at it then.
    ///
    /// # Errors
    /// As [`Seat::take`].
    pub fn disconnect(&self) -> Result<Option<P>, InUse> {
        let mut passage = self.take(Passage::has_news)?;
        if let Some(passage) = &mut passage {
            passage.disarm();
            passage.wake_fd().zip(self.wake.as_ref()).into_iter().for_each(|(fd, wake)| wake.remove(fd));
        }
        Ok(passage)
    }
}

/// A passage's seat, on a worker. Whoever is waited for is asked to kick.
pub struct Seated<P>(pub Arc<Seat<P>>);

impl<W, P: Passage + 'static> Task<W> for Seated<P> {
    #[inline]
    fn pass(&mut self, _work: &mut W) -> Passed {
        Passed::count(self.0.queue.enter().map_or(0, |mut passage| passage.pass(&self.0.counters)))
    }

    fn arm(&mut self) -> bool {
        self.0.queue.enter().map_or_else(Away::is_busy, |mut passage| passage.arm())
    }

    fn disarm(&mut self) {
        if let Ok(mut passage) = self.0.queue.enter() {
            passage.disarm();
        }
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.wake.as_ref().map(AsFd::as_fd)
    }

    fn woken(&mut self) {
        self.0.woken_up();
    }
}
