//! Why a peer loses its port: one value, from the thread that finds out (most often a worker) to the control thread,
//! the log and `netvale show`.
//!
//! A peer whose doorbell blocks ([`crate::calls`]) is recorded here, too: from then on none of its doorbells is written
//! or read.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::EventfdFlags;
use rustix::io::Result;

/// The reason for a peer whose doorbell blocked.
pub const BLOCKED: &str = "one of its doorbells is full and blocks: ringing it would block a worker";

/// The reason for a peer that has nothing to do with it but its user.
const BLOCKED_ELSEWHERE: &str = "a doorbell of another port of the same user is full and blocks";

/// The reason for a peer whose memory was lost.
pub const LOST: &str = "memory of its is gone: its file was cut short, or its pages cannot be had";

/// The faults of one peer. Clones share them.
#[derive(Clone, Debug)]
pub struct Fault(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    /// An eventfd that never leaves this process. Several peers may share one.
    news: Arc<OwnedFd>,
    group: FaultGroup,
    /// Whether memory of the peer was lost ([`crate::watch`]).
    lost: AtomicBool,
    /// The lock is taken only when something went wrong.
    why: Mutex<Option<String>>,
}

/// A group of peers: once a doorbell of one of them blocked, none's is rung any more. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct FaultGroup(Arc<AtomicBool>);

impl FaultGroup {
    /// Whether a doorbell of one of the peers blocked a thread.
    pub fn is_blocked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether there is more than one clone.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// Creates a descriptor that becomes readable with the first fault.
///
/// # Errors
/// Whatever eventfd(2) returns.
pub fn news() -> Result<Arc<OwnedFd>> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new)
}

impl Fault {
    /// Creates a value without a fault.
    ///
    /// # Errors
    /// Whatever eventfd(2) returns.
    pub fn new() -> Result<Fault> {
        Ok(Fault::told_by(&news()?))
    }

    /// Creates a value without a fault; `news` becomes readable when there is one.
    pub fn told_by(news: &Arc<OwnedFd>) -> Fault {
        Fault::of(news, FaultGroup::default())
    }

    /// The same for one of several peers.
    pub fn of(news: &Arc<OwnedFd>, group: FaultGroup) -> Fault {
        let (news, lost) = (Arc::clone(news), AtomicBool::new(false));
        Fault(Arc::new(Inner { news, group, lost, why: Mutex::default() }))
    }

    /// Reports that the peer must be given up. The first reason counts.
    #[cold]
    pub fn report(&self, why: impl Display) {
        self.0.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.to_string());
        self.0.ring();
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
        self.0.group.0.store(true, Ordering::Relaxed);
        self.report(why);
    }

    /// Whether a doorbell of the peer, or of one that belongs to it, blocked a thread.
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
    /// Reports that memory of the peer was lost. Called in a signal handler, hence nothing but a store and a system
    /// call.
    #[cfg(not(loom))]
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        // Fails only if the counter is full: it is readable then.
        let _ = rustix::io::write(&*self.news, &1u64.to_ne_bytes());
    }
}

impl AsFd for Fault {
    /// The descriptor that is readable when something was reported.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.news.as_fd()
    }
}

/// Makes `news` unreadable again.
pub fn clear(news: &OwnedFd) {
    // Fails only if it was not readable.
    let _ = rustix::io::read(news, &mut [0; 8]);
}
