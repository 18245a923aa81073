//! One mapping of a guest's memory, and what happens when its file is cut short: SIGBUS, survived.

use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::MemoryError;

/// A mapping, unmapped on drop.
#[derive(Debug)]
pub struct Map {
    base: NonNull<u8>,
    len: usize,
    /// Its place in [`WATCHED`]; none when all places were taken.
    watch: Option<usize>,
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
        let map = Map { base, len, watch: watch(base.as_ptr() as usize, len) };
        // SAFETY: offset - from < page <= len.
        Ok((map, unsafe { base.add((offset - from) as usize) }))
    }

    /// Whether bytes of it were lost.
    pub fn is_damaged(&self) -> bool {
        self.watch.and_then(|i| WATCHED.get(i)).is_some_and(|w| w.damaged.load(Ordering::Acquire))
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if let Some(w) = self.watch.and_then(|i| WATCHED.get(i)) {
            w.len.store(0, Ordering::Release);
            w.start.store(0, Ordering::Release);
        }
        // SAFETY: made by `new`; whoever holds addresses inside holds this value, too.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A range whose loss is survived.
struct Watched {
    /// 0: free.
    start: AtomicUsize,
    len: AtomicUsize,
    damaged: AtomicBool,
}

static WATCHED: [Watched; 1024] =
    [const { Watched { start: AtomicUsize::new(0), len: AtomicUsize::new(0), damaged: AtomicBool::new(false) } }; 1024];

/// How often memory was lost in this process: as long as that does not change, nothing has to be looked at.
static LOSSES: AtomicUsize = AtomicUsize::new(0);

/// See [`LOSSES`].
#[inline]
pub fn losses() -> usize {
    LOSSES.load(Ordering::Acquire)
}

fn watch(start: usize, len: usize) -> Option<usize> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(install);
    let free = |w: &Watched| w.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let at = WATCHED.iter().position(free)?;
    let w = WATCHED.get(at)?;
    w.damaged.store(false, Ordering::Release);
    w.len.store(len, Ordering::Release);
    Some(at)
}

fn install() {
    // SAFETY: the structure is filled in before use; the handler below calls only what a signal handler may.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigaction(libc::SIGBUS, &raw const action, null_mut());
    }
}

/// Puts zeroed memory in the place of a guest's that is gone, so that the access goes on; who owns the queue finds out soon. Any other
/// SIGBUS ends the process as it would have.
///
/// # Safety
/// Called by the kernel.
unsafe extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel's structure.
    let at = unsafe { (*info).si_addr() } as usize;
    for w in &WATCHED {
        let (start, len) = (w.start.load(Ordering::Acquire), w.len.load(Ordering::Acquire));
        if start == 0 || at.wrapping_sub(start) >= len {
            continue;
        }
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
        );
        // SAFETY: replaces a mapping of ours, which lives as long as it is watched, by one of the same size.
        let mapped = unsafe { libc::mmap(start as *mut libc::c_void, len, prot, flags, -1, 0) };
        if mapped != libc::MAP_FAILED {
            w.damaged.store(true, Ordering::Release);
            LOSSES.fetch_add(1, Ordering::AcqRel);
            return;
        }
    }
    // SAFETY: back to the default, under which the access that is tried again ends the process.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
