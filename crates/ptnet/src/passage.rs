//! Places on workers for what moves frames between a guest's rings and a port that is passed through to it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use netvale_mem::notify::KickCounts;
use netvale_port::RingCounters;
use netvale_port::ear::Ear;
use netvale_port::slot::Slot;

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

/// A place that is there as long as the port. Passages come and go with the guest.
pub struct PassSeat<P> {
    slot: Slot<P>,
    ear: Ear,
    /// Frames, bytes, drops, over all guests.
    pub counters: Arc<RingCounters>,
    /// Kicks, over all guests.
    pub kicks: Arc<KickCounts>,
}

/// Looks at a ring that is being drained.
const DRAINING: u32 = 100;

impl<P: Passage> PassSeat<P> {
    /// An empty one.
    ///
    /// # Errors
    /// As [`Ear::new`].
    pub fn new() -> rustix::io::Result<PassSeat<P>> {
        Ok(PassSeat { slot: Slot::default(), ear: Ear::new()?, counters: Arc::default(), kicks: Arc::default() })
    }

    /// Puts a passage in.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    pub fn put(&self, passage: P) -> rustix::io::Result<()> {
        if let Some(fd) = passage.wake_fd() {
            self.ear.listen_to_other(fd)?;
        }
        *self.slot.enter() = Some(passage);
        self.ear.poke();
        Ok(())
    }

    /// Waits until what was published is on its way, but not for ever, and takes the passage out. No worker is at it then.
    pub fn take(&self) -> Option<P> {
        for _ in 0..DRAINING {
            if !self.slot.enter().as_ref().is_some_and(Passage::has_news) {
                break;
            }
            self.ear.poke();
            std::thread::sleep(Duration::from_micros(100));
        }
        let mut passage = self.slot.enter().take()?;
        passage.disarm();
        if let Some(fd) = passage.wake_fd() {
            self.ear.forget(fd);
        }
        Some(passage)
    }

    /// What wakes the worker.
    pub fn ear(&self) -> &Ear {
        &self.ear
    }

    /// A kick that came another way than by a doorbell.
    pub fn kick(&self) {
        self.kicks.count_received();
        self.ear.poke();
    }

    /// The worker's: moves what there is to move. Returns frames.
    #[inline]
    pub fn pass(&self) -> usize {
        self.slot.enter().as_mut().map_or(0, |passage| passage.pass(&self.counters))
    }

    /// The worker's: see [`Passage::arm`].
    pub fn arm(&self) -> bool {
        self.slot.enter().as_mut().is_some_and(Passage::arm)
    }

    /// The worker's: see [`Passage::disarm`].
    pub fn disarm(&self) {
        if let Some(passage) = self.slot.enter().as_mut() {
            passage.disarm();
        }
    }

    /// The worker's: takes back a wake-up.
    pub fn woken(&self) {
        if self.ear.heard() {
            self.kicks.count_received();
        }
    }
}
