//! systemd as the keeper of descriptors (sd_notify(3), `FDSTORE=1`): a restarted daemon gets them back.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use netvale_ptnet::keep::{Keeper, Kept};
use sd_notify::NotifyState;

/// The service manager that started the daemon.
pub struct Systemd;

impl Keeper for Systemd {
    fn keep(&self, name: &str, fd: BorrowedFd<'_>) {
        // A guest that is not kept is lost with the daemon, but nothing else is.
        if let Err(e) = sd_notify::notify_with_fds(&[NotifyState::FdStore, NotifyState::FdName(name)], &[fd]) {
            tracing::warn!(name, "the service manager does not keep a descriptor: {e}");
        }
    }

    fn forget(&self, name: &str) {
        // A descriptor that is kept needlessly is closed by its name next time.
        let _ = sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)]);
    }
}

/// Whether a service manager keeps descriptors.
pub fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// The descriptors that it kept. Must be called only once: the caller owns them.
pub fn found() -> Kept {
    let Ok(fds) = sd_notify::listen_fds_with_names() else { return Kept::new() };
    // SAFETY: the service manager passed these descriptors to this process, and nobody else here knows their numbers.
    fds.map(|(fd, name)| (name, unsafe { OwnedFd::from_raw_fd(fd) })).collect()
}
