//! Waiting while another process punches holes in a memory file.
//!
//! The file is locked while a hole is punched. mmap(2) and munmap(2) wait for that lock while they hold the lock of the
//! process's address space, and so stop every other thread that maps memory. A thread therefore waits until no hole is
//! being punched before it maps or unmaps a file. If the thread serves many users, a helper thread waits in its place
//! ([`HoleWaiter`]); if that wait takes too long, the thread does without the mapping.

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::SeekFrom;

use crate::toucher::Toucher;

thread_local! {
    /// The waiter that waits in place of this thread while holes are punched; `None` if the thread itself waits.
    static WAITER: RefCell<Option<Rc<HoleWaiter>>> = const { RefCell::new(None) };
}

/// Waits until no hole is being punched in a file: a seek to a hole waits for the lock that hole punching holds.
/// Restores the file position, which other processes share.
pub fn wait_for_holes(file: &OwnedFd) {
    if let Ok(position) = rustix::fs::tell(file) {
        let _ = rustix::fs::seek(file, SeekFrom::Hole(0));
        let _ = rustix::fs::seek(file, SeekFrom::Start(position));
    }
}

/// Waits until no hole is being punched in a file that the caller is about to map. Returns false if the file must not
/// be mapped: a [`HoleWaiter`] waits in place of this thread, and has reached its time limit.
pub fn may_be_mapped(file: &Arc<OwnedFd>) -> bool {
    let waiter = WAITER.with_borrow(Clone::clone);
    match waiter.as_deref().and_then(HoleWaiter::toucher) {
        Some(toucher) => {
            let file = Arc::clone(file);
            toucher.touch(move || wait_for_holes(&file)).is_some()
        }
        None => {
            wait_for_holes(file);
            true
        }
    }
}

/// A helper thread that waits, in place of a thread that maps files, until no hole is being punched in a file.
#[derive(Debug)]
pub struct HoleWaiter {
    news: Arc<OwnedFd>,
    /// The helper thread, started on first use.
    toucher: OnceCell<Arc<Toucher>>,
    was_late: Cell<bool>,
}

impl HoleWaiter {
    /// Creates a waiter with a helper thread of its own; `news`, an eventfd, becomes readable when a wait takes too
    /// long.
    pub fn new(news: &Arc<OwnedFd>) -> Rc<HoleWaiter> {
        Rc::new(HoleWaiter { news: Arc::clone(news), toucher: OnceCell::new(), was_late: Cell::new(false) })
    }

    /// Like [`HoleWaiter::new`], with an existing helper thread.
    pub fn by(news: &Arc<OwnedFd>, toucher: Arc<Toucher>) -> Rc<HoleWaiter> {
        let waiter = HoleWaiter::new(news);
        waiter.toucher.get_or_init(|| toucher);
        waiter
    }

    /// Runs `what`. Each time before `what` maps a file, this waiter waits in place of the calling thread.
    pub fn during<T>(self: &Rc<Self>, what: impl FnOnce() -> T) -> T {
        let before = WAITER.replace(Some(Rc::clone(self)));
        let done = what();
        WAITER.set(before);
        done
    }

    /// Whether any wait so far took too long.
    pub fn was_late(&self) -> bool {
        let is_late = self.toucher.get().is_some_and(|toucher| toucher.take_late());
        self.was_late.set(self.was_late.get() || is_late);
        self.was_late.get()
    }

    /// Returns the helper thread; `None` if it cannot be started.
    fn toucher(&self) -> Option<&Arc<Toucher>> {
        if self.toucher.get().is_none() {
            let started = Toucher::start("netvale-waits".to_owned(), &self.news).ok()?;
            self.toucher.get_or_init(|| Arc::new(started));
        }
        self.toucher.get()
    }
}
