//! Opens capture files with the daemon's rights, for users with fewer.

use std::fs::File;
use std::os::fd::OwnedFd;

use netvale_port::access::{Access, may_use};
use netvale_port::folder::{Folder, Place};
use netvale_port::listener::OpenError;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

/// Permissions to read and to write.
const READ: u32 = 4;
const WRITE: u32 = 2;

/// Why a file cannot be opened.
#[derive(Debug, Error)]
pub enum Unopened {
    /// Its folder cannot be opened.
    #[error("{0}")]
    Folder(#[from] OpenError),
    /// Its name is a link.
    #[error("it is a link; name the file itself")]
    Link,
    /// It exists, and is not a file.
    #[error("it is not a regular file; choose another name")]
    NotAFile,
    /// The caller could not open it.
    #[error("user {0} may not; choose a file of your own")]
    NotYours(u32),
    /// The caller could not read it.
    #[error(
        "its file system has no access control lists, so user {0} could not read it; choose a folder on another one, or 'netvale dump'"
    )]
    NoLists(u32),
    /// The kernel's error.
    #[error("{}", std::io::Error::from(*.0))]
    System(Errno),
}

impl From<Errno> for Unopened {
    fn from(e: Errno) -> Self {
        if e == Errno::LOOP { Unopened::Link } else { Unopened::System(e) }
    }
}

impl Unopened {
    /// Returns the matching errno.
    pub fn errno(&self) -> Errno {
        match self {
            Unopened::Folder(why) => why.errno(),
            Unopened::Link => Errno::LOOP,
            Unopened::NotAFile => Errno::INVAL,
            Unopened::NotYours(_) => Errno::PERM,
            Unopened::NoLists(_) => Errno::OPNOTSUPP,
            Unopened::System(errno) => *errno,
        }
    }
}

/// Opens a file to replay, for a caller who may read it. Its reader checks that it is a regular file.
///
/// # Errors
/// [`Unopened`].
pub fn to_read(place: &Place) -> Result<File, Unopened> {
    let file = folder(place)?.open_file(OFlags::RDONLY, Mode::empty())?;
    match place.user() {
        Some(user) if !may_use(&file, user, READ)? => Err(Unopened::NotYours(user)),
        _ => Ok(file.into()),
    }
}

/// Creates a file for a capture, for the caller alone, or empties one that the caller may write.
///
/// # Errors
/// [`Unopened`].
pub fn to_write(place: &Place) -> Result<File, Unopened> {
    let folder = folder(place)?;
    match folder.open_file(OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR) {
        Ok(file) => made(&folder, file, place.user()),
        Err(Errno::EXIST) => emptied(&folder, place.user()),
        Err(e) => Err(e.into()),
    }
}

fn folder(place: &Place) -> Result<Folder, Unopened> {
    place.open().map_err(|e| OpenError::of_folder(place)(e).into())
}

/// Lets the caller read a new file, regardless of the umask.
fn made(folder: &Folder, file: OwnedFd, user: Option<u32>) -> Result<File, Unopened> {
    let access = Access { users: user.into_iter().collect(), ..Access::default() };
    access.give(&file).map_err(|e| {
        if let Ok(found) = folder.find() {
            folder.remove(&found);
        }
        match (e, user) {
            (Errno::OPNOTSUPP, Some(user)) => Unopened::NoLists(user),
            (e, _) => e.into(),
        }
    })?;
    Ok(file.into())
}

/// Empties an existing file. A user's must be theirs, or created by the daemon for them.
fn emptied(folder: &Folder, user: Option<u32>) -> Result<File, Unopened> {
    let Some(user) = user else {
        return Ok(folder.open_file(OFlags::WRONLY | OFlags::TRUNC, Mode::empty())?.into());
    };
    let found = folder.find()?;
    match found.kind() {
        FileType::RegularFile => {}
        FileType::Symlink => return Err(Unopened::Link),
        _ => return Err(Unopened::NotAFile),
    }
    let file = folder.open_file(OFlags::WRONLY, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let own = rustix::process::geteuid().as_raw();
    if !is_file || ![user, own].contains(&stat.st_uid) || !may_use(&file, user, WRITE)? {
        return Err(Unopened::NotYours(user));
    }
    rustix::fs::ftruncate(&file, 0)?;
    Ok(file.into())
}
