//! Names of ports. A name depends only on the kind of runtime, the network, the container and the container's
//! interface.
//!
//! Each name begins with a prefix that is derived from the network's name. By this prefix, the network's ports are
//! found among all ports on the switch.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// The first word of the names of ports that were created for CNI.
pub const CNI: &str = "cni";
/// The first word of the names of ports that were created for netavark. CNI's GC does not remove such ports.
pub const NETAVARK: &str = "netavark";

/// Returns the prefix of all port names of a network.
pub fn of_network(runtime: &str, network: &str) -> String {
    format!("{runtime}_{:08x}_", sum(&[network]) >> 32)
}

/// Returns the name of a container's port.
pub fn of_port(runtime: &str, network: &str, container: &str, ifname: &str) -> String {
    format!("{}{:016x}", of_network(runtime, network), sum(&[network, container, ifname]))
}

/// Returns a hash that must be the same in all releases: a port may outlive the release that named it.
fn sum(parts: &[&str]) -> u64 {
    let mut hasher = SipHasher24::new();
    for part in parts {
        hasher.write(&(part.len() as u64).to_le_bytes());
        hasher.write(part.as_bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: names are the same in every release, fit a port, differ if network, container or interface differ,
    /// and begin with the network's prefix.
    #[test]
    fn names_stay_the_same_and_fit_a_port() {
        let one = of_port(CNI, "net", "container", "eth0");
        assert_eq!(one, "cni_0db03702_69a552f9cca88e69");
        assert!(netvale_portspec::Ident::parse(&one).is_ok() && one.starts_with(&of_network(CNI, "net")));
        let podman = of_port(NETAVARK, "net", "container", "eth0");
        assert_eq!(podman, "netavark_0db03702_69a552f9cca88e69");
        assert!(netvale_portspec::Ident::parse(&podman).is_ok());
        for other in [
            of_port(CNI, "net", "containe", "reth0"),
            of_port(CNI, "net", "container", "eth1"),
            of_port(CNI, "ne", "container", "eth0"),
            podman,
        ] {
            assert_ne!(one, other);
        }
        assert!(!one.starts_with(&of_network(CNI, "net2")) && !one.starts_with(&of_network(NETAVARK, "net")));
    }
}
