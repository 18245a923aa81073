//! A datagram socket bound to a path. When the socket's peer is gone, a new socket replaces it, because datagrams of
//! that peer may remain in the old socket's queue. Closing the old socket may take long.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_port::listener::{Claim, ListenAddress, OpenError, SocketFile, bind_datagrams, is_unix};
use rustix::io::Errno;
use rustix::net::SocketType;

use super::widen;

/// A datagram socket, with the path of its file and the file's access rights.
pub(super) struct BoundSocket {
    site: ListenAddress,
    socket: Arc<OwnedFd>,
    /// The socket's file, removed with this value; `None` if a new socket could not be bound.
    file: Option<SocketFile>,
}

impl BoundSocket {
    /// Binds a socket.
    pub(super) fn open(site: &ListenAddress) -> Result<BoundSocket, OpenError> {
        let (socket, file) = bind_datagrams(site)?;
        widen(&socket);
        Ok(BoundSocket { site: site.clone(), socket: Arc::new(socket), file: Some(file) })
    }

    /// Takes over a predecessor's socket.
    pub(super) fn restore(site: &ListenAddress, socket: OwnedFd) -> Result<BoundSocket, OpenError> {
        if !is_unix(&socket, SocketType::DGRAM) {
            return Err(OpenError::step(site.path(), "restore its socket")(Errno::NOTSOCK));
        }
        let file = Some(SocketFile::restore(site)?);
        Ok(BoundSocket { site: site.clone(), socket: Arc::new(socket), file })
    }

    /// Replaces the socket. The last owner of the old socket closes it.
    pub(super) fn renew(&mut self) -> Result<(), OpenError> {
        drop(self.file.take());
        let (socket, file) = bind_datagrams(&self.site)?;
        widen(&socket);
        self.socket = Arc::new(socket);
        self.file = Some(file);
        Ok(())
    }

    /// Returns whether the socket is bound.
    pub(super) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the socket.
    pub(super) fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Returns the path and the access rights of the socket.
    pub(super) fn site(&self) -> &ListenAddress {
        &self.site
    }

    pub(super) fn claims(&self) -> Vec<Claim> {
        self.file.iter().map(SocketFile::claim).collect()
    }
}
