//! Lent queues: a control thread puts a queue into a cell and takes it out while workers use it. The queue is the
//! cell's content, and present as long as its peer is connected.
//!
//! ```text
//!   control thread                        workers
//!   put(queue)  ───────────▶ [ queue ] ◀── enter … leave     use the queue for a batch
//!   take()      ◀─────────── [       ] ◀── enter: Empty      find no queue
//! ```
//!
//! A thread is *inside* while it may use the content. Neither side waits for the other without a limit:
//!
//! - A worker that finds the control thread inside waits up to [`GLANCE`] for it (changes in place take a few
//!   instructions), then gets [`EntryError::Busy`]. A worker waits for other workers without a limit: workers never
//!   sleep inside.
//! - The control thread waits up to [`LIMIT`], during which no worker enters; then it gets [`InUse`] and evicts the
//!   peer whose queue this is. If the control thread wanted to take the content out, the content is *retired*: no
//!   worker uses it again, and the next worker to enter, or the control thread's next visit, drops it. A content keeps
//!   alive everything to which it points, so a worker that is still inside does no harm.
//!
//! Exclusion depends on `users` alone, which counts the workers inside, or marks the control thread as inside. `recall`
//! only holds the control thread's requests. Workers read `recall` *after* they have counted themselves in `users`. As
//! both words are in one total order (`SeqCst`), a worker that enters after the content was retired sees the request.
//! `tests/it/loom_lent.rs` checks the interleavings.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;

mod borrower;
mod loan;
#[cfg(all(test, not(loom)))]
mod tests;
mod wait_limit;

pub use borrower::Borrower;
pub use loan::Loan;
use wait_limit::WaitLimit;

/// Maximum time for which the control thread waits for workers: longer than the half second for which a worker holds a
/// batch for a lossless receiver.
pub const LIMIT: Duration = Duration::from_secs(2);
/// Maximum time for which a worker waits for the control thread, which is inside for a few instructions; on a busy
/// machine it may lose the CPU meanwhile, for some time slices.
pub const GLANCE: Duration = Duration::from_millis(10);

/// Bit of `users`: the control thread is inside.
const CONTROL: u32 = 1 << 31;
/// Bit of `recall`: the control thread waits to enter.
const WANTED: u32 = 1;
/// Bit of `recall`: the content is retired; the next thread that enters must drop it.
const RETIRED: u32 = 2;

/// The error of a control thread: a worker did not leave in time.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a worker did not return the queue within {} s", LIMIT.as_secs())]
pub struct InUse;

/// The reason why a worker cannot enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryError {
    /// The cell has no content.
    Empty,
    /// The control thread, or another worker, is inside. The cell may have a content.
    Busy,
}

impl EntryError {
    /// Whether the cell is occupied: the worker must try again before it sleeps.
    pub fn is_busy(self) -> bool {
        self == EntryError::Busy
    }
}

/// How many workers may be inside a cell together: [`OneWorker`] or [`ManyWorkers`].
pub trait LentMode: sealed::LentMode {}

/// The mode with one worker at a time, which may change the content.
#[derive(Debug)]
pub enum OneWorker {}

/// The mode with any number of workers. The content itself prevents conflicts.
#[derive(Debug)]
pub enum ManyWorkers {}

impl LentMode for OneWorker {}
impl LentMode for ManyWorkers {}

mod sealed {
    use super::{AtomicU32, CONTROL, ManyWorkers, OneWorker, Ordering};

    pub trait LentMode {
        /// Counts a worker in, unless a thread that excludes the worker is inside. Returns whether the worker is now
        /// inside.
        fn enter(users: &AtomicU32) -> bool;

        /// Counts a worker out.
        fn leave(users: &AtomicU32);
    }

    impl LentMode for OneWorker {
        #[inline]
        fn enter(users: &AtomicU32) -> bool {
            users.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        }

        #[inline]
        fn leave(users: &AtomicU32) {
            // No other thread changes `users` while a worker is inside, so a plain store is enough.
            users.store(0, Ordering::Release);
        }
    }

    impl LentMode for ManyWorkers {
        #[inline]
        fn enter(users: &AtomicU32) -> bool {
            let is_free = users.fetch_add(1, Ordering::SeqCst) & CONTROL == 0;
            if !is_free {
                users.fetch_sub(1, Ordering::Relaxed);
            }
            is_free
        }

        #[inline]
        fn leave(users: &AtomicU32) {
            users.fetch_sub(1, Ordering::Release);
        }
    }
}

/// A cell for a content, usually a queue. One control thread puts contents in and takes them out; other threads may
/// [inspect](Lent::control) the content.
///
/// A content that is not `Sync` cannot be shared through a worker's guard:
///
/// ```compile_fail,E0277
/// use netvale_mem::lent::Lent;
/// let lent: Lent<std::cell::Cell<u32>> = Lent::with(Default::default());
/// let guard = lent.enter().unwrap();
/// std::thread::scope(|s| {
///     s.spawn(|| guard.set(guard.get() + 1));
///     guard.set(guard.get() + 1);
/// });
/// ```
///
/// It cannot be shared through the control thread's guard, either:
///
/// ```compile_fail,E0277
/// use netvale_mem::lent::Lent;
/// let lent: Lent<std::cell::Cell<u32>> = Lent::with(Default::default());
/// let guard = lent.control().unwrap();
/// std::thread::scope(|s| s.spawn(|| guard.as_ref().map(|cell| cell.set(1))).join().unwrap());
/// ```
///
/// Nor can it be in a cell that several workers may enter together:
///
/// ```compile_fail,E0277
/// use netvale_mem::lent::{Lent, ManyWorkers};
/// let lent: Lent<std::cell::Cell<u32>, ManyWorkers> = Lent::with(Default::default());
/// std::thread::scope(|s| {
///     s.spawn(|| lent.enter().map(|guard| guard.set(1)).ok());
/// });
/// ```
///
/// Workers of mode `ManyWorkers` may not change the content:
///
/// ```compile_fail,E0596
/// use netvale_mem::lent::{Lent, ManyWorkers};
/// let lent: Lent<Vec<u32>, ManyWorkers> = Lent::with(Default::default());
/// lent.enter().unwrap().push(1);
/// ```
///
/// A content that is not `Send` cannot leave its thread:
///
/// ```compile_fail,E0277
/// use netvale_mem::lent::Lent;
/// let lent: Lent<std::rc::Rc<u32>> = Lent::with(Default::default());
/// std::thread::scope(|s| {
///     s.spawn(|| lent.take());
/// });
/// ```
#[derive(Debug)]
pub struct Lent<T, M = OneWorker> {
    /// Number of workers inside; [`CONTROL`] is set while the control thread is inside.
    users: AtomicU32,
    /// Requests of the control thread: [`WANTED`] and [`RETIRED`].
    recall: AtomicU32,
    content: UnsafeCell<Option<T>>,
    mode: PhantomData<M>,
}

// SAFETY: `users` lets one thread at a time hold a reference to the content; a shared `Lent` can move the content to
// another thread, so it has to be `Send`.
unsafe impl<T: Send> Sync for Lent<T, OneWorker> {}
// SAFETY: `users` lets either several workers hold shared references, so the content has to be `Sync`, or one control
// thread hold an exclusive reference, through which it can move the content to another thread, so the content has to be
// `Send`.
unsafe impl<T: Send + Sync> Sync for Lent<T, ManyWorkers> {}

impl<T, M: LentMode> Default for Lent<T, M> {
    fn default() -> Self {
        Self::of(None)
    }
}

impl<T, M: LentMode> Lent<T, M> {
    /// Creates a cell with a content.
    pub fn with(content: T) -> Self {
        Self::of(Some(content))
    }

    fn of(content: Option<T>) -> Self {
        Lent {
            users: AtomicU32::new(0),
            recall: AtomicU32::new(0),
            content: UnsafeCell::new(content),
            mode: PhantomData,
        }
    }

    /// Lets a worker enter, to use the content. The worker leaves when the guard is dropped.
    ///
    /// # Errors
    /// [`EntryError::Empty`] if there is no content; [`EntryError::Busy`] if the control thread stays inside or waits
    /// to enter for longer than [`GLANCE`].
    #[inline]
    pub fn enter(&self) -> Result<LentGuard<'_, T, M>, EntryError> {
        match self.step_in() {
            Err(EntryError::Busy) => self.wait()?,
            other => other?,
        }
        Ok(LentGuard { lent: self, content: PhantomData })
    }

    /// Like [`Lent::enter`], without waiting.
    ///
    /// # Errors
    /// [`EntryError::Empty`] if there is no content; [`EntryError::Busy`] if a thread that excludes this worker is
    /// inside or waits to enter.
    #[inline]
    pub fn enter_now(&self) -> Result<LentGuard<'_, T, M>, EntryError> {
        self.step_in()?;
        Ok(LentGuard { lent: self, content: PhantomData })
    }

    /// Enters if that is possible immediately and there is a content.
    #[inline]
    fn step_in(&self) -> Result<(), EntryError> {
        if !M::enter(&self.users) {
            return Err(EntryError::Busy);
        }
        if self.recall.load(Ordering::SeqCst) != 0 {
            return Err(self.turn_back());
        }
        // SAFETY: this worker is counted in `users`: neither the control thread nor, in mode `OneWorker`, another
        // worker holds a reference; in mode `ManyWorkers`, other workers hold shared references like this one.
        if unsafe { (*self.content.get()).is_none() } {
            M::leave(&self.users);
            return Err(EntryError::Empty);
        }
        Ok(())
    }

    /// Leaves again because the control thread has a request. Drops a retired content, if no other worker is inside.
    #[cold]
    fn turn_back(&self) -> EntryError {
        if self.recall.load(Ordering::SeqCst) & RETIRED == 0 {
            M::leave(&self.users);
            return EntryError::Busy;
        }
        if self.users.compare_exchange(1, CONTROL, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            drop(LentControl { lent: self, waited: false, content: PhantomData }.fresh());
        } else {
            M::leave(&self.users);
        }
        EntryError::Empty
    }

    /// Enters once no thread is inside that excludes this worker, unless the control thread takes too long.
    #[cold]
    fn wait(&self) -> Result<(), EntryError> {
        let mut wait = WaitLimit::of_worker(GLANCE);
        loop {
            let recall = self.recall.load(Ordering::SeqCst);
            let users = self.users.load(Ordering::SeqCst);
            let is_for_control = recall & WANTED != 0 || users & CONTROL != 0;
            if !is_for_control {
                match self.step_in() {
                    // The limit applies to the control thread only: while another worker is inside, the limit starts
                    // anew.
                    Err(EntryError::Busy) if recall & RETIRED == 0 => wait.renew(GLANCE),
                    Err(EntryError::Busy) => return Err(EntryError::Empty),
                    other => return other,
                }
            }
            if !wait.pause() && is_for_control {
                return Err(EntryError::Busy);
            }
        }
    }

    /// Lets the control thread enter, to change the content. The control thread leaves when it drops the guard, which
    /// it must do soon, as workers wait.
    ///
    /// # Errors
    /// [`InUse`] if workers stay inside for longer than [`LIMIT`].
    #[inline]
    pub fn control(&self) -> Result<LentControl<'_, T, M>, InUse> {
        self.control_within(LIMIT, 0)
    }

    /// Lets the control thread enter within `limit`. On failure, sets the bits `then` of `recall`.
    #[inline]
    fn control_within(&self, limit: Duration, then: u32) -> Result<LentControl<'_, T, M>, InUse> {
        let waited = !self.is_mine();
        if waited {
            self.wait_for_workers(limit, then)?;
        }
        let control = LentControl { lent: self, waited, content: PhantomData };
        if self.recall.load(Ordering::SeqCst) & RETIRED == 0 { Ok(control) } else { Ok(control.fresh()) }
    }

    #[inline]
    fn is_mine(&self) -> bool {
        self.users.compare_exchange(0, CONTROL, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait_for_workers(&self, limit: Duration, then: u32) -> Result<(), InUse> {
        // The control thread has already waited for a content that is retired.
        let is_retired = self.recall.load(Ordering::SeqCst) & RETIRED != 0;
        let mut wait = WaitLimit::of_control(if is_retired { Duration::ZERO } else { limit });
        loop {
            // The bit is set again each time, as another control thread clears the bit when it leaves.
            self.recall.fetch_or(WANTED, Ordering::SeqCst);
            if self.is_mine() {
                return Ok(());
            }
            if !wait.pause() {
                self.recall.fetch_or(then, Ordering::SeqCst);
                self.recall.fetch_and(!WANTED, Ordering::SeqCst);
                return Err(InUse);
            }
        }
    }

    /// Puts a content in, and drops the previous one. Called by the control thread.
    ///
    /// # Errors
    /// Like [`Lent::control`].
    pub fn put(&self, content: T) -> Result<(), InUse> {
        let old = self.control()?.replace(content);
        drop(old);
        Ok(())
    }

    /// Takes the content out; `None` if the cell has no content. Called by the control thread.
    ///
    /// # Errors
    /// Like [`Lent::control`]; the content is then retired.
    pub fn take(&self) -> Result<Option<T>, InUse> {
        self.take_within(LIMIT)
    }

    /// Like [`Lent::take`], with another limit.
    ///
    /// # Errors
    /// Like [`Lent::take`].
    pub fn take_within(&self, limit: Duration) -> Result<Option<T>, InUse> {
        self.control_within(limit, RETIRED).map(|mut control| control.take())
    }

    /// Whether the control thread waits, or has retired the content: a worker inside must leave soon.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.recall.load(Ordering::Relaxed) != 0
    }
}

/// A worker that is inside, with access to the content. Dropping this lets the worker leave.
#[derive(Debug)]
pub struct LentGuard<'a, T, M: LentMode = OneWorker> {
    lent: &'a Lent<T, M>,
    /// Makes the guard `Send` and `Sync` only if this reference is.
    content: PhantomData<&'a mut T>,
}

impl<T, M: LentMode> Deref for LentGuard<'_, T, M> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `step_in` found a content, and `users` counts this guard: until it is dropped, the control thread,
        // the only one to replace the content, stays out, and so do other workers in mode `OneWorker`; in mode
        // `ManyWorkers` they hold shared references, too. This reference lives no longer than the guard.
        unsafe { (*self.lent.content.get()).as_ref().unwrap_unchecked() }
    }
}

impl<T> DerefMut for LentGuard<'_, T, OneWorker> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: `step_in` found a content, and `users` keeps all other threads out until this guard, borrowed
        // exclusively, is dropped.
        unsafe { (*self.lent.content.get()).as_mut().unwrap_unchecked() }
    }
}

impl<T, M: LentMode> Drop for LentGuard<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        M::leave(&self.lent.users);
    }
}

/// Guard of the control thread while it is inside, with exclusive access to the content. Dropping the guard makes the
/// thread leave.
#[derive(Debug)]
pub struct LentControl<'a, T, M: LentMode = OneWorker> {
    lent: &'a Lent<T, M>,
    /// Whether the thread had to wait, and must withdraw its request ([`WANTED`]).
    waited: bool,
    content: PhantomData<&'a mut Option<T>>,
}

impl<T, M: LentMode> LentControl<'_, T, M> {
    /// Drops a retired content, and clears [`RETIRED`].
    #[cold]
    fn fresh(mut self) -> Self {
        drop(self.take());
        self.lent.recall.fetch_and(!RETIRED, Ordering::SeqCst);
        self
    }
}

impl<T, M: LentMode> Deref for LentControl<'_, T, M> {
    type Target = Option<T>;

    #[inline]
    fn deref(&self) -> &Option<T> {
        // SAFETY: this guard set `CONTROL` in `users` when no thread was inside, and no thread enters until the guard
        // is dropped: no other reference exists.
        unsafe { &*self.lent.content.get() }
    }
}

impl<T, M: LentMode> DerefMut for LentControl<'_, T, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Option<T> {
        // SAFETY: this guard set `CONTROL` in `users` when no thread was inside, and no thread enters until the guard
        // is dropped. The guard is borrowed exclusively, so no other reference exists.
        unsafe { &mut *self.lent.content.get() }
    }
}

impl<T, M: LentMode> Drop for LentControl<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        // A subtraction: workers of mode `ManyWorkers` count themselves briefly even while the control thread is
        // inside.
        self.lent.users.fetch_sub(CONTROL, Ordering::SeqCst);
        if self.waited {
            self.lent.recall.fetch_and(!WANTED, Ordering::SeqCst);
        }
    }
}
