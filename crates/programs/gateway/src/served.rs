//! Served ports: TCP ports of the gateway's own addresses that lead to UNIX sockets of the host.
//!
//! The program at the socket first receives a line of the PROXY protocol, version 1, with the guest's address.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::flows::FlowEnds;

/// The port of the name service.
const NAMES: u16 = 53;

/// A port of the gateway, and the UNIX socket to which it leads. As text: `PORT=/PATH`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServedPort {
    /// The port of the gateway's addresses.
    pub port: u16,
    /// The path of the socket.
    pub path: PathBuf,
}

/// The error for text that is not a served port.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid served port {0:?}: expected PORT=/PATH with a port other than 53, e.g. 80=/run/user/1000/http.sock")]
pub struct BadServedPort(String);

impl FromStr for ServedPort {
    type Err = BadServedPort;

    fn from_str(text: &str) -> Result<Self, BadServedPort> {
        let bad = || BadServedPort(text.to_owned());
        let (port, path) = text.split_once('=').ok_or_else(bad)?;
        let port = port.parse().ok().filter(|port| ![0, NAMES].contains(port)).ok_or_else(bad)?;
        let path = Path::new(path);
        let fits = path.is_absolute() && SocketAddrUnix::new(path).is_ok();
        if fits { Ok(ServedPort { port, path: path.to_owned() }) } else { Err(bad()) }
    }
}

/// A socket for a guest's connection to a served port, and the result of `connect`.
pub struct ServedSocket {
    /// The socket.
    pub socket: OwnedFd,
    /// The result of `connect`: an error if, for instance, no program listens on the socket, or the socket's backlog is
    /// full.
    pub connected: Result<(), Errno>,
}

/// Connects to a served port's socket. Returns `None` if no descriptor is left.
pub fn connect(path: &Path, ends: &FlowEnds) -> Option<ServedSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let connected = SocketAddrUnix::new(path).and_then(|address| rustix::net::connect(&socket, &address));
    // The buffer of a new socket has room for the whole line.
    let begun = connected.and_then(|()| rustix::net::send(&socket, line(ends).as_bytes(), SendFlags::NOSIGNAL));
    let connected = begun.map(|_| ()).map_err(|error| match error {
        Errno::AGAIN | Errno::NOENT => Errno::CONNREFUSED,
        other => other,
    });
    Some(ServedSocket { socket, connected })
}

fn line(ends: &FlowEnds) -> String {
    let FlowEnds { guest, remote, .. } = ends;
    let family = if matches!(guest, SocketAddr::V4(_)) { "TCP4" } else { "TCP6" };
    format!("PROXY {family} {} {} {} {}\r\n", guest.ip(), remote.ip(), guest.port(), remote.port())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    use netvale_wire::MacAddr;

    use super::*;
    use crate::flows::FlowDirection;
    use crate::guests::NetworkId;
    use crate::policy::FlowTransport;

    #[test]
    fn ports_are_read_and_malformed_ones_refused() {
        assert_eq!("80=/run/a".parse(), Ok(ServedPort { port: 80, path: "/run/a".into() }));
        let long = format!("80=/{}", "x".repeat(108));
        for text in ["", "80", "80=", "80=run/a", "0=/run/a", "53=/run/a", "65536=/run/a", "x=/run/a", &long] {
            assert!(text.parse::<ServedPort>().is_err(), "{text}");
        }
    }

    /// Objective: the program at the socket receives the guest's address; if no program listens, the connection is
    /// refused.
    #[test]
    #[cfg_attr(miri, ignore = "sockets are not available under Miri")]
    fn the_program_is_told_the_guests_address() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let ends = FlowEnds {
            transport: FlowTransport::Tcp,
            direction: FlowDirection::Out,
            who: NetworkId::UNTAGGED.station(MacAddr::ZERO),
            guest: "10.0.0.2:40000".parse().unwrap(),
            remote: "10.0.0.1:80".parse().unwrap(),
        };
        assert_eq!(connect(&path, &ends).unwrap().connected, Err(Errno::CONNREFUSED));
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(connect(&path, &ends).unwrap().connected, Ok(()));
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        assert_eq!(text, "PROXY TCP4 10.0.0.2 10.0.0.1 40000 80\r\n");
    }
}
