//! A guest's memory: regions of files, mapped into this process, and addresses of three kinds.
//!
//! | address | where it appears |
//! |---|---|
//! | guest physical | in descriptors |
//! | the hypervisor's own ("user") | in a transport's messages from a hypervisor: location of the rings |
//! | this process's | the result of both, once checked to be in a region |
//!
//! Guests may change their memory at any time. Values in that memory are therefore read once, into a copy, which is
//! then checked and used.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use netvale_mem::Mapping;
use netvale_mem::holes::may_be_mapped;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Maximum number of regions of a guest (QEMU's `pc` and `q35` have fewer memory slots).
pub const MAX_REGIONS: usize = 509;

/// Maximum number of different memory files that are kept open for a successor.
const MAX_FILES: usize = 64;

/// The description of a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionSpec {
    /// Guest physical address of the region's first byte.
    pub guest: u64,
    /// Size in bytes.
    pub size: u64,
    /// The hypervisor's own address of the region's first byte.
    pub user: u64,
    /// Offset in the file at which the region begins.
    pub offset: u64,
}

/// An error of a region or its mapping.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemoryError {
    /// The region has no bytes.
    #[error("a memory region has no bytes")]
    Empty,
    /// The addresses exceed 2⁶⁴.
    #[error("a memory region at {guest:#x} of {size:#x} bytes exceeds the address space")]
    Wraps {
        /// First guest address.
        guest: u64,
        /// Size in bytes.
        size: u64,
    },
    /// Two regions share addresses.
    #[error("two memory regions overlap at {0:#x}")]
    Overlap(u64),
    /// There are more than [`MAX_REGIONS`] regions.
    #[error("too many memory regions: expected at most {MAX_REGIONS}")]
    TooMany,
    /// The file ends before the end of the region.
    #[error("a memory region ends {past} bytes after the end of its file")]
    FileTooShort {
        /// Number of missing bytes.
        past: u64,
    },
    /// The file is on a file system that may delay page faults without limit.
    #[error(
        "a memory region lies in a file that is not in memory: give the guest memory from a memfd, tmpfs or hugetlbfs"
    )]
    NotInMemory,
    /// A hole is being punched into the file, which takes too long.
    #[error("cannot map a memory region while a hole is being punched into its file")]
    Hole,
    /// A system call failed.
    #[error("cannot map a memory region: {0}")]
    Map(Errno),
    /// No region has exactly these addresses.
    #[error("cannot remove the memory region at {0:#x}: no region has this address and size")]
    NoSuch(u64),
}

#[derive(Clone, Debug)]
struct GuestRegion {
    spec: RegionSpec,
    /// Address of the region's first byte in this process.
    host: NonNull<u8>,
    map: Arc<Mapping>,
    /// The region's file; `None` if [`MAX_FILES`] other files are already kept.
    file: Option<Arc<OwnedFd>>,
}

// SAFETY: `host` is an address inside `map`, which moves to the other thread together with it; uses of the address do
// not depend on the thread.
unsafe impl Send for GuestRegion {}
// SAFETY: a shared region only gives out addresses, and the bytes are accessed through raw pointers or as atomics.
unsafe impl Sync for GuestRegion {}

/// The regions of a guest. A change creates a new value; running queues keep the old value.
#[derive(Clone, Debug, Default)]
pub struct GuestMemory {
    /// The regions by guest address.
    regions: Vec<GuestRegion>,
    /// The number of memory losses (truncated files) that this process had seen when the regions were last found
    /// undamaged.
    found_whole: Arc<AtomicUsize>,
}

/// The region that was found last, which most likely contains the next address, too.
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    guest: u64,
    size: u64,
    host: NonNull<u8>,
}

impl Default for Hint {
    fn default() -> Self {
        Hint { guest: 0, size: 0, host: NonNull::dangling() }
    }
}

// SAFETY: `host` is only an address, which is used while the memory that it was made from is still mapped.
unsafe impl Send for Hint {}

impl GuestMemory {
    /// Maps a whole table of regions.
    ///
    /// # Errors
    /// The error of [`GuestMemory::with`] for the first region that cannot be added.
    pub fn new(table: Vec<(RegionSpec, OwnedFd)>) -> Result<GuestMemory, MemoryError> {
        let mut memory = GuestMemory::default();
        for (spec, fd) in table {
            memory = memory.with(spec, &fd)?;
        }
        Ok(memory)
    }

    /// Returns whether the table has exactly this region.
    pub fn has(&self, spec: &RegionSpec) -> bool {
        self.regions.iter().any(|r| r.spec == *spec)
    }

    /// Returns a copy with one more region.
    ///
    /// # Errors
    /// [`MemoryError`] if the region is empty, wraps around, overlaps another region or exceeds the maximum number, or
    /// if its file is too short or cannot be mapped.
    pub fn with(&self, spec: RegionSpec, fd: &OwnedFd) -> Result<GuestMemory, MemoryError> {
        let RegionSpec { guest, size, user, offset } = spec;
        if size == 0 {
            return Err(MemoryError::Empty);
        }
        let ends = [guest.checked_add(size), user.checked_add(size), offset.checked_add(size)];
        if ends.contains(&None) {
            return Err(MemoryError::Wraps { guest, size });
        }
        if self.regions.len() >= MAX_REGIONS {
            return Err(MemoryError::TooMany);
        }
        let clash = |a: u64, b: u64, n: u64| a < b + n && b < a + size;
        let other = self.regions.iter().map(|r| r.spec);
        if let Some(o) = other.into_iter().find(|o| clash(guest, o.guest, o.size) || clash(user, o.user, o.size)) {
            return Err(MemoryError::Overlap(o.guest.max(guest)));
        }
        let file = self.file(fd)?;
        let map = match &file {
            Some(file) => map(Arc::clone(file), offset, size)?,
            None => map(copy_of(fd)?, offset, size)?,
        };
        let mut regions = self.regions.clone();
        regions.push(GuestRegion { spec, host: map.start(), map: Arc::new(map), file });
        regions.sort_by_key(|r| r.spec.guest);
        Ok(GuestMemory { regions, ..GuestMemory::default() })
    }

    /// Returns a copy without the region `spec`.
    ///
    /// # Errors
    /// [`MemoryError::NoSuch`] if no region has exactly these addresses.
    pub fn without(&self, spec: RegionSpec) -> Result<GuestMemory, MemoryError> {
        let same = |r: &GuestRegion| r.spec.guest == spec.guest && r.spec.size == spec.size && r.spec.user == spec.user;
        if !self.regions.iter().any(same) {
            return Err(MemoryError::NoSuch(spec.guest));
        }
        let regions = self.regions.iter().filter(|r| !same(r)).cloned().collect();
        Ok(GuestMemory { regions, ..GuestMemory::default() })
    }

    /// Returns a descriptor of the file that `fd` refers to. All regions in the same file share one descriptor. Returns
    /// `None` if [`MAX_FILES`] other files are already kept.
    fn file(&self, fd: &OwnedFd) -> Result<Option<Arc<OwnedFd>>, MemoryError> {
        let mut files: Vec<&Arc<OwnedFd>> = Vec::new();
        for file in self.regions.iter().filter_map(|r| r.file.as_ref()) {
            if !files.iter().any(|known| Arc::ptr_eq(known, file)) {
                files.push(file);
            }
        }
        let place = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        let this = place(fd).map_err(MemoryError::Map)?;
        if let Some(file) = files.iter().find(|file| place(file) == Ok(this)) {
            return Ok(Some(Arc::clone(file)));
        }
        if files.len() >= MAX_FILES {
            return Ok(None);
        }
        copy_of(fd).map(Some)
    }

    /// Returns the regions with their files, for a successor; `None` if there were too many files to keep.
    pub fn files(&self) -> Option<Vec<(RegionSpec, Arc<OwnedFd>)>> {
        self.regions.iter().map(|r| Some((r.spec, r.file.clone()?))).collect()
    }

    /// Returns the number of regions.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Returns whether the table has no regions.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Returns whether a region's file was truncated, which loses its bytes.
    #[inline]
    pub fn is_damaged(&self) -> bool {
        let losses = netvale_mem::watch::losses();
        losses != self.found_whole.load(Ordering::Relaxed) && self.look_for_damage(losses)
    }

    #[cold]
    fn look_for_damage(&self, losses: usize) -> bool {
        let damaged = self.regions.iter().any(|r| r.map.is_damaged());
        if !damaged {
            self.found_whole.store(losses, Ordering::Relaxed);
        }
        damaged
    }

    /// Returns the address in this process of `len` bytes at a guest address, and how many of these bytes are
    /// contiguous here (at least one, unless `len` is 0). Returns `None` if the first byte is outside the memory.
    /// `hint` speeds up look-ups in the same region.
    #[inline]
    pub fn guest(&self, at: u64, len: u64, hint: &mut Hint) -> Option<(NonNull<u8>, u64)> {
        let mut inside = at.wrapping_sub(hint.guest);
        if inside >= hint.size {
            *hint = self.find(at)?;
            inside = at - hint.guest;
        }
        // SAFETY: `inside` is below the region's size, so the address is inside its mapping.
        Some((unsafe { hint.host.add(inside as usize) }, len.min(hint.size - inside)))
    }

    #[cold]
    fn find(&self, at: u64) -> Option<Hint> {
        let after = self.regions.partition_point(|r| r.spec.guest <= at);
        let r = self.regions.get(after.checked_sub(1)?)?;
        (at - r.spec.guest < r.spec.size).then_some(Hint { guest: r.spec.guest, size: r.spec.size, host: r.host })
    }

    /// Returns the address in this process of `len` bytes at a hypervisor address; `None` if they are not aligned to
    /// `align` or not all in one region.
    pub fn user(&self, at: u64, len: u64, align: u64) -> Option<NonNull<u8>> {
        let r = self.regions.iter().find(|r| at.wrapping_sub(r.spec.user) < r.spec.size)?;
        let inside = at - r.spec.user;
        let fits = len <= r.spec.size - inside;
        // SAFETY: `inside` is below the region's size, so the address is inside its mapping.
        let p = unsafe { r.host.add(inside as usize) };
        (fits && (p.as_ptr() as u64).is_multiple_of(align)).then_some(p)
    }

    /// Converts an address in this process to the guest address, for the dirty log; `None` if the address is outside
    /// guest memory.
    pub fn guest_of(&self, p: *const u8) -> Option<u64> {
        let inside = |r: &GuestRegion| (p as u64).wrapping_sub(r.host.as_ptr() as u64);
        self.regions.iter().find(|r| inside(r) < r.spec.size).map(|r| r.spec.guest + inside(r))
    }
}

fn copy_of(fd: &OwnedFd) -> Result<Arc<OwnedFd>, MemoryError> {
    rustix::io::fcntl_dupfd_cloexec(fd, 0).map(Arc::new).map_err(MemoryError::Map)
}

/// Maps `size` bytes of a peer's file. The process survives if the peer truncates the file at any time. Only files in
/// memory are accepted: with any other file, a worker that touches a page might have to wait for the file system.
///
/// # Errors
/// [`MemoryError`] if the addresses wrap around, or the file is not in memory, is too short, or cannot be mapped.
pub fn map(fd: Arc<OwnedFd>, offset: u64, size: u64) -> Result<Mapping, MemoryError> {
    let end = offset.checked_add(size).ok_or(MemoryError::Wraps { guest: offset, size })?;
    // Only files in memory have seals. This call does not involve the file system of the file, which could delay the
    // answer.
    rustix::fs::fcntl_get_seals(&fd).map_err(|_| MemoryError::NotInMemory)?;
    let stat = rustix::fs::fstat(&fd).map_err(MemoryError::Map)?;
    let past = end.saturating_sub(u64::try_from(stat.st_size).unwrap_or(0));
    if past > 0 {
        return Err(MemoryError::FileTooShort { past });
    }
    let len = usize::try_from(size).map_err(|_| MemoryError::Map(Errno::NOMEM))?;
    if !may_be_mapped(&fd) {
        return Err(MemoryError::Hole);
    }
    let map = Mapping::of_peer(fd.as_fd(), offset, len).map_err(MemoryError::Map)?;
    // Workers check for losses after each batch, and stop if memory is lost.
    Ok(map.watched().with_holes_in(fd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn file(len: u64) -> OwnedFd {
        let fd = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, len).unwrap();
        fd
    }

    fn spec(guest: u64, size: u64, user: u64, offset: u64) -> RegionSpec {
        RegionSpec { guest, size, user, offset }
    }

    /// Objective: a guest address and the hypervisor's address of the same byte lead to the same byte, and never out of
    /// their region.
    #[test]
    fn addresses_never_lead_out_of_their_region() {
        let fd = file(0x5000);
        let m = GuestMemory::new(vec![(spec(0x1_0000, 0x3000, 0x7000_0000, 0x2000), fd)]).unwrap();
        let mut hint = Hint::default();
        let (a, n) = m.guest(0x1_0010, 100, &mut hint).unwrap();
        assert_eq!(n, 100);
        assert_eq!(m.user(0x7000_0010, 100, 16), Some(a));
        assert_eq!(m.guest_of(a.as_ptr()), Some(0x1_0010));
        // The last byte of the region, and the byte after it.
        assert_eq!(m.guest(0x1_2fff, 100, &mut hint).unwrap().1, 1);
        assert_eq!(m.guest(0x1_3000, 1, &mut hint), None);
        assert_eq!(m.guest(0xffff, 1, &mut hint), None);
        assert_eq!(m.user(0x7000_2ff0, 0x11, 1), None);
        assert_eq!(m.user(0x7000_0011, 1, 16), None, "not aligned");
        assert_eq!(m.user(u64::MAX, 1, 1), None);
    }

    /// Objective: a buffer that spans two regions comes in pieces.
    #[test]
    fn a_buffer_over_two_regions_comes_in_pieces() {
        let table =
            vec![(spec(0, 0x1000, 0x10_0000, 0), file(0x1000)), (spec(0x1000, 0x1000, 0x20_0000, 0), file(0x1000))];
        let m = GuestMemory::new(table).unwrap();
        let mut hint = Hint::default();
        assert_eq!(m.guest(0xff0, 0x100, &mut hint).unwrap().1, 0x10);
        assert_eq!(m.guest(0x1000, 0xf0, &mut hint).unwrap().1, 0xf0);
    }

    /// Objective: each inconsistent table is refused with its own error.
    #[test]
    fn inconsistent_tables_are_refused_with_their_errors() {
        let table =
            |specs: &[RegionSpec]| GuestMemory::new(specs.iter().map(|s| (*s, file(0x1000))).collect()).map(|_| ());
        let a = spec(0x1000, 0x1000, 0x10_0000, 0);
        assert_eq!(table(&[RegionSpec { size: 0, ..a }]), Err(MemoryError::Empty));
        assert!(matches!(table(&[RegionSpec { guest: u64::MAX - 5, ..a }]), Err(MemoryError::Wraps { .. })));
        assert!(matches!(table(&[RegionSpec { offset: u64::MAX - 5, ..a }]), Err(MemoryError::Wraps { .. })));
        assert_eq!(table(&[RegionSpec { offset: 1, ..a }]), Err(MemoryError::FileTooShort { past: 1 }));
        assert_eq!(table(&[a, RegionSpec { guest: 0x1800, user: 0x30_0000, ..a }]), Err(MemoryError::Overlap(0x1800)));
        assert!(
            matches!(table(&[a, RegionSpec { guest: 0x8000, ..a }]), Err(MemoryError::Overlap(_))),
            "user addresses"
        );
        let m = GuestMemory::new(vec![(a, file(0x1000))]).unwrap();
        assert!(matches!(m.without(RegionSpec { size: 5, ..a }), Err(MemoryError::NoSuch(_))));
        assert!(m.without(a).unwrap().is_empty());
    }

    /// Objective: regions of one file keep one descriptor, and only a limited number of files is kept.
    #[test]
    fn regions_of_one_file_keep_one_descriptor() {
        let one = file(0x2000);
        let mut m = GuestMemory::default();
        m = m.with(spec(0, 0x1000, 0, 0), &one).unwrap();
        m = m.with(spec(0x1000, 0x1000, 0x1000, 0x1000), &one.try_clone().unwrap()).unwrap();
        let files = m.files().unwrap();
        assert!(Arc::ptr_eq(&files[0].1, &files[1].1));
        for i in 2..MAX_FILES as u64 + 1 {
            m = m.with(spec(0x1000 * i, 0x1000, 0x1000 * i, 0), &file(0x1000)).unwrap();
        }
        assert_eq!(m.files().unwrap().len(), MAX_FILES + 1);
        let far = 0x1000 * 1000;
        m = m.with(spec(far, 0x1000, far, 0), &file(0x1000)).unwrap();
        assert!(m.files().is_none());
    }

    /// Objective: a file that is truncated later loses its bytes; the process survives.
    #[test]
    fn the_process_survives_a_file_cut_later() {
        let fd = file(0x2000);
        let keep = fd.try_clone().unwrap();
        let m = GuestMemory::new(vec![(spec(0, 0x2000, 0x10_0000, 0), fd)]).unwrap();
        let (p, _) = m.guest(0x1000, 8, &mut Hint::default()).unwrap();
        assert!(!m.is_damaged());
        ftruncate(&keep, 0).unwrap();
        // SAFETY: an address of the mapping.
        assert_eq!(unsafe { p.cast::<u64>().as_ptr().read_volatile() }, 0);
        assert!(m.is_damaged());
    }
}
