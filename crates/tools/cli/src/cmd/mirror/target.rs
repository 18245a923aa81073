//! The destination of a mirror, and its notation.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use super::headers::TunnelHeaders;

/// VXLAN's UDP port (RFC 7348, section 8).
const VXLAN_PORT: u16 = 4789;

/// The destination of copies, with their encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorTarget {
    /// The headers before each frame.
    pub headers: TunnelHeaders,
    /// The receiver's address; its port is 0 for ERSPAN, which has no ports.
    pub to: SocketAddr,
}

impl FromStr for MirrorTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "udp" => udp(rest),
            "vxlan" => vxlan(rest),
            "erspan" => erspan(rest),
            _ => Err("expected udp:HOST:PORT, vxlan:VNI,remote=IP[,port=N] or erspan:ID,remote=IP".to_owned()),
        }
    }
}

fn udp(text: &str) -> Result<MirrorTarget, String> {
    let mut found = text.to_socket_addrs().map_err(|e| format!("cannot resolve {text}: {e}"))?;
    let to = found.find(|to| to.port() > 0).ok_or_else(|| format!("{text}: expected a port above 0"))?;
    Ok(MirrorTarget { headers: TunnelHeaders::Tzsp, to })
}

/// Parses a number of at most `most`, followed by `remote=IP` and, optionally, `port=N`; each may be given once. `what`
/// begins the message about an invalid number. Returns the number, the address, and the unparsed port.
fn words<'a>(text: &'a str, most: u32, what: &str) -> Result<(u32, IpAddr, Option<&'a str>), String> {
    let mut words = text.split(',');
    let number = words.next().and_then(|word| word.parse().ok()).filter(|number| *number <= most);
    let number = number.ok_or_else(|| format!("invalid {what}: expected a number up to {most}"))?;
    let mut remote = None;
    let mut port = None;
    for word in words {
        match word.split_once('=') {
            Some(("remote", value)) if remote.is_none() => {
                remote = Some(value.parse().map_err(|_| format!("invalid address {value:?}: expected an IP address"))?);
            }
            Some(("port", value)) if port.is_none() => port = Some(value),
            _ => return Err(format!("expected remote=IP and port=N, each at most once; found {word:?}")),
        }
    }
    Ok((number, remote.ok_or("remote=IP is missing")?, port))
}

fn vxlan(text: &str) -> Result<MirrorTarget, String> {
    let (vni, remote, port) = words(text, (1 << 24) - 1, "VNI")?;
    let wrong = "expected port=N, with N from 1 to 65535";
    let port = port.map_or(Ok(VXLAN_PORT), |text| text.parse().ok().filter(|port| *port > 0).ok_or(wrong))?;
    Ok(MirrorTarget { headers: TunnelHeaders::Vxlan(vni), to: SocketAddr::new(remote, port) })
}

fn erspan(text: &str) -> Result<MirrorTarget, String> {
    let (id, remote, port) = words(text, 1023, "session ID")?;
    let target = MirrorTarget { headers: TunnelHeaders::Erspan(id as u16), to: SocketAddr::new(remote, 0) };
    port.map_or(Ok(target), |_| Err("port=N does not apply to ERSPAN".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each kind of target is parsed with its parameters; any other text is refused.
    #[test]
    fn each_kind_of_target_is_parsed() {
        let read = |text: &str| text.parse::<MirrorTarget>();
        let at = |headers, text: &str| Ok(MirrorTarget { headers, to: text.parse().unwrap() });
        assert_eq!(read("udp:192.0.2.1:37008"), at(TunnelHeaders::Tzsp, "192.0.2.1:37008"));
        assert_eq!(read("udp:[2001:db8::1]:9"), at(TunnelHeaders::Tzsp, "[2001:db8::1]:9"));
        assert_eq!(read("vxlan:77,remote=192.0.2.1"), at(TunnelHeaders::Vxlan(77), "192.0.2.1:4789"));
        assert_eq!(read("vxlan:0,port=8472,remote=::1"), at(TunnelHeaders::Vxlan(0), "[::1]:8472"));
        assert_eq!(read("erspan:1023,remote=::1"), at(TunnelHeaders::Erspan(1023), "[::1]:0"));
        for bad in [
            "",
            "udp:",
            "udp:192.0.2.1",
            "udp:192.0.2.1:0",
            "udp:192.0.2.1:70000",
            "vxlan:1",
            "vxlan:16777216,remote=::1",
            "vxlan:1,remote=x",
            "vxlan:1,remote=::1,remote=::1",
            "vxlan:1,remote=::1,port=0",
            "erspan:1024,remote=::1",
            "erspan:1,remote=::1,port=1",
            "gre:1,remote=::1",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
