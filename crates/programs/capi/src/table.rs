//! The table of the process's netmap descriptors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use libc::c_int;

use crate::descriptor::Descriptor;

/// Number of descriptor numbers that can be netmap descriptors.
pub const MAX_FDS: usize = 1 << 16;

static TABLE: [ArcSwapOption<Descriptor>; MAX_FDS] = [const { ArcSwapOption::const_empty() }; MAX_FDS];
/// Number of entries. While it is zero, look-ups are skipped.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// ID of the process that owns the table. A vfork child runs in its parent's memory, but descriptors that the child
/// closes stay open in the parent: the child must not change the table.
static OWNER: AtomicU32 = AtomicU32::new(0);

fn place(fd: c_int) -> Option<&'static ArcSwapOption<Descriptor>> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// Returns whether this process has any netmap descriptor.
#[inline]
pub fn is_used() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Returns the netmap descriptor with number `fd`; `None` if `fd` is not a netmap descriptor.
#[inline]
pub fn get(fd: c_int) -> Option<Arc<Descriptor>> {
    if is_used() { place(fd)?.load_full() } else { None }
}

/// Calls `f` with the netmap descriptor with number `fd`, without counting a reference. Returns the result of `f`;
/// `None` if `fd` is not a netmap descriptor.
#[inline]
pub fn with<T>(fd: c_int, f: impl FnOnce(&Descriptor) -> T) -> Option<T> {
    if !is_used() {
        return None;
    }
    place(fd)?.load().as_ref().map(|d| f(d))
}

/// Returns whether `fd` is a netmap descriptor.
#[inline]
pub fn holds(fd: c_int) -> bool {
    with(fd, |_| ()).is_some()
}

/// Enters `fd` as a netmap descriptor. Returns `false` if the number is too large for the table.
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

/// Removes `fd` from the table. Returns the removed entry; `None` if there was no entry, or a vfork child calls.
pub fn take(fd: c_int) -> Option<Arc<Descriptor>> {
    if !is_used() || place(fd).is_none_or(|p| p.load().is_none()) || !is_owner() {
        return None;
    }
    let old = place(fd)?.swap(None)?;
    COUNT.fetch_sub(1, Ordering::Relaxed);
    Some(old)
}

/// Makes this process the owner of the table and of all other per-descriptor state: a forked child owns its copies.
pub fn claim() {
    OWNER.store(pid(), Ordering::Relaxed);
}

/// Returns whether this process owns the table; a vfork child does not.
pub fn is_owner() -> bool {
    OWNER.load(Ordering::Relaxed) == pid()
}

fn pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().cast_unsigned()
}
