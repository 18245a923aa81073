//! Who is at the other end of a connection.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

/// The process that made a connection.
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its number in this PID namespace; 0 if it has none there, as a client outside of the daemon's container.
    pub pid: i32,
}

/// Asks the kernel (unix(7), `SO_PEERCRED`). rustix's call has no room for a process without a number.
///
/// # Errors
/// Whatever getsockopt(2) returns.
pub fn of(connection: impl AsFd) -> std::io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = connection.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes, which is the size of what is there, and any bytes make one.
    let done =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len) };
    if done == 0 { Ok(Peer { uid: peer.uid, pid: peer.pid }) } else { Err(std::io::Error::last_os_error()) }
}
