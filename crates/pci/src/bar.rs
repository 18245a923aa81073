//! Registers of a function, mapped.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

const PAGE: u64 = 4096;

/// A part of a base address register's space. Accesses outside of it read ones and write nothing, as those that no device answers.
pub struct Bar {
    map: NonNull<u8>,
    map_len: usize,
    at: usize,
    len: usize,
}

// SAFETY: registers have no thread affinity.
unsafe impl Send for Bar {}
// SAFETY: each access is one volatile load or store; what concurrent ones mean is the device's business.
unsafe impl Sync for Bar {}

impl Bar {
    /// Maps `len` bytes at `from` of the device's file.
    pub(crate) fn map(fd: BorrowedFd<'_>, from: u64, len: u64) -> Result<Bar, Errno> {
        let begin = from / PAGE * PAGE;
        let at = usize::try_from(from - begin).map_err(|_| Errno::OVERFLOW)?;
        let len = usize::try_from(len).map_err(|_| Errno::OVERFLOW)?;
        let map_len = (at + len).next_multiple_of(PAGE as usize);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let p = unsafe { rustix::mm::mmap(std::ptr::null_mut(), map_len, access, MapFlags::SHARED, fd, begin)? };
        Ok(Bar { map: NonNull::new(p.cast()).ok_or(Errno::NOMEM)?, map_len, at, len })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty (it never is).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn place<T>(&self, at: usize) -> Option<*mut T> {
        let size = size_of::<T>();
        let fits = at.is_multiple_of(size) && at.checked_add(size).is_some_and(|end| end <= self.len);
        // SAFETY: inside the mapping, which has `at + len` bytes.
        fits.then(|| unsafe { self.map.as_ptr().add(self.at + at) }.cast())
    }

    fn read<T>(&self, at: usize, none: T) -> T {
        // SAFETY: a register inside the mapping, aligned.
        self.place::<T>(at).map_or(none, |p| unsafe { p.read_volatile() })
    }

    #[inline]
    fn write<T>(&self, at: usize, value: T) {
        if let Some(p) = self.place::<T>(at) {
            // SAFETY: a register inside the mapping, aligned.
            unsafe { p.write_volatile(value) };
        }
    }

    /// A register of one byte.
    pub fn read8(&self, at: usize) -> u8 {
        self.read(at, u8::MAX)
    }

    /// A register of two bytes.
    pub fn read16(&self, at: usize) -> u16 {
        u16::from_le(self.read(at, u16::MAX))
    }

    /// A register of four bytes.
    pub fn read32(&self, at: usize) -> u32 {
        u32::from_le(self.read(at, u32::MAX))
    }

    /// A register of one byte.
    pub fn write8(&self, at: usize, value: u8) {
        self.write(at, value);
    }

    /// A register of two bytes.
    #[inline]
    pub fn write16(&self, at: usize, value: u16) {
        self.write(at, value.to_le());
    }

    /// A register of four bytes.
    #[inline]
    pub fn write32(&self, at: usize, value: u32) {
        self.write(at, value.to_le());
    }

    /// A register of eight bytes, written as two of four (virtio 1.3 §4.1.3.1).
    pub fn write64(&self, at: usize, value: u64) {
        self.write32(at, value as u32);
        self.write32(at + 4, (value >> 32) as u32);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`; nobody has a pointer into it any more.
        let _ = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), self.map_len) };
    }
}
