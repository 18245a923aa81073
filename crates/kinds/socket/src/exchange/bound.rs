//! A socket of datagrams with a file, which is replaced when its peer is gone: what lies in its queue may take long to
//! close, and none of it is the next peer's.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_port::listener::{Claim, ListenAddress, OpenError, SocketFile, bind_datagrams, is_unix};
use rustix::io::Errno;
use rustix::net::SocketType;

use super::widen;

/// A socket that is bound at a site.
pub(super) struct BoundSocket {
    site: ListenAddress,
    socket: Arc<OwnedFd>,
    /// Removed with the value; `None`: it could not be made again.
    file: Option<SocketFile>,
}

impl BoundSocket {
    /// Binds one.
    pub(super) fn open(site: &ListenAddress) -> Result<BoundSocket, OpenError> {
        let (socket, file) = bind_datagrams(site)?;
        widen(&socket);
        Ok(BoundSocket { site: site.clone(), socket: Arc::new(socket), file: Some(file) })
    }

    /// Goes on with another process's.
    pub(super) fn restore(site: &ListenAddress, socket: OwnedFd) -> Result<BoundSocket, OpenError> {
        if !is_unix(&socket, SocketType::DGRAM) {
            return Err(OpenError::step(site.path(), "restore its socket")(Errno::NOTSOCK));
        }
        let file = Some(SocketFile::restore(site)?);
        Ok(BoundSocket { site: site.clone(), socket: Arc::new(socket), file })
    }

    /// Replaces the socket. What was bound before is closed by who has it.
    pub(super) fn renew(&mut self) -> Result<(), OpenError> {
        drop(self.file.take());
        let (socket, file) = bind_datagrams(&self.site)?;
        widen(&socket);
        self.socket = Arc::new(socket);
        self.file = Some(file);
        Ok(())
    }

    /// Whether it is bound.
    pub(super) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// The socket.
    pub(super) fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Where it is.
    pub(super) fn site(&self) -> &ListenAddress {
        &self.site
    }

    pub(super) fn claims(&self) -> Vec<Claim> {
        self.file.iter().map(SocketFile::claim).collect()
    }
}
