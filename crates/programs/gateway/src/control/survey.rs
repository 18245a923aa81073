//! Requests to all gateways of a run directory together ([`survey`]), within a limit of time that one which hangs
//! cannot extend. A [`GatewayPeer`] is a connection to one of them, without blocking.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netvale_control::dirs;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::Value;

use super::message::ControlRequest;

/// Maximum number of gateways that are asked.
pub const MAX_GATEWAYS: usize = 64;
/// Maximum length of an answer in bytes.
const MAX_ANSWER: usize = 4 << 20;
/// Number of bytes read by one call.
const CHUNK: usize = 64 << 10;

/// A gateway that was asked, and its answer.
#[derive(Clone, PartialEq, Debug)]
pub struct SurveyedGateway {
    /// Name of its port: `vale0:gateway`.
    pub port: String,
    /// The answer's object; `None` if there was none in time.
    pub answer: Option<Value>,
}

/// Returns the directories that may have control sockets of gateways: the daemon's run directory, and the user's own.
#[must_use]
pub fn folders(run_dir: &Path) -> Vec<PathBuf> {
    let own = Some(dirs::default_run_dir()).filter(|own| own != run_dir && !dirs::is_foreign(own));
    [run_dir.to_owned()].into_iter().chain(own).collect()
}

/// Returns the control sockets in some directories by the names of the gateways' ports: at most [`MAX_GATEWAYS`].
#[must_use]
pub fn sockets(folders: &[PathBuf]) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let entries = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(port) = name.strip_prefix("gateway-").and_then(|rest| rest.strip_suffix(".sock")) {
            found.entry(port.to_owned()).or_insert(path);
        }
    }
    found.into_iter().take(MAX_GATEWAYS).collect()
}

/// Asks all gateways whose control sockets are in `folders`, and waits for their answers until `limit` has passed for
/// all together. Sockets that a gateway has left behind, and gateways of other users, are omitted.
#[must_use]
pub fn survey(folders: &[PathBuf], request: &ControlRequest, limit: Duration) -> Vec<SurveyedGateway> {
    let until = Instant::now() + limit;
    let mut asked: Vec<_> = sockets(folders)
        .into_iter()
        .filter_map(|(port, path)| match GatewayPeer::ask(&path, request) {
            Ok(peer) => Some(AskedGateway { port, peer: Some(peer), answer: None }),
            // Its queue of connections is full.
            Err(Errno::AGAIN) => Some(AskedGateway { port, peer: None, answer: None }),
            Err(_) => None,
        })
        .collect();
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        if asked.iter().all(|one| one.peer.is_none()) {
            break;
        }
        let waiting = asked.iter().filter_map(|one| one.peer.as_ref());
        wait(waiting.map(AsFd::as_fd), left);
        asked.iter_mut().for_each(AskedGateway::hear);
    }
    asked.into_iter().filter_map(AskedGateway::result).collect()
}

/// Waits until one of some descriptors is readable.
pub fn wait<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>, limit: Duration) {
    let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
    // An interrupted wait is a short one.
    let _ = rustix::event::poll(&mut fds, Some(&limit));
}

struct AskedGateway {
    port: String,
    /// The connection, until it has answered or ended.
    peer: Option<GatewayPeer>,
    answer: Option<Result<Value, String>>,
}

impl AskedGateway {
    fn hear(&mut self) {
        let Some(peer) = &mut self.peer else { return };
        let goes_on = peer.read();
        if let Some(line) = peer.next_line() {
            self.answer = Some(answer(&line));
            self.peer = None;
        } else if !goes_on {
            self.peer = None;
        }
    }

    fn result(self) -> Option<SurveyedGateway> {
        match self.answer {
            Some(Ok(answer)) => Some(SurveyedGateway { port: self.port, answer: Some(answer) }),
            Some(Err(_)) => None,
            None => Some(SurveyedGateway { port: self.port, answer: None }),
        }
    }
}

/// Returns the object of an answer, or the gateway's error.
///
/// # Errors
/// The text is an error of the gateway's, or no answer.
pub fn answer(line: &str) -> Result<Value, String> {
    let mut answer: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    match answer.get("error").and_then(Value::as_str) {
        Some(text) => Err(text.to_owned()),
        None => Ok(answer.get_mut("ok").map(Value::take).unwrap_or_default()),
    }
}

/// A connection to a gateway, without blocking.
#[derive(Debug)]
pub struct GatewayPeer {
    socket: OwnedFd,
    inbox: Vec<u8>,
    /// Bytes of `inbox` that have no line feed.
    scanned: usize,
}

impl AsFd for GatewayPeer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl GatewayPeer {
    /// Connects to the gateway with this control socket, and sends a request.
    ///
    /// # Errors
    /// No gateway listens there, this user may not connect, or too many clients wait already ([`Errno::AGAIN`]).
    pub fn ask(path: &Path, request: &ControlRequest) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        // A request is a struct of texts: it can be encoded, and a new socket's buffer has room for it.
        let mut line = serde_json::to_vec(request).map_err(|_| Errno::INVAL)?;
        line.push(b'\n');
        rustix::net::send(&socket, &line, SendFlags::NOSIGNAL)?;
        Ok(GatewayPeer { socket, inbox: Vec::new(), scanned: 0 })
    }

    /// Reads once. Returns whether the connection goes on: it has not ended, and no line is too long.
    pub fn read(&mut self) -> bool {
        let before = self.inbox.len();
        if before >= MAX_ANSWER {
            return false;
        }
        self.inbox.resize(before + CHUNK, 0);
        let got = rustix::net::recv(&self.socket, &mut self.inbox[before..], RecvFlags::DONTWAIT);
        self.inbox.truncate(before + got.map_or(0, |(_, count)| count));
        match got {
            Ok((_, count)) => count > 0,
            Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }

    /// Returns the next whole line that was read, without its line feed.
    pub fn next_line(&mut self) -> Option<String> {
        let Some(end) = self.inbox[self.scanned..].iter().position(|byte| *byte == b'\n') else {
            self.scanned = self.inbox.len();
            return None;
        };
        let line = self.inbox.drain(..=self.scanned + end).collect::<Vec<u8>>();
        self.scanned = 0;
        Some(String::from_utf8_lossy(&line[..line.len() - 1]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    /// Answers one client with the pieces.
    fn answering(folder: &Path, port: &str, pieces: &'static [&'static str]) -> std::thread::JoinHandle<String> {
        let listener = UnixListener::bind(super::super::path_in(folder, port)).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut request).unwrap();
            pieces.iter().for_each(|piece| stream.write_all(piece.as_bytes()).unwrap());
            request
        })
    }

    fn stats(folder: &Path, limit: Duration) -> Vec<SurveyedGateway> {
        survey(&[folder.to_owned(), folder.join("none")], &ControlRequest::Stats, limit)
    }

    #[test]
    fn each_gateway_answers_for_itself_and_none_waits_for_one_that_hangs() {
        let folder = tempfile::tempdir().unwrap();
        let good = answering(folder.path(), "vale0:gateway", &["{\"ok\":{\"tc", "p\":3}}\nmore"]);
        let bad = answering(folder.path(), "vale1:gateway", &["{\"error\":\"not yours; ask\"}\n"]);
        let ended = answering(folder.path(), "vale2:gateway", &[]);
        let hangs = UnixListener::bind(super::super::path_in(folder.path(), "vale3:out")).unwrap();
        drop(UnixListener::bind(super::super::path_in(folder.path(), "vale4:left")).unwrap());
        std::fs::write(folder.path().join("gateway-vale5:file.sock"), "no socket").unwrap();
        let begin = Instant::now();
        let answers = stats(folder.path(), Duration::from_millis(300));
        assert!(begin.elapsed() >= Duration::from_millis(300), "the one that hangs has all the time");
        let none = |port: &str| SurveyedGateway { port: port.into(), answer: None };
        let first = SurveyedGateway { port: "vale0:gateway".into(), answer: Some(json!({"tcp": 3})) };
        assert_eq!(answers, [first, none("vale2:gateway"), none("vale3:out")]);
        assert_eq!(good.join().unwrap(), "{\"do\":\"stats\"}\n");
        bad.join().unwrap();
        ended.join().unwrap();
        drop(hangs);
    }

    #[test]
    fn a_full_queue_of_connections_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = super::super::path_in(folder.path(), "vale0:gateway");
        let full = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&full, 0).unwrap();
        let mut waiting = Vec::new();
        while let Ok(peer) = GatewayPeer::ask(&path, &ControlRequest::Stats) {
            waiting.push(peer);
        }
        let answers = stats(folder.path(), Duration::from_secs(3600));
        assert_eq!(answers, [SurveyedGateway { port: "vale0:gateway".into(), answer: None }]);
    }

    #[test]
    fn a_line_without_an_end_is_given_up() {
        let (mut peer, own) = std::os::unix::net::UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        let mut gateway = GatewayPeer { socket: own.into(), inbox: vec![b'x'; MAX_ANSWER], scanned: 0 };
        peer.write_all(b"x\n").unwrap();
        assert!(!gateway.read() && gateway.next_line().is_none());
    }
}
