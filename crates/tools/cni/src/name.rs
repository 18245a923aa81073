//! Names of ports, derived from the network, the container and its interface. The same input always gives the same
//! name.
//!
//! Each name begins with a prefix derived from the network's name, by which the network's ports are found among all
//! others on the switch.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// Returns the prefix of the names of all ports of a network.
pub fn of_network(network: &str) -> String {
    format!("cni_{:08x}_", sum(&[network]) >> 32)
}

/// Returns the name of a container's port.
pub fn of_port(network: &str, container: &str, ifname: &str) -> String {
    format!("{}{:016x}", of_network(network), sum(&[network, container, ifname]))
}

/// Returns a hash that never changes: ports outlive a run of the plugin, and its release.
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

    /// Objective: names are the same in every release, fit a port, differ if one part differs, and begin with the
    /// network's prefix.
    #[test]
    fn names_stay_the_same_and_fit_a_port() {
        let one = of_port("net", "container", "eth0");
        assert_eq!(one, "cni_0db03702_69a552f9cca88e69");
        assert!(netvale_portspec::Ident::parse(&one).is_ok() && one.starts_with(&of_network("net")));
        for other in [
            of_port("net", "containe", "reth0"),
            of_port("net", "container", "eth1"),
            of_port("ne", "container", "eth0"),
        ] {
            assert_ne!(one, other);
        }
        assert!(!one.starts_with(&of_network("net2")));
    }
}
