//! Where a peer's own socket may be, which it names itself.
//!
//! The daemon sends there with its own rights. So a user's socket has to be one that this user could send to, found as
//! all paths of users are: beneath a folder that is known, without links, on its file system. Root and the daemon's own
//! user may name any.

use std::path::{Path, PathBuf};

use netvale_port::folder::UserPath;

/// Folders in which programs make sockets to be answered at, besides that of the port's own.
pub const SOCKETS_OF_PEERS: [&str; 2] = ["/tmp", "/var/tmp"];

/// Whether a user may name any socket.
pub(super) fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// The place that a user names, if the user may; `folder` is that of the port's own socket.
pub(super) fn place_of_peer(path: &Path, user: u32, folder: &Path) -> Option<UserPath> {
    if !path.is_absolute() {
        return None;
    }
    if is_trusted(user) {
        return Some(UserPath::from(path));
    }
    let folders = std::iter::once(folder).chain(SOCKETS_OF_PEERS.iter().map(Path::new));
    let folders: Vec<PathBuf> = folders.map(Path::to_owned).collect();
    UserPath::of_user(path, folders.iter().map(PathBuf::as_path), user)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a user who is not trusted names sockets beside the port's and in common folders, and no others; a
    /// relative path is nobody's.
    #[test]
    fn who_names_what() {
        let stranger = rustix::process::geteuid().as_raw() + 1000;
        let named = |path: &str, user| place_of_peer(Path::new(path), user, Path::new("/run/lab")).is_some();
        for path in ["/run/lab/.00123-00000", "/tmp/vde.00123-00000", "/var/tmp/a"] {
            assert!(named(path, stranger), "{path}");
        }
        for path in ["/run/systemd/notify", "/tmp/../run/a", "/run/lab", "a", "", "./a"] {
            assert!(!named(path, stranger), "{path}");
        }
        assert!(named("/run/systemd/notify", 0) && !named("a", 0));
    }
}
