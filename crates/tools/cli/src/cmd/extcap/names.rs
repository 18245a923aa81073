//! Ports' names in Wireshark's form.
//!
//! An interface's name becomes part of file names, of preferences and of the lines that list interfaces; these do not
//! accept every character. `{` and `/` are therefore written as in URLs, `%7B` and `%2F`.

use netvale_observe::http::head::decoded;

use crate::CliError;

/// Prefix of each interface's name.
const PREFIX: &str = "netvale-";
/// The interface for ports of other hosts.
pub const REMOTE: &str = "netvale-ssh";
const SCHEME: &str = "ssh://";

/// The port that an interface's name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceName {
    /// A port of this host.
    Port(String),
    /// A port of another host.
    Remote(RemotePlace),
}

/// The parts of a remote port's address that an interface's name contains; the command's options supply the missing
/// parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemotePlace {
    /// The user on the other host.
    pub user: Option<String>,
    /// The host's name or address.
    pub host: Option<String>,
    /// The TCP port of the other host's ssh server.
    pub tcp: Option<u16>,
    /// The netvale port on the other host.
    pub port: Option<String>,
}

impl InterfaceName {
    /// Parses an interface's name.
    ///
    /// # Errors
    /// The name does not belong to an interface of netvale.
    pub fn read(text: &str) -> Result<InterfaceName, CliError> {
        let wrong = || CliError::usage(format!("interface {text:?} does not exist"), "--extcap-interfaces lists them");
        if text == REMOTE {
            return Ok(InterfaceName::Remote(RemotePlace::default()));
        }
        if let Some(place) = text.strip_prefix(SCHEME) {
            return RemotePlace::read(place).map(InterfaceName::Remote).ok_or_else(wrong);
        }
        let port = text.strip_prefix(PREFIX).and_then(decoded).filter(|port| !port.is_empty());
        port.map(InterfaceName::Port).ok_or_else(wrong)
    }
}

impl RemotePlace {
    /// Parses `[USER@]HOST[:TCP-PORT][/NETVALE-PORT]`; `None` if the text has another form.
    fn read(text: &str) -> Option<RemotePlace> {
        let (at, port) = text.split_once('/').map_or((text, None), |(at, port)| (at, Some(port)));
        let (user, at) = at.rsplit_once('@').map_or((None, at), |(user, at)| (Some(user), at));
        let (host, tcp) = match at.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map(|(host, tcp)| (host, tcp.strip_prefix(':')))?,
            None => at.rsplit_once(':').map_or((at, None), |(host, tcp)| (host, Some(tcp))),
        };
        let word = |text: &str| decoded(text).filter(|word| !word.is_empty());
        let tcp = tcp.map(|text| text.parse().ok().filter(|&port| port > 0));
        Some(RemotePlace {
            user: user.map(word).map_or(Some(None), |user| user.map(Some))?,
            host: Some(word(host)?),
            tcp: tcp.map_or(Some(None), |tcp| tcp.map(Some))?,
            port: port.filter(|port| !port.is_empty()).map(decoded).map_or(Some(None), |port| port.map(Some))?,
        })
    }
}

/// Returns the name of the interface for a port.
pub fn of_port(port: &str) -> String {
    let mut name = PREFIX.to_owned();
    for byte in port.bytes() {
        match byte {
            b':' | b'.' | b'_' | b'-' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => name.push(byte.into()),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a port's name does not change when it is converted to an interface's name and back, and the
    /// interface's name has no character that Wireshark rejects.
    #[test]
    fn each_port_survives_the_conversion_of_its_name() {
        for port in ["vale0:a", "netmap:p{1", "vale0:a}1", "netmap:eth0.1", "vale0:ä b/%", "vale0:x\n}{value=y"] {
            let name = of_port(port);
            assert!(name.bytes().all(|b| b.is_ascii_graphic() && !b"{}/ ".contains(&b)), "{name}");
            assert_eq!(InterfaceName::read(&name).unwrap(), InterfaceName::Port(port.to_owned()));
        }
        for bad in [
            "",
            "netvale-",
            "netvale-%",
            "netvale-%4",
            "netvale-%+1",
            "netvale-%ff",
            "eth0",
            "ssh://",
            "ssh://@",
            "ssh://h:x/a",
        ] {
            assert!(InterfaceName::read(bad).is_err(), "{bad}");
        }
    }

    /// Objective: places on other hosts are parsed.
    #[test]
    fn places_on_other_hosts_are_parsed() {
        let read = |text: &str| match InterfaceName::read(text).unwrap() {
            InterfaceName::Remote(place) => (place.user, place.host.unwrap_or_default(), place.tcp, place.port),
            InterfaceName::Port(port) => panic!("{port}"),
        };
        assert_eq!(read("ssh://h"), (None, "h".into(), None, None));
        let all = (Some("me@x".to_owned()), "fe80::1".to_owned(), Some(2222), Some("vale0:a{1".to_owned()));
        assert_eq!(read("ssh://me%40x@[fe80::1]:2222/vale0:a%7B1"), all);
        assert_eq!(read("netvale-ssh"), (None, String::new(), None, None));
    }
}
