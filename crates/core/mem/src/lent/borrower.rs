//! A worker's handle to a lent queue.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::sealed::Mode;
use super::{Away, Lent, One};

/// A worker's handle to a cell, for staying inside across calls: from taking a batch to releasing it.
///
/// A reference ends when the worker leaves:
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
    /// Creates a handle that is not inside.
    pub fn new(lent: Arc<Lent<T>>) -> Self {
        Borrower { lent, inside: false }
    }

    /// Enters, without waiting, and stays until [`Borrower::leave`].
    ///
    /// # Errors
    /// [`Away`] if there is no content, or an excluding thread is inside.
    #[inline]
    pub fn enter(&mut self) -> Result<&mut T, Away> {
        if !self.inside {
            self.lent.step_in()?;
            self.inside = true;
        }
        self.content().ok_or(Away::Empty)
    }

    /// The content, if the handle is inside.
    #[inline]
    pub fn content(&mut self) -> Option<&mut T> {
        // SAFETY: `inside` says that this handle, borrowed exclusively, is counted in `users`, which keeps all other
        // threads out until `leave`; that takes the handle exclusively, so this reference has ended by then.
        if self.inside { unsafe { (*self.lent.content.get()).as_mut() } } else { None }
    }

    /// Leaves, if inside.
    #[inline]
    pub fn leave(&mut self) {
        if std::mem::take(&mut self.inside) {
            One::leave(&self.lent.users);
        }
    }

    /// Whether it is inside.
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.inside
    }

    /// Whether it is inside and must leave soon.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.inside && self.lent.is_wanted()
    }

    /// Enters, calls `look`, and leaves, for a worker that does not stay.
    ///
    /// # Errors
    /// [`Away::Busy`] also if it is inside already.
    pub fn visit<R>(&mut self, look: impl FnOnce(&mut T) -> R) -> Result<R, Away> {
        if self.inside { Err(Away::Busy) } else { self.lent.enter().map(|mut content| look(&mut content)) }
    }
}

impl<T> Drop for Borrower<T> {
    fn drop(&mut self) {
        self.leave();
    }
}
