//! The dial socket: a UNIX socket through which the user's programs connect to guests' TCP ports.
//!
//! A program (a caller of the [`Dialer`]) sends a line `ADDRESS:PORT`. The gateway then relays the program's connection
//! to that port of the guest; if the guest cannot be reached, the gateway closes the connection.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};

use crate::control::listen_at;
use crate::core::GatewayCore;
use crate::poller::{WatchMode, WatchedThing};
use crate::slots::{NumberedValues, SlotId};

/// Maximum length of a caller's line in bytes; the longest IPv6 address in brackets, with a port, has 47 bytes.
const MAX_LINE: usize = 64;
/// Maximum number of callers that have not sent their line yet.
const MAX_CALLERS: usize = 256;
/// Maximum time that a caller may take to send its line.
const LINE: Duration = Duration::from_secs(10);
/// The listen backlog.
const BACKLOG: i32 = 128;
/// Maximum number of connections that are accepted per call.
const BATCH: usize = 16;

struct DialCaller {
    socket: OwnedFd,
    since: Instant,
}

/// A caller that has sent its line.
pub struct DialedGuest {
    /// The caller's connection.
    pub socket: OwnedFd,
    /// The guest's address and port.
    pub guest: SocketAddr,
}

/// The dial socket and its callers.
pub struct Dialer {
    listener: OwnedFd,
    path: PathBuf,
    callers: NumberedValues<DialCaller>,
}

impl Dialer {
    /// Listens at a path, to which only this user may connect. Replaces a socket file at which no process listens.
    ///
    /// # Errors
    /// The socket cannot be created, e.g. because another program listens there.
    pub fn listen(path: &Path) -> io::Result<Dialer> {
        let listener = listen_at(path, BACKLOG)?;
        Ok(Dialer { listener, path: path.to_owned(), callers: NumberedValues::default() })
    }

    /// Adds the listening socket to the gateway's epoll set.
    ///
    /// # Errors
    /// The error of epoll_ctl(2).
    pub fn watch(&self, core: &GatewayCore) -> io::Result<()> {
        core.poller.add(&self.listener, WatchedThing::Dial, WatchMode::Readable)
    }

    /// Accepts callers. Callers beyond the limit are disconnected.
    pub fn accept(&mut self, core: &GatewayCore) {
        for _ in 0..BATCH {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(socket) = rustix::net::accept_with(&self.listener, flags) else { return };
            if self.callers.len() >= MAX_CALLERS {
                continue;
            }
            let id = self.callers.insert(DialCaller { socket, since: core.now });
            let watched = |caller: &mut DialCaller| {
                core.poller.add(&caller.socket, WatchedThing::DialCaller(id), WatchMode::Readable)
            };
            if self.callers.get(id).is_none_or(|caller| watched(caller).is_err()) {
                self.callers.remove(id);
            }
        }
    }

    /// Reads a caller's line. Returns the caller once the line is complete, otherwise `None`. Disconnects the caller if
    /// the line is malformed.
    pub fn ready(&mut self, core: &GatewayCore, id: SlotId) -> Option<DialedGuest> {
        let caller = self.callers.get(id)?;
        let line = match peeked(&caller.socket) {
            Ok(Some(line)) => line,
            Ok(None) => return None,
            Err(_) => {
                self.callers.remove(id);
                return None;
            }
        };
        let DialCaller { socket, .. } = self.callers.remove(id)?;
        core.poller.remove(&socket).ok()?;
        let guest = std::str::from_utf8(&line).ok()?.trim_end().parse().ok()?;
        Some(DialedGuest { socket, guest })
    }

    /// Disconnects callers that have taken too long to send their line.
    pub fn clean(&mut self, now: Instant) {
        for id in self.callers.ids_of(|caller| now.saturating_duration_since(caller.since) >= LINE) {
            self.callers.remove(id);
        }
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        // Another process may have removed the file.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads a line from a socket; returns `None` if the line is incomplete. Bytes after the line stay in the socket.
fn peeked(socket: &OwnedFd) -> Result<Option<Vec<u8>>, Errno> {
    let mut bytes = [0; MAX_LINE];
    let len = match rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
        Ok((_, 0)) => return Err(Errno::CONNRESET),
        Ok((_, len)) => len,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(end) = bytes[..len].iter().position(|byte| *byte == b'\n') else {
        return if len < MAX_LINE { Ok(None) } else { Err(Errno::MSGSIZE) };
    };
    let line = bytes.get_mut(..=end).unwrap_or_default();
    rustix::net::recv(socket, &mut *line, RecvFlags::DONTWAIT)?;
    Ok(Some(line.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// Objective: only the line is taken from the socket, and the bytes after it stay there; an incomplete line waits,
    /// and a line that is too long is an error.
    #[test]
    #[cfg_attr(miri, ignore = "sockets are not available under Miri")]
    fn a_line_is_taken_and_what_follows_is_left() {
        let (mut caller, own) = UnixStream::pair().unwrap();
        let own = OwnedFd::from(own);
        caller.write_all(b"10.0.0.2").unwrap();
        assert_eq!(peeked(&own), Ok(None));
        caller.write_all(b":22\nSSH").unwrap();
        assert_eq!(peeked(&own), Ok(Some(b"10.0.0.2:22\n".to_vec())));
        caller.write_all(&[b'x'; MAX_LINE]).unwrap();
        assert_eq!(peeked(&own), Err(Errno::MSGSIZE));
        let mut rest = [0; 3];
        UnixStream::from(own).read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"SSH");
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets are not available under Miri")]
    fn a_callers_end_is_an_error() {
        let (caller, own) = UnixStream::pair().unwrap();
        drop(caller);
        assert_eq!(peeked(&own.into()), Err(Errno::CONNRESET));
    }

    /// Objective: only the user who created the dial socket may connect to it. It replaces only a socket at which no
    /// process listens, and is removed when the dialer is dropped.
    #[test]
    #[cfg_attr(miri, ignore = "sockets are not available under Miri")]
    fn the_socket_is_its_users() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dial");
        drop(UnixListener::bind(&path).unwrap());
        let dialer = Dialer::listen(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Dialer::listen(&path).is_err());
        drop(dialer);
        assert!(!path.exists());
    }
}
