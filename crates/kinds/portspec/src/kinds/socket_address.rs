//! A socket's address: a path, or an IP address and a port.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{AfterColon, AttachNeeds, fitting, stem};
use crate::cursor::{Cursor, SpecResult};
use crate::text::{Ident, SocketPath};

/// The resource of ports with IP addresses, as messages name it.
const TRUST: &str = "sockets with IP addresses";

/// A socket's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SocketAddress {
    /// A UNIX socket.
    Path(SocketPath),
    /// A TCP or UDP socket.
    Inet(SocketAddr),
}

impl SocketAddress {
    /// Returns the path; `None` for an IP address.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Path(path) => Some(path.as_str()),
            Self::Inet(_) => None,
        }
    }

    /// Returns the IP address and port; `None` for a path.
    pub fn inet(&self) -> Option<SocketAddr> {
        match self {
            Self::Path(_) => None,
            Self::Inet(at) => Some(*at),
        }
    }
}

/// Takes an IP address and a port: `192.0.2.1:5000`, `[2001:db8::1]:5000`.
fn inet(cursor: &mut Cursor<'_>) -> SpecResult<SocketAddr> {
    let start = cursor.pos();
    let expected = "a path that begins with '/', or an IP address and a port, such as 192.0.2.1:5000 or [::1]:5000";
    let ip = if cursor.eat("[") {
        let text = cursor.take_while(|c| c.is_ascii_hexdigit() || c == ':' || c == '.');
        let ip: Ipv6Addr = text.parse().map_err(|_| cursor.fail_at(start, expected))?;
        cursor.expect("]", "']' after an IPv6 address")?;
        IpAddr::V6(ip)
    } else {
        let text = cursor.take_while(|c| c.is_ascii_digit() || c == '.');
        IpAddr::V4(text.parse().map_err(|_| cursor.fail_at(start, expected))?)
    };
    cursor.expect(":", "':' and a port after an IP address")?;
    let port = cursor.number(10, 1..=u16::MAX.into(), "a port")? as u16;
    Ok(SocketAddr::new(ip, port))
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.fmt(f),
            Self::Inet(at) => at.fmt(f),
        }
    }
}

impl AfterColon for SocketAddress {
    /// Takes an address off the cursor; a path ends at a comma.
    fn read(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        let start = cursor.pos();
        if cursor.peek() != Some('/') {
            return inet(cursor).map(Self::Inet);
        }
        let text = cursor.take_while(|c| c != ',');
        let path = SocketPath::parse(text);
        path.map(Self::Path).map_err(|_| cursor.fail_at(start, "a socket's path, of at most 107 bytes"))
    }

    fn port_name(&self, prefix: &str) -> Ident {
        match self {
            Self::Path(path) => fitting(stem(path.as_str())),
            Self::Inet(at) => fitting(&format!("{prefix}{}", at.port())),
        }
    }

    fn files(&self) -> Vec<&str> {
        self.path().into_iter().collect()
    }

    fn needs(&self) -> AttachNeeds<'_> {
        if self.inet().is_some() { AttachNeeds::Trust(TRUST) } else { AttachNeeds::Nothing }
    }
}
