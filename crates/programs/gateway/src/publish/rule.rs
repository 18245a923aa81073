//! Published ports as text: `[ADDRESS:]PORT:GUEST:PORT[/udp]`. GUEST is a guest's address, the name in a guest's lease,
//! or the name of a private port; `GUEST@NAME` is a guest behind the private port NAME, and `@NAME` is the guest behind
//! that port whose address was seen last.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use crate::dhcp::leases::label;
use crate::policy::FlowTransport;

/// Maximum length of a port's name in bytes.
const MAX_NAME: usize = 255;

/// The guest of a published port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PublishedGuest {
    /// The guest's address.
    Address(IpAddr),
    /// The guest's name in the DHCP leases, or the name of its private port.
    Name(String),
    /// The guest behind the private port whose address was seen last.
    Latest,
}

/// A published port: a port of the host, and the port of a guest to which it leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishRule {
    /// The host's address and port.
    pub listen: SocketAddr,
    /// The guest to which connections and datagrams go.
    pub guest: PublishedGuest,
    /// The name of the private port behind which the guest is; `None` if the rule names no private port.
    pub behind: Option<String>,
    /// The guest's port.
    pub port: u16,
    /// The transport: TCP or UDP.
    pub transport: FlowTransport,
}

/// The error for text that is not a published port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid publish rule {0:?}: expected [ADDRESS:]PORT:GUEST:PORT[/udp], e.g. 127.0.0.1:2222:10.0.0.5:22, \
     where GUEST may end with @ and the name of a private port"
)]
pub struct BadPublishRule(String);

impl FromStr for PublishRule {
    type Err = BadPublishRule;

    fn from_str(text: &str) -> Result<Self, BadPublishRule> {
        parse(text).ok_or_else(|| BadPublishRule(text.to_owned()))
    }
}

impl fmt::Display for PublishRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.listen)?;
        match &self.guest {
            PublishedGuest::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
            PublishedGuest::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            PublishedGuest::Name(name) => write!(f, "{name}")?,
            PublishedGuest::Latest => {}
        }
        if let Some(behind) = &self.behind {
            write!(f, "@{behind}")?;
        }
        write!(f, ":{}{}", self.port, if self.transport == FlowTransport::Udp { "/udp" } else { "" })
    }
}

/// Parses the host's side of a published port: `[ADDRESS:]PORT[/udp]`. Returns `None` if the text is malformed.
pub(super) fn listening_side(text: &str) -> Option<(SocketAddr, FlowTransport)> {
    let (rest, transport) = split_transport(text);
    let (address, port) = match &split(rest)?[..] {
        [port] => (IpAddr::V4(Ipv4Addr::LOCALHOST), *port),
        [address, port] => (address.parse().ok()?, *port),
        _ => return None,
    };
    Some((SocketAddr::new(address, port_number(port)?), transport))
}

fn split_transport(text: &str) -> (&str, FlowTransport) {
    match text.strip_suffix("/udp") {
        Some(rest) => (rest, FlowTransport::Udp),
        None => (text.strip_suffix("/tcp").unwrap_or(text), FlowTransport::Tcp),
    }
}

fn port_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

fn parse(text: &str) -> Option<PublishRule> {
    let (rest, transport) = split_transport(text);
    let (rest, port) = rest.rsplit_once(':')?;
    // Only the text before the at sign is split at colons, as the port's name after the at sign may contain colons.
    let (rest, behind) = rest.split_once('@').map_or((rest, None), |(rest, behind)| (rest, Some(behind)));
    let parts = split(rest)?;
    let (address, [listen_port, guest]) = match &parts[..] {
        [address, rest @ ..] if rest.len() == 2 => (address.parse().ok()?, <&[&str; 2]>::try_from(rest).ok()?),
        rest => (IpAddr::V4(Ipv4Addr::LOCALHOST), <&[&str; 2]>::try_from(rest).ok()?),
    };
    let guest = match guest.parse() {
        Ok(address) => PublishedGuest::Address(address),
        Err(_) if guest.is_empty() && behind.is_some() => PublishedGuest::Latest,
        Err(_) => PublishedGuest::Name(label(guest.as_bytes()).filter(|name| name == guest)?),
    };
    let listen = SocketAddr::new(address, port_number(listen_port)?);
    let behind = match behind {
        Some(name) if name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control) => return None,
        behind => behind.map(str::to_owned),
    };
    Some(PublishRule { listen, guest, behind, port: port_number(port)?, transport })
}

/// Splits text at colons. An IPv6 address is in brackets. Returns `None` if brackets do not match.
fn split(text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let (part, behind) = match rest.strip_prefix('[') {
            Some(bracketed) => {
                let (part, behind) = bracketed.split_once(']')?;
                (part, if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) })
            }
            None => rest.split_once(':').map_or((rest, None), |(part, behind)| (part, Some(behind))),
        };
        parts.push(part);
        match behind {
            Some(behind) => rest = behind,
            None => return Some(parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_in_all_their_forms() {
        let rule: PublishRule = "127.0.0.1:2222:10.0.0.5:22".parse().unwrap();
        assert_eq!((rule.listen.to_string().as_str(), rule.port), ("127.0.0.1:2222", 22));
        assert_eq!(rule.guest, PublishedGuest::Address([10, 0, 0, 5].into()));
        let rule: PublishRule = "8080:web:80".parse().unwrap();
        assert_eq!(
            (rule.listen.to_string().as_str(), rule.guest),
            ("127.0.0.1:8080", PublishedGuest::Name("web".into()))
        );
        let rule: PublishRule = "[::1]:53:[fd00::9]:53/udp".parse().unwrap();
        assert_eq!((rule.listen.to_string().as_str(), rule.transport), ("[::1]:53", FlowTransport::Udp));
    }

    /// Objective: a guest behind a private port is named by the port's name, which may contain colons, with or without
    /// the guest's address or name.
    #[test]
    fn guests_behind_private_ports_are_named_by_their_ports() {
        let read = |text: &str| {
            let rule: PublishRule = text.parse().unwrap();
            (rule.listen.port(), rule.guest, rule.behind.unwrap_or_default(), rule.port)
        };
        let address = |text: &str| PublishedGuest::Address(text.parse().unwrap());
        assert_eq!(read("2207:@vm7:22"), (2207, PublishedGuest::Latest, "vm7".into(), 22));
        let path = "stream:/run/vm7.sock";
        assert_eq!(read(&format!("2207:@{path}:22")), (2207, PublishedGuest::Latest, path.into(), 22));
        assert_eq!(read("2207:10.0.0.5@tap:x:22"), (2207, address("10.0.0.5"), "tap:x".into(), 22));
        assert_eq!(read("[::1]:2207:[fd00::5]@vm7:22/udp"), (2207, address("fd00::5"), "vm7".into(), 22));
        assert_eq!(read("0.0.0.0:2207:web@vm7:22"), (2207, PublishedGuest::Name("web".into()), "vm7".into(), 22));
    }

    #[test]
    fn a_port_reads_back_from_its_text_and_is_found_by_its_side_at_the_host() {
        for text in
            ["127.0.0.1:2222:10.0.0.5:22", "0.0.0.0:8080:web:80", "[::1]:53:[fd00::9]:53/udp", "127.0.0.1:1:@tap:x:22"]
        {
            assert_eq!(text.parse::<PublishRule>().unwrap().to_string(), text);
        }
        let side =
            |text: &str| listening_side(text).map(|(listen, transport)| format!("{listen}/{}", transport.word()));
        assert_eq!(side("2222").as_deref(), Some("127.0.0.1:2222/tcp"));
        assert_eq!(side("[::1]:53/udp").as_deref(), Some("[::1]:53/udp"));
        for text in ["", "0", "x", "1:2", "1.2.3.4:5:6"] {
            assert_eq!(side(text), None, "{text}");
        }
    }

    #[test]
    fn text_that_is_no_port_is_refused() {
        for text in [
            "",
            "22",
            "22:22",
            "0:a:1",
            "1:a:0",
            "1:-a:1",
            "1.2.3:1:a:1",
            "1:2:3:4:5",
            "[::1:1:a:1",
            "[::1]1:a:1",
            "70000:a:1",
            "1:A_b:1",
            "1:a:1/sctp",
            "1:@:1",
            "@a:1",
            "1::1",
            "1:-@a:1",
            "1:2:3@a:1",
        ] {
            assert!(text.parse::<PublishRule>().is_err(), "{text}");
        }
    }
}
