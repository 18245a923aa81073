//! The private folder of a network: the daemon's run directory, which also has the sockets of the gateway.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::GvFailure;
use crate::own_daemon;

/// The beginning of the folder's name.
const PREFIX: &str = "netvale-gvproxy-";
/// Maximum length in bytes of the parent folder's path, so that the paths of the sockets fit into a socket address
/// (unix(7)).
const LONGEST_BASE: usize = 48;
/// An unlocked folder is removed only if it is at least this old, since the daemon of a newer folder may still be
/// starting. Killed programs leave such folders.
const OLD: Duration = Duration::from_secs(60);

/// The folder, which is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct GvPlace {
    folder: TempDir,
}

impl GvPlace {
    /// Creates the folder in `XDG_RUNTIME_DIR`, or, if that is not suitable, in `/tmp`. Removes folders that killed
    /// programs have left there.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub(super) fn make() -> Result<GvPlace, GvFailure> {
        let of_user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let is_fit = |dir: &PathBuf| dir.is_absolute() && dir.as_os_str().len() <= LONGEST_BASE && is_own(dir);
        let base = of_user.filter(is_fit).unwrap_or_else(|| PathBuf::from("/tmp"));
        sweep(&base);
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&base);
        let folder = made.map_err(GvFailure::step(format!("cannot create a folder in {}", base.display())))?;
        Ok(GvPlace { folder })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of the gateway's control socket.
    pub(super) fn control(&self) -> PathBuf {
        self.folder().join("gateway.sock")
    }

    /// Returns the path of the gateway's dial socket, through which this program connects to guests.
    pub(super) fn dial(&self) -> PathBuf {
        self.folder().join("dial.sock")
    }

    /// Returns the path of the socket to which port 80 of the gateway leads.
    pub(super) fn api(&self) -> PathBuf {
        self.folder().join("api.sock")
    }

    /// Returns the path of the switch's socket for the connections of `/connect`.
    pub(super) fn connect(&self) -> PathBuf {
        self.folder().join("connect.sock")
    }
}

fn is_own(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.uid() == rustix::process::geteuid().as_raw())
}

/// Removes folders whose daemon has ended.
fn sweep(base: &Path) {
    let names = std::fs::read_dir(base).into_iter().flatten().flatten();
    let folders = names.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    for folder in folders.map(|entry| entry.path()).filter(|folder| is_own(folder) && is_left(folder)) {
        // An error is ignored, since another program may be removing the same folder.
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Returns whether a folder is old and no daemon holds its lock.
fn is_left(folder: &Path) -> bool {
    let age = std::fs::metadata(folder.join("lock")).and_then(|meta| meta.modified()).ok();
    let is_old = age.and_then(|modified| modified.elapsed().ok()).is_some_and(|age| age > OLD);
    is_old && !own_daemon::is_used(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a folder stays if a daemon holds its lock or if it is new; a folder that a killed program has left is
    /// removed.
    #[test]
    fn only_folders_without_a_daemon_are_swept() {
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str, is_old: bool| {
            let folder = base.path().join(format!("{PREFIX}{name}"));
            std::fs::create_dir(&folder).unwrap();
            let lock = std::fs::File::create(folder.join("lock")).unwrap();
            if is_old {
                lock.set_modified(std::time::SystemTime::now() - 2 * OLD).unwrap();
            }
            lock
        };
        let _new = make("new", false);
        let held = make("held", true);
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        drop(make("left", true));
        std::fs::create_dir(base.path().join("other")).unwrap();
        sweep(base.path());
        let mut names: Vec<_> =
            std::fs::read_dir(base.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["netvale-gvproxy-held", "netvale-gvproxy-new", "other"]);
    }
}
