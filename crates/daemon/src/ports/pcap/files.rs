//! Opens capture files with the daemon's rights, on behalf of users who have fewer rights.

use std::fs::File;
use std::os::fd::OwnedFd;

use netvale_port::access::{Access, may_use};
use netvale_port::folder::{Folder, UserPath};
use netvale_port::listener::OpenError;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

/// Read permission, as in one octal digit of a file mode.
const READ: u32 = 4;
/// Write permission, as in one octal digit of a file mode.
const WRITE: u32 = 2;

/// Reason why a capture file cannot be opened.
#[derive(Debug, Error)]
pub enum CaptureFileError {
    /// The file's folder cannot be opened.
    #[error("{0}")]
    Folder(#[from] OpenError),
    /// The name is a symbolic link.
    #[error("the path is a symbolic link; name the file itself")]
    Link,
    /// The name belongs to something that is neither a regular file nor a symbolic link.
    #[error("expected a regular file; choose another name")]
    NotAFile,
    /// The caller has no permission to open the file.
    #[error("user {0} has no permission; choose a file of your own")]
    NotYours(u32),
    /// A new file cannot be made readable for the caller.
    #[error(
        "the file system has no access control lists, so user {0} could not read the file; choose a folder on another \
         file system, or 'netvale dump'"
    )]
    NoLists(u32),
    /// Another error of a system call.
    #[error("{}", std::io::Error::from(*.0))]
    System(Errno),
}

impl From<Errno> for CaptureFileError {
    fn from(e: Errno) -> Self {
        if e == Errno::LOOP { CaptureFileError::Link } else { CaptureFileError::System(e) }
    }
}

impl CaptureFileError {
    /// Returns the errno that matches the error.
    pub fn errno(&self) -> Errno {
        match self {
            CaptureFileError::Folder(why) => why.errno(),
            CaptureFileError::Link => Errno::LOOP,
            CaptureFileError::NotAFile => Errno::INVAL,
            CaptureFileError::NotYours(_) => Errno::PERM,
            CaptureFileError::NoLists(_) => Errno::OPNOTSUPP,
            CaptureFileError::System(errno) => *errno,
        }
    }
}

/// Opens a file to replay, for a caller who may read it. The code that reads the file checks that it is a regular file.
///
/// # Errors
/// [`CaptureFileError`].
pub fn to_read(place: &UserPath) -> Result<File, CaptureFileError> {
    let file = folder(place)?.open_file(OFlags::RDONLY, Mode::empty())?;
    match place.user() {
        Some(user) if !may_use(&file, user, READ)? => Err(CaptureFileError::NotYours(user)),
        _ => Ok(file.into()),
    }
}

/// Creates a file for a capture, that only the caller can access, or empties a file that the caller may write.
///
/// # Errors
/// [`CaptureFileError`].
pub fn to_write(place: &UserPath) -> Result<File, CaptureFileError> {
    let folder = folder(place)?;
    match folder.open_file(OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR) {
        Ok(file) => made(&folder, file, place.user()),
        Err(Errno::EXIST) => emptied(&folder, place.user()),
        Err(e) => Err(e.into()),
    }
}

fn folder(place: &UserPath) -> Result<Folder, CaptureFileError> {
    place.open().map_err(|e| OpenError::of_folder(place)(e).into())
}

/// Gives the caller the right to read a new file, regardless of the umask.
fn made(folder: &Folder, file: OwnedFd, user: Option<u32>) -> Result<File, CaptureFileError> {
    let access = Access { users: user.into_iter().collect(), ..Access::default() };
    access.give(&file).map_err(|e| {
        if let Ok(found) = folder.find() {
            folder.remove(&found);
        }
        match (e, user) {
            (Errno::OPNOTSUPP, Some(user)) => CaptureFileError::NoLists(user),
            (e, _) => e.into(),
        }
    })?;
    Ok(file.into())
}

/// Empties an existing file. If the user is untrusted, the file must belong to that user, or the daemon must have
/// created it for that user.
fn emptied(folder: &Folder, user: Option<u32>) -> Result<File, CaptureFileError> {
    let Some(user) = user else {
        return Ok(folder.open_file(OFlags::WRONLY | OFlags::TRUNC, Mode::empty())?.into());
    };
    let found = folder.find()?;
    match found.kind() {
        FileType::RegularFile => {}
        FileType::Symlink => return Err(CaptureFileError::Link),
        _ => return Err(CaptureFileError::NotAFile),
    }
    let file = folder.open_file(OFlags::WRONLY, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let own = rustix::process::geteuid().as_raw();
    if !is_file || ![user, own].contains(&stat.st_uid) || !may_use(&file, user, WRITE)? {
        return Err(CaptureFileError::NotYours(user));
    }
    rustix::fs::ftruncate(&file, 0)?;
    Ok(file.into())
}
