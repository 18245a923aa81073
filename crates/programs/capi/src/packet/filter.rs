//! Kernel settings of a packet socket: a filter that drops all received frames, and a check for rings in memory.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, sock_filter, sock_fprog, socklen_t};
use rustix::io::Errno;

use crate::errno;

/// Installs a filter that passes no frame to a socket.
///
/// # Errors
/// The kernel's error.
pub fn deafen(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // The one instruction, BPF_RET | BPF_K with the value 0, accepts no byte of any packet.
    let mut nothing = sock_filter { code: 6, jt: 0, jf: 0, k: 0 };
    let program = sock_fprog { len: 1, filter: &raw mut nothing };
    let len = size_of::<sock_fprog>() as socklen_t;
    // SAFETY: the program and its one instruction live during the call.
    let done = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const program).cast(), len)
    };
    if done == 0 { Ok(()) } else { Err(errno::last()) }
}

/// Returns whether a packet socket has rings in memory (`PACKET_RX_RING`, `PACKET_TX_RING`). With rings, the kernel
/// refuses to set `PACKET_VERSION`, even to its current value.
pub fn is_mapped(fd: BorrowedFd<'_>) -> bool {
    let mut version: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    let at = (&raw mut version).cast();
    // SAFETY: `version` and its length live during both calls.
    unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_VERSION, at, &raw mut len) == 0
            && libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_VERSION, at, len) != 0
            && errno::last() == Errno::BUSY
    }
}
