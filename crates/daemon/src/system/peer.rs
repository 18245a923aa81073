//! The credentials of a connection's peer.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

/// The process that connected.
pub struct PeerProcess {
    /// User ID.
    pub uid: u32,
    /// Process ID in this PID namespace; 0 if the process has no ID in this namespace, e.g. because it is outside the
    /// daemon's container.
    pub pid: i32,
}

/// Reads the credentials from the kernel (unix(7), `SO_PEERCRED`). rustix's function is not used, because it cannot
/// represent a process ID of 0.
///
/// # Errors
/// Errors of getsockopt(2).
pub fn of(connection: impl AsFd) -> std::io::Result<PeerProcess> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = connection.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes, the size of the value to which the pointer points, and any bytes
    // are valid for that value.
    let done =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len) };
    if done == 0 { Ok(PeerProcess { uid: peer.uid, pid: peer.pid }) } else { Err(std::io::Error::last_os_error()) }
}
