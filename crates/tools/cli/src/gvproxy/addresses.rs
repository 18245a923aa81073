//! Addresses of exposed ports, and errors about them with the texts of Go's package net.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Joins a host and a port; an IPv6 address gets brackets.
pub(super) fn joined(host: &str, port: &str) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Splits text into host and port.
///
/// # Errors
/// Returns the message that Go would return.
pub(super) fn split(text: &str) -> Result<(&str, &str), String> {
    let about = |what: &str| if text.is_empty() { what.to_owned() } else { format!("address {text}: {what}") };
    let missing = || about("missing port in address");
    let (host, port) = text.rsplit_once(':').ok_or_else(missing)?;
    if let Some(bracketed) = text.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']').ok_or_else(|| about("missing ']' in address"))?;
        return match rest.strip_prefix(':') {
            Some(port) if !port.contains(':') => Ok((host, port)),
            Some(_) => Err(about("too many colons in address")),
            None => Err(missing()),
        };
    }
    if host.contains(':') { Err(about("too many colons in address")) } else { Ok((host, port)) }
}

/// Returns the addresses at which a port listens: if `local` has no host, these are the wildcard addresses of both IP
/// versions.
///
/// # Errors
/// Returns the message that Go would return, or a message that port 0 is not supported.
pub(super) fn listen_places(network: &str, local: &str) -> Result<Vec<SocketAddr>, String> {
    let failed = |why: &str| format!("listen {network}: {why}");
    let (host, port) = split(local).map_err(|why| failed(&why))?;
    let number: u16 = port.parse().map_err(|_| failed(&format!("lookup {network}/{port}: unknown port")))?;
    if number == 0 {
        return Err(failed(&format!("{local}: port 0 is not available: choose a port")));
    }
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let hosts = match host {
        "" => any.to_vec(),
        "localhost" => vec![Ipv4Addr::LOCALHOST.into()],
        host => vec![host.parse().map_err(|_| failed(&format!("lookup {host}: no such host")))?],
    };
    Ok(hosts.into_iter().map(|host| SocketAddr::new(host, number)).collect())
}

/// Returns a guest's address and port.
///
/// # Errors
/// Returns gvproxy's message.
pub(super) fn guest_place(remote: &str) -> Result<SocketAddr, String> {
    let invalid = || "invalid remote addr".to_owned();
    let (host, port) = remote.split_once(':').filter(|(_, port)| !port.contains(':')).ok_or_else(invalid)?;
    let port = port_number(port)?;
    let host: Ipv4Addr = host.parse().map_err(|_| invalid())?;
    Ok(SocketAddr::new(host.into(), port))
}

/// Parses a port.
///
/// # Errors
/// Returns the message that Go would return.
pub(super) fn port_number(text: &str) -> Result<u16, String> {
    text.parse().map_err(|why: std::num::ParseIntError| {
        let is_range = *why.kind() == std::num::IntErrorKind::PosOverflow;
        let why = if is_range { "value out of range" } else { "invalid syntax" };
        format!("strconv.ParseUint: parsing {text:?}: {why}")
    })
}

/// Returns Go's text for a failed bind.
pub(super) fn bind_error(network: &str, local: &str, why: &io::Error) -> String {
    format!("listen {network} {local}: bind: {}", reason(why))
}

/// Returns an error's text in Go's form: with a lower-case first letter, and without the error's number.
pub(super) fn reason(why: &io::Error) -> String {
    let text = why.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// Returns the kernel's error in a message of the gateway, such as `…: Address already in use (os error 98)…`; `None`
/// if the message has none.
pub(super) fn kernel_error(message: &str) -> Option<io::Error> {
    let (_, rest) = message.split_once("(os error ")?;
    let number = rest.split(')').next()?.parse().ok()?;
    Some(io::Error::from_raw_os_error(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_listen_at_the_addresses_of_their_host() {
        let of = |text: &str| {
            let places = listen_places("tcp", text)?;
            Ok::<_, String>(places.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of(":6443").as_deref(), Ok("0.0.0.0:6443 [::]:6443"));
        assert_eq!(of("localhost:80").as_deref(), Ok("127.0.0.1:80"));
        assert_eq!(of("[::1]:80").as_deref(), Ok("[::1]:80"));
        for (bad, why) in [
            ("80", "listen tcp: address 80: missing port in address"),
            ("", "listen tcp: missing port in address"),
            ("a:b:80", "listen tcp: address a:b:80: too many colons in address"),
            ("[::1", "listen tcp: address [::1: missing ']' in address"),
            (":http9", "listen tcp: lookup tcp/http9: unknown port"),
            ("nowhere:80", "listen tcp: lookup nowhere: no such host"),
        ] {
            assert_eq!(of(bad), Err(why.to_owned()));
        }
        assert!(of(":0").unwrap_err().contains("choose a port"));
    }

    #[test]
    fn guests_have_an_address_and_a_port() {
        assert_eq!(guest_place("192.168.127.2:22").map(|place| place.to_string()), Ok("192.168.127.2:22".into()));
        for (bad, why) in [
            ("192.168.127.2", "invalid remote addr"),
            ("a:b:c", "invalid remote addr"),
            ("name:22", "invalid remote addr"),
            ("192.168.127.2:x", "strconv.ParseUint: parsing \"x\": invalid syntax"),
            ("192.168.127.2:70000", "strconv.ParseUint: parsing \"70000\": value out of range"),
        ] {
            assert_eq!(guest_place(bad), Err(why.to_owned()));
        }
    }

    #[test]
    fn the_kernels_error_is_told_in_gos_words() {
        let message = "cannot publish 127.0.0.1:80: Address already in use (os error 98); choose another port";
        let why = kernel_error(message).unwrap();
        assert_eq!(bind_error("tcp", ":80", &why), "listen tcp :80: bind: address already in use");
        assert!(kernel_error("no number").is_none());
    }
}
