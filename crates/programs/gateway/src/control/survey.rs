//! Queries all gateways of a run directory together ([`survey`]), within limits of time and size that no gateway can
//! extend. A [`GatewayPeer`] is a non-blocking connection to one gateway.
//!
//! A gateway that a guest has taken over is no more trusted than the guest: answers are read into bounded types
//! ([`GatewayStats`](super::stats::GatewayStats), [`FlowList`](super::listed::FlowList)), not into generic JSON. Other
//! users who can create files in a run directory are not trusted, either. This module connects only to sockets, and
//! sends a request only if the listening process belongs to a trusted user: this user, root or, if this user is root,
//! the owner of the socket's file.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netvale_control::dirs;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::message::ControlRequest;

/// Maximum number of gateways that are queried.
pub const MAX_GATEWAYS: usize = 64;
/// Maximum number of control sockets that are considered. This is more than [`MAX_GATEWAYS`], since some sockets may
/// have no gateway.
const MAX_SOCKETS: usize = 4096;
/// Maximum number of bytes that one call reads.
const CHUNK: usize = 16 << 10;

/// Limits on the answers of all gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SurveyLimits {
    /// Maximum time for all answers together.
    pub time: Duration,
    /// Maximum length of one gateway's answer in bytes.
    pub answer: usize,
    /// Maximum number of bytes of all answers together.
    pub all: usize,
}

/// A gateway that was queried, and its answer.
#[derive(Clone, PartialEq, Debug)]
pub struct SurveyedGateway<T> {
    /// Name of the gateway's port, e.g. `vale0:gateway`.
    pub port: String,
    /// The answer; `None` if it did not arrive within the limits, is an error, or is not of the expected type.
    pub answer: Option<T>,
}

/// Returns the directories that may have control sockets of gateways: the daemon's run directory, and the user's own
/// run directory.
#[must_use]
pub fn folders(run_dir: &Path) -> Vec<PathBuf> {
    let own = Some(dirs::default_run_dir()).filter(|own| own != run_dir);
    [run_dir.to_owned()].into_iter().chain(own).filter(|folder| !dirs::is_foreign(folder)).collect()
}

/// A control socket, whose gateway may no longer run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewaySocket {
    /// Name of the gateway's port.
    pub port: String,
    path: PathBuf,
    /// The user to whom the socket's file belongs.
    owner: u32,
}

impl GatewaySocket {
    /// Returns the socket at a path; `None` if the file's name is not the name of a control socket, or the file is not
    /// a socket. Symbolic links are not followed.
    #[must_use]
    pub fn at(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let port = name.strip_prefix("gateway-")?.strip_suffix(".sock")?.to_owned();
        let meta = path.symlink_metadata().ok().filter(|meta| meta.file_type().is_socket())?;
        Some(GatewaySocket { port, path, owner: meta.uid() })
    }
}

/// Returns the control sockets in some directories: first this user's sockets, then those of other users, each sorted
/// by port name. Several sockets may have the same port name.
#[must_use]
pub fn sockets(folders: &[PathBuf]) -> Vec<GatewaySocket> {
    let asker = rustix::process::geteuid().as_raw();
    let entries = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    let known = entries.filter_map(|entry| GatewaySocket::at(entry.path()));
    let mut found: Vec<_> =
        known.filter(|socket| is_trusted(asker, socket.owner, socket.owner)).take(MAX_SOCKETS).collect();
    found.sort_by_cached_key(|socket| (socket.owner != asker, socket.port.clone()));
    found
}

/// Returns whether the user `asker` may trust the user `listener` at a socket whose file belongs to the user `owner`.
fn is_trusted(asker: u32, owner: u32, listener: u32) -> bool {
    listener == 0 || listener == asker || (asker == 0 && listener == owner)
}

/// Queries all gateways whose control sockets are in `folders`, at most [`MAX_GATEWAYS`], and waits for their answers
/// within the limits. Sockets without a gateway, and gateways of users that are not trusted, are omitted.
#[must_use]
pub fn survey<T: DeserializeOwned>(
    folders: &[PathBuf],
    request: &ControlRequest,
    limits: &SurveyLimits,
) -> Vec<SurveyedGateway<T>> {
    let until = Instant::now() + limits.time;
    let mut room = limits.all;
    let mut asked = ask_all(folders, request, limits.answer);
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        if asked.iter().all(|one| one.peer.is_none()) {
            break;
        }
        let waiting = asked.iter().filter_map(|one| one.peer.as_ref());
        wait(waiting.map(AsFd::as_fd), left);
        asked.iter_mut().for_each(|one| one.hear(&mut room));
    }
    asked.sort_by(|one, other| one.port.cmp(&other.port));
    asked.into_iter().map(|one| SurveyedGateway { port: one.port, answer: one.answer }).collect()
}

fn ask_all<T>(folders: &[PathBuf], request: &ControlRequest, most: usize) -> Vec<AskedGateway<T>> {
    let mut asked: Vec<AskedGateway<T>> = Vec::new();
    for socket in sockets(folders) {
        if asked.len() == MAX_GATEWAYS {
            break;
        }
        if asked.iter().any(|one| one.port == socket.port) {
            continue;
        }
        let peer = match GatewayPeer::ask(&socket, request, most) {
            Ok(peer) => Some(peer),
            // The gateway's listen backlog is full, so the gateway is listed without an answer.
            Err(Errno::AGAIN) => None,
            Err(_) => continue,
        };
        asked.push(AskedGateway { port: socket.port, peer, answer: None });
    }
    asked
}

/// Waits until one of the descriptors is readable, for up to `limit`.
pub fn wait<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>, limit: Duration) {
    let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
    // A signal may end the wait early.
    let _ = rustix::event::poll(&mut fds, Some(&limit));
}

struct AskedGateway<T> {
    port: String,
    /// The connection, until the gateway has answered or the connection has ended.
    peer: Option<GatewayPeer>,
    answer: Option<T>,
}

impl<T: DeserializeOwned> AskedGateway<T> {
    /// Reads a part of the answer; `room` is the number of bytes that all gateways together may still send.
    fn hear(&mut self, room: &mut usize) {
        let Some(peer) = &mut self.peer else { return };
        let before = peer.inbox.len();
        let goes_on = peer.read();
        let read = peer.inbox.len().saturating_sub(before);
        let is_within = read <= *room;
        *room = room.saturating_sub(read);
        match peer.next_line() {
            Some(line) if is_within => self.answer = answer(line),
            None if is_within && goes_on.is_continue() => return,
            _ => {}
        }
        self.peer = None;
    }
}

#[derive(Deserialize)]
struct GatewayReply<T> {
    ok: Option<T>,
}

/// Returns the content of a gateway's answer; `None` if the answer is an error, or its content is not of the expected
/// type.
#[must_use]
pub fn answer<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    serde_json::from_slice::<GatewayReply<T>>(line).ok()?.ok
}

/// A non-blocking connection to a gateway. A line that is longer than the maximum length ends the connection.
#[derive(Debug)]
pub struct GatewayPeer {
    socket: OwnedFd,
    inbox: Vec<u8>,
    /// Start of the next line in `inbox`.
    begin: usize,
    /// Start of the part of `inbox` that was not yet searched for a line feed.
    scanned: usize,
    /// Maximum length of a line in bytes.
    most: usize,
}

impl AsFd for GatewayPeer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl GatewayPeer {
    /// Connects to the gateway with this control socket, and sends a request. A line of the answer may have up to
    /// `most` bytes.
    ///
    /// # Errors
    /// No gateway listens there, this user may not connect, the listening process belongs to another user
    /// ([`Errno::ACCESS`]), or too many clients already wait ([`Errno::AGAIN`]).
    pub fn ask(at: &GatewaySocket, request: &ControlRequest, most: usize) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(&at.path)?)?;
        // The file may have been replaced after it was examined, so the check concerns the user of the process that
        // listens.
        let asker = rustix::process::geteuid().as_raw();
        let listener = sockopt::socket_peercred(&socket)?.uid.as_raw();
        let is_impostor = at.path.parent().is_some_and(|folder| dirs::is_impostor(folder, &socket));
        if is_impostor || !is_trusted(asker, at.owner, listener) {
            return Err(Errno::ACCESS);
        }
        // A request consists of texts, so encoding cannot fail, and the buffer of a new socket has room for it.
        let mut line = serde_json::to_vec(request).map_err(|_| Errno::INVAL)?;
        line.push(b'\n');
        rustix::net::send(&socket, &line, SendFlags::NOSIGNAL)?;
        Ok(GatewayPeer::new(socket, most))
    }

    fn new(socket: OwnedFd, most: usize) -> Self {
        GatewayPeer { socket, inbox: Vec::new(), begin: 0, scanned: 0, most }
    }

    /// Reads once. The caller must have taken all lines that earlier calls read. Returns `Break` if the connection has
    /// ended, or a line is too long.
    pub fn read(&mut self) -> ControlFlow<()> {
        self.inbox.drain(..self.begin);
        self.scanned -= self.begin;
        self.begin = 0;
        let before = self.inbox.len();
        if before > self.most {
            return ControlFlow::Break(());
        }
        self.inbox.resize(before + CHUNK, 0);
        let got = rustix::net::recv(&self.socket, &mut self.inbox[before..], RecvFlags::DONTWAIT);
        self.inbox.truncate(before + got.map_or(0, |(_, count)| count));
        match got {
            Ok((_, count)) if count > 0 => ControlFlow::Continue(()),
            Err(Errno::AGAIN | Errno::INTR) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    /// Returns the next whole line that was read, without its line feed; `None` if there is no whole line, or the line
    /// is too long.
    pub fn next_line(&mut self) -> Option<&[u8]> {
        let Some(at) = self.inbox[self.scanned..].iter().position(|byte| *byte == b'\n') else {
            self.scanned = self.inbox.len();
            return None;
        };
        let [begin, end] = [self.begin, self.scanned + at];
        if end - begin > self.most {
            // The line stays in `inbox`, whose length makes the next read end the connection.
            return None;
        }
        [self.begin, self.scanned] = [end + 1; 2];
        Some(&self.inbox[begin..end])
    }
}

#[cfg(test)]
mod tests;
