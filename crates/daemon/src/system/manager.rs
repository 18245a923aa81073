//! The service manager's socket (sd_notify(3)). If the address is abstract, the daemon connects before it enters the
//! sandbox, which does not permit such a connection. If the address is a path, the daemon connects anew for each
//! message, because the service manager may have been restarted.

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;

use rustix::net::SendFlags;
use sd_notify::NotifyState;

static ABSTRACT: OnceLock<UnixDatagram> = OnceLock::new();

/// Returns the address of the service manager that started this process; `None` if there is none.
pub fn place() -> Option<OsString> {
    std::env::var_os("NOTIFY_SOCKET")
}

/// Connects to a service manager at an abstract address, which the daemon can reach only before it enters the sandbox.
///
/// # Errors
/// Errors of connect(2).
pub fn meet() -> io::Result<()> {
    let Some(place) = place() else { return Ok(()) };
    let Some(name) = place.as_bytes().strip_prefix(b"@") else { return Ok(()) };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    let _ = ABSTRACT.set(socket);
    Ok(())
}

/// Notifies the service manager, if there is one. If `fd` is given, passes that descriptor to the service manager.
///
/// # Errors
/// Errors of connect(2) and sendmsg(2).
pub fn tell(states: &[NotifyState<'_>], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let Some(place) = place() else { return Ok(()) };
    let text: String = states.iter().map(|state| format!("{state}\n")).collect();
    if let Some(socket) = ABSTRACT.get() {
        return send(socket, &text, fd);
    }
    let socket = UnixDatagram::unbound()?;
    socket.connect(place)?;
    send(&socket, &text, fd)
}

fn send(socket: &UnixDatagram, text: &str, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    netvale_fdio::send(socket, text.as_bytes(), fd.as_slice(), SendFlags::empty())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;
    use crate::system::closing;

    /// Objective: a notification arrives in the format of sd_notify(3), with a descriptor.
    #[test]
    fn words_and_a_descriptor() {
        let (here, there) = UnixDatagram::pair().unwrap();
        send(&here, "READY=1\n", Some(here.as_fd())).unwrap();
        send(&here, "WATCHDOG=1\n", None).unwrap();
        let there = OwnedFd::from(there);
        let mut bytes = [0; 64];
        for (text, descriptors) in [("READY=1\n", 1), ("WATCHDOG=1\n", 0)] {
            let (n, fds) = closing::receive(&there, &mut bytes).unwrap();
            assert_eq!((&bytes[..n], fds.len()), (text.as_bytes(), descriptors));
        }
    }
}
