//! Passes programs to the Linux kernel, which accepts or refuses them as socket filters.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

use netvale_policy::bpf::Insn;

/// Whether the kernel accepts a program. The kernel returns `EINVAL` for an invalid program, and `ENOMEM` for a valid
/// program for which a socket has no room (`net.core.optmem_max`); any other error is a fault of this test.
pub fn takes(insns: &[Insn]) -> io::Result<bool> {
    let socket = UnixDatagram::unbound()?;
    let mut filter: Vec<_> =
        insns.iter().map(|&Insn { code, jt, jf, k }| libc::sock_filter { code, jt, jf, k }).collect();
    let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies a sock_fprog and the instructions to which it points; both outlive the call.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            std::ptr::from_ref(&program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    match io::Error::last_os_error() {
        _ if status == 0 => Ok(true),
        error if error.raw_os_error() == Some(libc::ENOMEM) => Ok(true),
        error if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        error => Err(error),
    }
}
