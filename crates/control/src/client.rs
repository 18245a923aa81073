//! A client of the control socket: blocking, one request at a time.
//!
//! ```no_run
//! use netvale_control::{client::Client, dirs};
//! let mut client = Client::connect(&dirs::daemon_run_dir(dirs::CONTROL_SOCKET))?;
//! println!("{}", client.version()?.version);
//! # Ok::<(), netvale_control::client::ClientError>(())
//! ```

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::dirs::{self, CONTROL_SOCKET, Presence};
use crate::error::{ErrorCode, RpcError};
use crate::framing::LineSplitter;
use crate::request::Request;
use crate::types::{
    AllStats, AllStatsParams, ApplyParams, ApplyResult, AttachParams, Confirmation, DetachParams, Event, EvictionInfo,
    ExportReply, GroupsInfo, ListParams, NOTIFICATION, PortInfo, SetParams, ShowParams, SubscribeParams,
    SubscribeReply, SwitchInfo, TableEntry, TableParams, TraceBeginParams, TraceBeginReply, TraceRead, VdeSetParams,
    Version, VxlanSetParams,
};

mod admission;
mod bring;
mod error;

pub use bring::BringConnection;
pub use error::{ClientError, ClientErrorKind};

/// Default time limit of a request.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of an answer in bytes.
const MAX_REPLY_LINE: usize = 64 << 20;

/// A connection to a daemon.
///
/// After an error other than a refusal, the client closes the connection, since the daemon may have read part of the
/// request. The caller connects again.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    lines: LineSplitter,
    last_id: u64,
    socket: PathBuf,
    timeout: Duration,
    /// Events that arrived before the answer to a request.
    events: VecDeque<Event>,
}

#[derive(Serialize)]
struct ClientCall<'a> {
    jsonrpc: &'static str,
    id: u64,
    #[serde(flatten)]
    request: &'a Request,
}

#[derive(Deserialize)]
struct DaemonMessage<T> {
    result: Option<T>,
    error: Option<RpcError>,
    #[serde(default)]
    id: serde_json::Value,
    /// Method of a notification; `None` in an answer.
    method: Option<String>,
    params: Option<Value>,
}

impl Client {
    /// Connects to the daemon whose sockets are in `run_dir`; [`DEFAULT_TIMEOUT`] limits the connection attempt and
    /// each request.
    ///
    /// # Errors
    /// [`ClientError`] of the kind [`ClientErrorKind::Unreachable`] if no daemon answers.
    pub fn connect(run_dir: &Path) -> Result<Client, ClientError> {
        Self::connect_within(run_dir, DEFAULT_TIMEOUT)
    }

    /// Like [`Client::connect`], with the time limit `timeout`, which must be above zero.
    ///
    /// # Errors
    /// [`ClientError`] of the kind [`ClientErrorKind::Unreachable`] if no daemon answers.
    pub fn connect_within(run_dir: &Path, timeout: Duration) -> Result<Client, ClientError> {
        let socket = run_dir.join(CONTROL_SOCKET);
        let stream = connect(run_dir, &socket, SocketType::STREAM, timeout)?.into();
        let lines = LineSplitter::new(MAX_REPLY_LINE);
        Ok(Client { stream, lines, last_id: 0, socket, timeout, events: VecDeque::new() })
    }

    /// Returns the error that connecting to a socket in a run directory would return, without connecting; `None` if a
    /// process listens on the socket and this user may connect.
    pub fn obstacle(run_dir: &Path, socket: &str) -> Option<ClientError> {
        let socket = run_dir.join(socket);
        let kind = match dirs::presence(&socket) {
            Presence::Listener => return None,
            Presence::Nobody => io::ErrorKind::NotFound,
            Presence::Denied => io::ErrorKind::PermissionDenied,
        };
        Some(ClientError::connecting(socket, Duration::ZERO, kind.into()))
    }

    /// Changes the time limit of each request; it must be above zero.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Returns the daemon's process ID; `None` if the daemon does not answer, or runs in a PID namespace that is
    /// invisible here.
    ///
    /// The ID comes from the kernel (`SO_PEERCRED`), not from the daemon, which could name another process and pass off
    /// that process's options and limits as its own. The kernel returns the process that had last called listen(2) on
    /// the socket when this connection was made. If a service manager created the socket, that may be the manager or an
    /// earlier daemon; the ID then differs from the one that the daemon reports, and a new connection returns the right
    /// ID, because a daemon calls listen(2) before its first answer.
    pub fn daemon_pid(&mut self) -> Option<u32> {
        let says = self.version().ok()?.pid;
        let listener = self.listener();
        if says.is_none() || says == listener {
            return listener;
        }
        Client::connect_within(self.socket.parent()?, self.timeout).ok()?.listener()
    }

    /// Returns the process that had last called listen(2) on the socket when this connection was made; `None` if that
    /// process is in a PID namespace that is invisible here.
    fn listener(&self) -> Option<u32> {
        let peer = sockopt::socket_peercred(&self.stream).ok()?;
        u32::try_from(peer.pid.as_raw_pid()).ok().filter(|&pid| pid != 0)
    }

    /// Returns the daemon's name and version.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn version(&mut self) -> Result<Version, ClientError> {
        self.call(&Request::Version)
    }

    /// Lists all switches, sorted by name.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn switches(&mut self) -> Result<Vec<SwitchInfo>, ClientError> {
        self.call(&Request::SwitchList)
    }

    /// Reads a switch's forwarding table.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn table(&mut self, switch: &str) -> Result<Vec<TableEntry>, ClientError> {
        self.call(&Request::SwitchTable(TableParams { switch: switch.into() }))
    }

    /// Reads a switch's multicast groups and their members.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn groups(&mut self, switch: &str) -> Result<GroupsInfo, ClientError> {
        self.call(&Request::SwitchGroups(TableParams { switch: switch.into() }))
    }

    /// Attaches a port; the answer does not list its rings.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn attach(&mut self, params: AttachParams) -> Result<PortInfo, ClientError> {
        self.call(&Request::PortAttach(Box::new(params)))
    }

    /// Detaches a port; `port` is its name on the switch.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn detach(&mut self, switch: &str, port: &str) -> Result<(), ClientError> {
        let params = DetachParams { switch: switch.into(), port: port.into() };
        self.call(&Request::PortDetach(params)).map(|Confirmation {}| ())
    }

    /// Lists the ports of `switch`, or, with `None`, all ports including pipes, sorted by name and without their rings.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn ports(&mut self, switch: Option<&str>) -> Result<Vec<PortInfo>, ClientError> {
        self.call(&Request::PortList(ListParams { switch: switch.map(str::to_owned) }))
    }

    /// Changes policies of the port with the full name `port` while frames pass; a null value restores the default. If
    /// one value is invalid, no policy changes.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn set(&mut self, port: &str, set: Map<String, Value>) -> Result<PortInfo, ClientError> {
        self.call(&Request::PortSet(SetParams { port: port.into(), set }))
    }

    /// Adds and removes addresses behind a VXLAN tunnel's remote endpoints.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn vxlan_set(&mut self, params: VxlanSetParams) -> Result<Confirmation, ClientError> {
        self.call(&Request::OfKind(params.into()))
    }

    /// Changes the maximum number of a VDE switch's ports, and creates, reserves or releases ports before plugs (VDE's
    /// clients) connect to them.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn vde_set(&mut self, params: VdeSetParams) -> Result<Confirmation, ClientError> {
        self.call(&Request::OfKind(params.into()))
    }

    /// Starts to trace frames, until the connection ends.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn trace_begin(&mut self, params: TraceBeginParams) -> Result<TraceBeginReply, ClientError> {
        self.call(&Request::TraceBegin(params))
    }

    /// Reads the frames traced since the last call.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn trace_read(&mut self) -> Result<TraceRead, ClientError> {
        self.call(&Request::TraceRead)
    }

    /// Describes the port with the full name `port`, e.g. `vale0:a`, and its rings.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn show(&mut self, port: &str) -> Result<PortInfo, ClientError> {
        self.call(&Request::PortShow(ShowParams { port: port.into() }))
    }

    /// Lists programs that lost their ports, newest first. The list is empty if the daemon is older than this method.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn evicted(&mut self) -> Result<Vec<EvictionInfo>, ClientError> {
        match self.call(&Request::PortEvicted) {
            Err(ClientError::Refused(why)) if why.is(ErrorCode::MethodNotFound) => Ok(Vec::new()),
            answer => answer,
        }
    }

    /// Reads all counters, with as many requests as necessary.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn all_stats(&mut self) -> Result<AllStats, ClientError> {
        let mut all: AllStats = self.call(&Request::StatsAll(AllStatsParams::default()))?;
        while let Some(after) = all.next.take() {
            let rest: AllStats = self.call(&Request::StatsAll(AllStatsParams { after: Some(after) }))?;
            all.ports.extend(rest.ports);
            all.next = rest.next;
        }
        Ok(all)
    }

    /// Subscribes this connection to events. [`Client::next_event`] returns the events, including those that arrive
    /// before the answer to a request.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn subscribe(&mut self, params: SubscribeParams) -> Result<SubscribeReply, ClientError> {
        self.call(&Request::Subscribe(params))
    }

    /// Waits up to `limit` for the next event. Returns `None` if no event arrived within `limit`.
    ///
    /// # Errors
    /// [`ClientError`] if the daemon closed the connection, or sent something other than a notification.
    pub fn next_event(&mut self, limit: Duration) -> Result<Option<Event>, ClientError> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            match self.line::<DaemonMessage<Value>>(deadline) {
                Ok(line) if line.method.is_some() => self.notified(line.method, line.params)?,
                Ok(_) => return Err(self.protocol("the answer belongs to no request")),
                Err(ClientError::Timeout { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Applies a configuration file to the daemon, or only lists the changes that the file would make.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request. After a refusal, only the changes named
    /// in the message have been made.
    pub fn apply(&mut self, params: ApplyParams) -> Result<ApplyResult, ClientError> {
        self.call(&Request::ConfigApply(params))
    }

    /// Returns the daemon's configuration as the text of a configuration file.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn export(&mut self) -> Result<ExportReply, ClientError> {
        self.call(&Request::ConfigExport)
    }

    /// Asks the daemon to end. The answer arrives before the daemon has ended; [`Client::wait_closed`] waits until it
    /// has.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn shutdown(&mut self) -> Result<(), ClientError> {
        self.call(&Request::Shutdown).map(|Confirmation {}| ())
    }

    /// Waits until the daemon closes this connection, which happens when the daemon ends.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if the connection is still open after `limit`.
    pub fn wait_closed(mut self, limit: Duration) -> Result<(), ClientError> {
        let deadline = Instant::now() + limit;
        self.timeout = limit;
        loop {
            match self.receive(deadline) {
                Ok(()) => {}
                Err(ClientError::Lost { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a request and reads its result as `T`.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn call<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        let result = self.exchange(request);
        if !matches!(result, Ok(_) | Err(ClientError::Refused(_))) {
            // A late answer must not be taken for the answer to the next request. Shutdown fails only if the socket is
            // already closed.
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
        }
        result
    }

    fn exchange<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        self.last_id += 1;
        let deadline = Instant::now() + self.timeout;
        let call = ClientCall { jsonrpc: "2.0", id: self.last_id, request };
        let mut line = serde_json::to_vec(&call).map_err(|error| self.protocol(error))?;
        line.push(b'\n');
        self.send(&line, deadline)?;
        let answer = self.answer::<T>(deadline)?;
        // An error without an id answers a request that the daemon could not read.
        let ours = answer.id == self.last_id || (answer.id.is_null() && answer.error.is_some());
        match (ours, answer.result, answer.error) {
            (false, ..) => Err(self.protocol("the answer belongs to another request")),
            (true, _, Some(error)) => Err(ClientError::Refused(error)),
            (true, Some(result), None) => Ok(result),
            (true, None, None) => Err(self.protocol("the answer has neither a result nor an error")),
        }
    }

    fn answer<T: DeserializeOwned>(&mut self, deadline: Instant) -> Result<DaemonMessage<T>, ClientError> {
        loop {
            let answer: DaemonMessage<T> = self.line(deadline)?;
            if answer.method.is_none() {
                return Ok(answer);
            }
            self.notified(answer.method, answer.params)?;
        }
    }

    /// Queues an event for [`Client::next_event`]; ignores other notifications.
    fn notified(&mut self, method: Option<String>, params: Option<Value>) -> Result<(), ClientError> {
        if method.as_deref() == Some(NOTIFICATION) {
            let event = serde_json::from_value(params.unwrap_or_default()).map_err(|error| self.protocol(error))?;
            self.events.push_back(event);
        }
        Ok(())
    }

    fn line<T: DeserializeOwned>(&mut self, deadline: Instant) -> Result<T, ClientError> {
        loop {
            let line = match self.lines.next_line() {
                Ok(Some(line)) => serde_json::from_slice(line).map_err(|error| error.to_string()),
                Ok(None) => {
                    self.receive(deadline)?;
                    continue;
                }
                Err(error) => Err(error.to_string()),
            };
            return line.map_err(|error| self.protocol(error));
        }
    }

    fn send(&mut self, mut bytes: &[u8], deadline: Instant) -> Result<(), ClientError> {
        while !bytes.is_empty() {
            let left = self.left(deadline)?;
            self.stream.set_write_timeout(Some(left)).map_err(|error| self.broken(error))?;
            // `send` with NOSIGNAL instead of `write`: SIGPIPE must not kill a program that does not ignore it.
            match rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or(&[]),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.broken(error.into())),
            }
        }
        Ok(())
    }

    fn receive(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let mut bytes = [0; 16 * 1024];
        let left = self.left(deadline)?;
        self.stream.set_read_timeout(Some(left)).map_err(|error| self.broken(error))?;
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(self.broken(io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => {
                self.lines.push(bytes.get(..n).unwrap_or(&[]));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.broken(error)),
        }
    }

    /// Returns the time until `deadline`, at least 1 ms, because a socket's timeout must not be zero. If no time is
    /// left, returns [`ClientError::Timeout`].
    fn left(&self, deadline: Instant) -> Result<Duration, ClientError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.timed_out()) } else { Ok(left.max(Duration::from_millis(1))) }
    }

    fn timed_out(&self) -> ClientError {
        ClientError::Timeout { socket: self.socket.clone(), limit: self.timeout }
    }

    fn broken(&self, source: io::Error) -> ClientError {
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.timed_out(),
            _ => ClientError::Lost { socket: self.socket.clone(), source },
        }
    }

    fn protocol(&self, detail: impl ToString) -> ClientError {
        ClientError::Protocol { socket: self.socket.clone(), detail: detail.to_string() }
    }
}

/// Connects to `socket`, a socket of the daemon in `run_dir`, if the daemon can be trusted. The time limit also applies
/// to connect(2), which may wait for room in the backlog: `UnixStream::connect` would wait forever for a daemon that
/// accepts no connections.
fn connect(run_dir: &Path, socket: &Path, kind: SocketType, timeout: Duration) -> Result<OwnedFd, ClientError> {
    if dirs::is_foreign(run_dir) {
        return Err(ClientError::Foreign { run_dir: run_dir.into() });
    }
    let connected = || -> rustix::io::Result<OwnedFd> {
        let address = SocketAddrUnix::new(socket)?;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(timeout))?;
        rustix::io::retry_on_intr(|| rustix::net::connect(&fd, &address))?;
        Ok(fd)
    };
    match connected() {
        Ok(fd) if dirs::is_impostor(run_dir, &fd) => Err(ClientError::Foreign { run_dir: run_dir.into() }),
        Ok(fd) => Ok(fd),
        Err(error) => Err(ClientError::connecting(socket.into(), timeout, error.into())),
    }
}

#[cfg(test)]
mod tests;
