//! Mappings of memory that processes share: memfd, seals, mmap.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::fault::Fault;
use crate::holes::wait_for_holes;
use crate::watch::Watch;

/// The source of the memory, which determines how it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    Mmap,
    Heap,
}

/// Memory that is shared with other processes, or private to this process. It is freed on drop.
///
/// Methods return only raw pointers, as the memory may change at any time.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// The whole pages that are mapped: start and length.
    whole: (NonNull<u8>, usize),
    backing: Backing,
    /// Set if another process may truncate the file.
    watch: Option<Watch>,
    /// Set if another process may punch holes in the file.
    holes: Option<Arc<OwnedFd>>,
}

// SAFETY: the mapping is plain memory owned by this value, independent of threads.
unsafe impl Send for Mapping {}
// SAFETY: the methods take `&self` and return only raw pointers; code that dereferences them must expect concurrent
// writers anyway.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` for reading and writing.
    ///
    /// # Errors
    /// `EINVAL` if the file is shorter than `len`, has no shrink seal (accesses to a truncated file raise SIGBUS), or
    /// `len` is 0; otherwise the error of mmap(2).
    pub fn map(fd: BorrowedFd<'_>, len: usize) -> rustix::io::Result<Self> {
        Self::part(fd, 0, len)
    }

    /// Maps a part of a file: `len` bytes at `offset`.
    ///
    /// # Errors
    /// Like [`Mapping::map`].
    pub fn part(fd: BorrowedFd<'_>, offset: u64, len: usize) -> rustix::io::Result<Self> {
        let size = u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0);
        let sealed = rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK);
        let fits = offset.checked_add(len as u64).is_some_and(|end| end <= size);
        if len == 0 || !sealed || !fits {
            return Err(rustix::io::Errno::INVAL);
        }
        Self::map_pages(fd, offset, len, MapFlags::SHARED)
    }

    /// Maps `len` bytes of a device's memory, which cannot be truncated: it exists as long as the device.
    ///
    /// # Errors
    /// `EINVAL` if `fd` is not a character device or `len` is 0; otherwise the error of mmap(2).
    pub fn of_device(fd: BorrowedFd<'_>, len: usize) -> rustix::io::Result<Self> {
        if len == 0 || !is_device(fd)? {
            return Err(rustix::io::Errno::INVAL);
        }
        Self::map_pages(fd, 0, len, MapFlags::SHARED)
    }

    /// Maps `len` bytes at `offset` of the registers or memory of a PCI function. The descriptor must be from sysfs or
    /// vfio, where it stays valid as long as the function.
    ///
    /// # Errors
    /// `EINVAL` if `len` is 0; otherwise the error of mmap(2).
    pub fn of_function(fd: BorrowedFd<'_>, offset: u64, len: usize) -> rustix::io::Result<Self> {
        if len == 0 {
            return Err(rustix::io::Errno::INVAL);
        }
        Self::map_pages(fd, offset, len, MapFlags::SHARED)
    }

    /// Maps the first `len` bytes of a descriptor that another process sent: a region's file, or a device's memory.
    ///
    /// # Errors
    /// Like [`Mapping::map`] and [`Mapping::of_device`].
    pub fn of_any(fd: BorrowedFd<'_>, len: usize) -> rustix::io::Result<Self> {
        if is_device(fd)? { Self::of_device(fd, len) } else { Self::map(fd, len) }
    }

    /// Maps `len` bytes at `offset` of a peer's file, without reserving memory. The peer can truncate the file, so
    /// [`Mapping::watched`] must follow.
    ///
    /// # Errors
    /// `EINVAL` if `len` is 0 or the bytes are not in the file; otherwise the error of mmap(2).
    pub fn of_peer(fd: BorrowedFd<'_>, offset: u64, len: usize) -> rustix::io::Result<Self> {
        let size = u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0);
        if len == 0 || offset.checked_add(len as u64).is_none_or(|end| end > size) {
            return Err(rustix::io::Errno::INVAL);
        }
        Self::map_pages(fd, offset, len, MapFlags::SHARED | MapFlags::NORESERVE)
    }

    /// Maps the pages that contain `len` bytes at `offset`.
    fn map_pages(fd: BorrowedFd<'_>, offset: u64, len: usize, flags: MapFlags) -> rustix::io::Result<Self> {
        let too_much = rustix::io::Errno::NOMEM;
        // A file of huge pages reports their size as its block size, and must be mapped in units of that size.
        let page = u64::try_from(rustix::fs::fstat(fd)?.st_blksize).unwrap_or(0);
        let page = if page.is_power_of_two() { page.max(4096) } else { 4096 };
        let before = offset & (page - 1);
        let all = before.checked_add(len as u64).and_then(|end| end.checked_next_multiple_of(page)).ok_or(too_much)?;
        let all = usize::try_from(all).map_err(|_| too_much)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no mapping of this process.
        let p = unsafe { rustix::mm::mmap(std::ptr::null_mut(), all, prot, flags, fd, offset - before)? };
        let whole = NonNull::new(p.cast::<u8>()).ok_or(too_much)?;
        // SAFETY: before + len <= all, so this address and all of the bytes are inside the mapping.
        let start = unsafe { whole.add(before as usize) };
        Ok(Mapping { start, len, whole: (whole, all), backing: Backing::Mmap, watch: None, holes: None })
    }

    /// Maps parts of two files one after the other: `len` bytes at `offset` of `file`, and the first `rest` bytes of
    /// `behind`. If a peer can truncate `file`, [`Mapping::watched`] must follow; `behind` must have a shrink seal. Of
    /// a file of huge pages, only whole pages can be mapped.
    ///
    /// # Errors
    /// `EINVAL` if a file is too short, `behind` has no shrink seal, or a length is 0; otherwise the error of mmap(2).
    pub fn joined(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        behind: BorrowedFd<'_>,
        rest: usize,
    ) -> rustix::io::Result<Self> {
        const HUGE: usize = 2 << 20;
        let too_much = rustix::io::Errno::NOMEM;
        let size = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        if len == 0 || offset.checked_add(len as u64).is_none_or(|end| end > size) || !len.is_multiple_of(4096) {
            return Err(rustix::io::Errno::INVAL);
        }
        let tail = Mapping::map(behind, rest)?;
        let all = len.checked_add(rest).and_then(|all| all.checked_next_multiple_of(4096)).ok_or(too_much)?;
        let room = all.checked_add(HUGE).ok_or(too_much)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no mapping of this process.
        let reserved = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), room, ProtFlags::empty(), flags)? };
        let before = reserved.align_offset(HUGE);
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: 0 <= before < HUGE and all + HUGE = room, so the parts unmapped at both ends, and the mappings
        // between them, are in the reservation, of which no other code has a pointer yet.
        let mapped = unsafe {
            let start = reserved.cast::<u8>().add(before);
            if before > 0 {
                rustix::mm::munmap(reserved, before)?;
            }
            rustix::mm::munmap(start.add(all).cast(), HUGE - before)?;
            rustix::mm::mmap(start.cast(), len, prot, flags, file, offset)
                .and_then(|_| rustix::mm::mmap(start.add(len).cast(), rest, prot, flags, behind, 0))
                .map(|_| start)
                .inspect_err(|_| {
                    let _ = rustix::mm::munmap(start.cast(), all);
                })
        };
        drop(tail);
        let start = NonNull::new(mapped?).ok_or(too_much)?;
        Ok(Mapping { start, len: all, whole: (start, all), backing: Backing::Mmap, watch: None, holes: None })
    }

    /// Watches the memory: if pages are lost (the file is truncated), zeroed memory replaces the lost pages, and this
    /// process survives.
    #[must_use]
    pub fn watched(mut self) -> Self {
        if self.backing == Backing::Mmap {
            let start = self.whole.0.as_ptr() as usize;
            let len = self.whole.1;
            // SAFETY: the memory is accessed only through raw pointers, and `drop` ends the watch before it unmaps.
            self.watch = Some(unsafe { Watch::new(start, len) });
        }
        self
    }

    /// Makes the drop wait, before it unmaps, until no hole is being punched in the file. The file's owner can keep the
    /// file locked by punching holes, and munmap(2) waits for that lock while it holds the lock that every other thread
    /// needs to map memory.
    #[must_use]
    pub fn with_holes_in(mut self, file: Arc<OwnedFd>) -> Self {
        self.holes = Some(file);
        self
    }

    /// Sets the peer that is to blame for a loss of the memory, if the memory is watched. Only the first call has an
    /// effect.
    pub fn blame(&self, fault: &Fault) {
        self.watch.iter().for_each(|watch| watch.blame(fault));
    }

    /// Simulates a loss of the memory, to test which peer is blamed.
    #[doc(hidden)]
    pub fn lose(&self) {
        self.watch.iter().for_each(Watch::lose);
    }

    /// Whether any of the memory was lost.
    pub fn is_damaged(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_damaged)
    }

    /// Allocates `len` zeroed, page-aligned bytes of private memory; `None` if the process has too little memory, or
    /// `len` is 0.
    pub fn private(len: usize) -> Option<Self> {
        let layout = heap_layout(len)?;
        // SAFETY: the layout has a size above 0.
        let p = unsafe { std::alloc::alloc_zeroed(layout) };
        NonNull::new(p).map(|start| Mapping {
            start,
            len,
            whole: (start, len),
            backing: Backing::Heap,
            watch: None,
            holes: None,
        })
    }

    /// Locks the pages in memory.
    ///
    /// # Errors
    /// The error of mlock(2).
    pub fn lock(&self) -> rustix::io::Result<()> {
        // SAFETY: the call only pins the pages of this mapping.
        unsafe { rustix::mm::mlock(self.start.as_ptr().cast(), self.len) }
    }

    /// Address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping is empty: always false.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a pointer to `bytes` bytes at `offset`; `None` if they are not inside the mapping, or their address is
    /// not a multiple of `align`.
    pub fn at(&self, offset: u64, bytes: u64, align: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        let address = (self.start.as_ptr() as u64).wrapping_add(offset);
        if end > self.len as u64 || !address.is_multiple_of(align) {
            return None;
        }
        // SAFETY: offset <= end <= len, so the result stays inside.
        Some(unsafe { self.start.add(offset as usize) })
    }
}

/// Pages that are no longer used. Dropping this unmaps them.
struct UnusedPages {
    start: NonNull<u8>,
    len: usize,
    holes: Option<Arc<OwnedFd>>,
}

// SAFETY: the value holds only the address of a mapping, which any thread may unmap.
unsafe impl Send for UnusedPages {}

impl Drop for UnusedPages {
    fn drop(&mut self) {
        self.holes.iter().for_each(|file| wait_for_holes(file));
        // SAFETY: the pages come from an mmap above and are unmapped once: only the drop of their `Mapping`, of which
        // no view is left, creates this value.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The queue of the thread that unmaps, if the thread was started.
static UNMAPPING: OnceLock<Sender<UnusedPages>> = OnceLock::new();
/// Minimum size, in bytes, of the mappings that a separate thread unmaps ([`unmap_apart`]).
const LARGE: usize = 1 << 20;

/// Starts a thread that unmaps large mappings: freeing gigabytes of pages takes a large part of a second, too long for
/// a thread that serves other users.
///
/// # Errors
/// The error of starting the thread.
pub fn unmap_apart() -> std::io::Result<()> {
    let (send, piles) = mpsc::channel::<UnusedPages>();
    if UNMAPPING.set(send).is_ok() {
        thread("netvale-unmap", move || piles.into_iter().for_each(unmap))?;
    }
    Ok(())
}

fn thread(name: &str, what: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(what).map(drop)
}

/// Unmaps pages. Pages of a file in which holes may be punched get a thread of their own, as unmapping them may block.
fn unmap(pile: UnusedPages) {
    match pile.holes {
        // If no thread can be started, this thread waits.
        Some(_) => drop(thread("netvale-holes", move || drop(pile))),
        None => drop(pile),
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.watch.take());
        match self.backing {
            Backing::Mmap => {
                let pile = UnusedPages { start: self.whole.0, len: self.whole.1, holes: self.holes.take() };
                match UNMAPPING.get().filter(|_| pile.len >= LARGE || pile.holes.is_some()) {
                    // If that thread is gone, this thread unmaps the pages.
                    Some(thread) => drop(thread.send(pile)),
                    None => drop(pile),
                }
            }
            Backing::Heap => {
                if let Some(layout) = heap_layout(self.len) {
                    // SAFETY: `private` allocated the memory with the same layout; it is freed once.
                    unsafe { std::alloc::dealloc(self.start.as_ptr(), layout) };
                }
            }
        }
    }
}

fn is_device(fd: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    let mode = rustix::fs::fstat(fd)?.st_mode;
    Ok(rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::CharacterDevice)
}

fn heap_layout(len: usize) -> Option<std::alloc::Layout> {
    std::alloc::Layout::from_size_align(len, 4096).ok().filter(|_| len > 0)
}

/// The kind of a region's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PageKind {
    /// Ordinary pages.
    #[default]
    Ordinary,
    /// 2 MiB hugetlb pages if the kernel has free huge pages, ordinary pages otherwise.
    PreferHuge,
}

/// Creates a memfd of at least `len` bytes, sealed against changes of its size. Returns the memfd, its mapping, and
/// whether the memfd has huge pages.
///
/// # Errors
/// The error of memfd_create(2), ftruncate(2), fcntl(2) or mmap(2), for ordinary pages: if these calls fail for huge
/// pages, ordinary pages are used.
pub fn sealed_memfd(name: &str, len: u64, pages: PageKind) -> rustix::io::Result<(OwnedFd, Mapping, bool)> {
    const HUGE: u64 = 2 << 20;
    if pages == PageKind::PreferHuge {
        let flags = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let whole = len.checked_next_multiple_of(HUGE).ok_or(rustix::io::Errno::NOMEM)?;
        if let Ok((fd, map)) = sealed(name, whole, flags) {
            return Ok((fd, map, true));
        }
    }
    let (fd, map) = sealed(name, len, MemfdFlags::empty())?;
    Ok((fd, map, false))
}

fn sealed(name: &str, len: u64, flags: MemfdFlags) -> rustix::io::Result<(OwnedFd, Mapping)> {
    let fd = rustix::fs::memfd_create(name, flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, len)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let len = usize::try_from(len).map_err(|_| rustix::io::Errno::NOMEM)?;
    let map = Mapping::map(fd.as_fd(), len)?;
    Ok((fd, map))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a region's file can neither shrink nor grow, and a file that could still shrink is not mapped.
    #[test]
    #[cfg_attr(miri, ignore = "memfd is not available under Miri")]
    fn a_file_that_could_shrink_is_not_mapped() {
        let (fd, map, huge) = sealed_memfd("netvale-test", 8192, PageKind::Ordinary).unwrap();
        assert!(!huge && map.len() == 8192);
        assert!(rustix::fs::ftruncate(&fd, 4096).is_err());
        assert!(rustix::fs::ftruncate(&fd, 16384).is_err());
        assert!(map.at(8192, 0, 1).is_some() && map.at(8191, 2, 1).is_none() && map.at(u64::MAX, 2, 1).is_none());
        assert!(map.at(4, 8, 8).is_none());
        assert!(Mapping::map(fd.as_fd(), 8193).is_err());
        let loose = rustix::fs::memfd_create("loose", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&loose, 4096).unwrap();
        assert_eq!(Mapping::map(loose.as_fd(), 4096).unwrap_err(), rustix::io::Errno::INVAL);
    }
}
