//! Port names in the place of interface names.

use netvale_control::types::Mac;
use netvale_portspec::{Base, Directions, PortSpec};

/// Prefix of a port's name, for programs that handle `vale…` and `netmap:…` themselves.
pub const PREFIX: &str = "nv:";

/// The port that an interface name stands for. `None` if it is really an interface's name.
///
/// | name | port |
/// |---|---|
/// | `vale0:a`, `vale0:a/z`, `netmap:p{1` | that port |
/// | `nv:vale0:a` | the same |
/// | `nv:vale0` | this process's own port on switch vale0: always the same one |
#[must_use]
pub fn interface(name: &str) -> Option<PortSpec> {
    let Some(rest) = name.strip_prefix(PREFIX) else { return port(name) };
    let is_switch = rest.starts_with("vale") && !rest.contains(':');
    if is_switch { port(&format!("{rest}:p{}", std::process::id())) } else { port(rest) }
}

fn port(name: &str) -> Option<PortSpec> {
    let says_so = name.starts_with("netmap:") || (name.starts_with("vale") && name.contains(':'));
    PortSpec::parse(name).ok().filter(|_| says_so)
}

/// The same port for one direction only, so that its two directions can be opened separately. `None` when the port
/// cannot be divided: it is a pipe, a monitor, or has one direction already.
#[must_use]
pub fn one_way(spec: &PortSpec, way: Directions) -> Option<PortSpec> {
    let divisible = matches!(spec.name.base(), Base::Vale { .. })
        && spec.name.pipe().is_none()
        && spec.flags.monitor.is_none()
        && spec.flags.directions == Directions::Both;
    divisible.then(|| {
        let mut spec = spec.clone();
        spec.flags.directions = way;
        spec
    })
}

/// A MAC address for a port: locally administered, and the same in every process.
#[must_use]
pub fn mac(spec: &PortSpec) -> [u8; 6] {
    Mac::of_name(b'n', &spec.name.to_string()).0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: only names that are marked as ports are ports, in all their spellings.
    #[test]
    fn names() {
        let port = |name| interface(name).map(|p| p.to_string());
        assert_eq!(port("vale0:a").as_deref(), Some("vale0:a"));
        assert_eq!(port("nv:vale0:a").as_deref(), Some("vale0:a"));
        assert_eq!(port("vale0:a/z").as_deref(), Some("vale0:a/z"));
        assert_eq!(port("nv:vale3"), Some(format!("vale3:p{}", std::process::id())));
        assert!(port("netmap:p{1").is_some());
        for other in ["eth0", "vale0", "lo", "any", "nv:eth0", "nv:", "eth0:1", "vale0:", ""] {
            assert_eq!(port(other), None, "{other}");
        }
    }

    /// Objective: a switch's port can be divided, one with a single direction or a partner cannot.
    #[test]
    fn divided() {
        let rx = |name| interface(name).and_then(|p| one_way(&p, Directions::Rx)).map(|p| p.to_string());
        assert_eq!(rx("vale0:a").as_deref(), Some("vale0:a/R"));
        assert_eq!(rx("vale0:a-1").as_deref(), Some("vale0:a-1/R"));
        for other in ["vale0:a/z", "vale0:a/T", "vale0:a{1", "netmap:p}1"] {
            assert_eq!(rx(other), None, "{other}");
        }
    }

    /// Objective: addresses are unicast, local, and differ.
    #[test]
    fn addresses() {
        let of = |name| mac(&interface(name).unwrap());
        assert_eq!(of("vale0:a")[0] & 3, 2);
        assert_ne!(of("vale0:a"), of("vale0:b"));
        assert_eq!(of("vale0:a"), of("nv:vale0:a/R"));
    }
}
