//! The service manager's descriptor store (sd_notify(3), `FDSTORE=1`), from which a restarted daemon gets its
//! descriptors back.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use sd_notify::NotifyState;

use super::manager;

/// Descriptors passed by the service manager, by name.
pub type StoredDescriptors = BTreeMap<String, OwnedFd>;

/// Adds a descriptor to the store. The service manager does not poll this descriptor.
pub fn keep_quietly(name: &str, fd: BorrowedFd<'_>) {
    let state = [NotifyState::FdStore, NotifyState::FdName(name), NotifyState::Custom("FDPOLL=0")];
    if let Err(e) = manager::tell(&state, Some(fd)) {
        tracing::warn!(name, "cannot store a descriptor with the service manager: {e}");
    }
}

/// Removes the descriptors with this name from the store.
pub fn forget(name: &str) {
    // If this fails, the next daemon removes the descriptor by its name.
    let _ = manager::tell(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)], None);
}

/// Reports the PID of the new main process to the service manager.
pub fn main_process_is(pid: i32) {
    if let Ok(pid) = u32::try_from(pid) {
        // Without a service manager, nothing is sent.
        let _ = manager::tell(&[NotifyState::MainPid(pid)], None);
    }
}

/// Whether a service manager has started the daemon, and can store its descriptors.
pub fn is_there() -> bool {
    manager::place().is_some()
}

/// Returns the descriptors from the store. Must be called only once, because the result takes ownership of the
/// descriptors.
pub fn found() -> StoredDescriptors {
    passed().into_iter().collect()
}

/// Returns the descriptors that a service manager passed, with their names; several descriptors may have the same name.
/// Must be called only once, because the result takes ownership of the descriptors.
pub fn passed() -> Vec<(String, OwnedFd)> {
    let Ok(fds) = sd_notify::listen_fds_with_names() else { return Vec::new() };
    // SAFETY: the service manager passed these descriptors to this process, and no other code in this process knows
    // their numbers.
    fds.map(|(fd, name)| (name, unsafe { OwnedFd::from_raw_fd(fd) })).collect()
}
