//! The table of the process's descriptors that are netmap's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use libc::c_int;

use crate::descriptor::Descriptor;

/// Numbers above this cannot be netmap descriptors.
pub const MAX_FDS: usize = 1 << 16;

static TABLE: [ArcSwapOption<Descriptor>; MAX_FDS] = [const { ArcSwapOption::const_empty() }; MAX_FDS];
/// Entries of the table: nothing at all is looked up while there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The process the table belongs to. A vfork child runs in its parent's memory: what it closes stays open here.
static OWNER: AtomicU32 = AtomicU32::new(0);

fn place(fd: c_int) -> Option<&'static ArcSwapOption<Descriptor>> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// Whether any descriptor is netmap's.
#[inline]
pub fn is_used() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// The descriptor behind `fd`, if it is netmap's.
#[inline]
pub fn get(fd: c_int) -> Option<Arc<Descriptor>> {
    if is_used() { place(fd)?.load_full() } else { None }
}

/// Calls `f` with it, without keeping it.
#[inline]
pub fn with<T>(fd: c_int, f: impl FnOnce(&Descriptor) -> T) -> Option<T> {
    if !is_used() {
        return None;
    }
    place(fd)?.load().as_ref().map(|d| f(d))
}

/// Whether `fd` is netmap's.
#[inline]
pub fn holds(fd: c_int) -> bool {
    with(fd, |_| ()).is_some()
}

/// `fd` is one of netmap's now. Returns whether the number is small enough.
pub fn insert(fd: c_int, descriptor: Arc<Descriptor>) -> bool {
    let Some(place) = place(fd) else { return false };
    claim();
    descriptor.count_up();
    match place.swap(Some(descriptor)) {
        Some(old) => old.count_down(),
        None => drop(COUNT.fetch_add(1, Ordering::Relaxed)),
    }
    true
}

/// `fd` is none of netmap's any more; what it was.
pub fn take(fd: c_int) -> Option<Arc<Descriptor>> {
    if !is_used() || place(fd).is_none_or(|p| p.load().is_none()) || !is_owner() {
        return None;
    }
    let old = place(fd)?.swap(None)?;
    COUNT.fetch_sub(1, Ordering::Relaxed);
    Some(old)
}

/// The table and everything else that is kept per descriptor belong to this process.
pub fn claim() {
    OWNER.store(pid(), Ordering::Relaxed);
}

/// After fork, in the child: the table is the child's own now.
pub fn forked() {
    claim();
}

/// Whether they do: a vfork child's calls are no concern of theirs.
pub fn is_owner() -> bool {
    OWNER.load(Ordering::Relaxed) == pid()
}

fn pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().cast_unsigned()
}
