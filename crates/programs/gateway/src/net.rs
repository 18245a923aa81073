//! The IP network on a switch ([`GatewayNet`]): the gateway's addresses in the network, and to whom other addresses
//! belong.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use netvale_wire::MacAddr;

/// The group of all nodes of a link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Maximum length of a label of a DNS name, in bytes.
pub const MAX_LABEL: usize = 63;

/// An address with the prefix length of its network, such as `10.0.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress<A> {
    /// The address.
    pub address: A,
    /// Prefix length, in bits.
    pub prefix: u8,
}

/// The error for text that is not an address with a prefix length.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid gateway address {0:?}: expected e.g. 10.0.0.1/24 (prefix length 8 to 30) or fd00::1/64")]
pub struct BadInterfaceAddress(String);

/// The addresses of a gateway. As text: `10.0.0.1/24`, `fd00::1/64`, or both, separated by a comma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayAddresses {
    /// The IPv4 address; `None` if the network has no IPv4.
    pub v4: Option<InterfaceAddress<Ipv4Addr>>,
    /// The IPv6 address; `None` if the network has no IPv6.
    pub v6: Option<InterfaceAddress<Ipv6Addr>>,
}

impl FromStr for GatewayAddresses {
    type Err = BadInterfaceAddress;

    fn from_str(text: &str) -> Result<Self, BadInterfaceAddress> {
        let mut addresses = GatewayAddresses { v4: None, v6: None };
        for part in text.split(',') {
            let bad = || BadInterfaceAddress(part.to_owned());
            let (address, prefix) = part.split_once('/').ok_or_else(bad)?;
            let prefix: u8 = prefix.parse().map_err(|_| bad())?;
            match address.parse().map_err(|_| bad())? {
                IpAddr::V4(address) if addresses.v4.is_none() && usable_v4(address, prefix) => {
                    addresses.v4 = Some(InterfaceAddress { address, prefix });
                }
                IpAddr::V6(address) if addresses.v6.is_none() && usable_v6(address, prefix) => {
                    addresses.v6 = Some(InterfaceAddress { address, prefix });
                }
                _ => return Err(bad()),
            }
        }
        Ok(addresses)
    }
}

/// Returns whether the network has room for guests (prefix 8 to 30), and the address is a valid host address in it.
fn usable_v4(address: Ipv4Addr, prefix: u8) -> bool {
    let mask = mask_v4(prefix);
    let host = u32::from(address) & !mask;
    (8..=30).contains(&prefix) && host != 0 && host != !mask && !address.is_loopback() && !address.is_multicast()
}

/// Returns whether the prefix has 64 bits, as guests' autoconfiguration requires (RFC 4862 §5.5.3), and the address is
/// a valid host address.
fn usable_v6(address: Ipv6Addr, prefix: u8) -> bool {
    let group_or_local = address.is_multicast() || address.is_unicast_link_local() || address.is_loopback();
    prefix == 64 && !group_or_local && address.to_bits() as u64 != 0
}

fn mask_v4(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

impl InterfaceAddress<Ipv4Addr> {
    /// Returns the subnet mask.
    pub fn mask(&self) -> Ipv4Addr {
        mask_v4(self.prefix).into()
    }

    /// Returns the network's broadcast address.
    pub fn broadcast(&self) -> Ipv4Addr {
        (u32::from(self.address) | !mask_v4(self.prefix)).into()
    }

    /// Returns whether an address is in the network.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (u32::from(address) ^ u32::from(self.address)) & mask_v4(self.prefix) == 0
    }

    /// Returns whether an address is a host address of the network: neither the network address nor the broadcast
    /// address.
    pub fn is_host(&self, address: Ipv4Addr) -> bool {
        let host = u32::from(address) & !mask_v4(self.prefix);
        self.contains(address) && host != 0 && host != !mask_v4(self.prefix)
    }
}

impl InterfaceAddress<Ipv6Addr> {
    /// Returns whether an address is in the network, whose prefix has 64 bits.
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        (address.to_bits() ^ self.address.to_bits()) >> 64 == 0
    }
}

/// The gateway's addresses, and the settings that guests get for their network.
#[derive(Clone, Debug)]
pub struct GatewayNet {
    /// The gateway's MAC address.
    pub mac: MacAddr,
    /// The gateway's IP addresses.
    pub addresses: GatewayAddresses,
    /// The MTU of the switch's network, in bytes.
    pub mtu: u16,
    /// The DNS domain of guests' names.
    pub domain: String,
    /// A further address of the gateway, which alone leads to the host's loopback over IPv4; `None` if all addresses of
    /// the gateway lead there.
    pub host: Option<Ipv4Addr>,
}

/// Encodes a DNS name (RFC 1035 §3.1), omitting empty labels and labels that are too long.
pub fn encoded_name(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty() && label.len() <= MAX_LABEL) {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// Encodes DNS names one after the other, omitting those for which `most` bytes have no room left.
pub fn encoded_names(names: &[String], most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in names.iter().map(|name| encoded_name(name)) {
        if bytes.len() + name.len() <= most {
            bytes.extend_from_slice(&name);
        }
    }
    bytes
}

impl GatewayNet {
    /// Returns the gateway's address that has the same IP version and, for IPv6, the same scope as `like`; `None` if
    /// the gateway has no such address.
    pub fn own(&self, like: IpAddr) -> Option<IpAddr> {
        match like {
            IpAddr::V4(_) => self.addresses.v4.map(|own| own.address.into()),
            IpAddr::V6(address) if address.is_unicast_link_local() => Some(self.link_local().into()),
            IpAddr::V6(_) => self.addresses.v6.map(|own| own.address.into()),
        }
    }

    /// Returns the gateway's link-local address, which is formed from its MAC address (RFC 4291, appendix A).
    pub fn link_local(&self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.mac.0;
        let word = |high, low| u16::from_be_bytes([high, low]);
        Ipv6Addr::new(0xfe80, 0, 0, 0, word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f))
    }

    /// Returns the gateway's address that stands for a loopback address of the host (`like`) in guests' packets; `None`
    /// if the gateway has no address of that IP version.
    pub fn loopback(&self, like: IpAddr) -> Option<IpAddr> {
        match self.host {
            Some(host) if like.is_ipv4() => Some(host.into()),
            _ => self.own(like),
        }
    }

    /// Returns whether connections to an address go to the host's loopback.
    pub fn leads_to_loopback(&self, address: IpAddr) -> bool {
        match (self.host, address) {
            (Some(host), IpAddr::V4(address)) => host == address,
            _ => self.is_own(address),
        }
    }

    /// Returns whether the gateway's own services, such as the name service, are reachable at an address.
    pub fn has_services(&self, address: IpAddr) -> bool {
        self.is_own(address) && self.host.is_none_or(|host| IpAddr::V4(host) != address)
    }

    /// Returns whether an address belongs to the gateway.
    pub fn is_own(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                self.host == Some(address) || self.addresses.v4.is_some_and(|own| own.address == address)
            }
            IpAddr::V6(address) => {
                let own = self.addresses.v6;
                own.is_some_and(|own| own.address == address || self.link_local() == address)
            }
        }
    }

    /// Returns whether a guest may have an address.
    pub fn is_guests(&self, address: IpAddr) -> bool {
        let there = match address {
            IpAddr::V4(address) => self.addresses.v4.is_some_and(|own| own.is_host(address)),
            IpAddr::V6(address) => {
                self.addresses.v6.is_some_and(|own| own.contains(address) || address.is_unicast_link_local())
            }
        };
        there && !self.is_own(address)
    }

    /// Returns whether an address is in the guests' network, so that packets to it need no gateway.
    pub fn is_inside(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.addresses.v4.is_some_and(|own| own.contains(address)),
            IpAddr::V6(address) => {
                self.addresses.v6.is_some_and(|own| own.contains(address)) || address.is_unicast_link_local()
            }
        }
    }
}

#[cfg(test)]
pub(crate) fn example() -> GatewayNet {
    GatewayNet {
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        addresses: "10.0.0.1/24,fd00::1/64".parse().expect("addresses"),
        mtu: 1500,
        domain: "lan".to_owned(),
        host: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_gateways_are_those_of_hosts() {
        for text in ["10.0.0.1/24", "fd00::1/64", "10.0.0.1/24,fd00::1/64", "fd00::1/64,192.0.2.1/30"] {
            assert!(text.parse::<GatewayAddresses>().is_ok(), "{text}");
        }
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.1/31",
            "10.0.0.1/7",
            "10.0.0.0/24",
            "10.0.0.255/24",
            "10.0.0.1/24,10.0.1.1/24",
            "fd00::1/65",
            "fd00::/64",
            "fe80::1/64",
            "ff02::1/64",
            "127.0.0.1/8",
            "10.0.0.1/24,",
        ] {
            assert!(text.parse::<GatewayAddresses>().is_err(), "{text}");
        }
    }

    /// Objective: with a separate address for the host, only that address leads to the host's loopback.
    #[test]
    fn the_hosts_address_alone_leads_to_the_loopback() {
        let [gateway, host, guest]: [IpAddr; 3] =
            ["10.0.0.1", "10.0.0.254", "10.0.0.2"].map(|text| text.parse().expect("an address"));
        let net = example();
        assert!(net.leads_to_loopback(gateway) && net.has_services(gateway));
        assert!(net.is_guests(host) && !net.leads_to_loopback(guest));
        let net = GatewayNet { host: Some([10, 0, 0, 254].into()), ..net };
        assert!(net.is_own(host) && !net.is_guests(host) && net.leads_to_loopback(host) && !net.has_services(host));
        assert!(net.has_services(gateway) && !net.leads_to_loopback(gateway));
        assert_eq!(net.loopback([127, 0, 0, 1].into()), Some(host));
        assert_eq!(net.own(guest), Some(gateway));
    }

    #[test]
    fn own_guests_and_outer_addresses_are_told_apart() {
        let net = example();
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(net.link_local(), "fe80::ff:fe00:1".parse::<Ipv6Addr>().expect("an address"));
        for own in ["10.0.0.1", "fd00::1", "fe80::ff:fe00:1"] {
            assert!(net.is_own(ip(own)) && !net.is_guests(ip(own)) && net.is_inside(ip(own)), "{own}");
        }
        for guest in ["10.0.0.2", "10.0.0.254", "fd00::2", "fe80::2"] {
            assert!(net.is_guests(ip(guest)) && net.is_inside(ip(guest)), "{guest}");
        }
        for other in ["10.0.0.0", "10.0.0.255"] {
            assert!(!net.is_guests(ip(other)) && net.is_inside(ip(other)), "{other}");
        }
        for outer in ["10.0.1.1", "fd01::1", "::1", "127.0.0.1"] {
            assert!(!net.is_guests(ip(outer)) && !net.is_inside(ip(outer)), "{outer}");
        }
    }
}
