//! Waiting for holes that somebody makes in a file of memory.
//!
//! Who makes one has a lock of the file for as long as that takes. Mapping and unmapping wait for it with a lock of the
//! whole process in their hands, so the hole is waited for first, without. A thread that serves many has another one
//! wait for what it maps ([`HoleWaiter`]), and goes on without when that takes too long.

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::SeekFrom;

use crate::toucher::Toucher;

thread_local! {
    /// Who waits in this thread's place.
    static WAITER: RefCell<Option<Rc<HoleWaiter>>> = const { RefCell::new(None) };
}

/// Waits until no hole is being made in a file: looking for one takes the same lock. The position, which others share,
/// stays.
pub fn wait_for_holes(file: &OwnedFd) {
    if let Ok(position) = rustix::fs::tell(file) {
        let _ = rustix::fs::seek(file, SeekFrom::Hole(0));
        let _ = rustix::fs::seek(file, SeekFrom::Start(position));
    }
}

/// The same before a file is mapped. Returns whether none is being made any more, which is always so unless a
/// [`HoleWaiter`] waits.
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

/// Waits in another thread's place.
#[derive(Debug)]
pub struct HoleWaiter {
    news: Arc<OwnedFd>,
    /// Started when it is needed.
    toucher: OnceCell<Arc<Toucher>>,
    was_late: Cell<bool>,
}

impl HoleWaiter {
    /// Creates one that has a thread of its own; `news` becomes readable when something takes too long.
    pub fn new(news: &Arc<OwnedFd>) -> Rc<HoleWaiter> {
        Rc::new(HoleWaiter { news: Arc::clone(news), toucher: OnceCell::new(), was_late: Cell::new(false) })
    }

    /// Creates one whose thread is there already.
    pub fn by(news: &Arc<OwnedFd>, toucher: Arc<Toucher>) -> Rc<HoleWaiter> {
        let waiter = HoleWaiter::new(news);
        waiter.toucher.get_or_init(|| toucher);
        waiter
    }

    /// Waits for holes in what the calling thread maps during `what`.
    pub fn during<T>(self: &Rc<Self>, what: impl FnOnce() -> T) -> T {
        let before = WAITER.replace(Some(Rc::clone(self)));
        let done = what();
        WAITER.set(before);
        done
    }

    /// Whether something took too long.
    pub fn was_late(&self) -> bool {
        let is_late = self.toucher.get().is_some_and(|toucher| toucher.take_late());
        self.was_late.set(self.was_late.get() || is_late);
        self.was_late.get()
    }

    /// `None`: there can be no thread.
    fn toucher(&self) -> Option<&Arc<Toucher>> {
        if self.toucher.get().is_none() {
            let started = Toucher::start("netvale-waits".to_owned(), &self.news).ok()?;
            self.toucher.get_or_init(|| Arc::new(started));
        }
        self.toucher.get()
    }
}
