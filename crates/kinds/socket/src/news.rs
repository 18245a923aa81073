//! News of a peer: a worker's reports about the peer to the main thread.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use netvale_mem::fault::{Fault, raise};

/// The reason for disconnecting a peer that passed descriptors.
pub const PASSED: &str = "the peer passed descriptors: expected only frames";

/// Reports about a peer. Clones share the same reports.
#[derive(Clone, Debug)]
pub struct PeerNews(Arc<ToldOfPeer>);

#[derive(Debug)]
struct ToldOfPeer {
    fault: Fault,
    news: Arc<OwnedFd>,
    /// The peer has hung up.
    is_gone: AtomicBool,
    /// The peer has announced its end; frames that it sent before are still taken.
    is_ending: AtomicBool,
    /// Nobody receives the datagrams sent to the peer.
    is_missed: AtomicBool,
    /// Descriptors that the peer passed. Closing one may take long.
    strangers: Mutex<Vec<OwnedFd>>,
}

impl PeerNews {
    /// Creates an empty report; `news` becomes readable at the first report.
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

    /// Reports that the peer broke a rule.
    #[cold]
    pub fn report(&self, why: impl std::fmt::Display) {
        self.0.fault.report(why);
        self.gone();
    }

    /// Reports that the peer passed descriptors.
    #[cold]
    pub fn passed(&self, strangers: Vec<OwnedFd>) {
        self.0.strangers.lock().unwrap_or_else(PoisonError::into_inner).extend(strangers);
        self.report(PASSED);
    }

    /// Returns the descriptors that the peer passed; the caller closes the descriptors on a thread where closing may
    /// block.
    pub fn take_strangers(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.0.strangers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reports that the peer has hung up.
    #[cold]
    pub fn gone(&self) {
        if !self.0.is_gone.swap(true, Ordering::Relaxed) {
            raise(&self.0.news);
        }
    }

    /// Reports that nobody receives the datagrams sent to the peer.
    #[cold]
    pub fn missed(&self) {
        if !self.0.is_missed.swap(true, Ordering::Relaxed) {
            raise(&self.0.news);
        }
    }

    /// Returns whether, since the last call, a worker reported that nobody receives the datagrams sent to the peer.
    pub fn take_missed(&self) -> bool {
        self.0.is_missed.swap(false, Ordering::Relaxed)
    }

    /// Records that the peer has announced its end. The peer counts as gone once all its frames are taken from the
    /// socket.
    pub fn end(&self) {
        self.0.is_ending.store(true, Ordering::Relaxed);
    }

    /// Reports that the socket is empty. If the peer has announced its end, the peer is now gone.
    #[inline]
    pub fn found_nothing(&self) {
        if self.0.is_ending.load(Ordering::Relaxed) {
            self.gone();
        }
    }

    /// Returns whether the peer is gone or broke a rule.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.0.is_gone.load(Ordering::Relaxed)
    }

    /// Returns the rule that the peer broke; `None` if it broke none.
    pub fn reason(&self) -> Option<String> {
        self.0.fault.reason()
    }
}
