//! One mapping of a guest's memory, and what happens when its file is cut short: SIGBUS, survived.

use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};

use netvale_mem::watch::Watch;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::MemoryError;

/// A mapping, unmapped on drop.
#[derive(Debug)]
pub struct Map {
    base: NonNull<u8>,
    len: usize,
    /// None when too many mappings are watched.
    watch: Option<Watch>,
}

// SAFETY: an address range of this process, accessed by raw pointers only.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `size` bytes at `offset`. Returns the mapping and the address of the first of them.
    pub fn new(fd: &OwnedFd, offset: u64, size: u64) -> Result<(Map, NonNull<u8>), MemoryError> {
        let stat = rustix::fs::fstat(fd).map_err(MemoryError::Map)?;
        let file = u64::try_from(stat.st_size).unwrap_or(0);
        // `with` has checked that this does not wrap.
        let past = (offset + size).saturating_sub(file);
        if past > 0 {
            return Err(MemoryError::FileTooShort { past });
        }
        // Files of huge pages say their size here, and are mapped by it.
        let page = u64::try_from(stat.st_blksize).ok().filter(|b| b.is_power_of_two() && *b >= 4096).unwrap_or(4096);
        let from = offset & !(page - 1);
        let end = (offset + size).checked_next_multiple_of(page).unwrap_or(offset + size);
        let len = usize::try_from(end - from).map_err(|_| MemoryError::Map(Errno::NOMEM))?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(null_mut(), len, prot, MapFlags::SHARED | MapFlags::NORESERVE, fd, from) };
        let base = base.map_err(MemoryError::Map)?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(MemoryError::Map(Errno::NOMEM))?;
        // SAFETY: that mapping; `Map` ends the watch before it unmaps it, and what it hands out is addresses.
        let watch = unsafe { Watch::new(base.as_ptr() as usize, len) };
        let map = Map { base, len, watch };
        // SAFETY: offset - from < page <= len.
        Ok((map, unsafe { base.add((offset - from) as usize) }))
    }

    /// Whether bytes of it were lost.
    pub fn is_damaged(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_damaged)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        drop(self.watch.take());
        // SAFETY: made by `new`; whoever holds addresses inside holds this value, too.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
