//! A worker's handle to a lent queue.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::sealed::LentMode;
use super::{EntryError, Lent, OneWorker};

/// A worker's handle to a lent queue, with which the worker stays inside (has access to the queue) across calls, from
/// the intake of a batch to the batch's release.
///
/// References to the content end when the worker leaves:
///
/// ```compile_fail,E0499
/// use netvale_mem::lent::{Borrower, Lent};
/// let mut worker = Borrower::new(std::sync::Arc::new(Lent::with(1)));
/// let content = worker.enter().unwrap();
/// worker.leave();
/// *content = 2;
/// ```
#[derive(Debug)]
pub struct Borrower<T> {
    lent: Arc<Lent<T>>,
    inside: bool,
}

impl<T> Borrower<T> {
    /// Creates a handle. The worker is not inside yet.
    pub fn new(lent: Arc<Lent<T>>) -> Self {
        Borrower { lent, inside: false }
    }

    /// Enters, without waiting, and stays inside until [`Borrower::leave`].
    ///
    /// # Errors
    /// [`EntryError`] if there is no content, or a thread is inside that excludes this worker.
    #[inline]
    pub fn enter(&mut self) -> Result<&mut T, EntryError> {
        if !self.inside {
            self.lent.step_in()?;
            self.inside = true;
        }
        self.content().ok_or(EntryError::Empty)
    }

    /// The content; `None` if the worker is not inside.
    #[inline]
    pub fn content(&mut self) -> Option<&mut T> {
        // SAFETY: `inside` means that `users` counts this handle, which is borrowed exclusively, and keeps all other
        // threads out until `leave`. `leave` borrows the handle exclusively, so this reference has ended by then.
        if self.inside { unsafe { (*self.lent.content.get()).as_mut() } } else { None }
    }

    /// Leaves, if the worker is inside.
    #[inline]
    pub fn leave(&mut self) {
        if std::mem::take(&mut self.inside) {
            OneWorker::leave(&self.lent.users);
        }
    }

    /// Whether the worker is inside.
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.inside
    }

    /// Whether the worker is inside and must leave soon, as the control thread waits.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.inside && self.lent.is_wanted()
    }

    /// Enters, calls `look`, and leaves, for a worker that does not stay.
    ///
    /// # Errors
    /// Like [`Lent::enter`]; also [`EntryError::Busy`] if the worker is inside already.
    pub fn visit<R>(&mut self, look: impl FnOnce(&mut T) -> R) -> Result<R, EntryError> {
        if self.inside { Err(EntryError::Busy) } else { self.lent.enter().map(|mut content| look(&mut content)) }
    }
}

impl<T> Drop for Borrower<T> {
    fn drop(&mut self) {
        self.leave();
    }
}
