//! Opens `/dev/netmap`, which means connecting to the daemon.

use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::Arc;

use libc::{O_CLOEXEC, O_NONBLOCK, c_int};
use netvale_control::dirs::ATTACH_SOCKET;
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SocketAddrUnix};

use crate::descriptor::Descriptor;
use crate::{errno, table};

/// Path of the device.
pub const DEVICE: &[u8] = b"/dev/netmap";

/// Opens the device. Returns the new descriptor's number.
///
/// # Errors
/// `ENOENT` if no daemon runs (as without netmap's module), `EACCES` if this user may not connect.
pub fn open(flags: c_int) -> Result<c_int, Errno> {
    let conn = netvale::raw::connect_to(None).map_err(|e| {
        crate::say(&e);
        errno::of(&e)
    })?;
    if flags & O_CLOEXEC == 0 {
        rustix::io::fcntl_setfd(&conn, FdFlags::empty())?;
    }
    if flags & O_NONBLOCK != 0 {
        rustix::io::ioctl_fionbio(&conn, true)?;
    }
    // From here on, the program owns the descriptor and closes it.
    let fd = conn.into_raw_fd();
    if table::insert(fd, Arc::new(Descriptor::default())) {
        return Ok(fd);
    }
    crate::close(fd);
    Err(Errno::MFILE)
}

/// Returns whether a descriptor of unknown origin is a connection to a daemon's attach socket.
pub fn is_ours(fd: BorrowedFd<'_>) -> bool {
    let Ok(peer) = rustix::net::getpeername(fd) else { return false };
    if peer.is_none_or(|p| p.address_family() != AddressFamily::UNIX) {
        return false;
    }
    let Ok(Some(peer)) = rustix::net::getpeername(fd) else { return false };
    let path = SocketAddrUnix::try_from(peer).ok().and_then(|a| a.path().map(|p| p.to_bytes().to_vec()));
    path.is_some_and(|p| p.ends_with(format!("/{ATTACH_SOCKET}").as_bytes()))
}
