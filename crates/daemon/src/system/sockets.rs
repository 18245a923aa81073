//! The daemon's sockets, created with the access that the configuration asks for.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

use crate::config::SocketAccess;

/// Why the sockets could not be created.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Another daemon runs in this directory.
    #[error("a netvale daemon runs in {0} already: stop it with 'netvale stop', or choose another --run-dir")]
    Running(PathBuf),
    /// The directory belongs to somebody else.
    #[error("{0} belongs to another user, who could answer in the daemon's place: choose another --run-dir")]
    Foreign(PathBuf),
    /// A step failed.
    #[error("{what} {path}: {source}")]
    System {
        /// The step that failed.
        what: &'static str,
        /// The path it failed on.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// There is no such user or group.
    #[error("no {what} called {name}: check --socket-owner and --socket-group")]
    Unknown {
        /// The word `user` or `group`.
        what: &'static str,
        /// The name.
        name: String,
    },
}

fn failed(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> SocketError {
    move |source| SocketError::System { what, path: path.into(), source }
}

/// Makes the run directory and locks it: one daemon per directory. The lock is held as long as the descriptor is open.
///
/// # Errors
/// [`SocketError::Running`] if another daemon has the lock, [`SocketError::System`] if a step fails.
pub fn lock_run_dir(dir: &Path) -> Result<OwnedFd, SocketError> {
    std::fs::create_dir_all(dir).map_err(failed("cannot make", dir))?;
    if netvale_control::dirs::is_foreign(dir) {
        return Err(SocketError::Foreign(dir.into()));
    }
    let path = dir.join("lock");
    let file = std::fs::File::options().create(true).truncate(false).write(true).open(&path);
    let fd = OwnedFd::from(file.map_err(failed("cannot open", &path))?);
    match rustix::fs::flock(&fd, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(fd),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(SocketError::Running(dir.into())),
        Err(e) => Err(failed("cannot lock", &path)(e.into())),
    }
}

/// Binds and listens at `path`. A file left there by a daemon that died is replaced: the caller holds the lock.
///
/// # Errors
/// [`SocketError::System`] if a step fails, [`SocketError::Unknown`] if the owner or group does not exist.
pub fn listen(path: &Path, kind: SocketType, access: &SocketAccess) -> Result<OwnedFd, SocketError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed("cannot replace", path)(e)),
        _ => {}
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let io = |what| move |e: rustix::io::Errno| failed(what, path)(e.into());
    let fd =
        rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).map_err(io("cannot make a socket for"))?;
    let address = SocketAddrUnix::new(path).map_err(io("cannot use the socket path"))?;
    rustix::net::bind(&fd, &address).map_err(io("cannot bind"))?;
    // Nobody can connect before listen(2), so the access is right from the start.
    let mode = access.mode.unwrap_or(if access.group.is_some() { 0o660 } else { 0o600 });
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .map_err(failed("cannot set the mode of", path))?;
    let owner = access.owner.as_deref().map(user_id).transpose()?.map(Uid::from_raw);
    let group = access.group.as_deref().map(group_id).transpose()?.map(Gid::from_raw);
    if owner.is_some() || group.is_some() {
        rustix::fs::chown(path, owner, group).map_err(io("cannot set the owner of"))?;
    }
    rustix::net::listen(&fd, 64).map_err(io("cannot listen at"))?;
    Ok(fd)
}

/// The number of a user, by name or number.
///
/// # Errors
/// [`SocketError::Unknown`].
pub fn user_id(name: &str) -> Result<u32, SocketError> {
    id_of("user", "/etc/passwd", name)
}

/// The number of a group, by name or number.
///
/// # Errors
/// [`SocketError::Unknown`].
pub fn group_id(name: &str) -> Result<u32, SocketError> {
    id_of("group", "/etc/group", name)
}

/// Parses a number, or finds the number of a name in a file of colon-separated lines such as `/etc/passwd`.
fn id_of(what: &'static str, file: &str, name: &str) -> Result<u32, SocketError> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|l| l.split(':').next() == Some(name));
    let id = line.and_then(|l| l.split(':').nth(2)).and_then(|n| n.parse().ok());
    id.ok_or_else(|| SocketError::Unknown { what, name: name.to_owned() })
}
