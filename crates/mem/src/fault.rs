//! Why a peer loses its port: one value from whoever finds out, most often a worker, to the control thread, the log and `netvale show`.
//!
//! A peer that makes one of its doorbells block ([`crate::calls`]) is found out here, too: from then on none of its doorbells is written or read.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::EventfdFlags;
use rustix::io::Result;

/// What is said of a peer whose doorbell blocked.
pub const BLOCKED: &str = "one of its doorbells is full and blocks: ringing it would block a worker";

/// What is said of a peer whose memory was lost.
pub const LOST: &str = "memory of its is gone: its file was cut short, or its pages cannot be had";

/// One peer's faults. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Fault(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    /// An eventfd that never leaves this process. Several peers may share one.
    news: Arc<OwnedFd>,
    blocked: AtomicBool,
    /// Memory of its was lost ([`crate::watch`]).
    lost: AtomicBool,
    /// Taken only when something went wrong.
    why: Mutex<Option<String>>,
}

/// A descriptor that becomes readable with the first fault.
///
/// # Errors
/// What eventfd(2) says.
pub fn news() -> Result<Arc<OwnedFd>> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new)
}

impl Fault {
    /// None yet.
    ///
    /// # Errors
    /// What eventfd(2) says.
    pub fn new() -> Result<Fault> {
        Ok(Fault::told_by(&news()?))
    }

    /// None yet; `news` becomes readable when there is one.
    pub fn told_by(news: &Arc<OwnedFd>) -> Fault {
        let (news, [blocked, lost]) = (Arc::clone(news), [const { AtomicBool::new(false) }; 2]);
        Fault(Arc::new(Inner { news, blocked, lost, why: Mutex::default() }))
    }

    /// The peer is to be given up. The first reason counts.
    #[cold]
    pub fn report(&self, why: impl Display) {
        self.0.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.to_string());
        self.0.ring();
    }

    /// Memory of the peer's was lost.
    #[cfg(not(loom))]
    pub(crate) fn lose(&self) {
        self.0.lose();
    }

    /// For the handler of a signal.
    #[cfg(not(loom))]
    pub(crate) fn inner(&self) -> *const Inner {
        Arc::as_ptr(&self.0)
    }

    /// A doorbell of the peer's made us wait.
    #[cold]
    pub(crate) fn block(&self) {
        self.0.blocked.store(true, Ordering::Relaxed);
        self.report(BLOCKED);
    }

    /// Whether a doorbell of the peer's made us wait.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.0.blocked.load(Ordering::Relaxed)
    }

    /// What was reported.
    pub fn reason(&self) -> Option<String> {
        let why = self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        why.or_else(|| self.0.lost.load(Ordering::Acquire).then(|| LOST.to_owned()))
    }

    /// What was reported, once, for a fault whose news are its own: the next peer may begin.
    pub fn take(&self) -> Option<String> {
        clear(&self.0.news);
        self.0.blocked.store(false, Ordering::Relaxed);
        self.0.why.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Inner {
    /// Memory of the peer's was lost. Called in the handler of a signal, hence nothing but a store and a system call.
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
    /// Readable when something was reported.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.news.as_fd()
    }
}

/// Takes back that `news` is readable.
pub fn clear(news: &OwnedFd) {
    // Fails only if it was not readable.
    let _ = rustix::io::read(news, &mut [0; 8]);
}
