//! Files and sockets that are named by others: a [`Place`] is looked up once, and what is found there is used by its
//! descriptor.
//!
//! A path means something else whenever somebody exchanges a folder or a link on its way. So a place is opened as its
//! *folder*, in one look-up that also decides whether the place may be used at all; after that, the file is its name in
//! that folder, never a link, and what is made or removed is compared with what was found.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, openat2};
use rustix::io::Errno;

use crate::access::{permits, way};

/// How a caller's path is followed: it may not leave the folder that it has to lie in, by links least of all. Another
/// file system could be one that its user answers for (FUSE), who would decide how long the daemon waits.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Attempts to look a place up while others rename folders on its way.
const ATTEMPTS: usize = 16;

/// A path, and who named it. Nothing is looked up before it is opened.
#[derive(Clone, Debug)]
pub struct Place {
    path: PathBuf,
    within: Option<Within>,
}

/// What a user's path has to keep to.
#[derive(Clone, Debug)]
struct Within {
    /// The folder that it lies in.
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
    /// The place that a user names who may use nothing outside of `folders`. `None` if it lies in none of them, as its
    /// text says. A place that is made [`From`] a path, in contrast, may be anywhere.
    pub fn of_user<'a>(path: &Path, folders: impl IntoIterator<Item = &'a Path>, user: u32) -> Option<Place> {
        let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !path.is_absolute() || !path.components().all(is_plain) {
            return None;
        }
        let holds = |folder: &&Path| path.parent().is_some_and(|parent| parent.starts_with(folder));
        // The longest one may be a file system of its own.
        let folder = folders.into_iter().filter(holds).max_by_key(|folder| folder.components().count())?;
        Some(Place { path: path.to_owned(), within: Some(Within { folder: folder.to_owned(), user }) })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The user who named it, if that user may not use every file that the daemon can reach.
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

    /// The place with that name in the same folder.
    #[must_use]
    pub fn sibling(&self, name: &str) -> Place {
        Place { path: self.path.with_file_name(name), within: self.within.clone() }
    }

    /// Opens its folder.
    ///
    /// # Errors
    /// Whatever openat2(2) returns: `ELOOP` and `EXDEV` if a user's path has a link or another file system on its way;
    /// `EINVAL` if the path does not end with a name.
    pub fn open(&self) -> Result<Folder, Errno> {
        let name = self.path.file_name().ok_or(Errno::INVAL)?.to_owned();
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Some(within) = &self.within else {
            let fd = rustix::fs::open(parent, flags, Mode::empty())?;
            return Ok(Folder { fd, name, user: None });
        };
        // The configuration's folder is trusted, and how it is reached.
        let allowed = rustix::fs::open(&within.folder, flags, Mode::empty())?;
        let inner = parent.strip_prefix(&within.folder).map_err(|_| Errno::XDEV)?;
        let fd = if inner.as_os_str().is_empty() { allowed } else { beneath(&allowed, inner, flags, Mode::empty())? };
        Ok(Folder { fd, name, user: Some(within.user) })
    }
}

fn beneath(folder: &OwnedFd, path: impl AsRef<Path>, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let path = path.as_ref();
    let open = || openat2(folder, path, flags | OFlags::CLOEXEC, mode, BENEATH);
    // A rename meanwhile: whether the look-up left the folder is not known.
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

/// A file that was found, whatever happens to its name: a descriptor that only stands for it (`O_PATH`).
#[derive(Debug)]
pub struct Found {
    fd: OwnedFd,
    stat: Stat,
}

impl Folder {
    /// Opens or makes the file. A link is not followed (`ELOOP`), and nothing is waited for.
    ///
    /// # Errors
    /// Whatever open(2) returns.
    pub fn open_file(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        self.open_named(flags, mode)
    }

    /// Finds the file, also a link or one that may not be opened.
    ///
    /// # Errors
    /// Whatever open(2) and fstat(2) return.
    pub fn find(&self) -> Result<Found, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.open_named(flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Found { fd, stat })
    }

    fn open_named(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        match self.user {
            // Trusted callers may use any file system, but the name is never followed either.
            None => rustix::fs::openat(&self.fd, &self.name, flags, mode),
            Some(_) => beneath(&self.fd, &self.name, flags, mode),
        }
    }

    /// Removes the file, if it is still that one. Somebody who can exchange it between the comparison and the removal
    /// may remove files of this folder anyway.
    pub fn remove(&self, file: &Found) {
        let now = rustix::fs::statat(&self.fd, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if now.is_ok_and(|now| (now.st_dev, now.st_ino) == file.identity()) {
            // If it cannot be removed, it stays behind; a port that wants the name later finds out that nobody listens
            // there.
            let _ = rustix::fs::unlinkat(&self.fd, &self.name, AtFlags::empty());
        }
    }

    /// A path for system calls that take no descriptor of a folder.
    pub(crate) fn way(&self) -> PathBuf {
        way(&self.fd).join(&self.name)
    }
}

impl Found {
    /// Its kind.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Numbers of its device and inode.
    pub fn identity(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.stat.st_size.try_into().unwrap_or(0)
    }

    /// Its owner.
    pub fn owner(&self) -> u32 {
        self.stat.st_uid
    }

    /// Its permission bits.
    pub fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    /// A path to this very file, whatever its name is now.
    pub(crate) fn way(&self) -> PathBuf {
        way(&self.fd)
    }

    /// Whether that user may do this with it (4: read, 2: write), as far as the daemon can tell: which groups the user
    /// is in is not known, so a group's rights count only if all groups and everybody have them.
    pub fn permits(&self, user: u32, bits: u32) -> bool {
        permits(&self.way(), &self.stat, user, bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a user's path is judged by its text: absolute, without dots, in one of the folders, the longest of
    /// which counts.
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

    /// Objective: what took a file's name is not removed in its place.
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
