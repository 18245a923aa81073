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
pub const BLOCKED: &str = "a doorbell of its is full and blocks: whoever rings it would sleep";

/// One peer's faults. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Fault(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// An eventfd that never leaves this process. Several peers may share one.
    news: Arc<OwnedFd>,
    blocked: AtomicBool,
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
        Fault(Arc::new(Inner { news: Arc::clone(news), blocked: AtomicBool::new(false), why: Mutex::default() }))
    }

    /// The peer is to be given up. The first reason counts.
    #[cold]
    pub fn report(&self, why: impl Display) {
        self.0.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.to_string());
        // Fails only if the counter is full: it is readable then.
        let _ = rustix::io::write(&*self.0.news, &1u64.to_ne_bytes());
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
        self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was reported, once, for a fault whose news are its own: the next peer may begin.
    pub fn take(&self) -> Option<String> {
        clear(&self.0.news);
        self.0.blocked.store(false, Ordering::Relaxed);
        self.0.why.lock().unwrap_or_else(PoisonError::into_inner).take()
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
