//! A listening UNIX socket that serves one peer at a time.

use std::io::ErrorKind;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netvale_mem::notify::nap;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

/// Pause after a peer that broke the rules, and between two attempts to reach one: repeating a mistake immediately
/// would waste a core.
pub const RETRY: Duration = Duration::from_millis(200);

/// Why a port's socket or its service cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The path belongs to something other than a socket.
    #[error("{0} exists and is not a socket: choose another path")]
    NotASocket(PathBuf),
    /// Another program listens at the path.
    #[error("another program listens at {0}: choose another path")]
    InUse(PathBuf),
    /// A step failed.
    #[error("{path}: {what}: {source}")]
    Step {
        /// The path of the socket or device.
        path: PathBuf,
        /// The step that failed.
        what: &'static str,
        /// The kernel's error.
        source: Errno,
    },
}

impl OpenError {
    /// Makes the error of a failed step of opening the port at `path`.
    pub fn step(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(Errno) -> OpenError {
        let path = path.into();
        move |source| OpenError::Step { path, what, source }
    }

    /// The error number that matches best.
    pub fn errno(&self) -> Errno {
        match self {
            OpenError::NotASocket(_) => Errno::EXIST,
            OpenError::InUse(_) => Errno::ADDRINUSE,
            OpenError::Step { source, .. } => *source,
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// The file of a listening socket. Dropping this removes the file.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Listener {
    /// Listens at `path`. A socket that a program left behind is replaced.
    ///
    /// # Errors
    /// [`OpenError`] if the path is not a free one for a socket, or a system call fails.
    pub fn listen(path: &Path) -> Result<(Listener, SocketFile), OpenError> {
        let step = |what| OpenError::step(path, what);
        let address = SocketAddrUnix::new(path).map_err(step("not a path for a socket"))?;
        match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Ok(m) if m.file_type().is_socket() => {
                let probe = socket().map_err(step("make a socket"))?;
                if rustix::net::connect(&probe, &address).is_ok() {
                    return Err(OpenError::InUse(path.into()));
                }
                // Nobody listens, so it is left over. If it cannot be removed, bind(2) says why.
                let _ = std::fs::remove_file(path);
            }
            _ => return Err(OpenError::NotASocket(path.into())),
        }
        let listener = socket().map_err(step("make a socket"))?;
        rustix::net::bind(&listener, &address).map_err(step("bind the socket"))?;
        let file = SocketFile(path.into());
        rustix::net::listen(&listener, 1).map_err(step("listen"))?;
        Ok((Listener(listener), file))
    }

    /// Waits for the next connection. Returns `None` when `stop` became readable.
    pub fn accept(&self, stop: BorrowedFd<'_>) -> Option<OwnedFd> {
        loop {
            let mut both = [PollFd::new(&self.0, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
            let _ = poll(&mut both, None);
            if !both[1].revents().is_empty() {
                return None;
            }
            match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(connection) => return Some(connection),
                // Out of descriptors: the socket stays readable, so pause.
                Err(_) if nap(stop, RETRY) => return None,
                Err(_) => {}
            }
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // This process bound it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Connects to the socket at `path`, as soon as somebody listens there. Returns `None` when `stop` became readable.
pub fn connect(path: &Path, stop: BorrowedFd<'_>) -> Option<OwnedFd> {
    loop {
        match try_connect(path) {
            Ok(connection) => return Some(connection),
            Err(_) if nap(stop, RETRY) => return None,
            Err(_) => {}
        }
    }
}

/// Connects to the socket at `path`, if somebody listens there now.
///
/// # Errors
/// Whatever socket(2) or connect(2) returns; `EAGAIN` when the listener's queue of connections is full.
pub fn try_connect(path: &Path) -> rustix::io::Result<OwnedFd> {
    let connection = socket()?;
    rustix::net::connect(&connection, &SocketAddrUnix::new(path)?)?;
    Ok(connection)
}

/// Creates a non-blocking stream socket.
///
/// # Errors
/// Whatever socket(2) returns.
pub fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}
