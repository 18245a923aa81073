//! The connection to the daemon: requests and answers, with notifications in between.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netvale_control::dirs::{self, CONTROL_SOCKET};
use netvale_control::error::RpcError;
use netvale_control::framing::LineSplitter;
use netvale_control::types::{VxlanAddress, VxlanLocal, VxlanLocalParams, VxlanNeighbor, VxlanSetParams};
use rustix::net::{SendFlags, sockopt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::feed::FeedChange;

/// Maximum length of an answer in bytes.
const MAX_LINE: usize = 64 << 20;
/// Time limit of a request.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of ports for which notifications are remembered.
const MAX_CHANGED: usize = 2 * crate::MAX_INSTANCES;
/// Maximum number of changes in a request: it limits the time for which a request delays other work of the daemon.
pub const MAX_ITEMS: usize = 1000;
/// Maximum number of entries in a request that replaces all earlier entries. It is large because entries that do not
/// fit are missing in the daemon until the next request. Such a request is shorter than 4 MiB.
pub const MAX_ITEMS_REPLACED: usize = 30_000;

/// Errors of a request.
#[derive(Debug, Error)]
pub enum SessionError {
    /// No daemon answers at the socket.
    #[error("no daemon answers at {socket}: {source}")]
    Connect {
        /// The control socket.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another user created the socket, so the program that listens on it is not trusted.
    #[error("{0} belongs to another user: expected a socket of root or of this user")]
    Foreign(PathBuf),
    /// The connection has ended, or no answer arrived in time.
    #[error("the connection to the daemon is lost: {0}")]
    Lost(#[from] io::Error),
    /// The daemon refused the request.
    #[error("the daemon refused {method}: {error}")]
    Refused {
        /// The request's method.
        method: &'static str,
        /// The daemon's reason.
        error: RpcError,
    },
    /// The answer is malformed.
    #[error("invalid answer from the daemon to {method}: {detail}")]
    Protocol {
        /// The request's method.
        method: &'static str,
        /// What is wrong with the answer.
        detail: String,
    },
}

/// A VXLAN port whose remote addresses come from EVPN.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EvpnPort {
    /// The port's full name, e.g. `vale0:vx100`.
    pub name: String,
    /// The port's VNI.
    pub vni: u32,
    /// The port's own VTEP address.
    pub local: IpAddr,
    /// The UDP port of the tunnel, on which the daemon receives VXLAN packets.
    pub udp_port: u16,
    /// Number of the port's tunnel. It is different after the port was removed and attached again.
    pub tunnel: u64,
}

impl EvpnPort {
    /// Returns whether the two ports are equal except for the number of the tunnel.
    #[must_use]
    pub fn is_like(&self, other: &EvpnPort) -> bool {
        *self == EvpnPort { tunnel: self.tunnel, ..other.clone() }
    }
}

#[derive(Deserialize)]
struct SessionPort {
    name: String,
    vxlan: Option<TunnelInfo>,
}

#[derive(Deserialize)]
struct TunnelInfo {
    vni: u32,
    local: IpAddr,
    port: u16,
    #[serde(default)]
    evpn: bool,
    #[serde(default)]
    instance: u64,
}

#[derive(Deserialize)]
struct SessionMessage {
    id: Option<u64>,
    method: Option<String>,
    params: Option<Value>,
    result: Option<Value>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct ChangeNotice {
    port: String,
}

/// A connection to the daemon. After an error other than a refusal, it is unusable.
#[derive(Debug)]
pub struct DaemonSession {
    stream: UnixStream,
    lines: LineSplitter,
    last_id: u64,
    changed: BTreeSet<String>,
}

impl DaemonSession {
    /// Connects to the daemon of a run directory.
    ///
    /// # Errors
    /// [`SessionError::Connect`] if no daemon answers; [`SessionError::Foreign`] if another user created the socket.
    pub fn connect(run_dir: &Path) -> Result<DaemonSession, SessionError> {
        if dirs::is_foreign(run_dir) {
            return Err(SessionError::Foreign(run_dir.into()));
        }
        let socket = run_dir.join(CONTROL_SOCKET);
        let stream = UnixStream::connect(&socket).map_err(|source| SessionError::Connect { socket, source })?;
        if dirs::is_impostor(run_dir, &stream) {
            return Err(SessionError::Foreign(run_dir.into()));
        }
        sockopt::set_socket_timeout(&stream, sockopt::Timeout::Send, Some(LIMIT)).map_err(io::Error::from)?;
        Ok(DaemonSession { stream, lines: LineSplitter::new(MAX_LINE), last_id: 0, changed: BTreeSet::new() })
    }

    /// Requests the list of ports with EVPN, sorted by name.
    ///
    /// # Errors
    /// [`SessionError`] if the daemon refuses, the connection fails, or the answer is malformed.
    pub fn ports(&mut self) -> Result<Vec<EvpnPort>, SessionError> {
        let listings: Vec<SessionPort> = self.call("port.list", &serde_json::json!({}))?;
        let mut ports: Vec<EvpnPort> = listings.into_iter().filter_map(evpn_port).collect();
        ports.sort_unstable();
        Ok(ports)
    }

    /// Requests the local addresses of a port's VNI. The answer has the addresses only if they have changed since
    /// generation `since`, or `since` is `None`. When the addresses change after this request,
    /// [`DaemonSession::changed`] contains the port.
    ///
    /// # Errors
    /// [`SessionError`] if the daemon refuses, the connection fails, or the answer is malformed.
    pub fn local(&mut self, port: &str, since: Option<u64>) -> Result<VxlanLocal, SessionError> {
        self.changed.remove(port);
        self.call("vxlan.local", &VxlanLocalParams { port: port.to_owned(), watch: true, since })
    }

    /// Sends at most [`MAX_ITEMS`] changes to the daemon, which applies all or none of them. With `replace`, sends at
    /// most [`MAX_ITEMS_REPLACED`] entries, which replace all earlier entries.
    ///
    /// # Errors
    /// [`SessionError`] if the daemon refuses, the connection fails, or the answer is malformed.
    pub fn set(&mut self, port: &str, replace: bool, changes: &[FeedChange]) -> Result<(), SessionError> {
        self.call::<Value>("vxlan.set", &set_of(port, replace, changes)).map(drop)
    }

    /// Reads pending notifications without blocking.
    ///
    /// # Errors
    /// [`SessionError`] if the connection has ended.
    pub fn receive(&mut self) -> Result<(), SessionError> {
        self.stream.set_nonblocking(true)?;
        let read = self.read();
        self.stream.set_nonblocking(false)?;
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => read?,
        }
        while let Some(line) = self.line("a notification")? {
            self.note(line);
        }
        Ok(())
    }

    /// Returns the ports whose local addresses have changed since they were last requested.
    #[must_use]
    pub fn changed(&self) -> &BTreeSet<String> {
        &self.changed
    }

    fn call<T: DeserializeOwned>(&mut self, method: &'static str, params: &impl Serialize) -> Result<T, SessionError> {
        self.last_id += 1;
        let protocol = |detail: String| SessionError::Protocol { method, detail };
        let call = serde_json::json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        self.send(format!("{call}\n").as_bytes())?;
        let answer = self.answer(method)?;
        match (answer.error, answer.result) {
            (Some(error), _) => Err(SessionError::Refused { method, error }),
            (None, Some(result)) => serde_json::from_value(result).map_err(|error| protocol(error.to_string())),
            (None, None) => Err(protocol("neither result nor error".into())),
        }
    }

    fn answer(&mut self, method: &'static str) -> Result<SessionMessage, SessionError> {
        let deadline = Instant::now() + LIMIT;
        loop {
            while let Some(line) = self.line(method)? {
                // An error without an id is the answer to a request that the daemon could not parse.
                if line.id == Some(self.last_id) || (line.id.is_none() && line.error.is_some()) {
                    return Ok(line);
                }
                self.note(line);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(SessionError::Lost(io::ErrorKind::TimedOut.into()));
            }
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            self.read()?;
        }
    }

    fn line(&mut self, method: &'static str) -> Result<Option<SessionMessage>, SessionError> {
        let protocol = |detail: String| SessionError::Protocol { method, detail };
        let Some(line) = self.lines.next_line().map_err(|error| protocol(error.to_string()))? else { return Ok(None) };
        serde_json::from_slice(line).map(Some).map_err(|error| protocol(error.to_string()))
    }

    fn note(&mut self, line: SessionMessage) {
        let (Some("vxlan.changed"), Some(params)) = (line.method.as_deref(), line.params) else { return };
        let Ok(ChangeNotice { port }) = serde_json::from_value(params) else { return };
        if self.changed.len() < MAX_CHANGED {
            self.changed.insert(port);
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // `send` is used because `write` would raise SIGPIPE if the daemon has ended.
            match rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or(&[]),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                self.lines.push(bytes.get(..n).unwrap_or(&[]));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for DaemonSession {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn evpn_port(listing: SessionPort) -> Option<EvpnPort> {
    let tunnel = listing.vxlan.filter(|tunnel| tunnel.evpn && (1..1 << 24).contains(&tunnel.vni))?;
    Some(EvpnPort {
        name: listing.name,
        vni: tunnel.vni,
        local: tunnel.local,
        udp_port: tunnel.port,
        tunnel: tunnel.instance,
    })
}

fn set_of(port: &str, replace: bool, changes: &[FeedChange]) -> VxlanSetParams {
    let mut set = VxlanSetParams { port: port.to_owned(), replace, ..VxlanSetParams::default() };
    for change in changes {
        match *change {
            FeedChange::Flood(vtep) => set.flood.add.push(vtep),
            FeedChange::Unflood(vtep) => set.flood.remove.push(vtep),
            // The sequence number is 0: only BGP uses it, and the kernel does not report it.
            FeedChange::Address(mac, vtep, sticky) => {
                set.addresses.add.push(VxlanAddress { mac, vtep, sticky, sequence: 0 })
            }
            FeedChange::NoAddress(mac) => set.addresses.remove.push(mac),
            FeedChange::Neighbor(ip, mac, router) => set.neighbors.add.push(VxlanNeighbor { ip, mac, router }),
            FeedChange::NoNeighbor(ip) => set.neighbors.remove.push(ip),
        }
    }
    set
}

#[cfg(test)]
mod tests;
