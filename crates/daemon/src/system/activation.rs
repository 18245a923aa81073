//! Socket activation: listening sockets that the service manager has bound (sd_listen_fds(3)), so that the service
//! manager starts the daemon when the first client connects.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use netvale_control::dirs::{ATTACH_SOCKET, CONTROL_SOCKET};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, getsockname, sockopt};

use super::keep::StoredDescriptors;
use super::sockets::{MANAGERS_BACKLOG, SocketError, listen};
use crate::config::SocketAccess;

/// The two listening sockets.
pub struct ActivatedSockets {
    /// The socket for clients that open ports.
    pub attach: OwnedFd,
    /// The socket for clients that send JSON-RPC requests.
    pub control: OwnedFd,
    /// Paths of the sockets that the daemon bound itself, which the daemon removes at exit. Sockets of the service
    /// manager stay, because the manager continues to listen on them.
    pub own: Vec<PathBuf>,
}

impl ActivatedSockets {
    /// Takes the sockets `attach` and `control` from the service manager, and binds those that are missing.
    ///
    /// # Errors
    /// [`SocketError`] if a socket cannot be bound.
    pub fn open(
        passed: &mut StoredDescriptors,
        dir: &Path,
        access: &SocketAccess,
    ) -> Result<ActivatedSockets, SocketError> {
        let mut own = Vec::new();
        let mut open = |name, path: PathBuf, kind| match take(passed, name, &path, kind) {
            Some(fd) => Ok(fd),
            None => listen(&path, kind, access).inspect(|_| own.push(path)),
        };
        let attach = open("attach", dir.join(ATTACH_SOCKET), SocketType::SEQPACKET)?;
        let control = open("control", dir.join(CONTROL_SOCKET), SocketType::STREAM)?;
        Ok(ActivatedSockets { attach, control, own })
    }
}

/// Returns the passed socket of that name if it can serve as the daemon's own; `None` if there is no such socket.
/// Closes a socket that cannot serve as the daemon's own.
fn take(passed: &mut StoredDescriptors, name: &str, path: &Path, kind: SocketType) -> Option<OwnedFd> {
    let fd = passed.remove(name)?;
    match check(fd.as_fd(), path, kind) {
        Ok(()) => {
            tracing::info!("listening at {}, on the service manager's socket", path.display());
            Some(fd)
        }
        Err(why) => {
            tracing::warn!(name, why, "ignored a socket of the service manager");
            None
        }
    }
}

fn check(fd: BorrowedFd<'_>, path: &Path, kind: SocketType) -> Result<(), String> {
    let of = |e: rustix::io::Errno| e.to_string();
    if sockopt::socket_domain(fd).map_err(of)? != AddressFamily::UNIX {
        return Err("expected a UNIX socket".into());
    }
    if sockopt::socket_type(fd).map_err(of)? != kind {
        return Err("wrong type: expected ListenSequentialPacket= for attach, ListenStream= for control".into());
    }
    if !sockopt::socket_acceptconn(fd).map_err(of)? {
        return Err("expected a listening socket".into());
    }
    let address = SocketAddrUnix::try_from(getsockname(fd).map_err(of)?).map_err(of)?;
    let bound = address.path().map(|bytes| PathBuf::from(String::from_utf8_lossy(bytes.to_bytes()).into_owned()));
    if !bound.is_some_and(|bound| is_same(&bound, path)) {
        return Err(format!("expected a socket at {}", path.display()));
    }
    // The service manager clears the non-blocking flag of the sockets that it passes.
    rustix::io::ioctl_fionbio(fd, true).map_err(of)?;
    // The socket already listens. After this call, the kernel reports this process, not the service manager, as the
    // peer (`SO_PEERCRED`) to clients.
    rustix::net::listen(fd, MANAGERS_BACKLOG).map_err(of)
}

/// Whether two paths name the same socket: the same file name in the same folder, whatever path leads to that folder.
fn is_same(one: &Path, other: &Path) -> bool {
    let folder = |path: &Path| path.parent().and_then(|folder| folder.canonicalize().ok());
    one.file_name() == other.file_name() && folder(one).is_some_and(|found| folder(other) == Some(found))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn passed(sockets: impl IntoIterator<Item = (&'static str, OwnedFd)>) -> StoredDescriptors {
        sockets.into_iter().map(|(name, fd)| (name.to_owned(), fd)).collect()
    }

    fn seqpacket(path: &Path) -> OwnedFd {
        listen(path, SocketType::SEQPACKET, &SocketAccess::default()).unwrap()
    }

    /// Objective: the service manager's sockets are used unchanged, other descriptors are not used, and the daemon
    /// removes no file of the manager.
    #[test]
    fn passed_sockets_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let control = UnixListener::bind(dir.path().join(CONTROL_SOCKET)).unwrap();
        std::fs::set_permissions(dir.path().join(CONTROL_SOCKET), PermissionsExt::from_mode(0o640)).unwrap();
        let other = UnixStream::pair().unwrap().0;
        let attach = seqpacket(&dir.path().join(ATTACH_SOCKET));
        let mut kept = passed([("attach", attach), ("control", control.into()), ("ptnet:1", other.into())]);
        let sockets = ActivatedSockets::open(&mut kept, dir.path(), &SocketAccess::default()).unwrap();
        assert!(sockets.own.is_empty());
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["ptnet:1"]);
        let mode = std::fs::metadata(dir.path().join(CONTROL_SOCKET)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let client = UnixStream::connect(dir.path().join(CONTROL_SOCKET)).unwrap();
        rustix::net::accept(&sockets.control).unwrap();
        drop(client);
        // An accept without a pending connection returns an error, so the socket does not block.
        assert_eq!(rustix::net::accept(&sockets.control).unwrap_err(), rustix::io::Errno::AGAIN);
    }

    /// Objective: if the type of a descriptor is not the type that the descriptor's name requires, the descriptor is
    /// closed, the reason is logged, and the daemon binds its own socket.
    #[test]
    fn others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(ATTACH_SOCKET);
        let refused = |fd: OwnedFd| check(fd.as_fd(), &path, SocketType::SEQPACKET).unwrap_err();
        assert!(refused(std::fs::File::open("/dev/null").unwrap().into()).contains("ocket"));
        assert_eq!(refused(std::net::TcpListener::bind("127.0.0.1:0").unwrap().into()), "expected a UNIX socket");
        assert!(refused(UnixListener::bind(dir.path().join("a")).unwrap().into()).contains("wrong type"));
        let unbound = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        assert_eq!(refused(unbound), "expected a listening socket");
        assert!(refused(seqpacket(&dir.path().join("b"))).starts_with("expected a socket at"));
        let elsewhere = seqpacket(&dir.path().join("c"));
        let mut kept = passed([("attach", elsewhere)]);
        let sockets = ActivatedSockets::open(&mut kept, dir.path(), &SocketAccess::default()).unwrap();
        assert!(kept.is_empty());
        assert_eq!(sockets.own, [path, dir.path().join(CONTROL_SOCKET)]);
    }

    /// Objective: a socket is recognised even if it was bound by another path to the same folder.
    #[test]
    fn a_socket_bound_by_another_path_is_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        let fd = seqpacket(&link.join(ATTACH_SOCKET));
        assert_eq!(check(fd.as_fd(), &dir.path().join(ATTACH_SOCKET), SocketType::SEQPACKET), Ok(()));
    }
}
