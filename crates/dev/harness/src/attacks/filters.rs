//! Slow filters: in the switch, and in the network stack behind a TAP.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::packet;

/// Number of instructions of the longest permitted filter, in a port's rule or on a socket (the kernel's BPF_MAXINSNS).
pub const LONGEST: usize = 4096;

/// Returns a filter rule of `length` instructions in the form of a port's option: loads, then a return with the same
/// result for every frame, so that the rule gives each frame `verdict`.
#[must_use]
pub fn rule(verdict: &str, length: usize) -> String {
    format!("{verdict} {length},{}6 0 0 1", "48 0 0 0,".repeat(length.saturating_sub(1)))
}

/// Packet sockets on an interface, each with a slow filter that rejects every frame.
#[derive(Debug)]
pub struct Listeners(Vec<OwnedFd>);

impl Listeners {
    /// Opens `count` sockets on an interface in the calling thread's network namespace.
    ///
    /// # Errors
    /// The interface does not exist, or this user may not open packet sockets on it.
    pub fn at(interface: &str, count: usize) -> io::Result<Listeners> {
        (0..count).map(|_| packet::open(interface, true, filter)).collect::<io::Result<_>>().map(Listeners)
    }

    /// Sends a frame on the interface, as the network stack behind it would.
    ///
    /// # Errors
    /// The interface is down.
    pub fn say(&self, frame: &[u8]) -> io::Result<()> {
        self.0.first().map_or(Ok(()), |socket| Ok(rustix::io::write(socket, frame).map(drop)?))
    }
}

/// Installs a filter that runs for the longest possible time (classic BPF: `ld #len`, repeated `div #3`, then `ret
/// #0`): each division waits for the previous division.
fn filter(socket: BorrowedFd<'_>) -> io::Result<()> {
    let code = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = vec![code(libc::BPF_ALU | libc::BPF_DIV | libc::BPF_K, 3); LONGEST];
    program[0] = code(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0);
    program[LONGEST - 1] = code(libc::BPF_RET | libc::BPF_K, 0);
    let whole = libc::sock_fprog { len: LONGEST as u16, filter: program.as_mut_ptr() };
    let len = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the kernel reads the structure, whose size is given, and the instructions, whose number it contains; both
    // exist until the call returns.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const whole).cast(), len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a rule has the requested number of instructions, of which the last is a verdict.
    #[test]
    fn a_rule_has_the_requested_instructions() {
        assert_eq!(rule("drop", 3), "drop 3,48 0 0 0,48 0 0 0,6 0 0 1");
        assert_eq!(rule("pass", LONGEST).matches(',').count(), LONGEST);
    }
}
