//! Files and sockets at paths that callers name. A [`UserPath`] is looked up once; the file is then used through its
//! descriptor.
//!
//! After a folder or link in a path is replaced, the path refers to another file. So one look-up opens the *folder* of
//! the file and decides whether the caller may use that folder. Later calls use the file's name in the open folder.
//! They never follow a link, and they remove a file only if it is still the file that was found.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, openat2};
use rustix::io::Errno;

use crate::access::{permits, way};

/// Rules of openat2(2) for a caller's path. The path may not leave the permitted folder and may not contain links. It
/// may not enter another file system either: a user who serves that file system (FUSE) could make the daemon wait for
/// any length of time.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Maximum number of look-ups of a path while folders in it are being renamed.
const ATTEMPTS: usize = 16;

/// A path, and the user who named it. [`UserPath::open`] looks the path up.
#[derive(Clone, Debug)]
pub struct UserPath {
    path: PathBuf,
    within: Option<PathBounds>,
}

/// The bounds of a path named by a restricted user.
#[derive(Clone, Debug)]
struct PathBounds {
    /// The folder that must contain the path.
    folder: PathBuf,
    user: u32,
}

impl From<PathBuf> for UserPath {
    fn from(path: PathBuf) -> UserPath {
        UserPath { path, within: None }
    }
}

impl From<&Path> for UserPath {
    fn from(path: &Path) -> UserPath {
        path.to_owned().into()
    }
}

impl UserPath {
    /// Creates the path named by a user who may use only files in `folders`. `None` if the path is not absolute, has a
    /// `..` component, or, going by its text, is not inside any of these folders. A path created with [`From`] may be
    /// anywhere.
    pub fn of_user<'a>(path: &Path, folders: impl IntoIterator<Item = &'a Path>, user: u32) -> Option<UserPath> {
        let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !path.is_absolute() || !path.components().all(is_plain) {
            return None;
        }
        let holds = |folder: &&Path| path.parent().is_some_and(|parent| parent.starts_with(folder));
        // Use the longest match, because a nested folder may be another file system.
        let folder = folders.into_iter().filter(holds).max_by_key(|folder| folder.components().count())?;
        Some(UserPath { path: path.to_owned(), within: Some(PathBounds { folder: folder.to_owned(), user }) })
    }

    /// The path as the user named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The user who named the path; `None` if that user may use every file that the daemon can reach.
    pub fn user(&self) -> Option<u32> {
        self.within.as_ref().map(|within| within.user)
    }

    /// The path with `suffix` appended to the file name.
    #[must_use]
    pub fn beside(&self, suffix: &str) -> UserPath {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        UserPath { path: path.into(), within: self.within.clone() }
    }

    /// The path with the file name `name` in the same folder.
    #[must_use]
    pub fn sibling(&self, name: &str) -> UserPath {
        UserPath { path: self.path.with_file_name(name), within: self.within.clone() }
    }

    /// Opens the folder that contains the file.
    ///
    /// # Errors
    /// The error of openat2(2): `ELOOP` and `EXDEV` if a user's path contains a link or another file system; `EINVAL`
    /// if the path does not end with a name.
    pub fn open(&self) -> Result<Folder, Errno> {
        let name = self.path.file_name().ok_or(Errno::INVAL)?.to_owned();
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Some(within) = &self.within else {
            let fd = rustix::fs::open(parent, flags, Mode::empty())?;
            return Ok(Folder { fd, name, user: None });
        };
        // The configured folder is trusted, including the path to it.
        let allowed = rustix::fs::open(&within.folder, flags, Mode::empty())?;
        let inner = parent.strip_prefix(&within.folder).map_err(|_| Errno::XDEV)?;
        let fd = if inner.as_os_str().is_empty() { allowed } else { beneath(&allowed, inner, flags, Mode::empty())? };
        Ok(Folder { fd, name, user: Some(within.user) })
    }
}

fn beneath(folder: &OwnedFd, path: impl AsRef<Path>, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let path = path.as_ref();
    let open = || openat2(folder, path, flags | OFlags::CLOEXEC, mode, BENEATH);
    // After a rename during the look-up, the kernel cannot decide whether the path left the folder, and returns EAGAIN.
    let mut opened = open();
    for _ in 1..ATTEMPTS {
        if opened.as_ref().err() != Some(&Errno::AGAIN) {
            break;
        }
        opened = open();
    }
    opened
}

/// An open folder, and the name of a file in it.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    name: OsString,
    user: Option<u32>,
}

/// A file that [`Folder::find`] has found. An `O_PATH` descriptor refers to the file, even after it is renamed or
/// removed.
#[derive(Debug)]
pub struct FoundFile {
    fd: OwnedFd,
    stat: Stat,
}

impl Folder {
    /// Opens the file, or creates it if `flags` request that. Never follows a link (`ELOOP`), and never blocks.
    ///
    /// # Errors
    /// The error of open(2).
    pub fn open_file(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        self.open_named(flags, mode)
    }

    /// Finds the file without opening it for reading or writing. If it is a link, finds the link itself.
    ///
    /// # Errors
    /// The error of open(2) or fstat(2).
    pub fn find(&self) -> Result<FoundFile, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.open_named(flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        Ok(FoundFile { fd, stat })
    }

    fn open_named(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        match self.user {
            // Trusted callers may use any file system. A link is not followed for them either.
            None => rustix::fs::openat(&self.fd, &self.name, flags, mode),
            Some(_) => beneath(&self.fd, &self.name, flags, mode),
        }
    }

    /// Removes the file of this name if it is still `file`. A user who can replace the file between comparison and
    /// removal may remove files from this folder anyway.
    pub fn remove(&self, file: &FoundFile) {
        let now = rustix::fs::statat(&self.fd, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if now.is_ok_and(|now| (now.st_dev, now.st_ino) == file.identity()) {
            // If the removal fails, the socket's file stays. A later port at this path finds no listener there, and
            // replaces the file.
            let _ = rustix::fs::unlinkat(&self.fd, &self.name, AtFlags::empty());
        }
    }

    /// Returns a path to the file, through the open folder, for system calls that take no folder descriptor.
    pub(crate) fn way(&self) -> PathBuf {
        way(&self.fd).join(&self.name)
    }
}

impl FoundFile {
    /// The type of the file.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Device and inode number.
    pub fn identity(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.stat.st_size.try_into().unwrap_or(0)
    }

    /// User ID of the owner.
    pub fn owner(&self) -> u32 {
        self.stat.st_uid
    }

    /// Permission bits.
    pub fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    /// Returns a path in `/proc/self/fd` that leads to this file even after it was renamed.
    pub(crate) fn way(&self) -> PathBuf {
        way(&self.fd)
    }

    /// Whether the user may access the file in all ways that are set in `bits` (4: read, 2: write). The user's groups
    /// are unknown, so a group's permission counts only if all groups and others have it.
    pub fn permits(&self, user: u32, bits: u32) -> bool {
        permits(&self.way(), &self.stat, user, bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a user's path must be absolute, without `..` components, and inside one of the folders; it is bound
    /// to the longest matching folder.
    #[test]
    fn a_path_is_judged_by_its_text() {
        let folders = ["/a", "/a/b", "/c/"].map(Path::new);
        let of = |path: &str| {
            let place = UserPath::of_user(Path::new(path), folders, 5)?;
            Some(place.within?.folder.to_str()?.to_owned())
        };
        let some = |folder: &str| Some(folder.to_owned());
        assert_eq!((of("/a/s"), of("/a/b/s"), of("/a/b/c/s")), (some("/a"), some("/a/b"), some("/a/b")));
        assert_eq!((of("/c/s"), of("/a//b/./s")), (some("/c/"), some("/a/b")));
        for outside in ["/a", "/", "/ab/s", "/a/../b/s", "/a/s/..", "a/s", "", "/d/s"] {
            assert_eq!(of(outside), None, "{outside}");
        }
    }

    /// Objective: a file that has taken the name of the found file is not removed.
    #[test]
    fn a_file_that_took_anothers_name_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "one").unwrap();
        let folder = UserPath::from(&*path).open().unwrap();
        let one = folder.find().unwrap();
        std::fs::rename(&path, dir.path().join("g")).unwrap();
        std::fs::write(&path, "two").unwrap();
        folder.remove(&one);
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        folder.remove(&folder.find().unwrap());
        assert!(!path.exists());
    }
}
