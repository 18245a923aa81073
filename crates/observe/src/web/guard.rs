//! The *guard*: which requests are answered.
//!
//! A browser lets every page that its user opens send requests to every address, so that a connection from the loopback is no sign of trust.
//! It does say whose page asks, and under which name it knows the server; that is what is looked at:
//!
//! - `Host` names this server. A page that has its own name resolve to this server's address (DNS rebinding) asks under its own name.
//! - `Origin`, if there is one, is that same host: no other page may ask. Nor is any answer marked as readable for others (CORS).
//! - `Sec-Fetch-Site`, which current browsers add, says the same for figures.
//! - `Authorization` has the token, for figures. A browser never adds that by itself.

use std::net::IpAddr;

use crate::http::answer::Status;
use crate::http::head::Head;
use crate::http::listener::Place;
use crate::web::token::Token;

/// Judges requests.
#[derive(Clone, Debug)]
pub struct Guard {
    token: Token,
    /// Addresses that this server listens at.
    addresses: Vec<IpAddr>,
    /// Names that it has besides.
    names: Vec<String>,
}

impl Guard {
    /// The guard of a server that listens at these places, and has those names besides.
    #[must_use]
    pub fn new(token: Token, places: &[Place], names: &[String]) -> Guard {
        let address = |place: &Place| match place {
            Place::Tcp(address) => Some(address.ip()),
            Place::Unix(_) => None,
        };
        let names = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        Guard { token, addresses: places.iter().filter_map(address).collect(), names }
    }

    /// Whether somebody may have the page itself.
    ///
    /// # Errors
    /// The status that says why not.
    pub fn page(&self, head: &Head) -> Result<(), Status> {
        let host = head.only("host").filter(|host| self.is_own(host)).ok_or(Status::Misdirected)?;
        let mut origins = head.all("origin");
        let is_own = |origin: &str| {
            let of = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            of.is_some_and(|of| of.eq_ignore_ascii_case(host))
        };
        if origins.all(is_own) { Ok(()) } else { Err(Status::Forbidden) }
    }

    /// Whether somebody may have figures.
    ///
    /// # Errors
    /// The status that says why not.
    pub fn figures(&self, head: &Head) -> Result<(), Status> {
        self.page(head)?;
        if head.all("sec-fetch-site").any(|site| site != "same-origin") {
            return Err(Status::Forbidden);
        }
        let shown = head.only("authorization").and_then(|value| value.split_once(' '));
        match shown {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && self.token.is(token) => Ok(()),
            _ => Err(Status::Unauthorized),
        }
    }

    /// Whether a `Host` is this server. The port is not looked at: it may be forwarded from another one.
    fn is_own(&self, host: &str) -> bool {
        let name = name_of(host).to_ascii_lowercase();
        if name == "localhost" || self.names.contains(&name) {
            return true;
        }
        // Names that are addresses are resolved by nobody.
        let address = name.parse::<IpAddr>();
        address.is_ok_and(|ip| ip.is_loopback() || self.addresses.iter().any(|own| *own == ip || own.is_unspecified()))
    }
}

/// A host without its port, an IPv6 address without its brackets.
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

    const SECRET: &str = "0123456789abcdef";

    fn guard(place: &str, names: &[&str]) -> Guard {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        Guard::new(Token::parse(SECRET).expect("a token"), &[place.parse().expect("a place")], &names)
    }

    fn head(fields: &str) -> Head {
        let text = format!("GET /api/stats HTTP/1.1\r\n{fields}\r\n");
        Head::parse(text.as_bytes()).expect("a request").expect("a whole one")
    }

    /// Objective: who asks this server under one of its names is answered; a name that was made to point here is not.
    #[test]
    fn hosts() {
        let loopback = guard("tcp:127.0.0.1:9848", &["Switch.example"]);
        let is_own = |guard: &Guard, host: &str| guard.page(&head(&format!("Host: {host}\r\n"))) == Ok(());
        for host in ["127.0.0.1:9848", "localhost", "LOCALHOST:1", "[::1]:80", "127.0.0.2", "switch.example:443"] {
            assert!(is_own(&loopback, host), "{host}");
        }
        for host in ["evil.example:9848", "127.0.0.1.evil.example", "10.0.0.1", "", "localhost.evil.example", "[::1]x"]
        {
            assert!(!is_own(&loopback, host), "{host}");
        }
        assert!(is_own(&guard("tcp:10.0.0.1:80", &[]), "10.0.0.1"));
        assert!(is_own(&guard("tcp:0.0.0.0:80", &[]), "10.0.0.1:80"));
        assert!(!is_own(&guard("tcp:0.0.0.0:80", &[]), "evil.example:80"));
        assert!(!is_own(&guard("unix:/a", &[]), "a") && is_own(&guard("unix:/a", &[]), "localhost:80"));
        for fields in ["", "Host: localhost\r\nHost: localhost\r\n", "Host: localhost\r\nHost: evil.example\r\n"] {
            assert_eq!(loopback.page(&head(fields)), Err(Status::Misdirected), "{fields}");
        }
    }

    /// Objective: requests by other pages are refused, whatever else they have.
    #[test]
    fn origins() {
        let guard = guard("tcp:127.0.0.1:9848", &[]);
        let judged = |origin: &str| guard.page(&head(&format!("Host: localhost:9848\r\nOrigin: {origin}\r\n")));
        assert_eq!(judged("http://localhost:9848"), Ok(()));
        assert_eq!(judged("https://localhost:9848"), Ok(()));
        for other in ["http://evil.example", "null", "http://localhost", "http://127.0.0.1:9848", "", "localhost:9848"]
        {
            assert_eq!(judged(other), Err(Status::Forbidden), "{other}");
        }
        let two = "Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.example\r\n";
        assert_eq!(guard.page(&head(two)), Err(Status::Forbidden));
        let token = format!("Host: localhost\r\nAuthorization: Bearer {SECRET}\r\n");
        for (site, judged) in [
            ("same-origin", Ok(())),
            ("cross-site", Err(Status::Forbidden)),
            ("same-site", Err(Status::Forbidden)),
            ("none", Err(Status::Forbidden)),
        ] {
            assert_eq!(guard.figures(&head(&format!("{token}Sec-Fetch-Site: {site}\r\n"))), judged, "{site}");
        }
    }

    /// Objective: figures take the token, once and in its place.
    #[test]
    fn tokens() {
        let guard = guard("tcp:127.0.0.1:9848", &[]);
        let judged = |fields: &str| guard.figures(&head(&format!("Host: localhost\r\n{fields}")));
        assert_eq!(judged(&format!("Authorization: Bearer {SECRET}\r\n")), Ok(()));
        assert_eq!(judged(&format!("authorization: bearer {SECRET}\r\n")), Ok(()));
        for wrong in [
            String::new(),
            "Authorization: Bearer\r\n".into(),
            "Authorization: Bearer 0123456789abcdeF\r\n".into(),
            format!("Authorization: Basic {SECRET}\r\n"),
            format!("Authorization: {SECRET}\r\n"),
            format!("Cookie: token={SECRET}\r\n"),
            format!("Authorization: Bearer {SECRET}\r\nAuthorization: Bearer {SECRET}\r\n"),
        ] {
            assert_eq!(judged(&wrong), Err(Status::Unauthorized), "{wrong}");
        }
    }
}
