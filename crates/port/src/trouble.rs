//! How workers tell a port's control thread of a peer that breaks the rules.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use netvale_mem::notify::Doorbell;
use rustix::io::Errno;

/// A place for the reason, and a bell. The mutex is only ever taken when something went wrong.
#[derive(Debug)]
pub struct Trouble<E> {
    bell: Arc<Doorbell>,
    why: Arc<Mutex<Option<E>>>,
}

impl<E> Clone for Trouble<E> {
    fn clone(&self) -> Self {
        Trouble { bell: Arc::clone(&self.bell), why: Arc::clone(&self.why) }
    }
}

impl<E> Trouble<E> {
    /// None yet.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new() -> Result<Self, Errno> {
        Ok(Trouble { bell: Arc::new(Doorbell::new()?), why: Arc::default() })
    }

    /// The peer is to be given up.
    #[cold]
    pub fn report(&self, why: E) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        self.bell.ring();
    }

    /// What was reported last, once.
    pub fn take(&self) -> Option<E> {
        self.bell.drain();
        self.why.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<E> AsFd for Trouble<E> {
    /// Readable when something was reported.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
