//! A reference, either a plain one or one to a lent content.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use super::sealed::Mode;
use super::{Guard, Lent, Many};

/// Something to use for a while: a value that nobody takes away, or a lent content that the worker keeps until this is
/// dropped.
///
/// Using it costs the same for both. A lent content cannot be used any longer than that:
///
/// ```compile_fail,E0505
/// use netvale_mem::lent::{Lent, Loan, Many};
/// let lent: Lent<u32, Many> = Lent::with(1);
/// let loan = Loan::from(lent.enter().unwrap());
/// let content: &u32 = &loan;
/// drop(loan);
/// assert_eq!(*content, 1);
/// ```
///
/// And nothing is lent to a thread that must not have it:
///
/// ```compile_fail,E0277
/// use netvale_mem::lent::Loan;
/// let cell = std::cell::Cell::new(1);
/// let loan = Loan::from(&cell);
/// std::thread::scope(|s| s.spawn(move || loan.set(2)).join().unwrap());
/// ```
#[derive(Debug)]
pub struct Loan<'a, T> {
    /// Not a reference, as what it points to may be gone before the loan has been dropped to the end.
    content: NonNull<T>,
    /// The cell, if the content is lent.
    lent: Option<&'a Lent<T, Many>>,
    /// Makes the loan as `Send` and `Sync` as a reference.
    reference: PhantomData<&'a T>,
}

// SAFETY: it gives shared references, which need `Sync`, and leaves the cell, which is one atomic instruction and drops
// nothing.
unsafe impl<T: Send + Sync> Send for Loan<'_, T> {}

impl<'a, T> From<&'a T> for Loan<'a, T> {
    #[inline]
    fn from(content: &'a T) -> Self {
        Loan { content: NonNull::from(content), lent: None, reference: PhantomData }
    }
}

impl<'a, T> From<Guard<'a, T, Many>> for Loan<'a, T> {
    #[inline]
    fn from(guard: Guard<'a, T, Many>) -> Self {
        let (content, lent) = (NonNull::from(&*guard), guard.lent);
        // The loan leaves in place of the guard.
        std::mem::forget(guard);
        Loan { content, lent: Some(lent), reference: PhantomData }
    }
}

impl<T> Deref for Loan<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: made from a reference that outlives the loan, or from a guard whose place in `users` the loan took
        // over: until it is dropped the control thread, who alone replaces the content, stays out, and other workers
        // have shared references.
        unsafe { self.content.as_ref() }
    }
}

impl<T> Drop for Loan<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(lent) = self.lent {
            Many::leave(&lent.users);
        }
    }
}
