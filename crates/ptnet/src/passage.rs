//! Seats for what moves frames between a guest's rings and a port that is passed through to it.

use std::os::fd::BorrowedFd;

use netvale_mem::lent::{Away, InUse};
use netvale_port::RingCounters;
use rustix::io::Errno;

use crate::seat::Seat;

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

impl<P: Passage> Seat<P> {
    /// Puts a passage in.
    ///
    /// # Errors
    /// What epoll_ctl(2) says; `EBUSY` when the one before is in use.
    pub fn connect(&self, passage: P) -> rustix::io::Result<()> {
        if let Some(fd) = passage.wake_fd() {
            self.wake.add(fd)?;
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
            passage.wake_fd().into_iter().for_each(|fd| self.wake.remove(fd));
        }
        Ok(passage)
    }

    /// The worker's: moves what there is to move. Returns frames.
    #[inline]
    pub fn pass(&self) -> usize {
        self.queue.enter().map_or(0, |mut passage| passage.pass(&self.counters))
    }

    /// The worker's: see [`Passage::arm`].
    pub fn arm(&self) -> bool {
        self.queue.enter().map_or_else(Away::is_busy, |mut passage| passage.arm())
    }

    /// The worker's: see [`Passage::disarm`].
    pub fn disarm(&self) {
        if let Ok(mut passage) = self.queue.enter() {
            passage.disarm();
        }
    }
}
