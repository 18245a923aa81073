//! A plain reference, or a reference to a lent content.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use super::sealed::Mode;
use super::{Guard, Lent, Many};

/// A value to use for a while: a plain reference, or a lent content that the worker keeps until this is dropped.
///
/// Using it costs the same for both. A lent content cannot outlive the loan:
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
/// And the loan cannot move to a thread that must not have the content:
///
/// ```compile_fail,E0277
/// use netvale_mem::lent::Loan;
/// let cell = std::cell::Cell::new(1);
/// let loan = Loan::from(&cell);
/// std::thread::scope(|s| s.spawn(move || loan.set(2)).join().unwrap());
/// ```
#[derive(Debug)]
pub struct Loan<'a, T> {
    /// Not a reference, as its target may be gone before the drop of the loan ends.
    content: NonNull<T>,
    /// The cell, if the content is lent.
    lent: Option<&'a Lent<T, Many>>,
    /// Makes the loan as `Send` and `Sync` as a reference.
    reference: PhantomData<&'a T>,
}

// SAFETY: it gives shared references, which need `Sync`, and leaves the cell, which is one atomic instruction and drops
// no content.
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
        let content = NonNull::from(&*guard);
        let lent = guard.lent;
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
        // over: until it is dropped, the control thread, the only one to replace the content, stays out, and other
        // workers hold shared references.
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
