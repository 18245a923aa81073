//! The command's network: one interface, which leads to the gateway.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::OwnedFd;

use netvale_gateway::net::GatewayAddresses;
use netvale_netns::netlink::{AddressPrefix, NamespaceSocket, Route};
use netvale_tap::{Tap, TapError, TapOptions};

use super::NEXT;
use crate::CliError;

/// Name of the command's interface.
pub(crate) const INTERFACE: &str = "eth0";
/// UDP port of name servers.
const NAMES: u16 = 53;

/// The addresses of the gateway and of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SandboxNet {
    gateway: GatewayAddresses,
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
    mac: Option<[u8; 6]>,
}

impl SandboxNet {
    /// Returns the network in which the gateway has these addresses. The command gets the address after the gateway's
    /// or, if that is not a host address of the network, the address before the gateway's.
    pub fn of(gateway: GatewayAddresses) -> SandboxNet {
        let v4 = gateway.v4.map(|own| {
            let bits = u32::from(own.address);
            let next = Ipv4Addr::from(bits.wrapping_add(1));
            if own.is_host(next) { next } else { bits.wrapping_sub(1).into() }
        });
        SandboxNet { gateway, v4, v6: gateway.v6.map(|own| host_in(own.address, 1)), mac: None }
    }

    /// Returns the network of a station with the number `number` and the Ethernet address `mac`. The station's IPv6
    /// address is the gateway's address plus `number`.
    pub fn station(gateway: GatewayAddresses, v4: Option<Ipv4Addr>, mac: [u8; 6], number: u8) -> SandboxNet {
        SandboxNet { gateway, v4, v6: gateway.v6.map(|own| host_in(own.address, number)), mac: Some(mac) }
    }

    /// Returns the gateway's address at which it is the name server: the IPv4 address, if it has one.
    pub fn name_server(&self) -> IpAddr {
        let v4 = self.gateway.v4.map(|own| IpAddr::from(own.address));
        v4.or_else(|| self.gateway.v6.map(|own| own.address.into())).unwrap_or(Ipv4Addr::LOCALHOST.into())
    }

    /// Returns each address of the command with its prefix length, and the gateway's address.
    fn addresses(&self) -> impl Iterator<Item = (AddressPrefix, IpAddr)> {
        let of = |address: IpAddr, length, gateway| (AddressPrefix { address, length }, gateway);
        let v4 = self.v4.zip(self.gateway.v4).map(|(own, at)| of(own.into(), at.prefix, at.address.into()));
        let v6 = self.v6.zip(self.gateway.v6).map(|(own, at)| of(own.into(), at.prefix, at.address.into()));
        v4.into_iter().chain(v6)
    }

    /// Makes the interface in this process's network namespace. Returns the TAP's queue, for the gateway.
    pub fn make(&self) -> Result<OwnedFd, CliError> {
        let options = TapOptions { name: INTERFACE.to_owned(), up: true, mac: self.mac, ..TapOptions::default() };
        let tap = Tap::open(&options).map_err(|why| no_tap(&why))?;
        self.configure()
            .map_err(|why| CliError::failed(format!("cannot configure the command's interface: {why}"), NEXT))?;
        self.greet();
        let queue = tap.into_queues().into_iter().next();
        queue.ok_or_else(|| CliError::failed("the TAP has no queue", "please report this"))
    }

    /// Sends an empty datagram to the gateway's name server, which does not answer it. From the datagram, the gateway
    /// learns the command's Ethernet address, so that it need not drop the first datagram to a published port.
    fn greet(&self) {
        for (own, gateway) in self.addresses() {
            // On a kernel without IPv6, this fails for the IPv6 address, which the command does not have there.
            let _ = UdpSocket::bind((own.address, 0)).and_then(|socket| socket.send_to(&[], (gateway, NAMES)));
        }
    }

    fn configure(&self) -> rustix::io::Result<()> {
        let mut netlink = NamespaceSocket::open()?;
        let loopback = netlink.link("lo")?.index;
        netlink.bring_up(loopback)?;
        let index = netlink.link(INTERFACE)?.index;
        for (own, gateway) in self.addresses() {
            let done = netlink.add_address(index, own).and_then(|()| netlink.add_route(index, &default_route(gateway)));
            // A failure for IPv6 is ignored: on a kernel without IPv6, the command has no IPv6 address.
            if gateway.is_ipv4() {
                done?;
            }
        }
        Ok(())
    }
}

/// Formats a gateway's addresses as `netvale gateway` takes them.
pub(crate) fn address_list(gateway: GatewayAddresses) -> String {
    let v4 = gateway.v4.map(|own| format!("{}/{}", own.address, own.prefix));
    let v6 = gateway.v6.map(|own| format!("{}/{}", own.address, own.prefix));
    v4.into_iter().chain(v6).collect::<Vec<_>>().join(",")
}

/// Returns `address` plus `by`. Only the last 64 bits change, so that the network stays the same.
fn host_in(address: Ipv6Addr, by: u8) -> Ipv6Addr {
    let bits = address.to_bits();
    let host = (bits as u64).checked_add(by.into()).unwrap_or(by.into());
    Ipv6Addr::from_bits(((bits >> 64) << 64) | u128::from(host))
}

fn default_route(gateway: IpAddr) -> Route {
    let any: IpAddr = if gateway.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    Route {
        to: AddressPrefix { address: any, length: 0 },
        gateway: Some(gateway),
        mtu: None,
        advmss: None,
        priority: None,
        table: None,
    }
}

fn no_tap(why: &TapError) -> CliError {
    match why {
        TapError::Permission(_) => super::not_permitted("cannot make an interface in a user namespace"),
        why => CliError::failed(why.to_string(), NEXT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_has_the_address_beside_the_gateways() {
        for (gateway, v4, v6) in [
            ("192.0.0.1/29,fd00::1/64", Some("192.0.0.2"), Some("fd00::2")),
            ("10.0.0.254/24", Some("10.0.0.253"), None),
            ("fd00::ffff:ffff:ffff:ffff/64", None, Some("fd00::1")),
        ] {
            let net = SandboxNet::of(gateway.parse().unwrap());
            assert_eq!(net.v4, v4.map(|text| text.parse().unwrap()), "{gateway}");
            assert_eq!(net.v6, v6.map(|text| text.parse().unwrap()), "{gateway}");
            assert_eq!(address_list(net.gateway).parse::<GatewayAddresses>(), Ok(net.gateway));
        }
        let net = SandboxNet::station("10.0.0.1/24,fd00::1/64".parse().unwrap(), None, [2, 0, 0, 0, 0, 7], 7);
        assert_eq!((net.v4, net.v6), (None, Some("fd00::8".parse().unwrap())));
        let net = SandboxNet::of("fd00::1/64".parse().unwrap());
        assert_eq!(net.name_server(), "fd00::1".parse::<IpAddr>().unwrap());
    }
}
