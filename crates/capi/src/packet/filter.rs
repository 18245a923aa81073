//! The frames that the kernel delivers to a packet socket.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{sock_filter, sock_fprog, socklen_t};
use rustix::io::Errno;

use crate::errno;

/// Lets nothing pass to a socket any more.
///
/// # Errors
/// The kernel's.
pub fn deafen(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // BPF_RET | BPF_K, 0: no byte of any packet.
    let mut nothing = sock_filter { code: 6, jt: 0, jf: 0, k: 0 };
    let program = sock_fprog { len: 1, filter: &raw mut nothing };
    let len = size_of::<sock_fprog>() as socklen_t;
    // SAFETY: the program and its one instruction live over the call.
    let done = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const program).cast(), len)
    };
    if done == 0 { Ok(()) } else { Err(errno::last()) }
}
