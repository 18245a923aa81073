//! Faults: the reasons why peers lose their ports, passed from the thread that detects a fault (usually a worker) to
//! the control thread, the log and `netvale show`.
//!
//! A fault also records that a doorbell of the peer blocked ([`crate::calls`]): from then on no thread writes to or
//! reads from the peer's doorbells.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::EventfdFlags;
use rustix::io::Result;

/// The reason reported for a peer whose doorbell blocked a thread.
pub const BLOCKED: &str = "a doorbell of this peer is full and blocks: ringing it would block a worker";

/// The reason reported for a peer whose doorbells have too many waiters.
const WATCHED: &str = "a doorbell of this peer has too many waiters: ringing it takes too much of a worker's time";

/// The reason reported for a peer that is blocked because of another peer of the same user.
const BLOCKED_ELSEWHERE: &str = "a doorbell of another port of the same user, or that user's memory, blocked a thread";

/// Number of calls whose CPU time is measured after a slow call.
const LOOKS: u32 = 64;
/// Maximum number of measured calls that may use too much CPU time before the peer is reported. It is not 0, as an
/// interrupt may run during a call, and in a virtual machine the host's time counts, too.
const MOST_STRETCHED: u32 = 7;

/// The reason reported when memory of a peer is lost.
pub const LOST: &str = "memory of this peer is gone: its file was cut short, or its pages are not available";

/// The fault state of one peer: whether, and why, the peer must lose its port. Clones share the state.
#[derive(Clone, Debug)]
pub struct Fault(Arc<FaultInner>);

#[derive(Debug)]
pub(crate) struct FaultInner {
    /// An eventfd that is readable after a fault, and never leaves this process. Several peers may share it.
    news: Arc<OwnedFd>,
    group: FaultGroup,
    /// Whether the peer is trusted: ringing its doorbells may take any amount of CPU time.
    is_trusted: bool,
    /// Whether any of the peer's memory was lost ([`crate::watch`]).
    lost: AtomicBool,
    /// Number of calls whose CPU time will be measured from now on.
    looks: AtomicU32,
    /// Number of measured calls that used too much CPU time.
    stretched: AtomicU32,
    /// The reported reason, if any. The lock is taken only after a fault.
    why: Mutex<Option<String>>,
}

/// A group of peers: once one peer's doorbell has blocked, no doorbell of the group is rung. Clones share this state.
#[derive(Clone, Debug, Default)]
pub struct FaultGroup(Arc<AtomicBool>);

impl FaultGroup {
    /// Whether a peer in the group has blocked a thread, by a doorbell or in another way.
    pub fn is_blocked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Records that a peer of the group blocks a thread in another way, e.g. by its memory. The effect is the same as
    /// for a blocked doorbell.
    #[cold]
    pub fn block(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether another clone of this group exists.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// Creates an eventfd that becomes readable with the first fault of the peers that share it.
///
/// # Errors
/// The error of eventfd(2).
pub fn news() -> Result<Arc<OwnedFd>> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new)
}

impl Fault {
    /// Creates the state of a peer without a fault, with an eventfd of its own.
    ///
    /// # Errors
    /// The error of eventfd(2).
    pub fn new() -> Result<Fault> {
        Ok(Fault::told_by(&news()?))
    }

    /// Creates the state of a peer without a fault; `news` becomes readable with the first fault.
    pub fn told_by(news: &Arc<OwnedFd>) -> Fault {
        Fault::of(news, FaultGroup::default())
    }

    /// Like [`Fault::told_by`], for a peer of a group.
    pub fn of(news: &Arc<OwnedFd>, group: FaultGroup) -> Fault {
        Fault::with(news, group, false)
    }

    /// Like [`Fault::told_by`], for a trusted peer: calls on its doorbells may take any amount of CPU time, because in
    /// a virtual machine a thread's CPU time includes time that the host took.
    pub fn of_trusted(news: &Arc<OwnedFd>) -> Fault {
        Fault::with(news, FaultGroup::default(), true)
    }

    fn with(news: &Arc<OwnedFd>, group: FaultGroup, is_trusted: bool) -> Fault {
        let news = Arc::clone(news);
        let (lost, looks, stretched, why) = Default::default();
        Fault(Arc::new(FaultInner { news, group, is_trusted, lost, looks, stretched, why }))
    }

    /// Reports that the peer must be disconnected. Only the first reason is kept.
    #[cold]
    pub fn report(&self, why: impl Display) {
        self.0.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.to_string());
        raise(&self.0.news);
    }

    /// Reports that memory of the peer was lost.
    #[cfg(not(loom))]
    pub(crate) fn lose(&self) {
        self.0.lose();
    }

    /// The address of the shared state, for the signal handler.
    #[cfg(not(loom))]
    pub(crate) fn inner(&self) -> *const FaultInner {
        Arc::as_ptr(&self.0)
    }

    /// Reports that a call on one of the peer's descriptors blocked this thread.
    #[cold]
    pub(crate) fn block(&self, why: &str) {
        self.0.group.block();
        self.report(why);
    }

    /// Whether the CPU time of calls on the peer's doorbells is measured.
    #[inline]
    pub(crate) fn is_looked_at(&self) -> bool {
        self.0.looks.load(Ordering::Relaxed) > 0
    }

    /// Starts measuring the CPU time of calls on the peer's doorbells, after a slow call.
    #[cold]
    pub(crate) fn look_at(&self) {
        if self.0.is_trusted {
            return;
        }
        self.0.stretched.store(0, Ordering::Relaxed);
        self.0.looks.store(LOOKS, Ordering::Relaxed);
    }

    /// Records a measured call. `stretched` is set if the call used too much CPU time.
    pub(crate) fn looked(&self, stretched: bool) {
        let left = self.0.looks.load(Ordering::Relaxed);
        self.0.looks.store(left.saturating_sub(1), Ordering::Relaxed);
        if stretched && self.0.stretched.fetch_add(1, Ordering::Relaxed) >= MOST_STRETCHED {
            self.block(WATCHED);
        }
    }

    /// Whether the peer, or another peer in its group, has blocked a thread.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.0.group.is_blocked()
    }

    /// The reported reason; `None` without a fault.
    pub fn reason(&self) -> Option<String> {
        let why = self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lost = || self.0.lost.load(Ordering::Acquire).then(|| LOST.to_owned());
        why.or_else(lost).or_else(|| self.is_blocked().then(|| BLOCKED_ELSEWHERE.to_owned()))
    }

    /// Returns the reported reason, `None` if no reason was reported, and clears the fault, for the next peer. Only for
    /// a fault whose `news` is not shared.
    pub fn take(&self) -> Option<String> {
        clear(&self.0.news);
        self.0.group.0.store(false, Ordering::Relaxed);
        self.0.why.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl FaultInner {
    /// Reports that memory of the peer was lost. Runs in a signal handler, so it consists of a store and a system call.
    #[cfg(not(loom))]
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        raise(&self.news);
    }
}

/// Makes the eventfd `news` readable.
pub fn raise(news: &OwnedFd) {
    // The write fails only if the counter is full; then the eventfd is readable already.
    let _ = rustix::io::write(news, &1u64.to_ne_bytes());
}

impl AsFd for Fault {
    /// A descriptor that is readable after a report.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.news.as_fd()
    }
}

/// Resets the eventfd `news`, so that it is no longer readable.
pub fn clear(news: &OwnedFd) {
    // The read fails only if the eventfd is not readable.
    let _ = rustix::io::read(news, &mut [0; 8]);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Objective: a peer keeps its port if few of the measured calls use too much CPU time, and loses the port if more
    /// calls do.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no eventfd of this kind")]
    fn a_peer_survives_only_occasional_stretched_calls() {
        let fault = Fault::new().unwrap();
        for _ in 0..10 {
            fault.look_at();
            (0..LOOKS).for_each(|call| fault.looked(call < MOST_STRETCHED));
            assert!(!fault.is_looked_at() && !fault.is_blocked());
        }
        fault.look_at();
        (0..=MOST_STRETCHED).for_each(|_| fault.looked(true));
        assert!(fault.reason().is_some_and(|why| why == WATCHED));
        let trusted = Fault::of_trusted(&news().unwrap());
        trusted.look_at();
        assert!(!trusted.is_looked_at());
    }
}
