//! Lists of fixed capacity that share one allocation.
//!
//! An allocator keeps a header beside each allocation, so that each allocation touches a page even if it is never used.
//! Each port has lists for frames that may never come: in one allocation, all of them together touch one page.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The alignment of the memory, and thus the largest alignment of a list's values.
const ALIGN: usize = 16;

/// Memory for several lists.
#[derive(Debug)]
pub(crate) struct ListMemory {
    start: NonNull<u8>,
    layout: Layout,
    /// Number of bytes that belong to lists.
    used: usize,
}

/// A list of at most `capacity` values in a [`ListMemory`].
#[derive(Debug)]
pub(crate) struct List<T: Copy> {
    start: NonNull<T>,
    len: usize,
    capacity: usize,
}

impl ListMemory {
    /// Returns the number of bytes that a list takes.
    pub const fn bytes<T: Copy>(capacity: usize) -> usize {
        (capacity * size_of::<T>()).next_multiple_of(ALIGN)
    }

    /// Allocates `bytes` bytes, at least one list's.
    pub fn new(bytes: usize) -> ListMemory {
        assert!(bytes > 0 && bytes <= isize::MAX as usize / 2, "the lists of a batch are small");
        let layout = Layout::from_size_align(bytes, ALIGN).unwrap_or_else(|_| Layout::new::<[u128; 1]>());
        // SAFETY: the size is not zero.
        let start = unsafe { alloc(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        ListMemory { start, layout, used: 0 }
    }

    /// Creates an empty list.
    ///
    /// # Safety
    /// The list must not be used after this memory is dropped.
    ///
    /// # Panics
    /// If the memory has no room for the list.
    pub unsafe fn list<T: Copy>(&mut self, capacity: usize) -> List<T> {
        const { assert!(align_of::<T>() <= ALIGN) };
        let at = self.used;
        self.used += Self::bytes::<T>(capacity);
        assert!(self.used <= self.layout.size(), "the lists exceed their memory");
        // SAFETY: `at` is at most the memory's size.
        let start = unsafe { self.start.add(at) }.cast();
        List { start, len: 0, capacity }
    }
}

impl Drop for ListMemory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated this memory with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl<T: Copy> List<T> {
    /// Maximum number of values.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends a value. Returns false if the list is full.
    #[inline]
    pub fn push(&mut self, value: T) -> bool {
        let fits = self.len < self.capacity;
        if fits {
            // SAFETY: the place is one of the list's `capacity` places, which are allocated (the contract of
            // `ListMemory::list`), aligned, and no other list's.
            unsafe { self.start.add(self.len).write(value) };
            self.len += 1;
        }
        fits
    }

    /// Removes the last value and returns it.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let last = self.last().copied();
        self.len -= usize::from(last.is_some());
        last
    }

    /// Removes all values.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

impl<T: Copy> Deref for List<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` places of the list are allocated (the contract of `ListMemory::list`) and have been
        // written.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_ref() }
    }
}

impl<T: Copy> DerefMut for List<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; the list is borrowed exclusively, and no other list has these places.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_mut() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: lists of one memory keep their own values up to their capacities.
    #[test]
    fn lists_share_memory_without_overlap() {
        let bytes = ListMemory::bytes::<u64>(3) + ListMemory::bytes::<u8>(5) + ListMemory::bytes::<(u32, u16)>(2);
        let mut memory = ListMemory::new(bytes);
        // SAFETY: the lists are not used after the end of this function, where `memory` is dropped.
        let (mut a, mut b, mut c) =
            unsafe { (memory.list::<u64>(3), memory.list::<u8>(5), memory.list::<(u32, u16)>(2)) };
        assert!((1..4).all(|i| a.push(i << 40)) && !a.push(0));
        assert!((0..5).all(|i| b.push(i)) && !b.push(5));
        assert!(c.push((7, 8)) && c.push((9, 10)) && !c.push((0, 0)));
        assert_eq!(
            (&a[..], &b[..], &c[..]),
            (&[1 << 40, 2 << 40, 3 << 40][..], &[0, 1, 2, 3, 4][..], &[(7, 8), (9, 10)][..])
        );
        assert_eq!((a.pop(), a.len(), a.capacity()), (Some(3 << 40), 2, 3));
        b.clear();
        assert_eq!((b.pop(), b.len()), (None, 0));
        assert!(b.is_empty());
        c[0] = (1, 2);
        assert_eq!(c.last_mut().map(|last| std::mem::replace(last, (3, 4))), Some((9, 10)));
        assert_eq!(&c[..], &[(1, 2), (3, 4)]);
    }

    #[test]
    #[should_panic(expected = "exceed")]
    fn a_list_that_exceeds_the_memory_is_refused() {
        let mut memory = ListMemory::new(64);
        // SAFETY: the list is not used.
        let _ = unsafe { memory.list::<u64>(9) };
    }
}
