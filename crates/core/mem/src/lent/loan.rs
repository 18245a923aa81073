//! Loans: plain references, or references to lent contents.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use super::sealed::LentMode;
use super::{Lent, LentGuard, ManyWorkers};

/// A reference to a value: a plain reference, or a reference to a lent content; the content stays lent to the worker
/// until the loan is dropped.
///
/// An access costs the same through both kinds of reference. A reference to a lent content cannot outlive the loan:
///
/// ```compile_fail,E0505
/// use netvale_mem::lent::{Lent, Loan, ManyWorkers};
/// let lent: Lent<u32, ManyWorkers> = Lent::with(1);
/// let loan = Loan::from(lent.enter().unwrap());
/// let content: &u32 = &loan;
/// drop(loan);
/// assert_eq!(*content, 1);
/// ```
///
/// A loan cannot move to a thread that may not access the content:
///
/// ```compile_fail,E0277
/// use netvale_mem::lent::Loan;
/// let cell = std::cell::Cell::new(1);
/// let loan = Loan::from(&cell);
/// std::thread::scope(|s| s.spawn(move || loan.set(2)).join().unwrap());
/// ```
#[derive(Debug)]
pub struct Loan<'a, T> {
    /// A pointer, not a reference: the content may be gone before the drop of the loan ends.
    content: NonNull<T>,
    /// The cell, if the content is lent.
    lent: Option<&'a Lent<T, ManyWorkers>>,
    /// Makes the compiler treat the loan like a reference to the content.
    reference: PhantomData<&'a T>,
}

// SAFETY: a loan gives shared references, which need `Sync`. The drop of a loan only counts the worker out of the cell
// (an atomic subtraction), and drops no content.
unsafe impl<T: Send + Sync> Send for Loan<'_, T> {}

impl<'a, T> From<&'a T> for Loan<'a, T> {
    #[inline]
    fn from(content: &'a T) -> Self {
        Loan { content: NonNull::from(content), lent: None, reference: PhantomData }
    }
}

impl<'a, T> From<LentGuard<'a, T, ManyWorkers>> for Loan<'a, T> {
    #[inline]
    fn from(guard: LentGuard<'a, T, ManyWorkers>) -> Self {
        let content = NonNull::from(&*guard);
        let lent = guard.lent;
        // The drop of the loan, not of the guard, counts the worker out.
        std::mem::forget(guard);
        Loan { content, lent: Some(lent), reference: PhantomData }
    }
}

impl<T> Deref for Loan<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `content` comes from a reference that outlives the loan, or from a guard whose place in `users` the
        // loan took over: until the loan is dropped, the control thread, which alone replaces the content, stays out,
        // and other workers hold shared references.
        unsafe { self.content.as_ref() }
    }
}

impl<T> Drop for Loan<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(lent) = self.lent {
            ManyWorkers::leave(&lent.users);
        }
    }
}
