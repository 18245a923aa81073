//! Names of netvale ports that programs can use like names of interfaces.

use netvale_control::types::Mac;
use netvale_portspec::{Base, Directions, PortSpec, SwitchName};

/// Prefix of a port's name, for use in programs that would handle the names `vale…` and `netmap:…` themselves.
pub const PREFIX: &str = "nv:";

/// Returns the port to which an interface name refers; `None` if the name does not refer to a port.
///
/// | name | port |
/// |---|---|
/// | `vale0:a`, `vale0:a/z`, `netmap:p{1` | that port |
/// | `nv:vale0:a`, `nv:lan:a` | the same, of any switch |
/// | `nv:vale0`, `nv:lan` | this process's own port on that switch: always the same one |
#[must_use]
pub fn interface(name: &str) -> Option<PortSpec> {
    match name.strip_prefix(PREFIX) {
        // Any other name with a colon is an alias of an interface, such as `eth0:1`.
        None => PortSpec::parse(name).ok().filter(|_| name.starts_with("netmap:") || name.starts_with("vale")),
        Some(switch) if SwitchName::parse(switch).is_ok() => {
            PortSpec::parse(&format!("{switch}:p{}", std::process::id())).ok()
        }
        Some(port) => port.contains(':').then(|| PortSpec::parse(port).ok())?,
    }
}

/// Returns the interface name that [`interface`] maps to the port with the full name `port`.
#[must_use]
pub fn name_of(port: &str) -> String {
    let is_marked = interface(port).is_some();
    if is_marked { port.to_owned() } else { format!("{PREFIX}{port}") }
}

/// Returns the specification of a switch's port for one direction only, so that both directions can be opened
/// separately. Returns `None` for a port that cannot be divided: a pipe, a monitor, an interface, or a port that is
/// already opened for one direction.
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

/// Returns a MAC address for a port: locally administered, and the same in every process.
#[must_use]
pub fn mac(spec: &PortSpec) -> [u8; 6] {
    Mac::of_name(b'n', &spec.written_name().to_string()).0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: only names with a prefix (`vale…:`, `netmap:`, `nv:`) are ports, in all their spellings.
    #[test]
    fn only_marked_names_are_ports() {
        let port = |name: &str| interface(name).map(|p| p.to_string());
        assert_eq!(port("vale0:a").as_deref(), Some("vale0:a"));
        assert_eq!(port("nv:vale0:a").as_deref(), Some("vale0:a"));
        assert_eq!(port("vale0:a/z").as_deref(), Some("vale0:a/z"));
        assert_eq!(port("nv:vale3"), Some(format!("vale3:p{}", std::process::id())));
        assert_eq!(port("nv:lan:web-1/z").as_deref(), Some("lan:web-1/z"));
        assert_eq!(port("nv:br-lab"), Some(format!("br-lab:p{}", std::process::id())));
        assert!(port("netmap:p{1").is_some());
        for name in ["vale0:a", "netmap:p{1", "lan:a"] {
            let named = name_of(name);
            assert_eq!(port(&named).as_deref(), Some(name));
        }
        for other in ["eth0", "vale0", "lo", "any", "nv:tap", "nv:tap:a", "nv:", "eth0:1", "lan:a", "vale0:", ""] {
            assert_eq!(port(other), None, "{other}");
        }
    }

    /// Objective: a port on a switch can be divided; a monitor, a pipe's end and a port for one direction cannot be
    /// divided.
    #[test]
    fn only_ports_with_two_directions_can_be_divided() {
        let rx = |name| interface(name).and_then(|p| one_way(&p, Directions::Rx)).map(|p| p.to_string());
        assert_eq!(rx("vale0:a").as_deref(), Some("vale0:a/R"));
        assert_eq!(rx("vale0:a-1").as_deref(), Some("vale0:a-1/R"));
        for other in ["vale0:a/z", "vale0:a/T", "vale0:a{1", "netmap:p}1"] {
            assert_eq!(rx(other), None, "{other}");
        }
    }

    /// Objective: the addresses of ports are unicast, locally administered, and different for different ports.
    #[test]
    fn addresses_are_local_and_differ() {
        let of = |name| mac(&interface(name).unwrap());
        assert_eq!(of("vale0:a")[0] & 3, 2);
        assert_ne!(of("vale0:a"), of("vale0:b"));
        assert_ne!(of("vale0:web-1"), of("vale0:web-2"));
        assert_eq!(of("vale0:a"), of("nv:vale0:a/R"));
    }
}
