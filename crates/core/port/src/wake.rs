//! The epoll set on which a worker sleeps until a peer's ring has work.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netvale_mem::notify::Doorbell;
use rustix::event::{Timespec, epoll};
use rustix::io::Result;

/// epoll data of the peer's doorbell.
const PEER: u64 = 1;
/// epoll data of all other descriptors.
const OTHER: u64 = 0;

/// An epoll set that wakes the worker that owns a peer's ring. The peer's doorbell, other sources of work, and the
/// control thread ([`WakeSet::poke`]) wake that worker.
#[derive(Debug)]
pub struct WakeSet {
    epoll: OwnedFd,
    poke: Doorbell,
}

impl WakeSet {
    /// Creates a set that wakes the worker only on [`WakeSet::poke`].
    ///
    /// # Errors
    /// The error of epoll_create(2), eventfd(2) or epoll_ctl(2).
    pub fn new() -> Result<WakeSet> {
        let this = WakeSet { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, poke: Doorbell::new()? };
        this.add(&this.poke)?;
        Ok(this)
    }

    /// Adds the peer's doorbell, edge-triggered. The doorbell is never read, so a peer that saturates its counter has
    /// no effect.
    ///
    /// # Errors
    /// The error of epoll_ctl(2).
    pub fn add_peer(&self, doorbell: impl AsFd) -> Result<()> {
        self.add_as(doorbell.as_fd(), PEER)
    }

    /// Adds another descriptor that becomes readable when there is work.
    ///
    /// # Errors
    /// The error of epoll_ctl(2).
    pub fn add(&self, fd: impl AsFd) -> Result<()> {
        self.add_as(fd.as_fd(), OTHER)
    }

    fn add_as(&self, fd: BorrowedFd<'_>, data: u64) -> Result<()> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(data), epoll::EventFlags::IN | epoll::EventFlags::ET)
    }

    /// Sets whether a descriptor that was [added](WakeSet::add) also wakes the worker when the descriptor becomes
    /// writable.
    pub fn watch_room(&self, fd: impl AsFd, on: bool) {
        let room = if on { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET | room;
        // Fails only if the descriptor is not in the set.
        let _ = epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(OTHER), events);
    }

    /// Removes a descriptor.
    pub fn remove(&self, fd: impl AsFd) {
        // Fails only if the descriptor is not in the set.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Wakes the worker.
    pub fn poke(&self) {
        self.poke.ring();
    }

    /// Clears pending wake-ups, so that the next wait sleeps. Returns whether one of these wake-ups came from the peer.
    pub fn drain(&self) -> bool {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 4];
        let immediately = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events[..], Some(&immediately)) else { return false };
        events.iter().any(|e| e.data.u64() == PEER)
    }
}

impl AsFd for WakeSet {
    /// A descriptor that is readable while a wake-up is pending.
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

    /// Objective: each of the three sources wakes once; only the peer's wake-up is reported as the peer's; a removed
    /// source no longer wakes.
    #[test]
    fn each_source_wakes_once() {
        let set = WakeSet::new().unwrap();
        let peer = Doorbell::new().unwrap();
        let other = Doorbell::new().unwrap();
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

    /// Objective: a writable descriptor wakes only while its room is watched, even if it was writable before.
    #[test]
    fn room_wakes_when_it_is_watched() {
        let set = WakeSet::new().unwrap();
        let bell = Doorbell::new().unwrap();
        set.add(&bell).unwrap();
        assert!(!is_ready(&set), "an eventfd always has room");
        set.watch_room(&bell, true);
        assert!(is_ready(&set));
        set.drain();
        set.watch_room(&bell, false);
        assert!(!is_ready(&set));
        bell.ring();
        assert!(is_ready(&set));
    }
}
