//! Registers of a PCI function, mapped into this process.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

const PAGE: u64 = 4096;

/// A mapped part of a base address register (BAR). Accesses outside the part and unaligned accesses read all ones and
/// write nothing, like unanswered accesses on the bus.
pub struct MappedBar {
    map: NonNull<u8>,
    map_len: usize,
    at: usize,
    len: usize,
}

// SAFETY: registers have no thread affinity.
unsafe impl Send for MappedBar {}
// SAFETY: each access is one volatile load or store; the device defines the effect of concurrent accesses.
unsafe impl Sync for MappedBar {}

impl MappedBar {
    /// Maps `len` bytes at offset `from` of the device's file.
    pub(crate) fn map(fd: BorrowedFd<'_>, from: u64, len: u64) -> Result<MappedBar, Errno> {
        let begin = from / PAGE * PAGE;
        let at = usize::try_from(from - begin).map_err(|_| Errno::OVERFLOW)?;
        let len = usize::try_from(len).map_err(|_| Errno::OVERFLOW)?;
        let map_len = (at + len).next_multiple_of(PAGE as usize);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps none of our mappings.
        let p = unsafe { rustix::mm::mmap(std::ptr::null_mut(), map_len, access, MapFlags::SHARED, fd, begin)? };
        Ok(MappedBar { map: NonNull::new(p.cast()).ok_or(Errno::NOMEM)?, map_len, at, len })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the part is empty (it never is).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn place<T>(&self, at: usize) -> Option<*mut T> {
        let size = size_of::<T>();
        let fits = at.is_multiple_of(size) && at.checked_add(size).is_some_and(|end| end <= self.len);
        // SAFETY: inside the mapping, which has at least `self.at + self.len` bytes.
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

    /// Reads a one-byte register.
    pub fn read8(&self, at: usize) -> u8 {
        self.read(at, u8::MAX)
    }

    /// Reads a two-byte register.
    pub fn read16(&self, at: usize) -> u16 {
        u16::from_le(self.read(at, u16::MAX))
    }

    /// Reads a four-byte register.
    pub fn read32(&self, at: usize) -> u32 {
        u32::from_le(self.read(at, u32::MAX))
    }

    /// Writes a one-byte register.
    pub fn write8(&self, at: usize, value: u8) {
        self.write(at, value);
    }

    /// Writes a two-byte register.
    #[inline]
    pub fn write16(&self, at: usize, value: u16) {
        self.write(at, value.to_le());
    }

    /// Writes a four-byte register.
    #[inline]
    pub fn write32(&self, at: usize, value: u32) {
        self.write(at, value.to_le());
    }

    /// Writes an eight-byte register as two four-byte registers (virtio 1.3 §4.1.3.1).
    pub fn write64(&self, at: usize, value: u64) {
        self.write32(at, value as u32);
        self.write32(at + 4, (value >> 32) as u32);
    }
}

impl Drop for MappedBar {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`; no pointer into it is left.
        let _ = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), self.map_len) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..3 * PAGE).map(|i| (i % 251) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        file
    }

    /// Objective: registers are read in little-endian order at their offset in the file, even if the part does not
    /// begin at a page boundary.
    #[test]
    fn registers_are_at_their_offset_in_the_file() {
        let file = file();
        for from in [0, 16, PAGE - 16, PAGE, PAGE + 8] {
            let bar = MappedBar::map(file.as_fd(), from, 64).unwrap();
            let at = |i: u64| ((from + i) % 251) as u8;
            assert_eq!((bar.len(), bar.is_empty()), (64, false));
            assert_eq!(bar.read8(5), at(5));
            assert_eq!(bar.read16(6), u16::from_le_bytes([at(6), at(7)]));
            assert_eq!(bar.read32(60), u32::from_le_bytes([at(60), at(61), at(62), at(63)]));
        }
    }

    /// Objective: writes reach the file in the requested width and change no other byte.
    #[test]
    fn writes_change_nothing_beside_their_place() {
        let file = file();
        let bar = MappedBar::map(file.as_fd(), PAGE + 32, 32).unwrap();
        file.write_all_at(&[0; 32], PAGE + 32).unwrap();
        bar.write8(0, 1);
        bar.write16(2, 0x0203);
        bar.write32(4, 0x0405_0607);
        bar.write64(8, 0x1112_1314_1516_1718);
        let mut found = [0; 20];
        file.read_exact_at(&mut found, PAGE + 32).unwrap();
        let wanted = [1, 0, 3, 2, 7, 6, 5, 4, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0, 0, 0, 0];
        assert_eq!(found, wanted);
    }

    /// Objective: accesses outside the registers and unaligned accesses read all ones and write nothing.
    #[test]
    fn outside_accesses_read_ones_and_write_nothing() {
        let file = file();
        let bar = MappedBar::map(file.as_fd(), 64, 16).unwrap();
        let mut before = vec![0; 3 * PAGE as usize];
        file.read_exact_at(&mut before, 0).unwrap();
        for at in [16, 4096, usize::MAX, usize::MAX - 3] {
            assert_eq!((bar.read8(at), bar.read16(at), bar.read32(at)), (u8::MAX, u16::MAX, u32::MAX));
            bar.write8(at, 0);
            bar.write16(at, 0);
            bar.write32(at, 0);
        }
        for at in [1, 14, 15] {
            assert_eq!(bar.read32(at), u32::MAX);
            bar.write32(at, 0);
        }
        bar.write16(3, 0);
        let mut after = vec![0; 3 * PAGE as usize];
        file.read_exact_at(&mut after, 0).unwrap();
        assert!(before == after);
    }
}
