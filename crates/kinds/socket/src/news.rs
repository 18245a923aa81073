//! News of a peer, from workers for the main thread.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use netvale_mem::fault::{Fault, raise};

/// The reason for a peer that passed descriptors.
pub const PASSED: &str = "it passed descriptors: frames are expected";

/// What is told of a peer. Clones are the same.
#[derive(Clone, Debug)]
pub struct PeerNews(Arc<ToldOfPeer>);

#[derive(Debug)]
struct ToldOfPeer {
    fault: Fault,
    news: Arc<OwnedFd>,
    /// It has hung up.
    is_gone: AtomicBool,
    /// It has said that it goes: what it has sent is still taken.
    is_ending: AtomicBool,
    /// Nobody takes its datagrams at the moment.
    is_missed: AtomicBool,
    /// Descriptors that it passed. Closing one may take long.
    strangers: Mutex<Vec<OwnedFd>>,
}

impl PeerNews {
    /// Nothing is told yet; `news` becomes readable when something is.
    pub fn new(news: &Arc<OwnedFd>) -> PeerNews {
        PeerNews(Arc::new(ToldOfPeer {
            fault: Fault::told_by(news),
            news: Arc::clone(news),
            is_gone: AtomicBool::default(),
            is_ending: AtomicBool::default(),
            is_missed: AtomicBool::default(),
            strangers: Mutex::default(),
        }))
    }

    /// It broke a rule.
    #[cold]
    pub fn report(&self, why: impl std::fmt::Display) {
        self.0.fault.report(why);
        self.gone();
    }

    /// It passed descriptors.
    #[cold]
    pub fn passed(&self, strangers: Vec<OwnedFd>) {
        self.0.strangers.lock().unwrap_or_else(PoisonError::into_inner).extend(strangers);
        self.report(PASSED);
    }

    /// The descriptors that it passed, for who can close them.
    pub fn take_strangers(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.0.strangers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// It has hung up.
    #[cold]
    pub fn gone(&self) {
        if !self.0.is_gone.swap(true, Ordering::Relaxed) {
            raise(&self.0.news);
        }
    }

    /// Nobody takes its datagrams.
    #[cold]
    pub fn missed(&self) {
        if !self.0.is_missed.swap(true, Ordering::Relaxed) {
            raise(&self.0.news);
        }
    }

    /// Whether somebody found that since the last call.
    pub fn take_missed(&self) -> bool {
        self.0.is_missed.swap(false, Ordering::Relaxed)
    }

    /// It goes once all is taken that it has sent.
    pub fn end(&self) {
        self.0.is_ending.store(true, Ordering::Relaxed);
    }

    /// Nothing more waits there.
    #[inline]
    pub fn found_nothing(&self) {
        if self.0.is_ending.load(Ordering::Relaxed) {
            self.gone();
        }
    }

    /// Whether it is gone, or broke a rule.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.0.is_gone.load(Ordering::Relaxed)
    }

    /// The rule that it broke.
    pub fn reason(&self) -> Option<String> {
        self.0.fault.reason()
    }
}
