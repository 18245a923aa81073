//! A cell whose content a control thread puts in and takes out while workers use it: a queue lent to workers while a
//! peer is present.
//!
//! ```text
//!   control thread                        workers
//!   put(queue)  ───────────▶ [ queue ] ◀── enter … leave     uses the queue for a batch
//!   take()      ◀─────────── [       ] ◀── enter: Empty      there is nothing
//! ```
//!
//! No side waits for the other without a limit:
//!
//! - A worker that finds the control thread inside waits [`GLANCE`] for it (changes in place take a few instructions),
//!   then gets [`Away::Busy`]. It waits for other workers as long as it takes: workers never sleep inside.
//! - The control thread waits [`LIMIT`], during which no worker enters; then it gets [`InUse`] and gives up its peer.
//!   If it wanted to take the content out, the content is *retired*: no worker uses it again, and the next worker to
//!   enter, or the control thread's next visit, drops it. Contents keep alive everything they point to: a worker that
//!   is still inside does no harm.
//!
//! Exclusion rests on `users` alone: it counts the workers inside, or marks the control thread inside. `recall` only
//! holds the control thread's wishes. Workers read it *after* they have counted themselves; with both in one total
//! order (`SeqCst`), a worker that enters after the content was retired sees that it was. `tests/it/loom_lent.rs`
//! checks the interleavings.
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

/// How long the control thread waits for workers: longer than the half second for which a worker holds a batch for a
/// lossless receiver.
pub const LIMIT: Duration = Duration::from_secs(2);
/// How long a worker waits for the control thread, which is inside for a few instructions: longer only on a busy
/// machine, where it may lose the CPU for some scheduler slices.
pub const GLANCE: Duration = Duration::from_millis(10);

/// In `users`: the control thread is inside.
const CONTROL: u32 = 1 << 31;
/// In `recall`: the control thread waits to enter.
const WANTED: u32 = 1;
/// In `recall`: the next thread that enters must drop the content.
const RETIRED: u32 = 2;

/// A worker does not return its queue in time.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a worker did not return the queue within {} s", LIMIT.as_secs())]
pub struct InUse;

/// Why a worker cannot enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// There is no content.
    Empty,
    /// The control thread, or another worker, is inside: a content may be present.
    Busy,
}

impl Away {
    /// Whether the cell is occupied: the worker must try again before it sleeps.
    pub fn is_busy(self) -> bool {
        self == Away::Busy
    }
}

/// How many workers may be inside together: [`One`] or [`Many`].
pub trait Mode: sealed::Mode {}

/// One worker at a time; it may change the content.
#[derive(Debug)]
pub enum One {}

/// Any number of workers; the content itself prevents conflicts.
#[derive(Debug)]
pub enum Many {}

impl Mode for One {}
impl Mode for Many {}

mod sealed {
    use super::{AtomicU32, CONTROL, Many, One, Ordering};

    pub trait Mode {
        /// Counts a worker in, unless an excluding thread is inside.
        fn enter(users: &AtomicU32) -> bool;

        /// Counts a worker out.
        fn leave(users: &AtomicU32);
    }

    impl Mode for One {
        #[inline]
        fn enter(users: &AtomicU32) -> bool {
            users.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        }

        #[inline]
        fn leave(users: &AtomicU32) {
            // No other thread changes it while one worker is inside: no read-modify-write instruction needed.
            users.store(0, Ordering::Release);
        }
    }

    impl Mode for Many {
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

/// The cell. One control thread puts contents in and takes them out; other threads may [inspect](Lent::control) them.
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
/// Nor through the control thread's guard:
///
/// ```compile_fail,E0277
/// use netvale_mem::lent::Lent;
/// let lent: Lent<std::cell::Cell<u32>> = Lent::with(Default::default());
/// let guard = lent.control().unwrap();
/// std::thread::scope(|s| s.spawn(|| guard.as_ref().map(|cell| cell.set(1))).join().unwrap());
/// ```
///
/// Nor in a cell that several threads may enter together:
///
/// ```compile_fail,E0277
/// use netvale_mem::lent::{Lent, Many};
/// let lent: Lent<std::cell::Cell<u32>, Many> = Lent::with(Default::default());
/// std::thread::scope(|s| {
///     s.spawn(|| lent.enter().map(|guard| guard.set(1)).ok());
/// });
/// ```
///
/// Several workers together may not change the content:
///
/// ```compile_fail,E0596
/// use netvale_mem::lent::{Lent, Many};
/// let lent: Lent<Vec<u32>, Many> = Lent::with(Default::default());
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
pub struct Lent<T, M = One> {
    /// Workers inside, or [`CONTROL`].
    users: AtomicU32,
    /// [`WANTED`] and [`RETIRED`].
    recall: AtomicU32,
    content: UnsafeCell<Option<T>>,
    mode: PhantomData<M>,
}

// SAFETY: `users` lets one thread at a time hold a reference to the content; a shared `Lent` can move the content to
// another thread, so it has to be `Send`.
unsafe impl<T: Send> Sync for Lent<T, One> {}
// SAFETY: `users` lets either several workers hold shared references, so the content has to be `Sync`, or one control
// thread an exclusive one, which can move it to another thread, so it has to be `Send`.
unsafe impl<T: Send + Sync> Sync for Lent<T, Many> {}

impl<T, M: Mode> Default for Lent<T, M> {
    fn default() -> Self {
        Self::of(None)
    }
}

impl<T, M: Mode> Lent<T, M> {
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

    /// Lets a worker enter, until the guard is dropped.
    ///
    /// # Errors
    /// [`Away::Empty`] if there is no content; [`Away::Busy`] if the control thread stays inside or waits to enter for
    /// longer than [`GLANCE`].
    #[inline]
    pub fn enter(&self) -> Result<Guard<'_, T, M>, Away> {
        match self.step_in() {
            Err(Away::Busy) => self.wait()?,
            other => other?,
        }
        Ok(Guard { lent: self, content: PhantomData })
    }

    /// Like [`Lent::enter`], for a worker that does not wait.
    ///
    /// # Errors
    /// [`Away::Empty`] if there is no content; [`Away::Busy`] if an excluding thread is inside or waits to enter.
    #[inline]
    pub fn enter_now(&self) -> Result<Guard<'_, T, M>, Away> {
        self.step_in()?;
        Ok(Guard { lent: self, content: PhantomData })
    }

    /// Enters immediately if there is a content, or not at all.
    #[inline]
    fn step_in(&self) -> Result<(), Away> {
        if !M::enter(&self.users) {
            return Err(Away::Busy);
        }
        if self.recall.load(Ordering::SeqCst) != 0 {
            return Err(self.turn_back());
        }
        // SAFETY: this worker is counted in `users`: neither the control thread nor, in mode `One`, another worker
        // holds a reference; in mode `Many`, others hold shared ones like this.
        if unsafe { (*self.content.get()).is_none() } {
            M::leave(&self.users);
            return Err(Away::Empty);
        }
        Ok(())
    }

    /// Leaves again, as the content is recalled or retired; drops a retired one.
    #[cold]
    fn turn_back(&self) -> Away {
        if self.recall.load(Ordering::SeqCst) & RETIRED == 0 {
            M::leave(&self.users);
            return Away::Busy;
        }
        if self.users.compare_exchange(1, CONTROL, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            drop(Control { lent: self, waited: false, content: PhantomData }.fresh());
        } else {
            M::leave(&self.users);
        }
        Away::Empty
    }

    /// Enters once no excluding thread is inside, unless the control thread takes too long.
    #[cold]
    fn wait(&self) -> Result<(), Away> {
        let mut wait = WaitLimit::of_worker(GLANCE);
        loop {
            let recall = self.recall.load(Ordering::SeqCst);
            let users = self.users.load(Ordering::SeqCst);
            let is_for_control = recall & WANTED != 0 || users & CONTROL != 0;
            if !is_for_control {
                match self.step_in() {
                    // Another worker's turn does not count against the control thread.
                    Err(Away::Busy) if recall & RETIRED == 0 => wait.renew(GLANCE),
                    Err(Away::Busy) => return Err(Away::Empty),
                    other => return other,
                }
            }
            if !wait.pause() && is_for_control {
                return Err(Away::Busy);
            }
        }
    }

    /// Lets the control thread enter, until the guard is dropped: briefly, as workers wait.
    ///
    /// # Errors
    /// [`InUse`] if workers stay inside for longer than [`LIMIT`].
    #[inline]
    pub fn control(&self) -> Result<Control<'_, T, M>, InUse> {
        self.control_within(LIMIT, 0)
    }

    /// Enters within `limit`; after that sets `then` in `recall`, keeping other threads' bits.
    #[inline]
    fn control_within(&self, limit: Duration, then: u32) -> Result<Control<'_, T, M>, InUse> {
        let waited = !self.is_mine();
        if waited {
            self.wait_for_workers(limit, then)?;
        }
        let control = Control { lent: self, waited, content: PhantomData };
        if self.recall.load(Ordering::SeqCst) & RETIRED == 0 { Ok(control) } else { Ok(control.fresh()) }
    }

    #[inline]
    fn is_mine(&self) -> bool {
        self.users.compare_exchange(0, CONTROL, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait_for_workers(&self, limit: Duration, then: u32) -> Result<(), InUse> {
        // One full wait is enough for each content.
        let is_retired = self.recall.load(Ordering::SeqCst) & RETIRED != 0;
        let mut wait = WaitLimit::of_control(if is_retired { Duration::ZERO } else { limit });
        loop {
            // Set again each time: another control thread clears it when it leaves.
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

    /// Takes the content out. Called by the control thread.
    ///
    /// # Errors
    /// Like [`Lent::control`]; the content is then retired.
    pub fn take(&self) -> Result<Option<T>, InUse> {
        self.take_within(LIMIT)
    }

    /// Like [`Lent::take`], with its own limit.
    ///
    /// # Errors
    /// Like [`Lent::take`].
    pub fn take_within(&self, limit: Duration) -> Result<Option<T>, InUse> {
        self.control_within(limit, RETIRED).map(|mut control| control.take())
    }

    /// Whether the control thread waits, or has given up on the content: a worker inside must leave soon.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.recall.load(Ordering::Relaxed) != 0
    }
}

/// A worker inside, with access to the content.
#[derive(Debug)]
pub struct Guard<'a, T, M: Mode = One> {
    lent: &'a Lent<T, M>,
    /// `Send` and `Sync` only if this reference is.
    content: PhantomData<&'a mut T>,
}

impl<T, M: Mode> Deref for Guard<'_, T, M> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `step_in` found a content, and `users` counts this guard: until it is dropped, the control thread,
        // the only one to replace the content, stays out, and so do other workers in mode `One`; in mode `Many` they
        // hold shared references, too. This reference lives no longer than the guard.
        unsafe { (*self.lent.content.get()).as_ref().unwrap_unchecked() }
    }
}

impl<T> DerefMut for Guard<'_, T, One> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: `step_in` found a content, and `users` keeps all other threads out until this guard, borrowed
        // exclusively, is dropped.
        unsafe { (*self.lent.content.get()).as_mut().unwrap_unchecked() }
    }
}

impl<T, M: Mode> Drop for Guard<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        M::leave(&self.lent.users);
    }
}

/// The control thread inside, alone.
#[derive(Debug)]
pub struct Control<'a, T, M: Mode = One> {
    lent: &'a Lent<T, M>,
    /// Whether it had to wait: workers then turn back to let it in.
    waited: bool,
    content: PhantomData<&'a mut Option<T>>,
}

impl<T, M: Mode> Control<'_, T, M> {
    /// Drops a retired content first.
    #[cold]
    fn fresh(mut self) -> Self {
        drop(self.take());
        self.lent.recall.fetch_and(!RETIRED, Ordering::SeqCst);
        self
    }
}

impl<T, M: Mode> Deref for Control<'_, T, M> {
    type Target = Option<T>;

    #[inline]
    fn deref(&self) -> &Option<T> {
        // SAFETY: `users` is `CONTROL`, which only this guard set, from a moment when no thread was inside until it is
        // dropped: no other reference exists.
        unsafe { &*self.lent.content.get() }
    }
}

impl<T, M: Mode> DerefMut for Control<'_, T, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Option<T> {
        // SAFETY: `users` is `CONTROL`, which only this guard set, from a moment when no thread was inside until it is
        // dropped: no other reference exists, as the guard is borrowed exclusively.
        unsafe { &mut *self.lent.content.get() }
    }
}

impl<T, M: Mode> Drop for Control<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        // Workers of mode `Many` count themselves briefly even while the control thread is inside.
        self.lent.users.fetch_sub(CONTROL, Ordering::SeqCst);
        if self.waited {
            self.lent.recall.fetch_and(!WANTED, Ordering::SeqCst);
        }
    }
}
