//! Waiting while another process punches holes in a memory file.
//!
//! The file is locked while a hole is punched. mmap(2) and munmap(2) wait for that lock while they hold a lock of the
//! whole process, so a thread first waits for the hole without that lock. A thread that serves many users lets another
//! thread wait for the files that it maps ([`HoleWaiter`]), and proceeds without the mapping if that takes too long.

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::SeekFrom;

use crate::toucher::Toucher;

thread_local! {
    /// The waiter that waits for holes in place of this thread, if any.
    static WAITER: RefCell<Option<Rc<HoleWaiter>>> = const { RefCell::new(None) };
}

/// Waits until no hole is being punched in a file, by a seek to a hole, which takes the same lock. Restores the file
/// position, which other processes share.
pub fn wait_for_holes(file: &OwnedFd) {
    if let Ok(position) = rustix::fs::tell(file) {
        let _ = rustix::fs::seek(file, SeekFrom::Hole(0));
        let _ = rustix::fs::seek(file, SeekFrom::Start(position));
    }
}

/// Waits for holes before a file is mapped. Returns whether the file may be mapped: always, unless a [`HoleWaiter`]
/// reached its limit.
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

/// Lets a thread of its own wait for holes in place of a thread that maps files.
#[derive(Debug)]
pub struct HoleWaiter {
    news: Arc<OwnedFd>,
    /// The thread that waits, started on first use.
    toucher: OnceCell<Arc<Toucher>>,
    was_late: Cell<bool>,
}

impl HoleWaiter {
    /// Creates a waiter with its own thread; `news` becomes readable when a wait takes too long.
    pub fn new(news: &Arc<OwnedFd>) -> Rc<HoleWaiter> {
        Rc::new(HoleWaiter { news: Arc::clone(news), toucher: OnceCell::new(), was_late: Cell::new(false) })
    }

    /// Creates a waiter with an existing thread.
    pub fn by(news: &Arc<OwnedFd>, toucher: Arc<Toucher>) -> Rc<HoleWaiter> {
        let waiter = HoleWaiter::new(news);
        waiter.toucher.get_or_init(|| toucher);
        waiter
    }

    /// Runs `what`. For files that the calling thread maps meanwhile, this waiter waits for holes.
    pub fn during<T>(self: &Rc<Self>, what: impl FnOnce() -> T) -> T {
        let before = WAITER.replace(Some(Rc::clone(self)));
        let done = what();
        WAITER.set(before);
        done
    }

    /// Whether a wait took too long.
    pub fn was_late(&self) -> bool {
        let is_late = self.toucher.get().is_some_and(|toucher| toucher.take_late());
        self.was_late.set(self.was_late.get() || is_late);
        self.was_late.get()
    }

    /// Returns the thread that waits; `None` if it cannot be started.
    fn toucher(&self) -> Option<&Arc<Toucher>> {
        if self.toucher.get().is_none() {
            let started = Toucher::start("netvale-waits".to_owned(), &self.news).ok()?;
            self.toucher.get_or_init(|| Arc::new(started));
        }
        self.toucher.get()
    }
}
