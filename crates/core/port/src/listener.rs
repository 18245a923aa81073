//! UNIX sockets with a file: listening ones, and those that datagrams are sent to. A socket's *site* is the place of
//! its file, and who may connect there.

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
use crate::folder::{Folder, Found, Place};

/// Pause after a peer that broke the rules, and between two attempts to reach one: repeating a mistake immediately
/// would waste a core.
pub const RETRY: Duration = Duration::from_millis(200);

/// What connecting takes: the right to write the socket.
const WRITE: u32 = 2;

/// Why a port's socket or its service cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The path belongs to something other than a socket.
    #[error("{0} exists and is not a socket: choose another path")]
    NotASocket(PathBuf),
    /// Another program listens at the path.
    #[error("another program listens at {0}: choose another path")]
    InUse(PathBuf),
    /// There is a socket to which this process may not connect.
    #[error(
        "{0} is a socket that keeps the daemon out, so somebody may listen there: remove it, or choose another path"
    )]
    KeptOut(PathBuf),
    /// A socket that another user left behind.
    #[error("{0} is another user's socket: choose another path")]
    NotYours(PathBuf),
    /// On the way to the path lies something that a user's path must not have there.
    #[error(
        "{0}: a link or another file system lies on its way; name the folder itself, and let 'allow_dirs' name it if it is mounted"
    )]
    Way(PathBuf),
    /// Somebody exchanged the socket while it was made.
    #[error("{0} was exchanged while it was made: choose a folder that others cannot write")]
    Exchanged(PathBuf),
    /// Nobody but the daemon's user could be let in.
    #[error(
        "{0}: its file system has no access control lists, so no other user can be let in; choose a folder on another one (tmpfs, ext4, xfs, btrfs)"
    )]
    NoLists(PathBuf),
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

impl From<OpenError> for BadState {
    fn from(why: OpenError) -> BadState {
        BadState::with(why.errno(), why)
    }
}

impl OpenError {
    /// Makes the error of a failed step of opening the port at `path`.
    pub fn step(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(Errno) -> OpenError {
        let path = path.into();
        move |source| OpenError::Step { path, what, source }
    }

    /// Makes the error of a place that cannot be opened.
    pub fn of_folder(place: &Place) -> impl FnOnce(Errno) -> OpenError {
        let (path, is_kept) = (place.path().to_owned(), place.user().is_some());
        move |source| match source {
            Errno::LOOP | Errno::XDEV if is_kept => OpenError::Way(path),
            _ => OpenError::step(path, "open its folder")(source),
        }
    }

    /// The error number that matches best.
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

/// Where a port listens, and who may connect there.
#[derive(Clone, Debug)]
pub struct Site {
    /// The socket.
    pub place: Place,
    /// Who may connect, besides the daemon's own user.
    pub access: Access,
}

/// Anywhere, for this process's user alone.
impl From<PathBuf> for Site {
    fn from(path: PathBuf) -> Site {
        Site { place: path.into(), access: Access::default() }
    }
}

impl Site {
    /// The path of the socket.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Another socket in the same folder, for the same users.
    #[must_use]
    pub fn beside(&self, suffix: &str) -> Site {
        Site { place: self.place.beside(suffix), access: self.access.clone() }
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// The file of a listening socket. Dropping this removes the file, if it is still that one.
#[derive(Debug)]
pub struct SocketFile {
    folder: Folder,
    /// What was made: while it is held, no other file gets its number.
    made: Found,
    /// Not yet where another process listens there, too.
    is_ours: Claim,
}

/// Makes a [`SocketFile`] of another process this one's.
#[derive(Clone, Debug)]
pub struct Claim(Arc<AtomicBool>);

impl Claim {
    fn new(is_taken: bool) -> Claim {
        Claim(Arc::new(AtomicBool::new(is_taken)))
    }

    /// The other process does not go on.
    pub fn take(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SocketFile {
    /// Finds the file of another process's socket again, to be removed at the end, once it has been
    /// [claimed](SocketFile::claim).
    ///
    /// # Errors
    /// [`OpenError`] if there is no socket at the place.
    pub fn restore(site: &Site) -> Result<SocketFile, OpenError> {
        let path = site.path();
        let folder = site.place.open().map_err(OpenError::of_folder(&site.place))?;
        let made = folder.find().map_err(OpenError::step(path, "find the socket"))?;
        if made.kind() != FileType::Socket {
            return Err(OpenError::NotASocket(path.into()));
        }
        Ok(SocketFile { folder, made, is_ours: Claim::new(false) })
    }

    /// What makes it this process's.
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
    /// Listens for streams at a place. A socket that a program left behind is replaced, except if it is another user's,
    /// and the place was named by a user who may not do everything.
    ///
    /// # Errors
    /// [`OpenError`] if the path is not a free one for a socket, or a system call fails.
    pub fn listen(site: &Site) -> Result<(Listener, SocketFile), OpenError> {
        Self::listen_for(site, SocketType::STREAM, 1)
    }

    /// The same for connections of that type, of which `backlog` may wait.
    ///
    /// # Errors
    /// Like [`Listener::listen`].
    pub fn listen_for(site: &Site, kind: SocketType, backlog: i32) -> Result<(Listener, SocketFile), OpenError> {
        let (listener, folder) = bound(site, kind)?;
        rustix::net::listen(&listener, backlog).map_err(OpenError::step(site.path(), "listen"))?;
        let file = file_of(site, folder, &listener)?;
        Ok((Listener(listener), file))
    }

    /// Restores another process's listening socket; its file is looked for again, to be removed at the end, once it
    /// has been [claimed](SocketFile::claim).
    ///
    /// # Errors
    /// [`OpenError`] if the descriptor is no listening socket, or nothing of the kind is at the path.
    pub fn restore(fd: OwnedFd, site: &Site) -> Result<(Listener, SocketFile), OpenError> {
        Self::restore_for(fd, site, SocketType::STREAM)
    }

    /// The same of one for connections of that type.
    ///
    /// # Errors
    /// Like [`Listener::restore`].
    pub fn restore_for(fd: OwnedFd, site: &Site, kind: SocketType) -> Result<(Listener, SocketFile), OpenError> {
        if !is_unix(&fd, kind) || sockopt::socket_acceptconn(&fd) != Ok(true) {
            return Err(OpenError::step(site.path(), "continue its socket")(Errno::NOTSOCK));
        }
        Ok((Listener(fd), SocketFile::restore(site)?))
    }

    /// Its descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.0
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
        if self.is_ours.0.load(Ordering::Relaxed) {
            self.folder.remove(&self.made);
        }
    }
}

/// Binds a socket of datagrams at a place, under the conditions of [`Listener::listen`].
///
/// # Errors
/// Like [`Listener::listen`].
pub fn bind_datagrams(site: &Site) -> Result<(OwnedFd, SocketFile), OpenError> {
    let (socket, folder) = bound(site, SocketType::DGRAM)?;
    let file = file_of(site, folder, &socket)?;
    Ok((socket, file))
}

/// Whether it is a UNIX socket of that type.
pub fn is_unix(fd: &OwnedFd, kind: SocketType) -> bool {
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX) && sockopt::socket_type(fd) == Ok(kind)
}

/// A socket of that type that is bound at a place, for this process's user alone, and the folder that it is in.
fn bound(site: &Site, kind: SocketType) -> Result<(OwnedFd, Folder), OpenError> {
    let step = |what| OpenError::step(site.path(), what);
    let folder = site.place.open().map_err(OpenError::of_folder(&site.place))?;
    make_room(&folder, &site.place)?;
    let socket = socket_for(kind).map_err(step("make a socket"))?;
    // The file gets the mode of the socket, as far as the umask allows.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(step("set the mode of the socket"))?;
    let address = SocketAddrUnix::new(folder.way()).map_err(step("not a path for a socket"))?;
    rustix::net::bind(&socket, &address).map_err(step("bind the socket"))?;
    Ok((socket, folder))
}

/// The file of a socket that is bound in a folder: from then on, those may connect whom the site lets in.
fn file_of(site: &Site, folder: Folder, socket: &OwnedFd) -> Result<SocketFile, OpenError> {
    let path = site.path();
    let step = |what| OpenError::step(path, what);
    let made = folder.find().map_err(step("find the socket"))?;
    if !leads_to(&made, socket).map_err(step("connect to the socket"))? {
        return Err(OpenError::Exchanged(path.into()));
    }
    let file = SocketFile { folder, made, is_ours: Claim::new(true) };
    site.access.give_at(&file.made.way()).map_err(|e| match e {
        Errno::OPNOTSUPP => OpenError::NoLists(path.into()),
        e => step("let users in")(e),
    })?;
    Ok(file)
}

/// Removes a socket that was left behind.
fn make_room(folder: &Folder, place: &Place) -> Result<(), OpenError> {
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
        Err(e) => return Err(step("ask whether anybody listens there")(e)),
    }
    // If it could not be removed, bind(2) says so.
    Ok(())
}

/// Whether a file is the one of that socket, which nothing else tells. Somebody who can write the folder may have
/// exchanged it, and would be let into another socket of this user's.
fn leads_to(file: &Found, socket: &OwnedFd) -> Result<bool, Errno> {
    if !is_as_made(file) {
        return Ok(false);
    }
    // The umask may have kept this user out.
    Access::default().give_at(&file.way())?;
    let kind = sockopt::socket_type(socket)?;
    let probe = socket_for(kind)?;
    // The kernel chooses a name that nobody else has.
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
            // Another one of this user's, who will connect again.
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
}

/// Whether a file is a socket of this user's. One that is wider than it was made is another one.
fn is_as_made(file: &Found) -> bool {
    let is_own = file.owner() == rustix::process::geteuid().as_raw();
    is_own && file.kind() == FileType::Socket && file.mode() & !0o600 == 0
}

/// The next one who connects to a socket, or sends to one of datagrams. What came is dropped.
fn who_comes(socket: &OwnedFd, kind: SocketType) -> Result<Option<SocketAddrAny>, Errno> {
    if kind == SocketType::DGRAM {
        return rustix::net::recvfrom(socket, &mut [0u8; 1][..], RecvFlags::DONTWAIT).map(|(_, _, from)| from);
    }
    rustix::net::acceptfrom_with(socket, SocketFlags::CLOEXEC).map(|(_, from)| from)
}

/// Connects to the socket at a place, as soon as somebody listens there. Returns `None` when `stop` became readable.
pub fn connect(place: &Place, stop: BorrowedFd<'_>) -> Option<OwnedFd> {
    loop {
        match try_connect(place) {
            Ok(connection) => return Some(connection),
            Err(_) if nap(stop, RETRY) => return None,
            Err(_) => {}
        }
    }
}

/// Connects to the socket at a place, if somebody listens there now, under the conditions of [`connect_to_place`].
///
/// # Errors
/// Whatever openat2(2), socket(2) or connect(2) returns; `EAGAIN` when the listener's queue of connections is full,
/// `EACCES` if the user could not connect.
pub fn try_connect(place: &Place) -> rustix::io::Result<OwnedFd> {
    let connection = socket()?;
    connect_to_place(&connection, place)?;
    Ok(connection)
}

/// Connects a socket to the one at a place. To a user's place only if that user could connect to it: the socket is
/// theirs, or lets them in by its access control list, or lets everybody in.
///
/// # Errors
/// Whatever openat2(2) or connect(2) returns; `EAGAIN` when the listener's queue of connections is full, `EACCES` if
/// the user could not connect.
pub fn connect_to_place(socket: &OwnedFd, place: &Place) -> rustix::io::Result<()> {
    let Some(user) = place.user() else {
        return rustix::net::connect(socket, &SocketAddrUnix::new(place.path())?);
    };
    let found = place.open()?.find()?;
    if !found.permits(user, WRITE) {
        return Err(Errno::ACCESS);
    }
    rustix::net::connect(socket, &SocketAddrUnix::new(found.way())?)
}

fn connect_to(file: &Found) -> rustix::io::Result<OwnedFd> {
    let connection = socket()?;
    rustix::net::connect(&connection, &SocketAddrUnix::new(file.way())?)?;
    Ok(connection)
}

/// Creates a non-blocking stream socket.
///
/// # Errors
/// Whatever socket(2) returns.
pub fn socket() -> rustix::io::Result<OwnedFd> {
    socket_for(SocketType::STREAM)
}

/// Creates a non-blocking UNIX socket of that type.
///
/// # Errors
/// Whatever socket(2) returns.
pub fn socket_for(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)
}
