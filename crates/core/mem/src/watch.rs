//! Mappings of memory that others can take away: this process survives the SIGBUS of an access to it.
//!
//! A file can be truncated, and a freed huge page may not be available again. Zeroed memory replaces it, and the owner
//! of the memory is reported. The number of watched mappings is not limited.
//! place, and the owner of the memory is reported. The number of watched mappings is not limited.
#![allow(unsafe_code)]

use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

use crate::fault::{Fault, Inner};

/// An address range whose loss this process survives, until this is dropped.
#[derive(Debug)]
pub struct Watch {
    place: &'static Place,
    /// Its address is known to the signal handler.
    fault: OnceLock<Fault>,
}

impl Watch {
    /// Watches a mapping of whole pages.
    ///
    /// # Safety
    /// The range is a mapping of the caller's that holds plain memory, reached only by raw pointers, and it stays
    /// mapped as long as it is watched.
    pub unsafe fn new(start: usize, len: usize) -> Watch {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(install);
        let place = Place::claim(start);
        place.damaged.store(false, Ordering::Release);
        place.len.store(len, Ordering::Release);
        Watch { place, fault: OnceLock::new() }
    }

    /// Names the peer to blame for a loss of the memory. Only the first call counts.
    pub fn blame(&self, fault: &Fault) {
        let fault = self.fault.get_or_init(|| fault.clone());
        self.place.fault.store(fault.inner().cast_mut(), Ordering::SeqCst);
        if self.place.damaged.load(Ordering::SeqCst) {
            fault.lose();
        }
    }

    /// Simulates a loss of its memory, to test which peer is blamed.
    #[doc(hidden)]
    pub fn lose(&self) {
        self.place.lose();
    }

    /// Whether some of its memory was lost.
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

/// A watched range, as seen by the handler.
#[derive(Debug)]
struct Place {
    /// 0: this place is free.
    start: AtomicUsize,
    /// 0: not watched.
    len: AtomicUsize,
    damaged: AtomicBool,
    fault: AtomicPtr<Inner>,
}

/// Number of places in a block.
const BLOCK: usize = 256;

/// Some places, and a link to the next block. Blocks are never freed: the handler may be reading them.
struct Block {
    places: [Place; BLOCK],
    next: AtomicPtr<Block>,
}

static FIRST: Block = Block::new();

impl Block {
    const fn new() -> Block {
        Block { places: [const { Place::free() }; BLOCK], next: AtomicPtr::new(null_mut()) }
    }

    fn next(&self) -> Option<&'static Block> {
        // SAFETY: null, or a leaked block.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the next block, creating it if needed.
    fn next_or_new(&self) -> &'static Block {
        if let Some(next) = self.next() {
            return next;
        }
        let new = Box::into_raw(Box::new(Block::new()));
        match self.next.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just leaked.
            Ok(_) => unsafe { &*new },
            Err(theirs) => {
                // SAFETY: made above, and not shared with any other code.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: not null, hence a leaked block.
                unsafe { &*theirs }
            }
        }
    }
}

impl Place {
    const fn free() -> Place {
        Place {
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            damaged: AtomicBool::new(false),
            fault: AtomicPtr::new(null_mut()),
        }
    }

    /// Claims a free place for a range that starts at `start`.
    fn claim(start: usize) -> &'static Place {
        let free = |p: &&Place| p.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let mut block = &FIRST;
        loop {
            match block.places.iter().find(free) {
                Some(place) => return place,
                None => block = block.next_or_new(),
            }
        }
    }

    /// Records a loss of memory in the range. Restricted to operations allowed in a signal handler.
    fn lose(&self) {
        self.damaged.store(true, Ordering::SeqCst);
        LOSSES.fetch_add(1, Ordering::AcqRel);
        // SAFETY: null, or the inside of the fault that the watch holds. The watch exists: a thread was accessing the
        // watched memory, or owns the watch.
        if let Some(fault) = unsafe { self.fault.load(Ordering::SeqCst).as_ref() } {
            fault.lose();
        }
    }

    /// The range, if it is watched and contains `at`. A place that changes hands meanwhile cannot be the one looked
    /// for.
    fn has(&self, at: usize) -> Option<(usize, usize)> {
        let start = self.start.load(Ordering::Acquire);
        let len = self.len.load(Ordering::Acquire);
        let same = self.start.load(Ordering::Acquire) == start;
        (start != 0 && same && at.wrapping_sub(start) < len).then_some((start, len))
    }
}

/// Number of losses in this process: while it does not change, there is nothing to check.
static LOSSES: AtomicUsize = AtomicUsize::new(0);

/// Number of losses in this process: while it does not change, there is nothing to check.
#[inline]
pub fn losses() -> usize {
    LOSSES.load(Ordering::Acquire)
}

/// The previous action for SIGBUS.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());

fn install() {
    // SAFETY: zeros are a valid sigaction; both are filled in before they are used. The previous one is leaked for the
    // handler, which calls only functions allowed in one.
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

/// Replaces lost memory by zeroed memory, and lets the access proceed. Passes any other SIGBUS to the previous handler.
///
/// # Safety
/// Called by the kernel.
unsafe extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's structure, which has an address for a fault, and the calling thread's errno.
    let (at, errno) = unsafe { ((*info).si_addr() as usize, *libc::__errno_location()) };
    let mut block = Some(&FIRST);
    let places = std::iter::from_fn(|| block.inspect(|b| block = b.next())).flat_map(|b| &b.places);
    for place in places {
        let Some((start, len)) = place.has(at) else { continue };
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: replaces one of this process's mappings, which lives as long as it is watched (`Watch::new`), by one
        // of the same size.
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

/// Acts as if this handler did not exist.
///
/// # Safety
/// Call only in a signal handler, with the handler's arguments.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: stored before the handler was installed, and never freed.
    let before = unsafe { &*BEFORE.load(Ordering::Acquire) };
    // SAFETY: the kernel's structure.
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
        // SAFETY: a handler of this kind was installed with this flag.
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => unsafe {
            type Handler = unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
        },
        // SAFETY: and of this kind without it.
        handler => unsafe {
            std::mem::transmute::<usize, unsafe extern "C" fn(libc::c_int)>(handler)(signal);
        },
    }
}
