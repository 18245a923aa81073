//! A *listener*, and its *place*: the UNIX socket, or the TCP address and port, at which it listens.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::Mode;
use rustix::net::sockopt;

/// An address at which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenPlace {
    /// `unix:PATH`.
    Unix(PathBuf),
    /// `tcp:ADDRESS:PORT`.
    Tcp(SocketAddr),
}

/// The error for text that is not a listen address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid address {0}: expected unix:/PATH or tcp:ADDRESS:PORT, e.g. tcp:127.0.0.1:9847 or tcp:[::1]:9847")]
pub struct BadPlace(String);

impl FromStr for ListenPlace {
    type Err = BadPlace;

    fn from_str(text: &str) -> Result<ListenPlace, BadPlace> {
        let bad = || BadPlace(text.to_owned());
        match text.split_once(':') {
            Some(("unix", path)) if path.starts_with('/') => Ok(ListenPlace::Unix(path.into())),
            Some(("tcp", address)) => address.parse().map(ListenPlace::Tcp).map_err(|_| bad()),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for ListenPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenPlace::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenPlace::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// The error for a listener that cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {place}: {source}")]
pub struct ListenError {
    place: ListenPlace,
    source: std::io::Error,
}

/// A non-blocking listening socket. When dropped, it removes the socket file that it has created.
#[derive(Debug)]
pub struct HttpListener {
    fd: OwnedFd,
    own: Option<PathBuf>,
}

impl HttpListener {
    /// Creates a listener at an address. A UNIX socket's file gets the permissions `mode`.
    ///
    /// # Errors
    /// [`ListenError`] if the address is in use or permission is missing.
    pub fn bind(place: &ListenPlace, mode: u32) -> Result<HttpListener, ListenError> {
        let failed = |source| ListenError { place: place.clone(), source };
        match place {
            ListenPlace::Unix(path) => bind_unix(path, mode).map_err(failed),
            ListenPlace::Tcp(address) => {
                let tcp = TcpListener::bind(address).and_then(|tcp| tcp.set_nonblocking(true).map(|()| tcp));
                Ok(HttpListener { fd: tcp.map_err(failed)?.into(), own: None })
            }
        }
    }

    /// Takes over a socket that a service manager has bound.
    ///
    /// # Errors
    /// The descriptor is not a listening stream socket.
    pub fn passed(fd: OwnedFd) -> std::io::Result<HttpListener> {
        if !sockopt::socket_acceptconn(&fd)? || sockopt::socket_type(&fd)? != rustix::net::SocketType::STREAM {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "expected a listening stream socket"));
        }
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(HttpListener { fd, own: None })
    }

    /// Returns the address, with the port that the kernel has chosen if the listener was bound to port 0; `None` if the
    /// socket is neither a TCP socket nor a UNIX socket with a path.
    #[must_use]
    pub fn place(&self) -> Option<ListenPlace> {
        let address = rustix::net::getsockname(&self.fd).ok()?;
        let unix = rustix::net::SocketAddrUnix::try_from(address.clone()).ok();
        match unix.as_ref().and_then(rustix::net::SocketAddrUnix::path) {
            Some(path) => Some(ListenPlace::Unix(path.to_string_lossy().into_owned().into())),
            None => SocketAddr::try_from(address).ok().map(ListenPlace::Tcp),
        }
    }
}

impl AsFd for HttpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for HttpListener {
    fn drop(&mut self) {
        // An error is ignored, since another process may have removed the file.
        let _ = self.own.as_ref().map(std::fs::remove_file);
    }
}

fn bind_unix(path: &Path, mode: u32) -> std::io::Result<HttpListener> {
    // A killed process leaves its socket file behind, and such a file is removed. If a process listens on the socket,
    // or the file is of another kind, it stays, and the bind fails.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path)?;
    }
    // The umask prevents other users from connecting before the file has its mode.
    let before = rustix::process::umask(Mode::from_bits_retain(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let unix = bound?;
    let listener = HttpListener { fd: unix.into(), own: Some(path.to_owned()) };
    rustix::io::ioctl_fionbio(&listener.fd, true)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a place that is printed as text is parsed to the same place; other text is refused.
    #[test]
    fn places_parse_from_the_text_they_print() {
        for text in ["unix:/run/a.sock", "tcp:127.0.0.1:9847", "tcp:[::1]:9847"] {
            assert_eq!(text.parse::<ListenPlace>().expect("a place").to_string(), text);
        }
        for text in
            ["", "unix:", "unix:a.sock", "tcp:localhost:80", "tcp:127.0.0.1", "127.0.0.1:9847", "udp:127.0.0.1:1"]
        {
            assert!(text.parse::<ListenPlace>().is_err(), "{text}");
        }
    }

    /// Objective: a UNIX socket has the given mode, is removed at the end, and replaces a socket file on which no
    /// process listens, but neither a socket file on which a process listens nor another kind of file.
    #[test]
    fn a_unix_socket_replaces_only_a_dead_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("metrics.sock");
        let place = ListenPlace::Unix(path.clone());
        drop(UnixListener::bind(&path).expect("a socket whose process is gone"));
        let listener = HttpListener::bind(&place, 0o640).expect("bound");
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(listener.place(), Some(place.clone()));
        assert!(HttpListener::bind(&place, 0o600).expect_err("in use").to_string().contains("metrics.sock"));
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "kept").expect("a file");
        HttpListener::bind(&place, 0o600).expect_err("a file is in the way");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "kept");
    }

    /// Objective: a service manager's socket is accepted if it listens.
    #[test]
    fn a_passed_socket_is_accepted_if_it_listens() {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = tcp.local_addr().map(ListenPlace::Tcp).ok();
        assert_eq!(HttpListener::passed(tcp.into()).expect("listens").place(), place);
        let (one, _other) = UnixStream::pair().expect("a pair");
        HttpListener::passed(one.into()).expect_err("does not listen");
    }
}
