//! The reason why a peer loses its port: one value, passed from the thread that detects it (usually a worker) to the
//! control thread, the log and `netvale show`.
//!
//! A peer whose doorbell blocks ([`crate::calls`]) is also recorded here: from then on its doorbells are neither
//! written nor read.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::EventfdFlags;
use rustix::io::Result;

/// The reason for a peer whose doorbell blocked a thread.
pub const BLOCKED: &str = "one of its doorbells is full and blocks: ringing it would block a worker";

/// The reason for a peer whose doorbells have too many waiters.
const WATCHED: &str = "ringing one of its doorbells takes a worker's time: too many descriptors are watched there";

/// The reason for a peer blocked because of another peer of its user.
const BLOCKED_ELSEWHERE: &str =
    "a doorbell of another port of the same user, or memory of that user's, held a thread up";

/// Number of calls checked after one that lasted, and how many of them may take processor time: an interrupt may run
/// during one, and in a virtual machine the host's time counts, too.
const LOOKS: u32 = 64;
const MOST_STRETCHED: u32 = 7;

/// The reason for a peer whose memory is gone.
pub const LOST: &str = "memory of its is gone: its file was cut short, or its pages cannot be had";

/// The faults of one peer. Clones share them.
#[derive(Clone, Debug)]
pub struct Fault(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    /// An eventfd that never leaves this process. Several peers may share one.
    news: Arc<OwnedFd>,
    group: FaultGroup,
    /// Whether its doorbells may take a thread's time.
    is_trusted: bool,
    /// Whether memory of the peer was lost ([`crate::watch`]).
    lost: AtomicBool,
    /// Calls yet to be checked after one that lasted, and how many of them took processor time.
    looks: AtomicU32,
    stretched: AtomicU32,
    /// The lock is taken only after a fault.
    why: Mutex<Option<String>>,
}

/// A group of peers: once a doorbell of one has blocked, no doorbell of the group is rung. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct FaultGroup(Arc<AtomicBool>);

impl FaultGroup {
    /// Whether a doorbell of one of the peers blocked a thread.
    pub fn is_blocked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Records that one of the peers holds up a thread, as if a doorbell had blocked it.
    #[cold]
    pub fn block(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether another clone exists.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// Creates a descriptor that becomes readable with the first fault.
///
/// # Errors
/// The error of eventfd(2).
pub fn news() -> Result<Arc<OwnedFd>> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new)
}

impl Fault {
    /// Creates a value without a fault.
    ///
    /// # Errors
    /// The error of eventfd(2).
    pub fn new() -> Result<Fault> {
        Ok(Fault::told_by(&news()?))
    }

    /// Creates a value without a fault; `news` becomes readable with the first fault.
    pub fn told_by(news: &Arc<OwnedFd>) -> Fault {
        Fault::of(news, FaultGroup::default())
    }

    /// The same for one peer of a group.
    pub fn of(news: &Arc<OwnedFd>, group: FaultGroup) -> Fault {
        Fault::with(news, group, false)
    }

    /// Like [`Fault::told_by`], for a peer that is trusted with a thread's time. The length of its calls does not count
    /// against it: in a virtual machine, the host's time looks like the thread's own.
    pub fn of_trusted(news: &Arc<OwnedFd>) -> Fault {
        Fault::with(news, FaultGroup::default(), true)
    }

    fn with(news: &Arc<OwnedFd>, group: FaultGroup, is_trusted: bool) -> Fault {
        let news = Arc::clone(news);
        let (lost, looks, stretched, why) = Default::default();
        Fault(Arc::new(Inner { news, group, is_trusted, lost, looks, stretched, why }))
    }

    /// Reports that the peer must be disconnected. Only the first reason counts.
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

    /// The address for the signal handler.
    #[cfg(not(loom))]
    pub(crate) fn inner(&self) -> *const Inner {
        Arc::as_ptr(&self.0)
    }

    /// Reports that a call on one of the peer's descriptors blocked this thread.
    #[cold]
    pub(crate) fn block(&self, why: &str) {
        self.0.group.block();
        self.report(why);
    }

    /// Whether calls on the peer's doorbells are checked.
    #[inline]
    pub(crate) fn is_looked_at(&self) -> bool {
        self.0.looks.load(Ordering::Relaxed) > 0
    }

    /// Starts checking calls, after one that lasted.
    #[cold]
    pub(crate) fn look_at(&self) {
        if self.0.is_trusted {
            return;
        }
        self.0.stretched.store(0, Ordering::Relaxed);
        self.0.looks.store(LOOKS, Ordering::Relaxed);
    }

    /// Records a checked call; `stretched`: it took processor time.
    pub(crate) fn looked(&self, stretched: bool) {
        let left = self.0.looks.load(Ordering::Relaxed);
        self.0.looks.store(left.saturating_sub(1), Ordering::Relaxed);
        if stretched && self.0.stretched.fetch_add(1, Ordering::Relaxed) >= MOST_STRETCHED {
            self.block(WATCHED);
        }
    }

    /// Whether a doorbell of the peer, or of its group, blocked a thread.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.0.group.is_blocked()
    }

    /// The reported reason.
    pub fn reason(&self) -> Option<String> {
        let why = self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lost = || self.0.lost.load(Ordering::Acquire).then(|| LOST.to_owned());
        why.or_else(lost).or_else(|| self.is_blocked().then(|| BLOCKED_ELSEWHERE.to_owned()))
    }

    /// Takes the reported reason, for a fault with its own `news`: the next peer may begin.
    pub fn take(&self) -> Option<String> {
        clear(&self.0.news);
        self.0.group.0.store(false, Ordering::Relaxed);
        self.0.why.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Inner {
    /// Reports that memory of the peer was lost. Runs in a signal handler: only a store and a system call.
    #[cfg(not(loom))]
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        raise(&self.news);
    }
}

/// Makes `news` readable.
pub fn raise(news: &OwnedFd) {
    // Fails only if the counter is full, and thus readable.
    let _ = rustix::io::write(news, &1u64.to_ne_bytes());
}

impl AsFd for Fault {
    /// A descriptor that is readable after a report.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.news.as_fd()
    }
}

/// Makes `news` unreadable again.
pub fn clear(news: &OwnedFd) {
    // Fails only if it was not readable.
    let _ = rustix::io::read(news, &mut [0; 8]);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Objective: a peer survives occasional calls that take processor time, but not several of the checked ones in a
    /// row.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no eventfd of this kind")]
    fn stretched_calls() {
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
