//! Access, as root, to folders of the daemon's user: symbolic links in these folders are never followed, and the
//! contents of the files in them are never trusted.

use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

/// An open folder.
#[derive(Debug)]
pub struct OpenFolder(OwnedFd);

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::RDONLY).union(OFlags::CLOEXEC);

impl OpenFolder {
    /// Opens the folder at a path, whose last component must not be a symbolic link.
    ///
    /// # Errors
    /// The folder does not exist, or is a symbolic link.
    pub fn open(path: &Path) -> Result<OpenFolder> {
        Ok(OpenFolder(rustix::fs::openat(CWD, path, FOLDER, Mode::empty())?))
    }

    /// Opens a folder like [`OpenFolder::open`]. If it does not exist, creates it and changes its owner to `uid` and
    /// `gid`.
    ///
    /// # Errors
    /// The folder can be neither opened nor created.
    pub fn open_or_make(path: &Path, uid: Uid, gid: Gid) -> Result<OpenFolder> {
        match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(0o755)) {
            Ok(()) => OpenFolder::open(path)?.given_to(uid, gid),
            Err(Errno::EXIST) => OpenFolder::open(path),
            Err(e) => Err(e.into()),
        }
    }

    /// Opens the subfolder `name`, which must belong to `uid`. If it does not exist, creates it.
    ///
    /// # Errors
    /// The subfolder belongs to another user, or can be neither opened nor created.
    pub fn inner(&self, name: &str, uid: Uid, gid: Gid) -> Result<OpenFolder> {
        is_plain(name)?;
        match rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        self.existing(name)?.given_to(uid, gid)
    }

    fn existing(&self, name: &str) -> Result<OpenFolder> {
        Ok(OpenFolder(rustix::fs::openat(&self.0, name, FOLDER, Mode::empty())?))
    }

    /// Changes the owner of a folder that belongs to this process's user to `uid` and `gid`. A folder that `uid`
    /// already owns stays unchanged; a folder of another user is refused.
    fn given_to(self, uid: Uid, gid: Gid) -> Result<OpenFolder> {
        let found = rustix::fs::fstat(&self.0)?.st_uid;
        match () {
            () if found == uid.as_raw() => {}
            () if found == rustix::process::geteuid().as_raw() => rustix::fs::fchown(&self.0, Some(uid), Some(gid))?,
            () => return Err(Error::new(ErrorKind::PermissionDenied, format!("the folder belongs to user {found}"))),
        }
        Ok(self)
    }

    /// Writes the file `name`. If the file exists, it is replaced.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let _ = rustix::fs::unlinkat(&self.0, name, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o644))?;
        std::fs::File::from(file).write_all(text.as_bytes())
    }

    /// Returns the names of the folder's entries that are UTF-8.
    pub fn names(&self) -> Vec<String> {
        let entries = Dir::read_from(self.0.as_fd()).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        names.filter(|name| !matches!(name.as_str(), "." | "..")).collect()
    }

    /// Removes a subfolder with its files and sockets, as far as possible. Errors are ignored.
    pub fn remove(&self, name: &str) {
        if is_plain(name).is_err() {
            return;
        }
        if let Ok(inner) = self.existing(name) {
            for name in inner.names() {
                let _ = rustix::fs::unlinkat(&inner.0, name, AtFlags::empty());
            }
        }
        let _ = rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR);
    }
}

/// Checks that a name is a single path component, since it may come from the daemon.
fn is_plain(name: &str) -> Result<()> {
    let is_plain = !name.is_empty() && !name.contains('/') && !matches!(name, "." | "..");
    is_plain.then_some(()).ok_or_else(|| Error::new(ErrorKind::InvalidInput, format!("{name:?} is not a file name")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn made(path: &Path) -> Result<OpenFolder> {
        OpenFolder::open_or_make(path, rustix::process::geteuid(), rustix::process::getegid())
    }

    fn inner(folder: &OpenFolder, name: &str) -> Result<OpenFolder> {
        folder.inner(name, rustix::process::geteuid(), rustix::process::getegid())
    }

    /// Objective: files are written and folders removed, repeatedly.
    #[test]
    fn a_folder_is_made_written_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().join("sockets");
        for text in ["one", "two"] {
            let folder = inner(&made(&above).unwrap(), "port").unwrap();
            folder.write("file", text).unwrap();
            assert_eq!(std::fs::read_to_string(above.join("port/file")).unwrap(), text);
        }
        let folder = OpenFolder::open(&above).unwrap();
        assert_eq!(folder.names(), ["port"]);
        folder.remove("port");
        assert!(folder.names().is_empty());
        folder.remove("port");
    }

    /// Objective: symbolic links in place of the folders or the file are not followed: the targets of the links are
    /// neither written nor removed, and keep their owner.
    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("victim")).unwrap();
        std::fs::write(at("victim/file"), "as it was").unwrap();
        symlink(at("victim"), at("sockets")).unwrap();
        assert!(OpenFolder::open(&at("sockets")).is_err() && made(&at("sockets")).is_err());
        std::fs::create_dir(at("real")).unwrap();
        symlink(at("victim"), at("real/port")).unwrap();
        let real = OpenFolder::open(&at("real")).unwrap();
        assert!(inner(&real, "port").is_err());
        real.remove("port");
        for name in ["../victim", "port/../../victim", "..", ""] {
            real.remove(name);
            assert!(inner(&real, name).is_err(), "{name}");
        }
        assert!(at("victim/file").exists());
        std::fs::remove_file(at("real/port")).unwrap();
        symlink(at("victim/file"), at("real/interface.json")).unwrap();
        real.write("interface.json", "new").unwrap();
        assert_eq!(std::fs::read_to_string(at("victim/file")).unwrap(), "as it was");
        assert_eq!(std::fs::read_to_string(at("real/interface.json")).unwrap(), "new");
    }
}
