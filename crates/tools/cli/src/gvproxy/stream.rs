//! Connections and listeners of any kind of socket.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{SendFlags, Shutdown, SocketFlags};

use super::endpoint::GvEndpoint;
use super::{GvFailure, addresses, log};

/// Pause before the next connection is accepted, after the kernel lacked resources to accept one.
const PAUSE: Duration = Duration::from_millis(100);

/// A connected stream socket: a UNIX or a TCP socket.
#[derive(Debug)]
pub(super) struct GvStream(OwnedFd);

impl GvStream {
    /// Connects to a UNIX socket.
    ///
    /// # Errors
    /// The error of `connect`.
    pub(super) fn connect(path: &Path) -> io::Result<GvStream> {
        UnixStream::connect(path).map(|stream| GvStream(stream.into()))
    }

    /// Limits how long a read and a write may wait; `None` for no limit.
    ///
    /// # Errors
    /// The error of setsockopt(2).
    pub(super) fn limit(&self, limit: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.0, Timeout::Recv, limit)?;
        Ok(sockopt::set_socket_timeout(&self.0, Timeout::Send, limit)?)
    }

    /// Ends one or both directions. Reads and writes that wait in other threads then return.
    pub(super) fn shutdown(&self, how: Shutdown) {
        // The call fails only if the peer has ended both directions.
        let _ = rustix::net::shutdown(&self.0, how);
    }
}

impl From<OwnedFd> for GvStream {
    fn from(fd: OwnedFd) -> GvStream {
        GvStream(fd)
    }
}

impl AsFd for GvStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for &GvStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, into)?)
    }
}

impl Write for &GvStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts a thread for a connection. If it cannot be started, logs the reason and returns `None`.
pub(super) fn begin(name: &str, work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    started.inspect_err(|why| log::warning(format_args!("cannot start a thread for a connection: {why}"))).ok()
}

/// Accepts connections in a thread of its own until the listener is closed. Calls `ready` before each wait for a
/// connection. Passes the connection and the result of `ready` to `work`, in a thread per connection.
///
/// # Errors
/// The accepting thread cannot be started.
pub(super) fn serve<T: Send + 'static>(
    listener: Arc<GvListener>,
    name: &'static str,
    ready: impl Fn() -> T + Send + 'static,
    work: impl Fn(GvStream, T) + Send + Sync + 'static,
) -> io::Result<JoinHandle<()>> {
    let work = Arc::new(work);
    let accept = move || {
        loop {
            let token = ready();
            match listener.accept() {
                Ok(stream) => {
                    let work = Arc::clone(&work);
                    begin(name, move || work(stream, token));
                }
                Err(Errno::INVAL | Errno::BADF) => return,
                Err(why) => {
                    log::warning(format_args!("cannot accept a connection: {why}"));
                    std::thread::sleep(PAUSE);
                }
            }
        }
    };
    std::thread::Builder::new().name(format!("{name}-listen")).spawn(accept)
}

/// A listening socket. [`GvListener::close`] removes the file of a UNIX socket.
#[derive(Debug)]
pub(super) struct GvListener {
    fd: OwnedFd,
    file: Option<ListenerFile>,
}

/// A socket's file, recognized by device and inode number.
#[derive(Debug)]
struct ListenerFile {
    path: PathBuf,
    number: (u64, u64),
}

impl GvListener {
    /// Listens at an address. A file at the path of a UNIX socket is not replaced.
    ///
    /// # Errors
    /// Returns gvproxy's message, or names a kind of address that this program does not support.
    pub(super) fn listen(endpoint: &GvEndpoint) -> Result<GvListener, GvFailure> {
        match endpoint.scheme.as_str() {
            "unix" => GvListener::at_path(Path::new(&endpoint.path)),
            "tcp" => {
                let local = addresses::joined(&endpoint.host, &endpoint.port);
                let places = addresses::listen_places("tcp", &local).map_err(GvFailure)?;
                let failed = |why: io::Error| GvFailure(addresses::bind_error("tcp", &local, &why));
                Ok(GvListener { fd: TcpListener::bind(&places[..]).map_err(failed)?.into(), file: None })
            }
            "vsock" => Err(GvFailure(format!(
                "{}: vsock is not available here: use a unix:// address, and a guest's card instead of gvforwarder",
                endpoint.text
            ))),
            _ => Err(GvFailure("unexpected scheme".to_owned())),
        }
    }

    /// Listens at a path, with the permissions that the user's umask leaves.
    ///
    /// # Errors
    /// Returns gvproxy's message.
    pub(super) fn at_path(path: &Path) -> Result<GvListener, GvFailure> {
        let failed = |why: io::Error| GvFailure(addresses::bind_error("unix", &path.display().to_string(), &why));
        let fd = UnixListener::bind(path).map_err(failed)?.into();
        let number = std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()));
        let file = number.ok().map(|number| ListenerFile { path: path.to_owned(), number });
        Ok(GvListener { fd, file })
    }

    /// Listens at a path, for this user only. If a socket exists at the path, it is replaced. Other files are not,
    /// although gvproxy would replace them, too.
    ///
    /// # Errors
    /// Returns gvproxy's message, or a message that the file at the path is not a socket.
    pub(super) fn in_place_of(path: &Path) -> Result<GvListener, GvFailure> {
        let shown = path.display();
        match std::fs::symlink_metadata(path) {
            Ok(meta) if meta.file_type().is_socket() => {
                let failed = |why: io::Error| GvFailure(format!("remove {shown}: {}", addresses::reason(&why)));
                std::fs::remove_file(path).map_err(failed)?;
            }
            Ok(_) => return Err(GvFailure(format!("{shown} exists and is not a socket: choose another path"))),
            Err(_) => {}
        }
        let listener = GvListener::at_path(path)?;
        let done = std::fs::set_permissions(path, PermissionsExt::from_mode(0o600));
        done.map_err(GvFailure::step(format!("chmod {shown}")))?;
        Ok(listener)
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// The error of accept(2): `EINVAL` once the listener is closed.
    pub(super) fn accept(&self) -> Result<GvStream, Errno> {
        loop {
            match rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC) {
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                done => return done.map(GvStream),
            }
        }
    }

    /// Ends the listener: `accept` then fails. Removes the listener's file, unless another file has replaced it.
    pub(super) fn close(&self) {
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
        if let Some(ListenerFile { path, number }) = &self.file
            && std::fs::symlink_metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == *number)
        {
            // An error is ignored, since the folder may no longer exist.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: an existing file at the path stays, and the error is gvproxy's; closing a listener ends the thread
    /// that waits in `accept`, and removes the listener's own file, but not another file at its path.
    #[test]
    fn a_listener_leaves_other_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let listener = GvListener::at_path(&path).unwrap();
        let why = GvListener::at_path(&path).unwrap_err().to_string();
        assert_eq!(why, format!("listen unix {}: bind: address already in use", path.display()));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| listener.accept().map(drop));
            listener.close();
            assert_eq!(waiting.join().unwrap(), Err(Errno::INVAL));
        });
        assert!(!path.exists());
        let replaced = GvListener::at_path(&path).unwrap();
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        let own = GvListener::in_place_of(&path).unwrap();
        replaced.close();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        own.close();
        assert!(!path.exists());
        std::fs::write(&path, "kept").unwrap();
        assert!(GvListener::in_place_of(&path).unwrap_err().to_string().contains("is not a socket"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
    }

    #[test]
    fn addresses_without_a_listener_are_refused_by_name() {
        let why = |text: &str| GvListener::listen(&GvEndpoint::parse(text).unwrap()).unwrap_err().to_string();
        assert!(why("vsock://:1024").contains("vsock is not available"));
        assert_eq!(why("http://a"), "unexpected scheme");
    }
}
