//! Mappings of files that others may cut short: the SIGBUS that an access then gets is survived.
#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A range of this process's addresses whose loss is survived, until this is dropped.
#[derive(Debug)]
pub struct Watch(usize);

impl Watch {
    /// Watches a mapping of whole pages; none when there are too many already.
    ///
    /// # Safety
    /// The range is a mapping of the caller's that holds plain memory, reached by raw pointers only, and it stays mapped as long as it is watched.
    pub unsafe fn new(start: usize, len: usize) -> Option<Watch> {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(install);
        let free = |w: &Watched| w.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let at = WATCHED.iter().position(free)?;
        let w = WATCHED.get(at)?;
        w.damaged.store(false, Ordering::Release);
        w.len.store(len, Ordering::Release);
        Some(Watch(at))
    }

    /// Whether bytes of it were lost.
    pub fn is_damaged(&self) -> bool {
        WATCHED.get(self.0).is_some_and(|w| w.damaged.load(Ordering::Acquire))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(w) = WATCHED.get(self.0) {
            w.len.store(0, Ordering::Release);
            w.start.store(0, Ordering::Release);
        }
    }
}

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

/// How often memory was lost in this process: as long as that does not change, nothing has to be looked at.
#[inline]
pub fn losses() -> usize {
    LOSSES.load(Ordering::Acquire)
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

/// Puts zeroed memory in the place of what is gone, so that the access goes on; who owns it finds out soon. Any other SIGBUS ends the process
/// as it would have.
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
        // SAFETY: replaces a mapping of ours, which lives as long as it is watched (`Watch::new`), by one of the same size.
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
