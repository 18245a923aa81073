//! A UNIX socket at which virtual machines (or whoever plays them) knock, one at a time.

use std::io::ErrorKind;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

/// Why nobody can listen there.
#[derive(Debug, Error)]
pub enum DoorError {
    /// The path is no socket's.
    #[error("{0} is there and is no socket: choose another path")]
    NotASocket(PathBuf),
    /// Somebody listens there.
    #[error("another program listens at {0}: choose another path")]
    InUse(PathBuf),
    /// A step failed.
    #[error("{path}: {what}: {source}")]
    Step {
        /// The socket.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: Errno,
    },
}

impl DoorError {
    /// The error number that fits.
    pub fn errno(&self) -> Errno {
        match self {
            DoorError::NotASocket(_) => Errno::EXIST,
            DoorError::InUse(_) => Errno::ADDRINUSE,
            DoorError::Step { source, .. } => *source,
        }
    }
}

/// A listening socket. Dropping it removes its file.
#[derive(Debug)]
pub struct Door {
    path: PathBuf,
    listener: OwnedFd,
}

impl Door {
    /// Listens at `path`. A socket that a program left behind is replaced.
    ///
    /// # Errors
    /// [`DoorError`].
    pub fn listen(path: &Path) -> Result<Door, DoorError> {
        let step = |what| move |source| DoorError::Step { path: path.into(), what, source };
        let address = SocketAddrUnix::new(path).map_err(step("not a path for a socket"))?;
        match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Ok(m) if m.file_type().is_socket() => {
                let probe = socket().map_err(step("make a socket"))?;
                if rustix::net::connect(&probe, &address).is_ok() {
                    return Err(DoorError::InUse(path.into()));
                }
                // Nobody listens: it is left over. If it cannot be removed, binding says why.
                let _ = std::fs::remove_file(path);
            }
            _ => return Err(DoorError::NotASocket(path.into())),
        }
        let listener = socket().map_err(step("make a socket"))?;
        rustix::net::bind(&listener, &address).map_err(step("bind the socket"))?;
        rustix::net::listen(&listener, 1).map_err(step("listen"))?;
        Ok(Door { path: path.into(), listener })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next one who knocks; none when `stop` became readable.
    pub fn meet(&self, stop: BorrowedFd<'_>) -> Option<OwnedFd> {
        loop {
            let mut both = [PollFd::new(&self.listener, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
            let _ = poll(&mut both, None);
            if !both[1].revents().is_empty() {
                return None;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            if let Ok(connection) = rustix::net::accept_with(&self.listener, flags) {
                return Some(connection);
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Ours, as we bound it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A stream socket that does not block.
///
/// # Errors
/// What socket(2) says.
pub fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Sleeps. Returns whether `stop` became readable.
pub fn nap(stop: BorrowedFd<'_>, time: Duration) -> bool {
    let limit = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: i64::from(time.subsec_nanos()) };
    let mut one = [PollFd::from_borrowed_fd(stop, PollFlags::IN)];
    matches!(poll(&mut one, Some(&limit)), Ok(n) if n > 0)
}
