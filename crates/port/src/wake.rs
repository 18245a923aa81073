//! What a worker sleeps on for a peer's ring.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netvale_mem::notify::Doorbell;
use rustix::event::{Timespec, epoll};
use rustix::io::Result;

/// epoll data of what the peer rings, and of everything else.
const PEER: u64 = 1;
const OTHER: u64 = 0;

/// An epoll set that wakes the worker that owns a peer's ring: for the peer's doorbell while there is a peer, for whatever else may bring
/// work, and for the control thread.
#[derive(Debug)]
pub struct WakeSet {
    epoll: OwnedFd,
    poke: Doorbell,
}

impl WakeSet {
    /// With nothing in it but [`WakeSet::poke`].
    ///
    /// # Errors
    /// What epoll_create(2), eventfd(2) or epoll_ctl(2) says.
    pub fn new() -> Result<WakeSet> {
        let this = WakeSet { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, poke: Doorbell::new()? };
        this.add(&this.poke)?;
        Ok(this)
    }

    /// What the peer rings. It is never read: the edge is enough, and a peer that fills its counter changes nothing.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    pub fn add_peer(&self, doorbell: impl AsFd) -> Result<()> {
        self.add_as(doorbell.as_fd(), PEER)
    }

    /// Something else that becomes readable when there is work.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    pub fn add(&self, fd: impl AsFd) -> Result<()> {
        self.add_as(fd.as_fd(), OTHER)
    }

    fn add_as(&self, fd: BorrowedFd<'_>, data: u64) -> Result<()> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(data), epoll::EventFlags::IN | epoll::EventFlags::ET)
    }

    /// Wakes the worker up for this no more.
    pub fn remove(&self, fd: impl AsFd) {
        // Fails only if it was never added.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Wakes the worker up.
    pub fn poke(&self) {
        self.poke.ring();
    }

    /// Takes the wake-ups back, so that the next wait sleeps. Returns whether one was the peer's.
    pub fn drain(&self) -> bool {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 4];
        let immediately = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events[..], Some(&immediately)) else { return false };
        events.iter().any(|e| e.data.u64() == PEER)
    }
}

impl AsFd for WakeSet {
    /// Readable when there is something to wake up for.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn is_ready(set: &WakeSet) -> bool {
        let mut one = [PollFd::new(set, PollFlags::IN)];
        poll(&mut one, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
    }

    /// Objective: each of the three wakes, once; only the peer's is said to be the peer's; what was removed wakes no more.
    #[test]
    fn who_wakes() {
        let (set, peer, other) = (WakeSet::new().unwrap(), Doorbell::new().unwrap(), Doorbell::new().unwrap());
        set.add_peer(&peer).unwrap();
        set.add(&other).unwrap();
        assert!(!is_ready(&set));
        for (bell, is_peer) in [(&peer, true), (&other, false), (&peer, true)] {
            bell.ring();
            assert!(is_ready(&set));
            assert_eq!((set.drain(), is_ready(&set)), (is_peer, false));
        }
        set.poke();
        assert!(is_ready(&set) && !set.drain() && !is_ready(&set));
        set.remove(&peer);
        peer.ring();
        assert!(!is_ready(&set));
    }
}
