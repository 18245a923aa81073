//! The names and addresses under which the server answers requests ([`ServerNames`]). Each request names its host
//! (`Host`, RFC 9110 section 7.2).
//!
//! A browser lets every page that its user opens send requests to every address, so a request from the same host cannot
//! be trusted. A page can even make its own host name resolve to this server's address (DNS rebinding), to read the
//! answers. But such requests have the page's own host name as `Host`, and are therefore refused.

use std::net::IpAddr;

use crate::http::answer::HttpStatus;
use crate::http::head::RequestHead;
use crate::http::listener::{HttpListener, ListenPlace};

/// The names and addresses of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerNames {
    /// The addresses at which the server listens.
    addresses: Vec<IpAddr>,
    /// The server's names besides `localhost`, in lower case.
    names: Vec<String>,
}

impl ServerNames {
    /// Returns the names of a server with these listeners and these additional names.
    #[must_use]
    pub fn of(listeners: &[HttpListener], names: &[String]) -> ServerNames {
        ServerNames::at(listeners.iter().filter_map(HttpListener::place), names)
    }

    fn at(places: impl Iterator<Item = ListenPlace>, names: &[String]) -> ServerNames {
        let address = |place| match place {
            ListenPlace::Tcp(address) => Some(address.ip()),
            ListenPlace::Unix(_) => None,
        };
        let names = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        ServerNames { addresses: places.filter_map(address).collect(), names }
    }

    /// Checks that a request is for this server.
    ///
    /// # Errors
    /// The status with which the request must be answered if it names another host, no host, or several hosts.
    pub fn judge(&self, head: &RequestHead) -> Result<(), HttpStatus> {
        let is_own = head.only("host").is_some_and(|host| self.has(host));
        if is_own { Ok(()) } else { Err(HttpStatus::Misdirected) }
    }

    /// Returns whether the `Host` value `host` names this server. The port in it is ignored, because another port may
    /// be forwarded to the port of this server.
    fn has(&self, host: &str) -> bool {
        let name = name_of(host).to_ascii_lowercase();
        if name == "localhost" || self.names.contains(&name) {
            return true;
        }
        // An address as `Host` is safe: it is not resolved by DNS, so it cannot be rebound.
        let address = name.parse::<IpAddr>();
        address.is_ok_and(|ip| ip.is_loopback() || self.addresses.iter().any(|own| *own == ip || own.is_unspecified()))
    }
}

/// Returns a host without its port. The brackets of an IPv6 address are removed, too.
fn name_of(host: &str) -> &str {
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        && (rest.is_empty() || rest.starts_with(':'))
    {
        return address;
    }
    host.split_once(':').map_or(host, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(place: &str, names: &[&str]) -> ServerNames {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        ServerNames::at(std::iter::once(place.parse().expect("a place")), &names)
    }

    fn judged(hosts: &ServerNames, fields: &str) -> Result<(), HttpStatus> {
        let text = format!("GET / HTTP/1.1\r\n{fields}\r\n");
        hosts.judge(&RequestHead::parse(text.as_bytes()).expect("a request").expect("a whole one"))
    }

    /// Objective: a request with one of the server's names is answered; a request with another name that was rebound to
    /// the server's address is not.
    #[test]
    fn only_requests_under_own_names_are_answered() {
        let loopback = at("tcp:127.0.0.1:9848", &["Switch.example"]);
        let is_own = |hosts: &ServerNames, host: &str| judged(hosts, &format!("Host: {host}\r\n")) == Ok(());
        for host in ["127.0.0.1:9848", "localhost", "LOCALHOST:1", "[::1]:80", "127.0.0.2", "switch.example:443"] {
            assert!(is_own(&loopback, host), "{host}");
        }
        for host in ["evil.example:9848", "127.0.0.1.evil.example", "10.0.0.1", "", "localhost.evil.example", "[::1]x"]
        {
            assert!(!is_own(&loopback, host), "{host}");
        }
        assert!(is_own(&at("tcp:10.0.0.1:80", &[]), "10.0.0.1"));
        assert!(is_own(&at("tcp:0.0.0.0:80", &[]), "10.0.0.1:80"));
        assert!(!is_own(&at("tcp:0.0.0.0:80", &[]), "evil.example:80"));
        assert!(!is_own(&at("unix:/a", &[]), "a") && is_own(&at("unix:/a", &[]), "localhost:80"));
        for fields in ["", "Host: localhost\r\nHost: localhost\r\n", "Host: localhost\r\nHost: evil.example\r\n"] {
            assert_eq!(judged(&loopback, fields), Err(HttpStatus::Misdirected), "{fields}");
        }
    }
}
