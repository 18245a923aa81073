//! What a worker sleeps on for the sake of a guest's ring.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netvale_mem::notify::Doorbell;
use rustix::event::{Timespec, epoll};
use rustix::io::Result;

/// epoll data of what the guest rings, and of everything else.
const GUEST: u64 = 1;
const OTHERS: u64 = 0;

/// Hears the guest's doorbell while there is a guest, whatever else may bring work, and the control thread.
pub struct Ear {
    epoll: OwnedFd,
    poke: Doorbell,
}

impl Ear {
    /// One that hears nobody but [`Ear::poke`].
    ///
    /// # Errors
    /// What epoll_create(2), eventfd(2) or epoll_ctl(2) says.
    pub fn new() -> Result<Ear> {
        let this = Ear { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, poke: Doorbell::new()? };
        this.add(this.poke.as_fd(), OTHERS)?;
        Ok(this)
    }

    /// The edge of a doorbell is enough, and the guest's is never read: one that fills its counter changes nothing.
    fn add(&self, fd: BorrowedFd<'_>, data: u64) -> Result<()> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(data), epoll::EventFlags::IN | epoll::EventFlags::ET)
    }

    /// The worker wakes up when the guest rings this.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    pub fn listen_to(&self, doorbell: &Doorbell) -> Result<()> {
        self.add(doorbell.as_fd(), GUEST)
    }

    /// The worker wakes up when this becomes readable.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    pub fn listen_to_other(&self, fd: BorrowedFd<'_>) -> Result<()> {
        self.add(fd, OTHERS)
    }

    /// Not any more.
    pub fn forget(&self, fd: BorrowedFd<'_>) {
        // Fails only if it was never added.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Wakes the worker up.
    pub fn poke(&self) {
        self.poke.ring();
    }

    /// Readable when there is something to hear.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Takes the edges. Returns whether the guest rang.
    pub fn heard(&self) -> bool {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 4];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events[..], Some(&at_once)) else { return false };
        events.iter().any(|e| e.data.u64() == GUEST)
    }
}
