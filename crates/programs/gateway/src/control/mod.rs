//! The control socket of a running gateway: rules, published ports and flows, for programs of the same user.
//!
//! The socket is a UNIX stream socket, and each line in either direction is a JSON object. A client's line is a
//! [`ControlRequest`]; the answer is `{"ok":{…}}` or `{"error":"what; what to do"}`. A client that follows the flow log
//! receives the log's lines after the answer. Only root and the gateway's own user may connect.
//!
//! | module | contents |
//! |---|---|
//! | [`message`] | requests and answers |
//! | [`stats`] | the counters |
//! | [`listed`] | the open flows, as a program reads them that asks all gateways |
//! | [`call`] | the client's end, for commands |
//! | [`survey`] | requests to all gateways together, within limits of time and size |
//! | `client` | the server's end of a client's connection |
//!
//! [`ControlServer`] handles the connections without blocking. Each round of the gateway's loop takes at most one
//! request from each client.

pub mod call;
mod client;
pub mod listed;
pub mod message;
pub mod stats;
pub mod survey;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use self::client::ControlClient;
use self::message::ControlRequest;
use crate::core::GatewayCore;
use crate::poller::{WatchMode, WatchedThing};
use crate::slots::{NumberedValues, SlotId};

/// Maximum number of clients at the same time.
const MAX_CLIENTS: usize = 32;
/// The listen backlog.
const BACKLOG: i32 = 16;

/// Returns the default path of a gateway's control socket: `gateway-SWITCH:PORT.sock` in `dir`, the daemon's run
/// directory. `port` is the name of the gateway's port.
pub fn path_in(dir: &Path, port: &str) -> PathBuf {
    dir.join(format!("gateway-{port}.sock"))
}

/// The reason why a gateway cannot open its control socket.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The path is in use: another program listens there, or the file is not a socket.
    #[error("{0} is in use, perhaps by another gateway; end that, or choose another path with --control")]
    Busy(PathBuf),
    /// The kernel refuses the path.
    #[error("cannot listen at {path}: {source}; choose another path with --control")]
    Listen {
        /// Path of the socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The control socket with its clients. Dropping the server removes the socket's file.
pub struct ControlServer {
    listener: OwnedFd,
    path: PathBuf,
    /// Device and inode of the socket's file, by which the server recognises the file as its own.
    file: Option<[u64; 2]>,
    clients: NumberedValues<ControlClient>,
    /// Clients from which a request has been taken, and which may have sent another request.
    again: Vec<SlotId>,
}

impl ControlServer {
    /// Listens at a path. Replaces a socket file that a killed gateway has left there.
    ///
    /// # Errors
    /// [`ControlError::Busy`] if the path is in use; [`ControlError::Listen`] if the kernel refuses it.
    pub fn open(path: &Path) -> Result<Self, ControlError> {
        let listener = listen_at(path, BACKLOG).map_err(|errno| match errno {
            Errno::ADDRINUSE => ControlError::Busy(path.to_owned()),
            errno => ControlError::Listen { path: path.to_owned(), source: errno.into() },
        })?;
        let file = identity(path);
        let clients = NumberedValues::default();
        Ok(ControlServer { listener, path: path.to_owned(), file, clients, again: Vec::new() })
    }

    /// Adds the listening socket to the gateway's epoll set.
    ///
    /// # Errors
    /// The error of epoll_ctl(2).
    pub fn watch(&self, core: &GatewayCore) -> io::Result<()> {
        // Edge-triggered, as accept fails while no descriptor is free, and a level-triggered socket would stay ready
        // and make the loop spin.
        core.poller.add(&self.listener, WatchedThing::Control, WatchMode::Changes)
    }

    /// Accepts all pending connections. A client that is refused gets the reason before its connection is closed.
    pub fn accept(&mut self, core: &GatewayCore) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(socket) = rustix::net::accept_with(&self.listener, flags) {
            let mut client = ControlClient::new(socket);
            if let Some(refusal) = self.refusal(&client) {
                client.answer(&Err(refusal.to_owned()));
                client.write();
                continue;
            }
            let id = self.clients.insert(client);
            let watched = |client: &mut ControlClient| {
                core.poller.add(client.socket(), WatchedThing::ControlClient(id), WatchMode::Changes).is_ok()
            };
            if !self.clients.get(id).is_some_and(watched) {
                self.clients.remove(id);
            }
        }
    }

    fn refusal(&self, client: &ControlClient) -> Option<&'static str> {
        let own = rustix::process::geteuid();
        let peer = sockopt::socket_peercred(client.socket()).ok();
        let is_trusted = peer.is_some_and(|peer| peer.uid == own || peer.uid.is_root());
        if !is_trusted {
            Some("this gateway belongs to another user; run the command as that user or as root")
        } else if self.clients.len() >= MAX_CLIENTS {
            Some("the gateway has too many clients; end one of them")
        } else {
            None
        }
    }

    /// Returns a client's next request, or an error if the client's next line is not a request; `None` if no whole line
    /// has arrived, or answers to the client are still queued.
    pub fn next(&mut self, core: &mut GatewayCore, id: SlotId) -> Option<Result<ControlRequest, String>> {
        let client = self.clients.get(id)?;
        let line = client.next_line();
        if line.is_some() {
            self.again.push(id);
        } else if client.has_ended() {
            self.remove(core, id);
        }
        line.map(|line| line.and_then(|line| message::parse(&line)))
    }

    /// Sends a client an answer.
    pub fn answer(&mut self, core: &mut GatewayCore, id: SlotId, answer: &Result<serde_json::Value, String>) {
        let Some(client) = self.clients.get(id) else { return };
        client.answer(answer);
        client.write();
        if client.has_ended() {
            self.remove(core, id);
        }
    }

    /// Makes a client receive all further lines of the flow log.
    pub fn follow(&mut self, core: &mut GatewayCore, id: SlotId) {
        if let Some(client) = self.clients.get(id) {
            client.follows = true;
            core.flows.follow(true);
        }
    }

    /// Sends the new lines of the flow log to the clients that follow it.
    pub fn tell(&mut self, core: &mut GatewayCore) {
        let news = core.flows.news();
        if news.is_empty() {
            return;
        }
        for id in self.clients.ids() {
            let Some(client) = self.clients.get(id).filter(|client| client.follows) else { continue };
            client.tell(&news);
            client.write();
            if client.has_ended() {
                self.remove(core, id);
            }
        }
    }

    /// Removes and returns the clients that may have sent another request.
    pub fn take_again(&mut self) -> Vec<SlotId> {
        std::mem::take(&mut self.again)
    }

    /// Returns whether a client may have sent another request.
    pub fn is_busy(&self) -> bool {
        !self.again.is_empty()
    }

    fn remove(&mut self, core: &mut GatewayCore, id: SlotId) {
        self.clients.remove(id);
        core.flows.follow(self.clients.values().any(|client| client.follows));
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        if self.file.is_some() && identity(&self.path) == self.file {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens at a path, at which only this process's user may connect. Replaces a socket file at which no process
/// listens.
///
/// # Errors
/// [`Errno::ADDRINUSE`] if another file or socket has the path; any other error if the kernel refuses the path.
pub fn listen_at(path: &Path, backlog: i32) -> Result<OwnedFd, Errno> {
    match listener(path, backlog) {
        Err(Errno::ADDRINUSE) if is_left(path) => {
            rustix::fs::unlink(path)?;
            listener(path, backlog)
        }
        made => made,
    }
}

/// Returns whether the file at a path is a socket at which no process listens.
fn is_left(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let asked = probe.and_then(|probe| rustix::net::connect(&probe, &SocketAddrUnix::new(path)?));
    is_socket && asked == Err(Errno::CONNREFUSED)
}

fn identity(path: &Path) -> Option<[u64; 2]> {
    fs::symlink_metadata(path).ok().map(|meta| [meta.dev(), meta.ino()])
}

fn listener(path: &Path, backlog: i32) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file that `bind` creates gets the socket's mode (unix(7)).
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_socket_is_its_users_and_goes_with_its_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_in(folder.path(), "vale0:gateway");
        assert!(path.ends_with("gateway-vale0:gateway.sock"));
        let server = ControlServer::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(ControlServer::open(&path), Err(ControlError::Busy(_))));
        drop(server);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_that_a_killed_gateway_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("left");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let server = ControlServer::open(&path).unwrap();
        let other = folder.path().join("other");
        fs::rename(&path, &other).unwrap();
        fs::write(&path, "another file").unwrap();
        drop(server);
        assert!(path.exists(), "only the server's own file is removed");
        assert!(matches!(ControlServer::open(&path), Err(ControlError::Busy(_))) && path.exists());
        assert!(ControlServer::open(&folder.path().join("x".repeat(200))).is_err(), "a path that is too long");
    }
}
