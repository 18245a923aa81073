//! The daemon's listening sockets, with the access rights from the configuration.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use netvale_control::dirs::{ATTACH_SOCKET, CONTROL_SOCKET, OPTIONS};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::{getegid, geteuid};
use thiserror::Error;

use super::user::{User, UserError, id_of};
use crate::config::SocketAccess;

/// Name of the lock file in the run directory.
pub(super) const LOCK: &str = "lock";
/// Name of the lock file that a process must hold while it replaces [`LOCK`].
pub(super) const REPLACING: &str = "lock.new";
/// Mode of the daemon's own files in the run directory. Other users must not be able to open a lock file, because they
/// could lock it.
pub(super) const OWNERS_ONLY: Mode = Mode::RUSR.union(Mode::WUSR);
/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 64;
/// Backlog of the service manager's sockets (systemd's default). Clients wait in it even while no daemon runs.
pub(super) const MANAGERS_BACKLOG: i32 = 4096;

/// Reason why the sockets could not be created.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Another daemon runs in this directory.
    #[error("a netvale daemon already runs in {0}; stop it with 'netvale stop', or choose another --run-dir")]
    Running(PathBuf),
    /// The directory belongs to another user.
    #[error("{0} belongs to another user, who could impersonate the daemon; choose another --run-dir")]
    Foreign(PathBuf),
    /// A step failed.
    #[error("{what} {path}: {source}")]
    System {
        /// The step that failed.
        what: &'static str,
        /// The path of the file or folder on which the step failed.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The directory cannot be given to the daemon's user, because of its owner, its mode or its contents.
    #[error("{dir} {why}; give it to the daemon's user ('chown -R {uid} {dir}'), or choose another --run-dir")]
    NotGiven {
        /// The directory.
        dir: PathBuf,
        /// The reason, which follows the directory in the message.
        why: &'static str,
        /// ID of the daemon's user.
        uid: u32,
    },
    /// The user or group does not exist.
    #[error(transparent)]
    User(#[from] UserError),
}

/// The listening sockets, and the lock of their directory.
pub struct ListeningSockets {
    /// Lock of the run directory, which the daemon holds as long as it runs.
    pub lock: OwnedFd,
    /// The attach socket (`SOCK_SEQPACKET`), for clients that open ports.
    pub attach: OwnedFd,
    /// The control socket (`SOCK_STREAM`), for JSON-RPC.
    pub control: OwnedFd,
    /// Paths of the sockets that the daemon bound itself, which the daemon removes at exit.
    pub own: Vec<PathBuf>,
}

impl ListeningSockets {
    /// Takes over the lock, the attach socket and the control socket of another process.
    ///
    /// # Errors
    /// The name of the socket that is not of the expected type.
    pub fn continued(
        [lock, attach, control]: [OwnedFd; 3],
        own: Vec<PathBuf>,
    ) -> Result<ListeningSockets, &'static str> {
        let listens = |fd: &OwnedFd, kind| {
            sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
                && sockopt::socket_type(fd) == Ok(kind)
                && sockopt::socket_acceptconn(fd) == Ok(true)
        };
        match () {
            () if !listens(&attach, SocketType::SEQPACKET) => Err("the attach socket"),
            () if !listens(&control, SocketType::STREAM) => Err("the control socket"),
            () => Ok(ListeningSockets { lock, attach, control, own }),
        }
    }

    /// Makes the kernel report this process, not its predecessor, as the peer (`SO_PEERCRED`) of connections that
    /// clients make later.
    pub fn own(&self) {
        let backlog = if self.own.is_empty() { MANAGERS_BACKLOG } else { BACKLOG };
        for fd in [&self.attach, &self.control] {
            // The sockets already listen, but the kernel records the last caller of listen(2).
            let _ = rustix::net::listen(fd, backlog);
        }
    }
}

pub(super) fn failed(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> SocketError {
    move |source| SocketError::System { what, path: path.into(), source }
}

/// Gives the run directory and its lock to the daemon's user. Refuses a directory that belongs to root and contains
/// other files, because it was probably named by mistake.
///
/// # Errors
/// [`SocketError::NotGiven`] if the directory cannot be given to that user.
pub fn give_run_dir(dir: &Path, lock: &OwnedFd, user: User) -> Result<(), SocketError> {
    let io = |what| move |e: rustix::io::Errno| failed(what, dir)(e.into());
    let uid = user.uid;
    let gid = user.gid;
    let folder =
        rustix::fs::open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(io("cannot open"))?;
    let found = rustix::fs::fstat(&folder).map_err(io("cannot inspect"))?;
    if found.st_uid != uid.as_raw() {
        let refuse = |why| Err(SocketError::NotGiven { dir: dir.into(), why, uid: uid.as_raw() });
        match () {
            () if found.st_uid != 0 => return refuse("belongs to another user"),
            () if found.st_mode & 0o022 != 0 => return refuse("is writable by its group or by others"),
            () if !has_only_ours(&folder).map_err(io("cannot read"))? => {
                return refuse("contains files that are not the daemon's");
            }
            () => rustix::fs::fchown(&folder, Some(uid), Some(gid)).map_err(io("cannot set the owner of"))?,
        }
    }
    write_options(&folder).map_err(io("cannot write the options to"))?;
    let locked = rustix::fs::fstat(lock).map_err(io("cannot inspect the lock in"))?;
    // Only a regular file with one name is given away, because a hard link could be another file of root's.
    if FileType::from_raw_mode(locked.st_mode).is_file() && locked.st_nlink == 1 {
        rustix::fs::fchown(lock, Some(uid), Some(gid)).map_err(io("cannot set the owner of the lock in"))?;
    }
    Ok(())
}

/// Writes this process's command line to a file that only root can change. `netvale upgrade` trusts only this file for
/// the options of a process that runs as another user.
fn write_options(folder: &OwnedFd) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(folder, OPTIONS, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(e) => return Err(e),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, OPTIONS, flags, OWNERS_ONLY)?;
    let words = std::env::args_os().map(|word| [word.as_encoded_bytes(), b"\0"].concat());
    let mut bytes = words.collect::<Vec<_>>().concat();
    while !bytes.is_empty() {
        let written = rustix::io::write(&file, &bytes)?;
        bytes.drain(..written);
    }
    Ok(())
}

fn has_only_ours(folder: &OwnedFd) -> rustix::io::Result<bool> {
    let names = [LOCK, REPLACING, OPTIONS, ATTACH_SOCKET, CONTROL_SOCKET].map(str::as_bytes);
    let ours = [&b"."[..], b".."].into_iter().chain(names).collect::<Vec<_>>();
    for entry in Dir::read_from(folder)? {
        if !ours.contains(&entry?.file_name().to_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Binds a socket to `path` and listens. Replaces a file that an earlier daemon has left; the caller must hold the lock
/// of the directory.
///
/// # Errors
/// [`SocketError::System`] if a step fails, [`SocketError::User`] if the owner or group does not exist.
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
    // Clients cannot connect before listen(2), so no client connects before the access rights are set.
    give(path, access)?;
    rustix::net::listen(&fd, BACKLOG).map_err(io("cannot listen at"))?;
    Ok(fd)
}

/// Sets owner, group and mode of a socket.
fn give(path: &Path, access: &SocketAccess) -> Result<(), SocketError> {
    set_mode(path, access)?;
    if access.owner.is_some() || access.group.is_some() { set_owner(path, access) } else { Ok(()) }
}

/// Changes owner, group and mode of a socket. If the owner and group stay the same, does not set them, because a
/// sandboxed daemon may change only the mode.
///
/// # Errors
/// [`SocketError::System`] if a step fails, [`SocketError::User`] if the owner or group does not exist.
pub fn change(path: &Path, from: &SocketAccess, to: &SocketAccess) -> Result<(), SocketError> {
    if mode_of(from) != mode_of(to) {
        set_mode(path, to)?;
    }
    if (&from.owner, &from.group) == (&to.owner, &to.group) {
        return Ok(());
    }
    let user = geteuid().as_raw().to_string();
    let group = getegid().as_raw().to_string();
    let owner = to.owner.clone().unwrap_or(user);
    let group = to.group.clone().unwrap_or(group);
    set_owner(path, &SocketAccess { owner: Some(owner), group: Some(group), mode: to.mode })
}

fn mode_of(access: &SocketAccess) -> u32 {
    access.mode.map_or(if access.group.is_some() { 0o660 } else { 0o600 }, |mode| mode.0)
}

fn set_mode(path: &Path, access: &SocketAccess) -> Result<(), SocketError> {
    rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(mode_of(access)), AtFlags::empty())
        .map_err(|e| failed("cannot set the mode of", path)(e.into()))
}

fn set_owner(path: &Path, access: &SocketAccess) -> Result<(), SocketError> {
    let owner = access.owner.as_deref().map(user_id).transpose()?.map(Uid::from_raw);
    let group = access.group.as_deref().map(group_id).transpose()?.map(Gid::from_raw);
    rustix::fs::chownat(CWD, path, owner, group, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|e| failed("cannot set the owner of", path)(e.into()))
}

/// Returns the ID of a user, who is given by name or number.
///
/// # Errors
/// [`UserError::Unknown`].
pub fn user_id(name: &str) -> Result<u32, UserError> {
    id_of("user", "/etc/passwd", name)
}

/// Returns the ID of a group, which is given by name or number.
///
/// # Errors
/// [`UserError::Unknown`].
pub fn group_id(name: &str) -> Result<u32, UserError> {
    id_of("group", "/etc/group", name)
}
