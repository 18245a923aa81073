//! The management socket, and the default files with commands that are run at the start.

use std::ffi::OsStr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::VdeFailure;
use super::place::{LONGEST_SOCKET, give};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// A listening UNIX socket. The socket's file is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct ManagementSocket {
    pub listener: UnixListener,
    path: PathBuf,
    /// Device and inode number of the socket's file, by which [`Drop`] recognizes it.
    file: Option<(u64, u64)>,
}

impl ManagementSocket {
    /// Listens at a path. Replaces a stale socket, on which no program listens. Refuses the path if a program listens
    /// on it or if its file is not a socket.
    pub(super) fn listen(path: &Path, mode: u32, group: Option<&str>) -> Result<ManagementSocket, VdeFailure> {
        let shown = &path.display();
        let path = std::path::absolute(path).map_err(VdeFailure::step(format!("{shown}: invalid path")))?;
        let len = path.as_os_str().len();
        if len > LONGEST_SOCKET {
            return Err(VdeFailure(format!(
                "{shown}: the path has {len} bytes: expected at most {LONGEST_SOCKET} for a socket"
            )));
        }
        let failed = |what: &'static str| move |why: Errno| VdeFailure(format!("{shown}: {what}: {why}"));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.map_err(failed("cannot create a socket"))?;
        let address = SocketAddrUnix::new(path.as_os_str()).map_err(failed("invalid path for a socket"))?;
        let bind = || rustix::net::bind(&socket, &address);
        let bound = match bind() {
            Err(Errno::ADDRINUSE) => {
                make_room(&path)?;
                bind()
            }
            done => done,
        };
        bound.map_err(failed("cannot bind the socket"))?;
        let made = ManagementSocket { listener: UnixListener::from(socket), file: file_of(&path), path };
        // Mode and group are set before listen(2), so no program can connect while they are still wrong.
        give(&made.path, mode, group)?;
        rustix::net::listen(&made.listener, BACKLOG).map_err(failed("cannot listen on the socket"))?;
        Ok(made)
    }

    /// Returns the absolute path of the socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ManagementSocket {
    fn drop(&mut self) {
        if self.file.is_some() && file_of(&self.path) == self.file {
            // An error is ignored, since the folder may no longer exist.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Removes a stale socket at a path. Fails if a program listens on the socket, or if the file is not a socket.
fn make_room(path: &Path) -> Result<(), VdeFailure> {
    let shown = path.display();
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if !is_socket {
        return Err(VdeFailure(format!("{shown} exists and is not a socket: choose another path, or remove the file")));
    }
    match UnixStream::connect(path) {
        Err(why) if why.kind() == std::io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(VdeFailure::step(format!("cannot replace {shown}")))
        }
        _ => Err(VdeFailure(format!("another program listens at {shown}: choose another path"))),
    }
}

/// Returns the default file of commands: the user's file if it exists, otherwise the system's; `None` if neither file
/// exists.
pub(super) fn usual_commands() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let own = home.map(|home| Path::new(OsStr::new(&home)).join(".vde2/vde_switch.rc"));
    own.into_iter().chain([PathBuf::from("/etc/vde2/vde_switch.rc")]).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn why(path: &Path) -> String {
        ManagementSocket::listen(path, 0o600, None).unwrap_err().to_string()
    }

    /// Objective: a stale socket is replaced; a path on which a program listens, a path of a plain file and a path of
    /// more than 107 bytes are refused, and the existing file stays unchanged.
    #[test]
    fn what_is_in_the_way_is_left_alone_unless_it_is_a_leftover() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        drop(UnixListener::bind(&path).unwrap());
        let made = ManagementSocket::listen(&path, 0o660, None).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o660);
        UnixStream::connect(&path).unwrap();
        assert!(why(&path).contains("another program listens"), "{}", why(&path));
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "x").unwrap();
        assert!(why(&plain).contains("is not a socket"), "{}", why(&plain));
        assert_eq!(std::fs::read_to_string(&plain).unwrap(), "x");
        assert!(why(&dir.path().join("x".repeat(110))).contains("at most 107"));
        drop(made);
        assert!(!path.exists());
    }

    /// Objective: when dropped, a management socket removes its own file, but not another socket at the same path.
    #[test]
    fn a_socket_of_another_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let made = ManagementSocket::listen(&path, 0o600, None).unwrap();
        // The renamed file keeps its inode number in use, so that the new file cannot get it.
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(made);
        assert!(path.exists());
        drop(other);
    }
}
