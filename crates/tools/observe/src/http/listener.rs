//! A *listener* and its *place*: a UNIX socket, or an address and a port of TCP.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::Mode;
use rustix::net::sockopt;

/// A listen address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `unix:PATH`.
    Unix(PathBuf),
    /// `tcp:ADDRESS:PORT`.
    Tcp(SocketAddr),
}

/// A text that does not parse as a place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is neither unix:/PATH nor tcp:ADDRESS:PORT, such as tcp:127.0.0.1:9847 or tcp:[::1]:9847")]
pub struct BadPlace(String);

impl FromStr for Place {
    type Err = BadPlace;

    fn from_str(text: &str) -> Result<Place, BadPlace> {
        let bad = || BadPlace(text.to_owned());
        match text.split_once(':') {
            Some(("unix", path)) if path.starts_with('/') => Ok(Place::Unix(path.into())),
            Some(("tcp", address)) => address.parse().map(Place::Tcp).map_err(|_| bad()),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
            Place::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// A place whose socket cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {place}: {source}")]
pub struct ListenError {
    place: Place,
    source: std::io::Error,
}

/// A non-blocking listening socket. Dropping it removes the socket file that it made.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    own: Option<PathBuf>,
}

impl Listener {
    /// Listens at a place; a UNIX socket gets the given mode.
    ///
    /// # Errors
    /// [`ListenError`] if the place is in use or permission is missing.
    pub fn bind(place: &Place, mode: u32) -> Result<Listener, ListenError> {
        let failed = |source| ListenError { place: place.clone(), source };
        match place {
            Place::Unix(path) => bind_unix(path, mode).map_err(failed),
            Place::Tcp(address) => {
                let tcp = TcpListener::bind(address).and_then(|tcp| tcp.set_nonblocking(true).map(|()| tcp));
                Ok(Listener { fd: tcp.map_err(failed)?.into(), own: None })
            }
        }
    }

    /// Takes over a socket that a service manager has bound.
    ///
    /// # Errors
    /// It is not a listening stream socket.
    pub fn passed(fd: OwnedFd) -> std::io::Result<Listener> {
        if !sockopt::socket_acceptconn(&fd)? || sockopt::socket_type(&fd)? != rustix::net::SocketType::STREAM {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a listening stream socket"));
        }
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Listener { fd, own: None })
    }

    /// Its place, with the port that the kernel chose if none was given.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        let address = rustix::net::getsockname(&self.fd).ok()?;
        let unix = rustix::net::SocketAddrUnix::try_from(address.clone()).ok();
        match unix.as_ref().and_then(rustix::net::SocketAddrUnix::path) {
            Some(path) => Some(Place::Unix(path.to_string_lossy().into_owned().into())),
            None => SocketAddr::try_from(address).ok().map(Place::Tcp),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The file may already be removed.
        let _ = self.own.as_ref().map(std::fs::remove_file);
    }
}

fn bind_unix(path: &Path, mode: u32) -> std::io::Result<Listener> {
    // A killed process leaves its socket behind. A socket with a listener stays, and so does any other file.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path)?;
    }
    // No client connects before the socket has its mode.
    let before = rustix::process::umask(Mode::from_bits_retain(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let unix = bound?;
    let listener = Listener { fd: unix.into(), own: Some(path.to_owned()) };
    rustix::io::ioctl_fionbio(&listener.fd, true)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: places parse from the text they print; anything else is refused.
    #[test]
    fn places() {
        for text in ["unix:/run/a.sock", "tcp:127.0.0.1:9847", "tcp:[::1]:9847"] {
            assert_eq!(text.parse::<Place>().expect("a place").to_string(), text);
        }
        for text in
            ["", "unix:", "unix:a.sock", "tcp:localhost:80", "tcp:127.0.0.1", "127.0.0.1:9847", "udp:127.0.0.1:1"]
        {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    /// Objective: a UNIX socket has its mode, is removed at the end, and replaces a dead socket but neither a live one
    /// nor a file.
    #[test]
    fn unix() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("metrics.sock");
        let place = Place::Unix(path.clone());
        drop(UnixListener::bind(&path).expect("a socket whose process is gone"));
        let listener = Listener::bind(&place, 0o640).expect("bound");
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(listener.place(), Some(place.clone()));
        assert!(Listener::bind(&place, 0o600).expect_err("in use").to_string().contains("metrics.sock"));
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "kept").expect("a file");
        Listener::bind(&place, 0o600).expect_err("a file is in the way");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "kept");
    }

    /// Objective: a service manager's socket is accepted if it listens.
    #[test]
    fn passed() {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = tcp.local_addr().map(Place::Tcp).ok();
        assert_eq!(Listener::passed(tcp.into()).expect("listens").place(), place);
        let (one, _other) = UnixStream::pair().expect("a pair");
        Listener::passed(one.into()).expect_err("does not listen");
    }
}
