//! Filters that take long: in the switch, and in the network stack behind a TAP.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Instructions of the longest filter, of a port's rule and of a socket (the kernel's BPF_MAXINSNS).
pub const LONGEST: usize = 4096;

/// A rule of that many instructions, as ports take it: loads, and then an answer, which holds for every frame.
#[must_use]
pub fn rule(verdict: &str, length: usize) -> String {
    format!("{verdict} {length},{}6 0 0 1", "48 0 0 0,".repeat(length.saturating_sub(1)))
}

/// Packet sockets that hear an interface, each by a filter that wants no frame, and takes long to say so.
#[derive(Debug)]
pub struct Listeners(Vec<OwnedFd>);

impl Listeners {
    /// That many at that interface of the calling thread's network.
    ///
    /// # Errors
    /// The interface does not exist, or this user may not listen there.
    pub fn at(interface: &str, count: usize) -> io::Result<Listeners> {
        let index = index_of(interface)?;
        let heard = || {
            let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            // SAFETY: takes no pointer.
            let fd = done(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
            // SAFETY: just made, and nobody else's.
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            filter(socket.as_fd())?;
            bind(socket.as_fd(), index)?;
            Ok(socket)
        };
        (0..count).map(|_| heard()).collect::<io::Result<_>>().map(Listeners)
    }

    /// Sends a frame from the interface, as its own station does.
    ///
    /// # Errors
    /// It is down.
    pub fn say(&self, frame: &[u8]) -> io::Result<()> {
        self.0.first().map_or(Ok(()), |socket| Ok(rustix::io::write(socket, frame).map(drop)?))
    }
}

fn done(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn index_of(interface: &str) -> io::Result<libc::c_int> {
    let name = CString::new(interface)?;
    // SAFETY: a string that ends, and lives until the call returns.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index.cast_signed()),
    }
}

/// Installs the longest filter there is (classic BPF: `ld #len` again and again, then `ret #0`).
fn filter(socket: BorrowedFd<'_>) -> io::Result<()> {
    let code = |code: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: 0 };
    let mut program = vec![code(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN); LONGEST - 1];
    program.push(code(libc::BPF_RET | libc::BPF_K));
    let whole = libc::sock_fprog { len: LONGEST as u16, filter: program.as_mut_ptr() };
    let len = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the kernel reads the structure, whose size is given, and as many instructions as it says; both live
    // until the call returns.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const whole).cast(), len)
    };
    done(result).map(drop)
}

/// From here on it hears all frames of the interface of that number.
fn bind(socket: BorrowedFd<'_>, index: libc::c_int) -> io::Result<()> {
    // SAFETY: integers and an array of such; all zeros is one.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads an address, whose size is given, and which lives until the call returns.
    done(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a rule has as many instructions as it says, and ends with an answer.
    #[test]
    fn rules() {
        assert_eq!(rule("drop", 3), "drop 3,48 0 0 0,48 0 0 0,6 0 0 1");
        assert_eq!(rule("pass", LONGEST).matches(',').count(), LONGEST);
    }
}
