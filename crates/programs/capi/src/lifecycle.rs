//! Tracking of the descriptor numbers of netmap descriptors and packet sockets, as the program closes, duplicates or
//! inherits them.

use std::os::fd::AsFd;
use std::sync::Arc;

use libc::c_int;

use crate::descriptor::Descriptor;
use crate::packet::{self, socket};
use crate::table::{self, MAX_FDS};
use crate::{epoll, open, register};

/// Removes the netmap descriptor or packet socket `fd`, which is about to be closed or overwritten.
pub fn remove(fd: c_int) {
    if let Some(sender) = socket::closed(fd) {
        epoll::forget_output(fd);
        // Dropping the queue may close the port's descriptors, which calls this function again.
        drop(sender);
    }
    if let Some(old) = table::take(fd) {
        epoll::forget(fd, &old);
        old.count_down();
    }
}

/// Removes all descriptors in a range that is about to be closed.
pub fn remove_range(first: u32, last: u32) {
    if table::is_used() || packet::any() {
        (first..=last.min(MAX_FDS as u32 - 1)).for_each(|fd| remove(fd as c_int));
        forget_sets(first, last);
    }
}

/// Forgets epoll sets in a range that is about to be closed or overwritten.
fn forget_sets(first: u32, last: u32) {
    let sets = (first..=last.min(MAX_FDS as u32 - 1)).map(|fd| fd as c_int).filter(|fd| epoll::is_set(*fd));
    // Only the table's owner may do this: calls of a vfork child must not affect the parent's sets.
    sets.filter(|_| table::is_owner()).for_each(epoll::closed);
}

/// Records that `new` is now a duplicate of `old`.
pub fn duplicated(old: c_int, new: c_int) {
    if old == new {
        return;
    }
    forget_sets(new.cast_unsigned(), new.cast_unsigned());
    match table::get(old) {
        Some(descriptor) if table::is_owner() => drop(table::insert(new, descriptor)),
        _ => remove(new),
    }
    socket::duplicated(old, new);
}

/// Takes over a descriptor that came from another process or through exec. Returns `None` if it is not a netmap
/// descriptor.
pub fn adopt(fd: c_int) -> Option<Arc<Descriptor>> {
    let borrowed = crate::borrow(fd)?;
    if !open::is_ours(borrowed.as_fd()) {
        return None;
    }
    let descriptor = Arc::new(Descriptor::default());
    register::resume(borrowed, &descriptor);
    table::insert(fd, Arc::clone(&descriptor)).then_some(descriptor)
}
