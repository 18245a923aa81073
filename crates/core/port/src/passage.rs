//! Passages: a passage moves frames between a peer's ring and a ring of the pipe or interface that is passed through to
//! the peer, without a switch. Its [`Seat`], the holder for the peer's passage, stays when the peer changes.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_mem::lent::{EntryError, InUse};
use netvale_mem::relay::Relay;
use rustix::io::Errno;

use crate::seat::Seat;
use crate::{DropReason, PassResult, RingCounters, Task};

/// Moves frames in one direction between a peer's ring and a ring of the port that is passed through to the peer.
pub trait Passage: Send {
    /// Moves the available frames, as far as there is room. Returns the number of frames moved; 0 means that there was
    /// no work.
    fn pass(&mut self, counters: &RingCounters) -> usize;

    /// Requests a wake-up. Returns true if there is work already.
    fn arm(&mut self) -> bool;

    /// Turns wake-ups off while the worker polls.
    fn disarm(&mut self);

    /// Whether there are frames to move and room for them.
    fn has_news(&self) -> bool;

    /// A descriptor that becomes readable when there is work that no kick announces; `None` if kicks announce all work.
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
        // A pass that moved only unusable slots also counts as work.
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
    /// Puts a passage into the seat.
    ///
    /// # Errors
    /// The error of epoll_ctl(2); `EBUSY` while the previous passage is in use.
    pub fn connect(&self, passage: P) -> rustix::io::Result<()> {
        if let (Some(fd), Some(wake)) = (passage.wake_fd(), &self.wake) {
            wake.add(fd)?;
        }
        self.put(passage).map_err(|InUse| Errno::BUSY)
    }

    /// Removes the passage after it has moved all published frames; `None` if the seat was empty. No worker uses the
    /// passage afterwards.
    ///
    /// # Errors
    /// As for [`Seat::take`].
    pub fn disconnect(&self) -> Result<Option<P>, InUse> {
        let mut passage = self.take(Passage::has_news)?;
        if let Some(passage) = &mut passage {
            passage.disarm();
            passage.wake_fd().zip(self.wake.as_ref()).into_iter().for_each(|(fd, wake)| wake.remove(fd));
        }
        Ok(passage)
    }
}

/// The task with which a worker runs the passage in a seat. Before the worker sleeps, the task requests a kick from the
/// side that must act next.
pub struct SeatTask<P>(pub Arc<Seat<P>>);

impl<W, P: Passage + 'static> Task<W> for SeatTask<P> {
    #[inline]
    fn pass(&mut self, _work: &mut W) -> PassResult {
        PassResult::count(self.0.queue.enter().map_or(0, |mut passage| passage.pass(&self.0.counters)))
    }

    fn arm(&mut self) -> bool {
        self.0.queue.enter().map_or_else(EntryError::is_busy, |mut passage| passage.arm())
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
