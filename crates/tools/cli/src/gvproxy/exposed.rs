//! Exposed ports, which the gateway publishes, and exposed UNIX sockets, which this program serves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netvale_gateway::control::call::ControlCallError;
use netvale_gateway::control::message::ControlRequest;
use rustix::io::Errno;
use serde::Serialize;

use super::addresses;
use super::control::GvControl;
use super::endpoint::GvEndpoint;
use super::relay::{self, GuestWay};
use super::ssh::{self, SshPlaces, SshTarget, SshTunnel};
use super::stream::GvListener;

/// Maximum length in bytes of the local or remote address of an exposed socket; an address may contain the longest
/// path.
const LONGEST: usize = 4096;
/// Maximum length in bytes of the local or remote address of an exposed port.
const LONGEST_PLACE: usize = 300;
/// Maximum number of exposed ports and sockets.
const MOST: usize = 4096;

/// An exposed port or socket, as the HTTP interface lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ExposedPort {
    pub local: String,
    pub remote: String,
    pub protocol: String,
}

/// What carries an exposed port's connections.
enum ExposedMeans {
    /// The gateway, which has these rules for published ports.
    Published(Vec<String>),
    /// This program, which accepts connections with this listener.
    Socket(Arc<GvListener>),
}

struct ExposedEntry {
    port: ExposedPort,
    means: ExposedMeans,
}

/// All exposed ports and sockets, sorted as the HTTP interface lists them: by local address, then by protocol.
pub(super) struct ExposedPorts {
    control: Arc<GvControl>,
    pub(super) places: SshPlaces,
    tunnels: AtomicUsize,
    entries: Mutex<BTreeMap<(String, String), ExposedEntry>>,
}

impl ExposedPorts {
    pub(super) fn new(control: Arc<GvControl>, places: SshPlaces) -> ExposedPorts {
        ExposedPorts { control, places, tunnels: AtomicUsize::new(0), entries: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<(String, String), ExposedEntry>> {
        // The table is consistent even after a panic of a thread that held its lock.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists all exposed ports and sockets.
    pub(super) fn all(&self) -> Vec<ExposedPort> {
        self.entries().values().map(|entry| entry.port.clone()).collect()
    }

    /// Exposes a guest's port at a local address, or at a UNIX socket's path.
    ///
    /// # Errors
    /// Returns gvproxy's message.
    pub(super) fn expose(&self, protocol: &str, local: &str, remote: &str) -> Result<(), String> {
        let longest = if matches!(protocol, "tcp" | "udp") { LONGEST_PLACE } else { LONGEST };
        if local.len() > longest || remote.len() > longest {
            return Err(format!("address too long: expected up to {longest} characters"));
        }
        let key = (local.to_owned(), protocol.to_owned());
        let mut entries = self.entries();
        if entries.contains_key(&key) {
            return Err("proxy already running".to_owned());
        }
        if entries.len() >= MOST {
            return Err(format!("{MOST} ports are exposed already, the most that there can be: unexpose one first"));
        }
        let means = match protocol {
            "tcp" | "udp" => ExposedMeans::Published(self.publish(protocol, local, remote)?),
            "unix" => ExposedMeans::Socket(self.serve(local, remote)?),
            "npipe" => {
                drop(self.way(remote)?);
                return Err("named pipes are not supported by this platform".to_owned());
            }
            other => return Err(format!("unknown protocol {other}")),
        };
        let port = ExposedPort { local: local.to_owned(), remote: remote.to_owned(), protocol: protocol.to_owned() };
        entries.insert(key, ExposedEntry { port, means });
        Ok(())
    }

    /// Ends an exposed port or socket, which then accepts no more connections.
    ///
    /// # Errors
    /// Returns gvproxy's message.
    pub(super) fn unexpose(&self, protocol: &str, local: &str) -> Result<(), String> {
        let removed = self.entries().remove(&(local.to_owned(), protocol.to_owned()));
        match removed.ok_or("proxy not found")?.means {
            ExposedMeans::Published(rules) => self.unpublish(&rules),
            ExposedMeans::Socket(listener) => {
                listener.close();
                Ok(())
            }
        }
    }

    /// Removes the files of all exposed sockets when the network ends.
    pub(super) fn close_sockets(&self) {
        for entry in self.entries().values() {
            if let ExposedMeans::Socket(listener) = &entry.means {
                listener.close();
            }
        }
    }

    fn publish(&self, protocol: &str, local: &str, remote: &str) -> Result<Vec<String>, String> {
        let guest = addresses::guest_place(remote)?;
        let places = addresses::listen_places(protocol, local)?;
        let mut rules: Vec<String> = Vec::new();
        for place in &places {
            let rule = rule(protocol, *place, guest);
            match self.control.ask(&ControlRequest::Publish { rule: rule.clone() }) {
                Ok(_) => rules.push(rule),
                // If the host has no IPv6, the port is exposed by IPv4 only.
                Err(ControlCallError::Refused(why)) if !rules.is_empty() && has_no_v6(&why) => {}
                Err(why) => {
                    // If this cleanup fails, the failure is ignored, and the original error is returned.
                    let _ = self.unpublish(&rules);
                    return Err(refusal(protocol, local, &why));
                }
            }
        }
        Ok(rules)
    }

    fn unpublish(&self, rules: &[String]) -> Result<(), String> {
        let end = |rule: &String| self.control.ask(&ControlRequest::Unpublish { rule: rule.clone() }).map(drop);
        // After a failure, the remaining rules are ended, too.
        let done: Vec<_> = rules.iter().map(end).collect();
        done.into_iter().collect::<Result<(), _>>().map_err(|why| why.to_string())
    }

    /// Listens at a path, and carries each connection to a guest.
    fn serve(&self, local: &str, remote: &str) -> Result<Arc<GvListener>, String> {
        let way = self.way(remote)?;
        let listener = Arc::new(GvListener::in_place_of(Path::new(local)).map_err(|why| why.to_string())?);
        relay::serve(&listener, way).map_err(|why| format!("cannot start a thread: {why}"))?;
        Ok(listener)
    }

    fn way(&self, remote: &str) -> Result<GuestWay, String> {
        let failed = |why: &str| format!("failed to parse remote uri :{remote} : {why}");
        let missing = |scheme: &str| format!("remote protocol for unix forwarder is not implemented: {scheme}");
        if !remote.contains("://") {
            let is_colon_first = remote.split('/').next().is_some_and(|segment| segment.contains(':'));
            // Go's text for an address without a scheme.
            let why = format!("parse {remote:?}: first path segment in URL cannot contain colon");
            return Err(if is_colon_first { failed(&why) } else { missing("") });
        }
        let parsed = GvEndpoint::parse(remote).map_err(|why| failed(&why.to_string()))?;
        match parsed.scheme.as_str() {
            "tcp" => {
                let guest = addresses::guest_place(&addresses::joined(&parsed.host, &parsed.port))?;
                let dialer = self.places.dialer.clone();
                Ok(Box::new(move || dialer.dial(guest)))
            }
            "ssh-tunnel" => {
                let number = self.tunnels.fetch_add(1, Ordering::Relaxed);
                let tunnel = SshTunnel::new(tunnel_target(&parsed)?, &self.places, &format!("exposed-{number}"));
                Ok(Box::new(move || tunnel.connect()))
            }
            other => Err(missing(other)),
        }
    }
}

/// Returns the gateway's rule for a published port.
fn rule(protocol: &str, local: SocketAddr, guest: SocketAddr) -> String {
    let transport = if protocol == "udp" { "/udp" } else { "" };
    format!("{local}:{guest}{transport}")
}

fn has_no_v6(why: &str) -> bool {
    let number = addresses::kernel_error(why).and_then(|why| why.raw_os_error());
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].iter().any(|errno| number == Some(errno.raw_os_error()))
}

fn refusal(protocol: &str, local: &str, why: &ControlCallError) -> String {
    let text = why.to_string();
    match addresses::kernel_error(&text) {
        Some(error) => addresses::bind_error(protocol, local, &error),
        None => text,
    }
}

fn tunnel_target(remote: &GvEndpoint) -> Result<SshTarget, String> {
    let key = remote.parameter("key");
    if key.is_empty() {
        return Err("key not provided for unix-ssh connection".to_owned());
    }
    if !remote.parameter("passphrase").is_empty() {
        return Err("a passphrase is not available: use a key without one, or an agent".to_owned());
    }
    if ["", "/"].contains(&remote.path.as_str()) {
        return Err("remote uri must contain a path to a socket file".to_owned());
    }
    let port = if remote.port.is_empty() { "22" } else { &remote.port };
    let guest = addresses::guest_place(&addresses::joined(&remote.host, port))?;
    let target = SshTarget { user: remote.user.clone(), guest, identity: key.into(), dest: remote.path.clone() };
    ssh::check(&target).map(|()| target)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::PathBuf;

    use super::super::relay::GuestDialer;
    use super::*;

    /// Returns the exposed ports of a gateway whose control socket answers each request by `answer`.
    fn ports(dir: &Path, answer: fn(&str) -> &'static str) -> ExposedPorts {
        let path = |name: &str| -> PathBuf { dir.join(name) };
        let listener = UnixListener::bind(path("control")).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                writeln!(stream, "{}", answer(&line)).unwrap();
            }
        });
        let places = SshPlaces { folder: dir.to_owned(), dialer: GuestDialer { path: path("dial") } };
        ExposedPorts::new(Arc::new(GvControl::new(path("control"))), places)
    }

    #[test]
    fn ports_are_published_and_listed_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let ports = ports(dir.path(), |line| {
            if line.contains("[::]") { r#"{"error":"no: Address family (os error 97)"}"# } else { r#"{"ok":{}}"# }
        });
        ports.expose("udp", ":53", "192.168.127.2:53").unwrap();
        ports.expose("tcp", "127.0.0.1:80", "192.168.127.2:8080").unwrap();
        ports.expose("tcp", ":53", "192.168.127.2:53").unwrap();
        let listed: Vec<_> = ports.all().iter().map(|port| format!("{} {}", port.local, port.protocol)).collect();
        assert_eq!(listed, ["127.0.0.1:80 tcp", ":53 tcp", ":53 udp"]);
        assert_eq!(ports.expose("tcp", ":53", "x"), Err("proxy already running".to_owned()));
        ports.unexpose("tcp", ":53").unwrap();
        assert_eq!(ports.unexpose("tcp", ":53"), Err("proxy not found".to_owned()));
    }

    #[test]
    fn what_cannot_be_exposed_is_refused_in_gvproxys_words() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |_: &str| r#"{"error":"cannot publish: Address already in use (os error 98); choose another"}"#;
        let ports = ports(dir.path(), refused);
        for (protocol, local, remote, why) in [
            ("tcp", "127.0.0.1:80", "1.2.3.4:80", "listen tcp 127.0.0.1:80: bind: address already in use"),
            ("udp", ":53", "1.2.3.4:53", "listen udp :53: bind: address already in use"),
            ("tcp", ":80", "1.2.3.4", "invalid remote addr"),
            ("sctp", ":80", "1.2.3.4:80", "unknown protocol sctp"),
            ("npipe", "a", "tcp://1.2.3.4:80", "named pipes are not supported by this platform"),
            ("unix", "/a", "/b", "remote protocol for unix forwarder is not implemented: "),
            ("unix", "/a", "udp://1.2.3.4:80", "remote protocol for unix forwarder is not implemented: udp"),
            ("unix", "/a", "tcp://1.2.3.4", "strconv.ParseUint: parsing \"\": invalid syntax"),
            ("unix", "/a", "ssh-tunnel://u@1.2.3.4/a", "key not provided for unix-ssh connection"),
            ("unix", "/a", "ssh-tunnel://u@1.2.3.4?key=/k", "remote uri must contain a path to a socket file"),
        ] {
            assert_eq!(ports.expose(protocol, local, remote), Err(why.to_owned()), "{protocol} {local} {remote}");
        }
        assert!(ports.all().is_empty());
    }

    /// Objective: connections to an exposed socket lead to the guest until the socket is unexposed.
    #[test]
    fn an_exposed_socket_leads_to_the_guest() {
        let dir = tempfile::tempdir().unwrap();
        let ports = ports(dir.path(), |_| r#"{"ok":{}}"#);
        let dial = UnixListener::bind(dir.path().join("dial")).unwrap();
        let path = dir.path().join("local.sock");
        ports.expose("unix", path.to_str().unwrap(), "tcp://192.168.127.2:8080").unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"hello").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = Vec::new();
        std::io::Read::read_to_end(&mut dial.accept().unwrap().0, &mut said).unwrap();
        assert_eq!(said, b"192.168.127.2:8080\nhello");
        ports.unexpose("unix", path.to_str().unwrap()).unwrap();
        assert!(!path.exists());
    }
}
