//! Which of the process's descriptors are netmap's.

use std::os::fd::AsFd;
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

/// What `fd` is, if it is netmap's.
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

/// `fd` is about to be closed or overwritten.
pub fn remove(fd: c_int) {
    crate::packet::socket::closed(fd);
    if !is_used() || place(fd).is_none_or(|p| p.load().is_none()) || !is_owner() {
        return;
    }
    if let Some(old) = place(fd).and_then(|p| p.swap(None)) {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        crate::epoll::forget(fd, &old);
        old.count_down();
    }
}

/// All of a range are about to be closed.
pub fn remove_range(first: u32, last: u32) {
    if is_used() || crate::packet::any() {
        (first..=last.min(MAX_FDS as u32 - 1)).for_each(|fd| remove(fd as c_int));
    }
}

/// `new` was made a duplicate of `old`.
pub fn duplicated(old: c_int, new: c_int) {
    if old == new {
        return;
    }
    match get(old) {
        Some(descriptor) if is_owner() => drop(insert(new, descriptor)),
        _ => remove(new),
    }
    crate::packet::socket::duplicated(old, new);
}

/// A descriptor that came from another process or through exec: whether it turns out to be one of netmap's.
pub fn adopt(fd: c_int) -> Option<Arc<Descriptor>> {
    let borrowed = crate::borrow(fd)?;
    if !crate::open::is_ours(borrowed.as_fd()) {
        return None;
    }
    let descriptor = Arc::new(Descriptor::default());
    crate::register::resume(borrowed, &descriptor);
    insert(fd, Arc::clone(&descriptor)).then_some(descriptor)
}

/// The table and what else goes by descriptor belong to this process.
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
