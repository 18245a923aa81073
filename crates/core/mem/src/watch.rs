//! Mappings of memory that other processes can take away. This process survives the SIGBUS that an access then raises.
//!
//! Another process can truncate a mapped file, or punch a hole in a file of huge pages, after which there may be no
//! free huge page for the access. The signal handler replaces lost memory with zeroed memory and reports the peer that
//! owns the lost memory. The number of watched mappings is not limited.
#![allow(unsafe_code)]

use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

use crate::fault::{Fault, FaultInner};

/// A watched address range: until this value is dropped, this process survives the loss of the memory.
#[derive(Debug)]
pub struct Watch {
    place: &'static WatchRange,
    /// The fault of the peer that owns the memory. The signal handler uses the address of the fault.
    fault: OnceLock<Fault>,
}

impl Watch {
    /// Watches a mapping of whole pages.
    ///
    /// # Safety
    /// The range must be a mapping that belongs to the caller, contain plain memory that is accessed only through raw
    /// pointers, and stay mapped as long as it is watched.
    pub unsafe fn new(start: usize, len: usize) -> Watch {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(install);
        let place = WatchRange::claim(start);
        place.damaged.store(false, Ordering::Release);
        place.len.store(len, Ordering::Release);
        Watch { place, fault: OnceLock::new() }
    }

    /// Sets the peer that is to blame for a loss of the memory. Only the first call has an effect.
    pub fn blame(&self, fault: &Fault) {
        let fault = self.fault.get_or_init(|| fault.clone());
        self.place.fault.store(fault.inner().cast_mut(), Ordering::SeqCst);
        if self.place.damaged.load(Ordering::SeqCst) {
            fault.lose();
        }
    }

    /// Simulates a loss of the memory, to test which peer is blamed.
    #[doc(hidden)]
    pub fn lose(&self) {
        self.place.lose();
    }

    /// Whether any of the memory was lost.
    pub fn is_damaged(&self) -> bool {
        self.place.damaged.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.place.len.store(0, Ordering::Release);
        self.place.fault.store(null_mut(), Ordering::Release);
        self.place.start.store(0, Ordering::Release);
    }
}

/// An entry of the signal handler's list: one watched range.
#[derive(Debug)]
struct WatchRange {
    /// Address of the range; 0 if the entry is free.
    start: AtomicUsize,
    /// Length of the range, bytes; 0 if the range is not watched.
    len: AtomicUsize,
    damaged: AtomicBool,
    fault: AtomicPtr<FaultInner>,
}

/// Number of entries in a block.
const BLOCK: usize = 256;

/// An array of entries, and a link to the next block. Blocks are never freed, as the handler may be reading them.
struct WatchBlock {
    places: [WatchRange; BLOCK],
    next: AtomicPtr<WatchBlock>,
}

static FIRST: WatchBlock = WatchBlock::new();

impl WatchBlock {
    const fn new() -> WatchBlock {
        WatchBlock { places: [const { WatchRange::free() }; BLOCK], next: AtomicPtr::new(null_mut()) }
    }

    fn next(&self) -> Option<&'static WatchBlock> {
        // SAFETY: the pointer is null, or points to a leaked block.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the next block, creating it if needed.
    fn next_or_new(&self) -> &'static WatchBlock {
        if let Some(next) = self.next() {
            return next;
        }
        let new = Box::into_raw(Box::new(WatchBlock::new()));
        match self.next.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the block was just leaked.
            Ok(_) => unsafe { &*new },
            Err(theirs) => {
                // SAFETY: the block was created above, and no other code has the pointer.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: the pointer is not null, so it points to a leaked block.
                unsafe { &*theirs }
            }
        }
    }
}

impl WatchRange {
    const fn free() -> WatchRange {
        WatchRange {
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            damaged: AtomicBool::new(false),
            fault: AtomicPtr::new(null_mut()),
        }
    }

    /// Claims a free entry for a range that starts at `start`.
    fn claim(start: usize) -> &'static WatchRange {
        let free = |p: &&WatchRange| p.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let mut block = &FIRST;
        loop {
            match block.places.iter().find(free) {
                Some(place) => return place,
                None => block = block.next_or_new(),
            }
        }
    }

    /// Records a loss of memory in the range. Uses only operations that are allowed in a signal handler.
    fn lose(&self) {
        self.damaged.store(true, Ordering::SeqCst);
        LOSSES.fetch_add(1, Ordering::AcqRel);
        // SAFETY: the pointer is null, or points into the fault that the watch holds. The watch exists, as a thread was
        // accessing the watched memory, or owns the watch.
        if let Some(fault) = unsafe { self.fault.load(Ordering::SeqCst).as_ref() } {
            fault.lose();
        }
    }

    /// Returns start and length of the range; `None` if the range is not watched, or does not contain `at`. An entry
    /// that is reused meanwhile cannot be the entry for the failed access, whose mapping still exists.
    fn has(&self, at: usize) -> Option<(usize, usize)> {
        let start = self.start.load(Ordering::Acquire);
        let len = self.len.load(Ordering::Acquire);
        let same = self.start.load(Ordering::Acquire) == start;
        (start != 0 && same && at.wrapping_sub(start) < len).then_some((start, len))
    }
}

static LOSSES: AtomicUsize = AtomicUsize::new(0);

/// Number of losses in this process. While this number does not change, no mapping needs a check.
#[inline]
pub fn losses() -> usize {
    LOSSES.load(Ordering::Acquire)
}

/// The previous action for SIGBUS.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());

fn install() {
    // SAFETY: zeros are a valid sigaction, and both structures are filled in before they are used. The previous action
    // is leaked for the handler, which calls only functions that are allowed in a signal handler.
    unsafe {
        let before = Box::into_raw(Box::new(std::mem::zeroed::<libc::sigaction>()));
        libc::sigaction(libc::SIGBUS, null(), before);
        BEFORE.store(before, Ordering::Release);
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigaction(libc::SIGBUS, &raw const action, null_mut());
    }
}

/// Replaces lost memory with zeroed memory, and lets the access proceed. Passes any other SIGBUS to the previous
/// handler.
///
/// # Safety
/// Only the kernel may call this, as a signal handler.
unsafe extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: `info` points to the kernel's structure, which has an address for a fault; errno is the calling thread's.
    let (at, errno) = unsafe { ((*info).si_addr() as usize, *libc::__errno_location()) };
    let mut block = Some(&FIRST);
    let places = std::iter::from_fn(|| block.inspect(|b| block = b.next())).flat_map(|b| &b.places);
    for place in places {
        let Some((start, len)) = place.has(at) else { continue };
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: replaces a mapping of this process, which exists as long as it is watched (`Watch::new`), with a
        // mapping of the same size.
        let mapped = unsafe { libc::mmap(start as *mut libc::c_void, len, prot, flags, -1, 0) };
        if mapped != libc::MAP_FAILED {
            place.lose();
            // SAFETY: the calling thread's errno.
            unsafe { *libc::__errno_location() = errno };
            return;
        }
    }
    // SAFETY: the kernel's own arguments.
    unsafe { pass_on(signal, info, context) };
}

/// Handles the signal as if this handler did not exist.
///
/// # Safety
/// Call only in a signal handler, with the handler's arguments.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the action was stored before the handler was installed, and is never freed.
    let before = unsafe { &*BEFORE.load(Ordering::Acquire) };
    // SAFETY: `info` points to the kernel's structure.
    let was_sent = unsafe { (*info).si_code } <= 0;
    match before.sa_sigaction {
        libc::SIG_IGN if was_sent => {}
        // SAFETY: restores the default, under which the repeated access ends the process; after kill(2) no access is
        // repeated.
        libc::SIG_DFL | libc::SIG_IGN => unsafe {
            libc::signal(signal, libc::SIG_DFL);
            if was_sent {
                libc::raise(signal);
            }
        },
        // SAFETY: with this flag, the installed handler takes three arguments.
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => unsafe {
            type Handler = unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
        },
        // SAFETY: without the flag, the installed handler takes one argument.
        handler => unsafe {
            std::mem::transmute::<usize, unsafe extern "C" fn(libc::c_int)>(handler)(signal);
        },
    }
}
