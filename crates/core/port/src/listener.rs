//! UNIX sockets with a file: stream listeners and datagram sockets. A socket's *site* is the path and the access rights
//! of its file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netvale_fdio::state::BadState;
use netvale_mem::notify::nap;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use thiserror::Error;

use crate::access::Access;
use crate::folder::{Folder, FoundFile, UserPath};

/// Pause after a peer broke the protocol, and between attempts to connect, so that repeated failures do not occupy a
/// core.
pub const RETRY: Duration = Duration::from_millis(200);

/// Permission bit that connect(2) requires on a socket: write.
const WRITE: u32 = 2;

/// Reason why a port's socket or service cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file at the path is not a socket.
    #[error("{0} exists and is not a socket: choose another path")]
    NotASocket(PathBuf),
    /// Another program listens at the path.
    #[error("another program listens at {0}: choose another path")]
    InUse(PathBuf),
    /// This process has no permission to connect to the socket at the path, so it cannot find out whether a program
    /// listens.
    #[error(
        "the daemon may not connect to the socket {0}, which a program may use: remove the socket, or choose another \
         path"
    )]
    KeptOut(PathBuf),
    /// The socket at the path belongs to another user.
    #[error("{0} is a socket of another user: choose another path")]
    NotYours(PathBuf),
    /// A restricted user's path contains a link or another file system.
    #[error(
        "{0}: the path contains a link or another file system; name the folder itself, \
         and add it to 'allow_dirs' if it is a mount point"
    )]
    Way(PathBuf),
    /// Another process replaced the socket's file while it was created.
    #[error("another process replaced {0} during its creation: choose a folder that others cannot write to")]
    Exchanged(PathBuf),
    /// The file system has no access control lists, which are needed to admit further users.
    #[error(
        "{0}: the file system has no access control lists, so other users cannot be admitted; \
         choose a folder on another one (tmpfs, ext4, xfs, btrfs)"
    )]
    NoLists(PathBuf),
    /// A step in opening the socket or device failed.
    #[error("{path}: cannot {what}: {source}")]
    Step {
        /// Path of the socket or device.
        path: PathBuf,
        /// The step that failed.
        what: &'static str,
        /// The kernel's error.
        source: Errno,
    },
}

impl From<OpenError> for BadState {
    fn from(why: OpenError) -> BadState {
        BadState::with(why.errno(), why)
    }
}

impl OpenError {
    /// Returns a function that converts the errno of a step in opening the socket or device at `path`; `what` names the
    /// step.
    pub fn step(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(Errno) -> OpenError {
        let path = path.into();
        move |source| OpenError::Step { path, what, source }
    }

    /// Returns a function that converts the error of [`UserPath::open`] for `place`.
    pub fn of_folder(place: &UserPath) -> impl FnOnce(Errno) -> OpenError {
        let path = place.path().to_owned();
        let is_kept = place.user().is_some();
        move |source| match source {
            Errno::LOOP | Errno::XDEV if is_kept => OpenError::Way(path),
            _ => OpenError::step(path, "open its folder")(source),
        }
    }

    /// Returns the errno that is closest to this error.
    pub fn errno(&self) -> Errno {
        match self {
            OpenError::NotASocket(_) => Errno::EXIST,
            OpenError::InUse(_) | OpenError::KeptOut(_) => Errno::ADDRINUSE,
            OpenError::NotYours(_) | OpenError::Exchanged(_) => Errno::PERM,
            OpenError::Way(_) => Errno::LOOP,
            OpenError::NoLists(_) => Errno::OPNOTSUPP,
            OpenError::Step { source, .. } => *source,
        }
    }
}

/// The path at which a port's socket listens, and the users who may connect.
#[derive(Clone, Debug)]
pub struct ListenAddress {
    /// Path of the socket.
    pub place: UserPath,
    /// Access rights to the socket's file.
    pub access: Access,
}

/// An unrestricted path, accessible to this process's user only.
impl From<PathBuf> for ListenAddress {
    fn from(path: PathBuf) -> ListenAddress {
        ListenAddress { place: path.into(), access: Access::default() }
    }
}

impl ListenAddress {
    /// Path of the socket.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// The address with `suffix` appended to the path, for the same users.
    #[must_use]
    pub fn beside(&self, suffix: &str) -> ListenAddress {
        ListenAddress { place: self.place.beside(suffix), access: self.access.clone() }
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// The file of a socket. Dropping this removes the file if this process owns it and no other file has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    folder: Folder,
    /// The created file. While this descriptor is open, no other file can get its inode number.
    made: FoundFile,
    /// Whether this process owns the file; false while another process also listens on this socket and owns the file.
    is_ours: Claim,
}

/// A handle with which this process becomes the owner of another process's [`SocketFile`].
#[derive(Clone, Debug)]
pub struct Claim(Arc<AtomicBool>);

impl Claim {
    fn new(is_taken: bool) -> Claim {
        Claim(Arc::new(AtomicBool::new(is_taken)))
    }

    /// Makes this process the owner of the file. Call this when the other process gives the file up.
    pub fn take(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SocketFile {
    /// Finds the file of another process's socket. Dropping the result removes the file only if this process has become
    /// the file's owner ([`SocketFile::claim`]).
    ///
    /// # Errors
    /// [`OpenError`] if there is no socket at the path.
    pub fn restore(site: &ListenAddress) -> Result<SocketFile, OpenError> {
        let path = site.path();
        let folder = site.place.open().map_err(OpenError::of_folder(&site.place))?;
        let made = folder.find().map_err(OpenError::step(path, "find the socket"))?;
        if made.kind() != FileType::Socket {
            return Err(OpenError::NotASocket(path.into()));
        }
        Ok(SocketFile { folder, made, is_ours: Claim::new(false) })
    }

    /// Returns a handle that can make this process the owner of the file.
    pub fn claim(&self) -> Claim {
        self.is_ours.clone()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Listener {
    /// Listens for stream connections. Replaces a socket on which nothing listens. If a restricted user named the path,
    /// the old socket must belong to that user or to this process's user.
    ///
    /// # Errors
    /// [`OpenError`] if the path is not free for a socket, or a system call fails.
    pub fn listen(site: &ListenAddress) -> Result<(Listener, SocketFile), OpenError> {
        Self::listen_for(site, SocketType::STREAM, 1)
    }

    /// Listens for connections of the type `kind`, with a queue of `backlog` pending connections.
    ///
    /// # Errors
    /// As for [`Listener::listen`].
    pub fn listen_for(
        site: &ListenAddress,
        kind: SocketType,
        backlog: i32,
    ) -> Result<(Listener, SocketFile), OpenError> {
        let (listener, folder) = bound(site, kind)?;
        rustix::net::listen(&listener, backlog).map_err(OpenError::step(site.path(), "listen"))?;
        let file = file_of(site, folder, &listener)?;
        Ok((Listener(listener), file))
    }

    /// Restores another process's listening socket and finds its file. Dropping the [`SocketFile`] removes the file
    /// only if this process has become the file's owner ([`SocketFile::claim`]).
    ///
    /// # Errors
    /// [`OpenError`] if the descriptor is not a listening socket, or there is no socket at the path.
    pub fn restore(fd: OwnedFd, site: &ListenAddress) -> Result<(Listener, SocketFile), OpenError> {
        Self::restore_for(fd, site, SocketType::STREAM)
    }

    /// Restores another process's listening socket for connections of the type `kind`.
    ///
    /// # Errors
    /// As for [`Listener::restore`].
    pub fn restore_for(
        fd: OwnedFd,
        site: &ListenAddress,
        kind: SocketType,
    ) -> Result<(Listener, SocketFile), OpenError> {
        if !is_unix(&fd, kind) || sockopt::socket_acceptconn(&fd) != Ok(true) {
            return Err(OpenError::step(site.path(), "restore its socket")(Errno::NOTSOCK));
        }
        Ok((Listener(fd), SocketFile::restore(site)?))
    }

    /// Returns the socket's descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Waits for the next connection. Returns `None` once `stop` is readable.
    pub fn accept(&self, stop: BorrowedFd<'_>) -> Option<OwnedFd> {
        loop {
            let mut both = [PollFd::new(&self.0, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
            let _ = poll(&mut both, None);
            if !both[1].revents().is_empty() {
                return None;
            }
            match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(connection) => return Some(connection),
                // Probably out of descriptors. The connection stays pending, so pause instead of retrying in a loop.
                Err(_) if nap(stop, RETRY) => return None,
                Err(_) => {}
            }
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_ours.0.load(Ordering::Relaxed) {
            self.folder.remove(&self.made);
        }
    }
}

/// Binds a datagram socket at a path, under the conditions of [`Listener::listen`].
///
/// # Errors
/// As for [`Listener::listen`].
pub fn bind_datagrams(site: &ListenAddress) -> Result<(OwnedFd, SocketFile), OpenError> {
    let (socket, folder) = bound(site, SocketType::DGRAM)?;
    let file = file_of(site, folder, &socket)?;
    Ok((socket, file))
}

/// Whether a descriptor is a UNIX socket of the type `kind`.
pub fn is_unix(fd: &OwnedFd, kind: SocketType) -> bool {
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX) && sockopt::socket_type(fd) == Ok(kind)
}

/// Binds a socket at the site's path, accessible to this process's user only. Returns the socket and the open folder
/// that contains its file.
fn bound(site: &ListenAddress, kind: SocketType) -> Result<(OwnedFd, Folder), OpenError> {
    let step = |what| OpenError::step(site.path(), what);
    let folder = site.place.open().map_err(OpenError::of_folder(&site.place))?;
    make_room(&folder, &site.place)?;
    let socket = socket_for(kind).map_err(step("create a socket"))?;
    // bind(2) creates the file with the socket's mode, less the umask.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(step("set the mode of the socket"))?;
    let address = SocketAddrUnix::new(folder.way()).map_err(step("use the path for a socket"))?;
    rustix::net::bind(&socket, &address).map_err(step("bind the socket"))?;
    Ok((socket, folder))
}

/// Finds the file of a bound socket, and gives the site's access rights to it.
fn file_of(site: &ListenAddress, folder: Folder, socket: &OwnedFd) -> Result<SocketFile, OpenError> {
    let path = site.path();
    let step = |what| OpenError::step(path, what);
    let made = folder.find().map_err(step("find the socket"))?;
    if !leads_to(&made, socket).map_err(step("connect to the socket"))? {
        return Err(OpenError::Exchanged(path.into()));
    }
    let file = SocketFile { folder, made, is_ours: Claim::new(true) };
    site.access.give_at(&file.made.way()).map_err(|e| match e {
        Errno::OPNOTSUPP => OpenError::NoLists(path.into()),
        e => step("admit users")(e),
    })?;
    Ok(file)
}

/// Removes a socket at the path if nothing listens on it, so that bind(2) can create the new socket.
fn make_room(folder: &Folder, place: &UserPath) -> Result<(), OpenError> {
    let path = place.path();
    let step = |what| OpenError::step(path, what);
    let found = match folder.find() {
        Err(Errno::NOENT) => return Ok(()),
        found => found.map_err(step("look for a socket"))?,
    };
    if found.kind() != FileType::Socket {
        return Err(OpenError::NotASocket(path.into()));
    }
    let own = rustix::process::geteuid().as_raw();
    if place.user().is_some_and(|user| ![user, own].contains(&found.owner())) {
        return Err(OpenError::NotYours(path.into()));
    }
    match connect_to(&found) {
        Err(Errno::CONNREFUSED) => folder.remove(&found),
        Ok(_) | Err(Errno::AGAIN | Errno::PROTOTYPE) => return Err(OpenError::InUse(path.into())),
        Err(Errno::ACCESS) => return Err(OpenError::KeptOut(path.into())),
        Err(e) => return Err(step("test for a listener")(e)),
    }
    // If the removal failed, bind(2) reports that the path is in use.
    Ok(())
}

/// Whether connecting to the file reaches the socket. Anyone who can write to the folder may have replaced the file
/// with another socket of this process's user, to which the site's users would then be admitted.
fn leads_to(file: &FoundFile, socket: &OwnedFd) -> Result<bool, Errno> {
    if !is_as_made(file) {
        return Ok(false);
    }
    // The umask may have denied this process's user access.
    Access::default().give_at(&file.way())?;
    let kind = sockopt::socket_type(socket)?;
    let probe = socket_for(kind)?;
    // With an unnamed address, the kernel chooses a unique name.
    rustix::net::bind(&probe, &SocketAddrUnix::new_unnamed())?;
    match rustix::net::connect(&probe, &SocketAddrUnix::new(file.way())?) {
        Err(Errno::CONNREFUSED | Errno::PROTOTYPE) => return Ok(false),
        done => done?,
    }
    if kind == SocketType::DGRAM {
        rustix::net::send(&probe, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    }
    let name = rustix::net::getsockname(&probe)?;
    loop {
        match who_comes(socket, kind) {
            Ok(from) if from.as_ref() == Some(&name) => return Ok(true),
            // Another program of this user connected. Its connection is closed; it can connect again.
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
}

/// Whether a file is a socket of this user with no permissions beyond the permissions that it was created with.
fn is_as_made(file: &FoundFile) -> bool {
    let is_own = file.owner() == rustix::process::geteuid().as_raw();
    is_own && file.kind() == FileType::Socket && file.mode() & !0o600 == 0
}

/// Takes and drops the next connection or datagram. Returns the peer's address, `None` if the peer has none; `EAGAIN`
/// if nothing has arrived.
fn who_comes(socket: &OwnedFd, kind: SocketType) -> Result<Option<SocketAddrAny>, Errno> {
    if kind == SocketType::DGRAM {
        return rustix::net::recvfrom(socket, &mut [0u8; 1][..], RecvFlags::DONTWAIT).map(|(_, _, from)| from);
    }
    rustix::net::acceptfrom_with(socket, SocketFlags::CLOEXEC).map(|(_, from)| from)
}

/// Connects to the socket at a path, and retries until that succeeds. Returns `None` once `stop` is readable.
pub fn connect(place: &UserPath, stop: BorrowedFd<'_>) -> Option<OwnedFd> {
    loop {
        match try_connect(place) {
            Ok(connection) => return Some(connection),
            Err(_) if nap(stop, RETRY) => return None,
            Err(_) => {}
        }
    }
}

/// Connects a new stream socket to the socket at a path, under the conditions of [`connect_to_place`].
///
/// # Errors
/// The error of openat2(2), socket(2) or connect(2); `EAGAIN` if the listener's queue of connections is full, `EACCES`
/// if the user may not connect.
pub fn try_connect(place: &UserPath) -> rustix::io::Result<OwnedFd> {
    let connection = socket()?;
    connect_to_place(&connection, place)?;
    Ok(connection)
}

/// Connects `socket` to the socket at a path. If a restricted user named the path, that user must have permission to
/// connect: as owner of the socket, by its access control list, or by the permission bits for others.
///
/// # Errors
/// The error of openat2(2) or connect(2); `EAGAIN` if the listener's queue of connections is full, `EACCES` if the user
/// may not connect.
pub fn connect_to_place(socket: &OwnedFd, place: &UserPath) -> rustix::io::Result<()> {
    let Some(user) = place.user() else {
        return rustix::net::connect(socket, &SocketAddrUnix::new(place.path())?);
    };
    let found = place.open()?.find()?;
    if !found.permits(user, WRITE) {
        return Err(Errno::ACCESS);
    }
    rustix::net::connect(socket, &SocketAddrUnix::new(found.way())?)
}

fn connect_to(file: &FoundFile) -> rustix::io::Result<OwnedFd> {
    let connection = socket()?;
    rustix::net::connect(&connection, &SocketAddrUnix::new(file.way())?)?;
    Ok(connection)
}

/// Creates a non-blocking UNIX stream socket.
///
/// # Errors
/// The error of socket(2).
pub fn socket() -> rustix::io::Result<OwnedFd> {
    socket_for(SocketType::STREAM)
}

/// Creates a non-blocking UNIX socket of the type `kind`.
///
/// # Errors
/// The error of socket(2).
pub fn socket_for(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)
}
