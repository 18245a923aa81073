//! Files and sockets at paths given by others: a [`Place`] is looked up once, and the file found is used by its
//! descriptor.
//!
//! A path changes its meaning when a folder or link on it is exchanged. So a place is opened as its *folder*, in one
//! look-up that also decides whether the caller may use it at all; after that, the file is a name in that folder, never
//! a link, and a file is compared with the one found before it is removed.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, openat2};
use rustix::io::Errno;

use crate::access::{permits, way};

/// Rules for following a caller's path: it may not leave its folder, in particular not by links. It may not enter
/// another file system either: that could be one of the user's own (FUSE), which decides how long the daemon waits.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Attempts to look a place up while folders on its way are renamed.
const ATTEMPTS: usize = 16;

/// A path, and the user who named it. Nothing is looked up before it is opened.
#[derive(Clone, Debug)]
pub struct Place {
    path: PathBuf,
    within: Option<Within>,
}

/// The bounds of a user's path.
#[derive(Clone, Debug)]
struct Within {
    /// The folder that must contain it.
    folder: PathBuf,
    user: u32,
}

impl From<PathBuf> for Place {
    fn from(path: PathBuf) -> Place {
        Place { path, within: None }
    }
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Place {
        path.to_owned().into()
    }
}

impl Place {
    /// A place named by a user who may use nothing outside of `folders`. `None` if its text lies in none of them. A
    /// place made [`From`] a path, in contrast, may be anywhere.
    pub fn of_user<'a>(path: &Path, folders: impl IntoIterator<Item = &'a Path>, user: u32) -> Option<Place> {
        let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !path.is_absolute() || !path.components().all(is_plain) {
            return None;
        }
        let holds = |folder: &&Path| path.parent().is_some_and(|parent| parent.starts_with(folder));
        // The longest match: it may be a file system of its own.
        let folder = folders.into_iter().filter(holds).max_by_key(|folder| folder.components().count())?;
        Some(Place { path: path.to_owned(), within: Some(Within { folder: folder.to_owned(), user }) })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The user who named it, unless that user may use every file that the daemon can reach.
    pub fn user(&self) -> Option<u32> {
        self.within.as_ref().map(|within| within.user)
    }

    /// The place whose name has `suffix` appended, in the same folder.
    #[must_use]
    pub fn beside(&self, suffix: &str) -> Place {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        Place { path: path.into(), within: self.within.clone() }
    }

    /// Opens the folder.
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
        // The configured folder is trusted, and so is the way to it.
        let allowed = rustix::fs::open(&within.folder, flags, Mode::empty())?;
        let inner = parent.strip_prefix(&within.folder).map_err(|_| Errno::XDEV)?;
        let fd = if inner.as_os_str().is_empty() { allowed } else { beneath(&allowed, inner, flags, Mode::empty())? };
        Ok(Folder { fd, name, user: Some(within.user) })
    }
}

fn beneath(folder: &OwnedFd, path: impl AsRef<Path>, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let path = path.as_ref();
    let open = || openat2(folder, path, flags | OFlags::CLOEXEC, mode, BENEATH);
    // On a rename during the look-up, the kernel cannot tell whether it left the folder.
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

/// A file that was found, whatever happens to its name: an `O_PATH` descriptor.
#[derive(Debug)]
pub struct Found {
    fd: OwnedFd,
    stat: Stat,
}

impl Folder {
    /// Opens or makes the file. Never follows a link (`ELOOP`), and never blocks.
    ///
    /// # Errors
    /// The error of open(2).
    pub fn open_file(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        self.open_named(flags, mode)
    }

    /// Finds the file, even if it is a link or may not be opened.
    ///
    /// # Errors
    /// The error of open(2) or fstat(2).
    pub fn find(&self) -> Result<Found, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.open_named(flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Found { fd, stat })
    }

    fn open_named(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        match self.user {
            // Trusted callers may use any file system, but the name is not followed for them either.
            None => rustix::fs::openat(&self.fd, &self.name, flags, mode),
            Some(_) => beneath(&self.fd, &self.name, flags, mode),
        }
    }

    /// Removes the file if it is still the one found. Anyone who can exchange it between comparison and removal may
    /// remove files of this folder anyway.
    pub fn remove(&self, file: &Found) {
        let now = rustix::fs::statat(&self.fd, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if now.is_ok_and(|now| (now.st_dev, now.st_ino) == file.identity()) {
            // If this fails, the file stays; a later port of that name finds that it has no listener.
            let _ = rustix::fs::unlinkat(&self.fd, &self.name, AtFlags::empty());
        }
    }

    /// A path for system calls that take no folder descriptor.
    pub(crate) fn way(&self) -> PathBuf {
        way(&self.fd).join(&self.name)
    }
}

impl Found {
    /// The type of the file.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Device and inode numbers.
    pub fn identity(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.stat.st_size.try_into().unwrap_or(0)
    }

    /// User number of the owner.
    pub fn owner(&self) -> u32 {
        self.stat.st_uid
    }

    /// Permission bits.
    pub fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    /// A path to this very file, whatever its present name.
    pub(crate) fn way(&self) -> PathBuf {
        way(&self.fd)
    }

    /// Whether the user may access the file with these bits (4: read, 2: write), as far as the daemon can tell: it does
    /// not know the user's groups, so group rights count only if all groups and everyone have them.
    pub fn permits(&self, user: u32, bits: u32) -> bool {
        permits(&self.way(), &self.stat, user, bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a user's path is judged by its text: absolute, without dots, in one of the folders; the longest match
    /// counts.
    #[test]
    fn texts() {
        let folders = ["/a", "/a/b", "/c/"].map(Path::new);
        let of = |path: &str| {
            let place = Place::of_user(Path::new(path), folders, 5)?;
            Some(place.within?.folder.to_str()?.to_owned())
        };
        let some = |folder: &str| Some(folder.to_owned());
        assert_eq!((of("/a/s"), of("/a/b/s"), of("/a/b/c/s")), (some("/a"), some("/a/b"), some("/a/b")));
        assert_eq!((of("/c/s"), of("/a//b/./s")), (some("/c/"), some("/a/b")));
        for outside in ["/a", "/", "/ab/s", "/a/../b/s", "/a/s/..", "a/s", "", "/d/s"] {
            assert_eq!(of(outside), None, "{outside}");
        }
    }

    /// Objective: a file that took another's name is not removed in its place.
    #[test]
    fn removal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "one").unwrap();
        let folder = Place::from(&*path).open().unwrap();
        let one = folder.find().unwrap();
        std::fs::rename(&path, dir.path().join("g")).unwrap();
        std::fs::write(&path, "two").unwrap();
        folder.remove(&one);
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        folder.remove(&folder.find().unwrap());
        assert!(!path.exists());
    }
}
