//! The connection to the daemon: requests, and notifications between their answers.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netvale_control::dirs::{self, CONTROL_SOCKET};
use netvale_control::error::RpcError;
use netvale_control::framing::Lines;
use netvale_control::types::{VxlanAddress, VxlanLocal, VxlanLocalParams, VxlanNeighbor, VxlanSetParams};
use rustix::net::{SendFlags, sockopt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::feed::Change;

/// Maximum bytes of an answer.
const MAX_LINE: usize = 64 << 20;
/// Time limit of a request.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of ports whose notifications are remembered.
const MAX_CHANGED: usize = 2 * crate::MAX_INSTANCES;
/// Maximum items of a request, so that the daemon's other work does not wait for long.
pub const MAX_ITEMS: usize = 1000;
/// Maximum items of the request that replaces all earlier ones: entries not in it are removed, if only until the next
/// request. Its line has less than 4 MiB.
pub const MAX_ITEMS_REPLACED: usize = 30_000;

/// Errors of a request.
#[derive(Debug, Error)]
pub enum SessionError {
    /// No daemon answers there.
    #[error("no daemon answers at {socket}: {source}")]
    Connect {
        /// The control socket.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The socket may belong to another user.
    #[error("{0} was made by another user")]
    Foreign(PathBuf),
    /// The connection has ended, or there was no answer in time.
    #[error("the connection to the daemon is lost: {0}")]
    Lost(#[from] io::Error),
    /// The daemon refused.
    #[error("the daemon refuses {method}: {error}")]
    Refused {
        /// The request's method.
        method: &'static str,
        /// Its reason.
        error: RpcError,
    },
    /// The answer is malformed.
    #[error("the daemon's answer to {method} cannot be read: {detail}")]
    Protocol {
        /// The request's method.
        method: &'static str,
        /// The mistake in it.
        detail: String,
    },
}

/// A port of the daemon that has EVPN.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EvpnPort {
    /// Its full name, e.g. `vale0:vx100`.
    pub name: String,
    /// Its VNI.
    pub vni: u32,
    /// Its VTEP address.
    pub local: IpAddr,
    /// Its UDP port.
    pub udp_port: u16,
    /// Number of its tunnel: a new tunnel of the same name has another number.
    pub tunnel: u64,
}

impl EvpnPort {
    /// Whether the other one is the same port, or one in its place.
    #[must_use]
    pub fn is_like(&self, other: &EvpnPort) -> bool {
        *self == EvpnPort { tunnel: self.tunnel, ..other.clone() }
    }
}

#[derive(Deserialize)]
struct Listing {
    name: String,
    #[serde(default)]
    vxlan: Option<Tunnel>,
}

#[derive(Deserialize)]
struct Tunnel {
    vni: u32,
    local: IpAddr,
    port: u16,
    #[serde(default)]
    evpn: bool,
    #[serde(default)]
    instance: u64,
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    id: Option<u64>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Value>,
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct Changed {
    port: String,
    generation: u64,
}

/// A connection. Unusable after any error but a refusal.
#[derive(Debug)]
pub struct Session {
    stream: UnixStream,
    lines: Lines,
    last_id: u64,
    changed: BTreeMap<String, u64>,
}

impl Session {
    /// Connects to the daemon with sockets in that folder.
    ///
    /// # Errors
    /// [`SessionError::Connect`] or [`SessionError::Foreign`].
    pub fn connect(run_dir: &Path) -> Result<Session, SessionError> {
        if dirs::is_foreign(run_dir) {
            return Err(SessionError::Foreign(run_dir.into()));
        }
        let socket = run_dir.join(CONTROL_SOCKET);
        let stream = UnixStream::connect(&socket).map_err(|source| SessionError::Connect { socket, source })?;
        if dirs::is_impostor(run_dir, &stream) {
            return Err(SessionError::Foreign(run_dir.into()));
        }
        sockopt::set_socket_timeout(&stream, sockopt::Timeout::Send, Some(LIMIT)).map_err(io::Error::from)?;
        Ok(Session { stream, lines: Lines::new(MAX_LINE), last_id: 0, changed: BTreeMap::new() })
    }

    /// The ports with EVPN, by name.
    ///
    /// # Errors
    /// [`SessionError`]
    pub fn ports(&mut self) -> Result<Vec<EvpnPort>, SessionError> {
        let listings: Vec<Listing> = self.call("port.list", &serde_json::json!({}))?;
        let mut ports: Vec<EvpnPort> = listings.into_iter().filter_map(evpn_port).collect();
        ports.sort_unstable();
        Ok(ports)
    }

    /// The local addresses of a port's VNI; once they change, [`Session::changed`] contains the port.
    ///
    /// # Errors
    /// [`SessionError`]
    pub fn local(&mut self, port: &str, since: Option<u64>) -> Result<VxlanLocal, SessionError> {
        self.changed.remove(port);
        self.call("vxlan.local", &VxlanLocalParams { port: port.to_owned(), watch: true, since })
    }

    /// Sends the daemon at most [`MAX_ITEMS`] changes: all are applied, or none. `replace`: earlier ones are forgotten.
    ///
    /// # Errors
    /// [`SessionError`]
    pub fn set(&mut self, port: &str, replace: bool, changes: &[Change]) -> Result<(), SessionError> {
        self.call::<Value>("vxlan.set", &set_of(port, replace, changes)).map(drop)
    }

    /// Reads pending notifications without waiting.
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

    /// The ports whose local addresses have changed since they were last requested.
    #[must_use]
    pub fn changed(&self) -> &BTreeMap<String, u64> {
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

    fn answer(&mut self, method: &'static str) -> Result<Line, SessionError> {
        let deadline = Instant::now() + LIMIT;
        loop {
            while let Some(line) = self.line(method)? {
                // An error without an id answers a request that the daemon could not read.
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

    fn line(&mut self, method: &'static str) -> Result<Option<Line>, SessionError> {
        let protocol = |detail: String| SessionError::Protocol { method, detail };
        let Some(line) = self.lines.next_line().map_err(|error| protocol(error.to_string()))? else { return Ok(None) };
        serde_json::from_slice(line).map(Some).map_err(|error| protocol(error.to_string()))
    }

    fn note(&mut self, line: Line) {
        let (Some("vxlan.changed"), Some(params)) = (line.method.as_deref(), line.params) else { return };
        let Ok(Changed { port, generation }) = serde_json::from_value(params) else { return };
        if self.changed.len() < MAX_CHANGED || self.changed.contains_key(&port) {
            self.changed.insert(port, generation);
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // Not `write`: a daemon that has ended must not end this program by SIGPIPE.
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

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn evpn_port(listing: Listing) -> Option<EvpnPort> {
    let tunnel = listing.vxlan.filter(|tunnel| tunnel.evpn && (1..1 << 24).contains(&tunnel.vni))?;
    Some(EvpnPort {
        name: listing.name,
        vni: tunnel.vni,
        local: tunnel.local,
        udp_port: tunnel.port,
        tunnel: tunnel.instance,
    })
}

fn set_of(port: &str, replace: bool, changes: &[Change]) -> VxlanSetParams {
    let mut set = VxlanSetParams { port: port.to_owned(), replace, ..VxlanSetParams::default() };
    for change in changes {
        match *change {
            Change::Flood(vtep) => set.flood.add.push(vtep),
            Change::Unflood(vtep) => set.flood.remove.push(vtep),
            // The kernel does not expose sequence numbers; they are BGP's business.
            Change::Address(mac, vtep, sticky) => {
                set.addresses.add.push(VxlanAddress { mac, vtep, sticky, sequence: 0 })
            }
            Change::NoAddress(mac) => set.addresses.remove.push(mac),
            Change::Neighbor(ip, mac, router) => set.neighbors.add.push(VxlanNeighbor { ip, mac, router }),
            Change::NoNeighbor(ip) => set.neighbors.remove.push(ip),
        }
    }
    set
}

#[cfg(test)]
mod tests;
