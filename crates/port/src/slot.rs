//! A place for a queue that the control thread fills and empties while workers use it.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// At most one thread is inside at a time. Workers are inside for a batch and never sleep there; nothing is queued, nobody is woken.
#[derive(Debug)]
pub struct Slot<T> {
    busy: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot { busy: AtomicBool::new(false), value: UnsafeCell::new(None) }
    }
}

// SAFETY: `busy` lets one thread in at a time.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    /// Goes in, if nobody is.
    #[inline]
    pub fn try_enter(&self) -> bool {
        !self.busy.load(Ordering::Relaxed) && !self.busy.swap(true, Ordering::Acquire)
    }

    /// Goes out again.
    ///
    /// # Safety
    /// This thread is inside, and uses no reference got there any more.
    #[inline]
    pub unsafe fn leave(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// What is inside.
    ///
    /// # Safety
    /// The caller is inside, until it has stopped using the reference; there is no other one.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "that one thread is inside is what makes it exclusive")]
    pub unsafe fn get(&self) -> Option<&mut T> {
        // SAFETY: the caller's.
        unsafe { (*self.value.get()).as_mut() }
    }

    /// Goes in as soon as nobody is, until the guard is dropped.
    #[inline]
    pub fn enter(&self) -> Inside<'_, T> {
        let mut looks = 0u32;
        while !self.try_enter() {
            looks += 1;
            // Whoever is inside may need this very CPU.
            if looks.is_multiple_of(64) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        Inside(self)
    }
}

/// Being inside.
pub struct Inside<'a, T>(&'a Slot<T>);

impl<T> Deref for Inside<'_, T> {
    type Target = Option<T>;

    #[inline]
    fn deref(&self) -> &Option<T> {
        // SAFETY: inside for as long as the guard lives, and borrowed through it only.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Inside<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Option<T> {
        // SAFETY: as above, exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Inside<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: two threads that go in and out never are inside together.
    #[test]
    fn one_at_a_time() {
        let slot = Slot::default();
        *slot.enter() = Some(0u64);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..10_000 {
                        if let Some(n) = slot.enter().as_mut() {
                            *n += 1;
                        }
                    }
                });
            }
        });
        assert_eq!(*slot.enter(), Some(20_000));
        assert!(slot.try_enter());
        assert!(!slot.try_enter());
    }
}
