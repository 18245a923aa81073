//! The private ports of the switch: the VLAN of each port's frames.
//!
//! The daemon reports the switch's ports and their changes on a control connection ([`PortWatch`]), which never blocks
//! the gateway. [`PortNames`] has the ports' names. A [`PortChange`] reports that a port was added, has changed its
//! VLAN or is gone. If a port's peer leaves, the port is reported as gone, and when the next peer connects, it is
//! reported as added.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use netvale_control::framing::LineSplitter;
use netvale_control::types::{EventName, NOTIFICATION};
use rustix::io::Errno;
use rustix::net::SendFlags;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::guests::{GuestId, NetworkId};

/// Maximum length of a line from the daemon in bytes. The longest line lists all ports of all switches.
const MAX_LINE: usize = 16 << 20;
/// Maximum number of bytes that one call reads.
const CHUNK: usize = 16 << 10;
/// JSON-RPC id of the requests whose answer lists all ports.
const ALL: u64 = 1;
/// JSON-RPC id of the requests about one port.
const ONE: u64 = 2;

/// The names of the ports in VLANs.
#[derive(Clone, Debug, Default)]
pub struct PortNames {
    /// The ports of each network. A private network has one port.
    names: HashMap<NetworkId, BTreeSet<String>>,
    networks: HashMap<String, NetworkId>,
}

impl PortNames {
    /// Returns the network of the port `name`; `None` if the port has no VLAN, or is unknown.
    pub fn network(&self, name: &str) -> Option<NetworkId> {
        self.networks.get(name).copied()
    }

    /// Returns the networks of all ports.
    pub fn networks(&self) -> Vec<NetworkId> {
        self.names.keys().copied().collect()
    }

    /// Returns the names of a network's ports.
    pub fn names(&self, network: NetworkId) -> impl Iterator<Item = &str> {
        self.names.get(&network).into_iter().flatten().map(String::as_str)
    }

    /// Returns the name of a network's only port; `None` if the network has several ports, or no known port.
    pub fn name(&self, network: NetworkId) -> Option<&str> {
        let names = self.names.get(&network).filter(|names| names.len() == 1)?;
        names.first().map(String::as_str)
    }

    /// Returns the word for a guest in the flow log: the name of the guest's private port; if that name is unknown, the
    /// VLAN; in the network without tags, the guest's MAC address.
    pub fn word(&self, who: GuestId) -> String {
        match (self.name(who.network), who.network.vlan()) {
            (Some(name), _) => name.to_owned(),
            (None, Some(vlan)) => format!("vlan:{vlan}"),
            (None, None) => who.mac.to_string(),
        }
    }

    /// Returns the network that a change leaves without ports; `None` if there is no such network.
    pub fn left_by(&self, change: &PortChange) -> Option<NetworkId> {
        let before = self.networks.get(&change.name).copied().filter(|before| Some(*before) != change.network)?;
        self.name(before).map(|_| before)
    }

    /// Applies a change.
    pub fn apply(&mut self, change: PortChange) {
        let PortChange { name, network } = change;
        if let Some(before) = self.networks.remove(&name)
            && let Some(names) = self.names.get_mut(&before)
        {
            names.remove(&name);
            if names.is_empty() {
                self.names.remove(&before);
            }
        }
        if let Some(network) = network {
            self.names.entry(network).or_default().insert(name.clone());
            self.networks.insert(name, network);
        }
    }
}

/// A change of a port of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortChange {
    /// The port's name on its switch.
    pub name: String,
    /// The network of the port's frames after the change; `None` if the port has no VLAN, or is gone.
    pub network: Option<NetworkId>,
}

/// A line from the daemon: an answer or an event.
#[derive(Deserialize)]
struct DaemonLine {
    id: Option<u64>,
    method: Option<String>,
    #[serde(default)]
    params: Map<String, Value>,
    result: Option<Map<String, Value>>,
}

/// The gateway's connection to the daemon, on which the daemon reports ports.
pub struct PortWatch {
    stream: UnixStream,
    switch: String,
    lines: LineSplitter,
    outbox: Vec<u8>,
    known: BTreeSet<String>,
}

impl PortWatch {
    /// Connects to the daemon's control socket, and requests a list of a switch's ports, and events about their
    /// changes.
    ///
    /// # Errors
    /// The daemon does not accept the connection.
    pub fn open(socket: &Path, switch: &str) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_nonblocking(true)?;
        let lines = LineSplitter::new(MAX_LINE);
        let mut watch =
            PortWatch { stream, switch: switch.to_owned(), lines, outbox: Vec::new(), known: BTreeSet::new() };
        watch.ask_all();
        Ok(watch)
    }

    fn ask_all(&mut self) {
        let names = [
            EventName::PortAttached,
            EventName::PortDetached,
            EventName::PortPolicies,
            EventName::GuestLeft,
            EventName::EventsLost,
        ];
        let names = names.map(EventName::as_str);
        self.ask(ALL, "subscribe", &json!({"only": [self.switch], "names": names, "snapshot": true}));
    }

    fn ask(&mut self, id: u64, method: &str, params: &Value) {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.outbox.extend_from_slice(line.to_string().as_bytes());
        self.outbox.push(b'\n');
        self.flush();
    }

    /// Sends waiting requests, as far as possible without blocking.
    pub fn flush(&mut self) {
        while !self.outbox.is_empty() {
            match rustix::net::send(&self.stream, &self.outbox, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(Errno::INTR) => {}
                // Either the socket is full, and the rest is sent after the next answer; or the connection has ended,
                // which `read` reports.
                Err(_) => return,
            }
        }
    }

    /// Reads the daemon's answers and events. Returns the changes of ports that follow from them.
    ///
    /// # Errors
    /// The daemon has closed the connection, or has sent something other than answers and events.
    pub fn read(&mut self) -> io::Result<Vec<PortChange>> {
        let mut changes = Vec::new();
        let mut bytes = [0; CHUNK];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.lines.push(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            while let Some(line) = self.lines.next_line().map_err(io::Error::other)? {
                let line: DaemonLine = serde_json::from_slice(line)?;
                self.hear(line, &mut changes);
            }
        }
        self.flush();
        Ok(changes)
    }

    fn hear(&mut self, line: DaemonLine, changes: &mut Vec<PortChange>) {
        match (line.method.as_deref(), line.id, line.result) {
            (Some(NOTIFICATION), ..) => self.hear_event(&line.params, changes),
            (None, Some(ALL), Some(result)) => self.hear_all(&result, changes),
            (None, Some(ONE), Some(port)) => changes.extend(self.change(&port)),
            // The answer is an error: the port that was asked about is gone, which an event reports.
            _ => {}
        }
    }

    fn hear_event(&mut self, event: &Map<String, Value>, changes: &mut Vec<PortChange>) {
        let text = |key: &str| event.get(key).and_then(Value::as_str);
        let name = text("name");
        let is = |known: EventName| name == Some(known.as_str());
        if is(EventName::EventsLost) {
            return self.ask_all();
        }
        let Some(port) = text("port").map(str::to_owned) else { return };
        let is_gone = is(EventName::PortDetached);
        // The next peer of a port is another guest, perhaps a clone of the guest that has left, so the port must count
        // as a new port.
        if is_gone || is(EventName::GuestLeft) {
            changes.extend(self.name_of(&port).map(|name| PortChange { name, network: None }));
        }
        if !is_gone {
            self.ask(ONE, "port.show", &json!({"port": port}));
        }
    }

    /// Adds the changes that follow from a list of all ports: known ports that are not in the list are gone.
    fn hear_all(&mut self, result: &Map<String, Value>, changes: &mut Vec<PortChange>) {
        let ports = result.get("ports").and_then(Value::as_array);
        let there: Vec<_> =
            ports.into_iter().flatten().filter_map(Value::as_object).filter_map(|port| self.change(port)).collect();
        let names: BTreeSet<_> = there.iter().map(|change| change.name.clone()).collect();
        let gone = self.known.difference(&names).map(|name| PortChange { name: name.clone(), network: None });
        changes.extend(gone);
        changes.extend(there);
        self.known = names;
    }

    /// Converts a port's description into a change; `None` for a port of another switch.
    fn change(&mut self, port: &Map<String, Value>) -> Option<PortChange> {
        let name = self.name_of(port.get("name")?.as_str()?)?;
        let vlan = port.get("policies").and_then(|policies| policies.get("access")).and_then(Value::as_u64);
        let network = vlan.and_then(|vlan| NetworkId::of_vlan(u16::try_from(vlan).ok()?));
        self.known.insert(name.clone());
        Some(PortChange { name, network })
    }

    /// Returns the port's name on the switch; `None` for a port of another switch.
    fn name_of(&self, full: &str) -> Option<String> {
        Some(full.strip_prefix(self.switch.as_str())?.strip_prefix(':')?.to_owned())
    }
}

impl AsFd for PortWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    fn network(vlan: u16) -> Option<NetworkId> {
        NetworkId::of_vlan(vlan)
    }

    fn change(name: &str, vlan: u16) -> PortChange {
        PortChange { name: name.to_owned(), network: network(vlan) }
    }

    #[test]
    fn a_network_is_lost_with_its_last_port() {
        let mut names = PortNames::default();
        let left = |names: &mut PortNames, name: &str, vlan| {
            let change = change(name, vlan);
            let left = names.left_by(&change);
            names.apply(change);
            left
        };
        assert_eq!(left(&mut names, "vm1", 2), None);
        assert_eq!(left(&mut names, "vm1", 2), None, "nothing has changed");
        assert_eq!((names.network("vm1"), names.name(NetworkId::of_vlan(2).unwrap())), (network(2), Some("vm1")));
        assert_eq!(left(&mut names, "vm1", 3), network(2));
        assert_eq!(left(&mut names, "vm2", 3), None);
        assert_eq!((names.network("vm1"), names.name(NetworkId::of_vlan(3).unwrap())), (network(3), None));
        assert_eq!(left(&mut names, "vm1", 0), None);
        assert_eq!(left(&mut names, "vm2", 0), network(3));
        assert!(names.names.is_empty() && names.networks.is_empty());
        let guest = |vlan| network(vlan).unwrap_or_default().station(netvale_wire::MacAddr([2, 0, 0, 0, 0, 9]));
        names.apply(change("vm1", 2));
        assert_eq!([0, 2, 3].map(|vlan| names.word(guest(vlan))), ["02:00:00:00:00:09", "vm1", "vlan:3"]);
    }

    /// Objective: the list of ports, a new port, a changed VLAN, a peer that has left, a detached port and a lost event
    /// each lead to the right changes; ports of other switches are ignored.
    #[test]
    #[cfg_attr(miri, ignore = "sockets are not available under Miri")]
    fn what_the_daemon_reports_becomes_changes() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut watch = PortWatch::open(&socket, "vale0").unwrap();
        let (mut daemon, _) = listener.accept().unwrap();
        let mut requests = BufReader::new(daemon.try_clone().unwrap());
        let mut request = || {
            let mut line = String::new();
            requests.read_line(&mut line).unwrap();
            let line: Value = serde_json::from_str(&line).unwrap();
            (line["method"].as_str().unwrap().to_owned(), line["id"].as_u64().unwrap(), line["params"].clone())
        };
        let mut say = |watch: &mut PortWatch, line: &Value| {
            writeln!(daemon, "{line}").unwrap();
            watch.read().unwrap()
        };
        let event = |name: &str, port: &str| json!({"method": "event", "params": {"name": name, "port": port}});
        let (method, id, params) = request();
        assert_eq!((method.as_str(), &params["only"]), ("subscribe", &json!(["vale0"])));
        let port = |name: &str, vlan: u16| json!({"name": name, "policies": {"access": vlan}});
        let trunk = json!({"name": "vale0:gateway", "policies": {"trunk": "all"}});
        let ports = json!([port("vale0:vm1", 2), trunk, port("vale01:x", 5)]);
        let all = say(&mut watch, &json!({"id": id, "result": {"ports": ports}}));
        assert_eq!(all, [change("vm1", 2), change("gateway", 0)]);
        for (event, vlan) in [(event("port.attached", "vale0:vm2"), 3), (event("port.policies", "vale0:vm2"), 4)] {
            assert_eq!(say(&mut watch, &event), []);
            let (method, id, params) = request();
            assert_eq!((method.as_str(), &params["port"]), ("port.show", &json!("vale0:vm2")));
            let shown = json!({"id": id, "result": port("vale0:vm2", vlan)});
            assert_eq!(say(&mut watch, &shown), [change("vm2", vlan)]);
        }
        assert_eq!(say(&mut watch, &event("guest.left", "vale0:vm2")), [change("vm2", 0)]);
        let (method, id, _) = request();
        assert_eq!(method, "port.show");
        let shown = json!({"id": id, "result": port("vale0:vm2", 4)});
        assert_eq!(say(&mut watch, &shown), [change("vm2", 4)]);
        assert_eq!(say(&mut watch, &event("port.detached", "vale0:vm1")), [change("vm1", 0)]);
        assert_eq!(say(&mut watch, &json!({"method": "event", "params": {"name": "events.lost"}})), []);
        let (_, id, _) = request();
        let left = json!({"id": id, "result": {"ports": [port("vale0:vm1", 7)]}});
        assert_eq!(say(&mut watch, &left), [change("gateway", 0), change("vm2", 0), change("vm1", 7)]);
        assert_eq!(say(&mut watch, &json!({"id": ONE, "error": {"code": -1, "message": "no such port"}})), []);
        drop((daemon, requests));
        assert!(watch.read().is_err());
    }
}
