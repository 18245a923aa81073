//! Checks the path of a socket that a peer names as its own.
//!
//! The daemon sends to this socket with the daemon's rights. A socket that an untrusted user names must therefore be
//! one to which that user could send. Its path is resolved like all paths from users: beneath a known folder, without
//! symbolic links, on the folder's file system. Root and the daemon's own user may name any path.

use std::path::{Path, PathBuf};

use netvale_port::folder::UserPath;

/// Folders in which programs create sockets for answers, besides the folder of the port's socket.
pub const SOCKETS_OF_PEERS: [&str; 2] = ["/tmp", "/var/tmp"];

/// Returns whether a user may name any socket.
pub(super) fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Returns the path that a user names, if the user may use it; `folder` contains the port's own socket.
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

    /// Objective: an untrusted user may name sockets in the folder of the port's socket and in common folders, and no
    /// others; a relative path is refused.
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
