//! A listening UNIX socket that serves one peer at a time. Its *site* is the place of the socket's file and the access
//! rights there.

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
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use thiserror::Error;

use crate::access::Access;
use crate::folder::{Folder, Found, Place};

/// Pause after a peer that broke the rules, and between two attempts to connect: repeating a mistake immediately would
/// waste a core.
pub const RETRY: Duration = Duration::from_millis(200);

/// The right needed to connect: writing the socket.
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
    /// A socket at the path refuses this process's connections.
    #[error(
        "{0} is a socket that keeps the daemon out, so somebody may listen there: remove it, or choose another path"
    )]
    KeptOut(PathBuf),
    /// The socket at the path is another user's leftover.
    #[error("{0} is another user's socket: choose another path")]
    NotYours(PathBuf),
    /// A link or another file system lies on a user's path.
    #[error(
        "{0}: a link or another file system lies on its way; name the folder itself, and let 'allow_dirs' name it if it is mounted"
    )]
    Way(PathBuf),
    /// The socket was exchanged while it was made.
    #[error("{0} was exchanged while it was made: choose a folder that others cannot write")]
    Exchanged(PathBuf),
    /// Only the daemon's user could be admitted.
    #[error(
        "{0}: its file system has no access control lists, so no other user can be let in; choose a folder on another one (tmpfs, ext4, xfs, btrfs)"
    )]
    NoLists(PathBuf),
    /// A step failed.
    #[error("{path}: {what}: {source}")]
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
    /// Creates the error of a failed step in opening the port at `path`.
    pub fn step(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(Errno) -> OpenError {
        let path = path.into();
        move |source| OpenError::Step { path, what, source }
    }

    /// Creates the error of a place that cannot be opened.
    pub fn of_folder(place: &Place) -> impl FnOnce(Errno) -> OpenError {
        let path = place.path().to_owned();
        let is_kept = place.user().is_some();
        move |source| match source {
            Errno::LOOP | Errno::XDEV if is_kept => OpenError::Way(path),
            _ => OpenError::step(path, "open its folder")(source),
        }
    }

    /// The closest error number.
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

/// A port's listening address, and the users who may connect.
#[derive(Clone, Debug)]
pub struct Site {
    /// The socket.
    pub place: Place,
    /// Access for users besides the daemon's own.
    pub access: Access,
}

/// Any path, for this process's user alone.
impl From<PathBuf> for Site {
    fn from(path: PathBuf) -> Site {
        Site { place: path.into(), access: Access::default() }
    }
}

impl Site {
    /// Path of the socket.
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
    /// The file as made: while it is held, no other file gets its inode number.
    made: Found,
    /// False while another process listens there, too.
    is_ours: Claim,
}

/// Transfers another process's [`SocketFile`] to this one.
#[derive(Clone, Debug)]
pub struct Claim(Arc<AtomicBool>);

impl Claim {
    fn new(is_taken: bool) -> Claim {
        Claim(Arc::new(AtomicBool::new(is_taken)))
    }

    /// Takes the file: the other process has ended.
    pub fn take(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SocketFile {
    /// The claim that transfers the file to this process.
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
    /// Listens at a place. Replaces a leftover socket, unless it is another user's and the place was named by a
    /// restricted user.
    ///
    /// # Errors
    /// [`OpenError`] if the path is not free for a socket, or a system call fails.
    pub fn listen(site: &Site) -> Result<(Listener, SocketFile), OpenError> {
        let path = site.path();
        let step = |what| OpenError::step(path, what);
        let folder = site.place.open().map_err(OpenError::of_folder(&site.place))?;
        make_room(&folder, &site.place)?;
        let listener = socket().map_err(step("make a socket"))?;
        // The file inherits the socket's mode, less the umask.
        rustix::fs::fchmod(&listener, Mode::RUSR | Mode::WUSR).map_err(step("set the mode of the socket"))?;
        let address = SocketAddrUnix::new(folder.way()).map_err(step("not a path for a socket"))?;
        rustix::net::bind(&listener, &address).map_err(step("bind the socket"))?;
        rustix::net::listen(&listener, 1).map_err(step("listen"))?;
        let made = folder.find().map_err(step("find the socket"))?;
        if !leads_to(&made, &listener).map_err(step("connect to the socket"))? {
            return Err(OpenError::Exchanged(path.into()));
        }
        let file = SocketFile { folder, made, is_ours: Claim::new(true) };
        // Up to here, only this process's user could connect.
        site.access.give_at(&file.made.way()).map_err(|e| match e {
            Errno::OPNOTSUPP => OpenError::NoLists(path.into()),
            e => step("let users in")(e),
        })?;
        Ok((Listener(listener), file))
    }

    /// Restores another process's listening socket. Looks for its file again, to remove it at the end once it has been
    /// [claimed](SocketFile::claim).
    ///
    /// # Errors
    /// [`OpenError`] if the descriptor is not a listening socket, or its file is not at the path.
    pub fn restore(fd: OwnedFd, site: &Site) -> Result<(Listener, SocketFile), OpenError> {
        let path = site.path();
        let listens = sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&fd) == Ok(SocketType::STREAM)
            && sockopt::socket_acceptconn(&fd) == Ok(true);
        if !listens {
            return Err(OpenError::step(path, "continue its socket")(Errno::NOTSOCK));
        }
        let folder = site.place.open().map_err(OpenError::of_folder(&site.place))?;
        let made = folder.find().map_err(OpenError::step(path, "find the socket"))?;
        if made.kind() != FileType::Socket {
            return Err(OpenError::NotASocket(path.into()));
        }
        Ok((Listener(fd), SocketFile { folder, made, is_ours: Claim::new(false) }))
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

/// Removes a leftover socket.
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
    // If the removal failed, bind(2) reports it.
    Ok(())
}

/// Whether a file is that of the listening socket; connecting is the only way to find out. Anyone who can write the
/// folder may have exchanged it, and would be admitted to another socket of this user.
fn leads_to(file: &Found, listener: &OwnedFd) -> Result<bool, Errno> {
    // A file with wider permissions than it was made with is another.
    if file.kind() != FileType::Socket
        || file.owner() != rustix::process::geteuid().as_raw()
        || file.mode() & !0o600 != 0
    {
        return Ok(false);
    }
    // The umask may have denied this user access.
    Access::default().give_at(&file.way())?;
    let probe = socket()?;
    // The kernel chooses a unique name.
    rustix::net::bind(&probe, &SocketAddrUnix::new_unnamed())?;
    match rustix::net::connect(&probe, &SocketAddrUnix::new(file.way())?) {
        Err(Errno::CONNREFUSED) => return Ok(false),
        done => done?,
    }
    let name = rustix::net::getsockname(&probe)?;
    loop {
        match rustix::net::acceptfrom_with(listener, SocketFlags::CLOEXEC) {
            Ok((_, from)) if from.as_ref() == Some(&name) => return Ok(true),
            // A connection from another program of this user, which will connect again.
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
}

/// Connects to the socket at a place, once a listener is there. Returns `None` once `stop` is readable.
pub fn connect(place: &Place, stop: BorrowedFd<'_>) -> Option<OwnedFd> {
    loop {
        match try_connect(place) {
            Ok(connection) => return Some(connection),
            Err(_) if nap(stop, RETRY) => return None,
            Err(_) => {}
        }
    }
}

/// Connects to the socket at a place, if a listener is there now. To a user's place only if that user may connect: as
/// owner of the socket, by its access control list, or as everyone.
///
/// # Errors
/// The error of openat2(2), socket(2) or connect(2); `EAGAIN` if the listener's queue of connections is full, `EACCES`
/// if the user may not connect.
pub fn try_connect(place: &Place) -> rustix::io::Result<OwnedFd> {
    let Some(user) = place.user() else {
        let connection = socket()?;
        rustix::net::connect(&connection, &SocketAddrUnix::new(place.path())?)?;
        return Ok(connection);
    };
    let found = place.open()?.find()?;
    if !found.permits(user, WRITE) {
        return Err(Errno::ACCESS);
    }
    connect_to(&found)
}

fn connect_to(file: &Found) -> rustix::io::Result<OwnedFd> {
    let connection = socket()?;
    rustix::net::connect(&connection, &SocketAddrUnix::new(file.way())?)?;
    Ok(connection)
}

/// Creates a non-blocking stream socket.
///
/// # Errors
/// The error of socket(2).
pub fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}
